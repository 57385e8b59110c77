//! How executors and model providers have fared in this process lately.
//!
//! Bounds: it remembers [`PROVIDER_RUNS`] pieces of work for each of at most [`TRACKED`] providers,
//! and reports [`PROVIDERS_TOLD`] providers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_proto::{
    limits::{EVENT_TEXT, PROVIDER_RUNS, PROVIDERS_TOLD},
    llm::FailureClass,
    provider::{ProviderKind, ProviderReport, RecentRuns},
    session::ToolEnd,
    tool::{ToolFailure, ToolSpec},
};
use tokio::time::Instant;

/// Providers of one process that are remembered: more than any node has.
const TRACKED: usize = 256;
/// The tools that run beside a session, and so on its node.
pub const LOCAL: &str = "local";

/// A provider of a process, by its kind and its name.
type ProviderKey = (ProviderKind, String);

/// How all providers of one process have fared. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Providers(Arc<Mutex<BTreeMap<ProviderKey, Track>>>);

#[derive(Debug, Default)]
struct Track {
    checked: Option<Instant>,
    problem: Option<String>,
    failures: u32,
    in_hand: u32,
    /// Whether it went well, and how many milliseconds it took; the oldest first.
    recent: VecDeque<(bool, u32)>,
}

/// A piece of work that a provider has in hand.
#[derive(Debug)]
pub struct ProviderWork {
    providers: Providers,
    key: ProviderKey,
    begun: Instant,
}

/// The name of the provider that runs a tool.
pub(super) fn name_of(spec: &ToolSpec) -> String {
    spec.capability.as_ref().map_or_else(|| LOCAL.to_owned(), ToString::to_string)
}

// === impl Providers ===

impl Providers {
    fn tracks(&self) -> MutexGuard<'_, BTreeMap<ProviderKey, Track>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, key: &ProviderKey, change: impl FnOnce(&mut Track)) {
        let mut tracks = self.tracks();
        if tracks.len() < TRACKED || tracks.contains_key(key) {
            change(tracks.entry(key.clone()).or_default());
        }
    }

    /// A look at what works for agents (it runs tools, or judges calls) has found it well, or not.
    pub fn looked(&self, name: &str, health: &Result<(), String>) {
        self.change(&(ProviderKind::Execution, name.to_owned()), |track| {
            track.checked = Some(Instant::now());
            track.problem = health.as_ref().err().map(|why| why.chars().take(EVENT_TEXT).collect());
            track.failures = match health {
                Ok(()) => 0,
                Err(_) => track.failures.saturating_add(1),
            };
        });
    }

    /// It is there, and was not tried yet.
    pub fn awaits(&self, kind: ProviderKind, name: &str) {
        self.change(&(kind, name.to_owned()), |_| {});
    }

    /// It has a piece of work in hand from now on.
    pub fn begin(&self, kind: ProviderKind, name: &str) -> ProviderWork {
        let key = (kind, name.to_owned());
        self.change(&key, |track| track.in_hand = track.in_hand.saturating_add(1));
        ProviderWork { providers: self.clone(), key, begun: Instant::now() }
    }

    /// How all fare, and that nothing is known of the others among these that serve models.
    pub fn reports<'a>(&self, models: impl IntoIterator<Item = &'a str>) -> Vec<ProviderReport> {
        for name in models {
            self.awaits(ProviderKind::Model, name);
        }
        let now = Instant::now();
        let tracks = self.tracks();
        // Providers with a problem come first, because the report has limited room.
        let (bad, well): (Vec<_>, Vec<_>) =
            tracks.iter().partition(|(_, track)| track.problem.is_some());
        let reports = bad.into_iter().chain(well).map(|((kind, name), track)| ProviderReport {
            kind: *kind,
            name: name.clone(),
            problem: track.problem.clone(),
            checked_ago_ms: track.checked.map(|at| {
                u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
            }),
            failures: track.failures,
            in_hand: track.in_hand,
            waiting: 0,
            recent: recent(&track.recent),
            circuit: None,
        });
        reports.take(PROVIDERS_TOLD).collect()
    }
}

fn recent(runs: &VecDeque<(bool, u32)>) -> RecentRuns {
    let mut times: Vec<u32> = runs.iter().map(|(_, ms)| *ms).collect();
    times.sort_unstable();
    // The least that so many of a hundred do not exceed.
    let share = |percent: usize| {
        let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(at).copied().unwrap_or_default()
    };
    RecentRuns {
        runs: u16::try_from(runs.len()).unwrap_or(u16::MAX),
        ok: u16::try_from(runs.iter().filter(|(ok, _)| *ok).count()).unwrap_or(u16::MAX),
        p50_ms: share(50),
        p95_ms: share(95),
    }
}

// === impl ProviderWork ===

impl ProviderWork {
    /// It only waited until now: its time counts from here.
    pub fn begins(&mut self) {
        self.begun = Instant::now();
    }

    fn ended(&self, ok: bool, problem: Option<String>) {
        let ms = u32::try_from(self.begun.elapsed().as_millis()).unwrap_or(u32::MAX);
        self.providers.change(&self.key, |track| {
            while track.recent.len() >= PROVIDER_RUNS {
                track.recent.pop_front();
            }
            track.recent.push_back((ok, ms));
            if self.key.0 == ProviderKind::Model {
                track.checked = Some(Instant::now());
                track.failures = if ok { 0 } else { track.failures.saturating_add(1) };
                track.problem = problem;
            }
        });
    }

    /// A tool has run. An error that the tool reports is not a failure of its executor; a call that
    /// was refused or cancelled says nothing.
    pub(super) fn ran(self, end: &ToolEnd) {
        let ToolEnd::Known { outcome } = end else { return };
        match outcome.failure {
            None | Some(ToolFailure::Failed) => self.ended(true, None),
            Some(ToolFailure::TimedOut | ToolFailure::Crashed | ToolFailure::Unavailable) => {
                self.ended(false, None);
            }
            Some(ToolFailure::Invalid | ToolFailure::Refused | ToolFailure::Cancelled) => {}
        }
    }

    /// A model call has ended. The provider's own words are not repeated: they may quote the
    /// conversation.
    pub fn called(self, failure: Option<FailureClass>) {
        let why = match failure {
            None => return self.ended(true, None),
            Some(FailureClass::Unreachable) => "no connection can be made",
            Some(FailureClass::Timeout) => "it is too slow",
            Some(FailureClass::RateLimited) => "it limits requests for now (429)",
            Some(FailureClass::Overloaded) => "it reports a server error (5xx)",
            Some(FailureClass::Unauthorized) => "it does not accept the key",
            Some(FailureClass::Rejected) => "it does not accept the request",
            Some(FailureClass::BrokenStream) => "its stream ended early or was not valid",
            Some(
                FailureClass::Cancelled
                | FailureClass::NoAgent
                | FailureClass::BudgetNotAllowed
                | FailureClass::BudgetUnavailable
                | FailureClass::Lost
                | FailureClass::Stopped
                | FailureClass::GlobalTime
                | FailureClass::StepTime
                | FailureClass::Preempted,
            ) => return,
        };
        self.ended(false, Some(why.to_owned()));
    }
}

impl Drop for ProviderWork {
    fn drop(&mut self) {
        self.providers.change(&self.key, |track| track.in_hand = track.in_hand.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clawnode_proto::{provider::ProviderStatus, tool::ToolOutcome};
    use tokio::time::advance;

    use super::*;

    fn one(providers: &Providers) -> ProviderReport {
        let [report] = providers.reports([]).try_into().unwrap();
        report
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_tools_is_judged_by_looks_and_its_work_is_counted() {
        let providers = Providers::default();
        for _ in 0..2 {
            providers.looked("docker", &Err("no engine".to_owned()));
        }
        advance(Duration::from_secs(3)).await;
        let report = one(&providers);
        assert_eq!((report.failures, report.status()), (2, ProviderStatus::Unhealthy));
        assert_eq!(
            (report.problem.as_deref(), report.checked_ago_ms),
            (Some("no engine"), Some(3_000))
        );
        providers.looked("docker", &Ok(()));
        assert_eq!(
            (one(&providers).failures, one(&providers).status()),
            (0, ProviderStatus::Healthy)
        );

        let known = |failure| ToolEnd::Known {
            outcome: ToolOutcome { content: "".into(), failure, media: Vec::new() },
        };
        for (ms, failure) in [
            (10, None),
            (20, Some(ToolFailure::Failed)),
            (30, Some(ToolFailure::TimedOut)),
            (999, Some(ToolFailure::Cancelled)),
            (999, Some(ToolFailure::Refused)),
        ] {
            let hand = providers.begin(ProviderKind::Execution, "docker");
            assert_eq!(one(&providers).in_hand, 1);
            advance(Duration::from_millis(ms)).await;
            hand.ran(&known(failure));
            assert_eq!(one(&providers).in_hand, 0);
        }
        let recent = one(&providers).recent;
        assert_eq!(recent, RecentRuns { runs: 3, ok: 2, p50_ms: 20, p95_ms: 30 });
        assert_eq!(one(&providers).failures, 0, "work that fails is no failed look");
    }

    #[tokio::test(start_paused = true)]
    async fn who_serves_models_is_judged_by_its_calls() {
        let providers = Providers::default();
        let status = || providers.reports(["lab"])[0].status();
        assert_eq!(status(), ProviderStatus::Unknown);
        let call = || providers.begin(ProviderKind::Model, "lab");
        call().called(Some(FailureClass::Overloaded));
        call().called(Some(FailureClass::Unreachable));
        // What was called off changes nothing.
        call().called(Some(FailureClass::Cancelled));
        drop(call());
        let report = one(&providers);
        assert_eq!((report.failures, report.recent.runs, report.in_hand), (2, 2, 0));
        assert!(report.problem.unwrap().contains("no connection"));
        call().called(None);
        assert_eq!((one(&providers).failures, status()), (0, ProviderStatus::Healthy));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let providers = Providers::default();
        for _ in 0..PROVIDER_RUNS * 2 {
            providers.begin(ProviderKind::Model, "lab").called(None);
        }
        assert_eq!(usize::from(one(&providers).recent.runs), PROVIDER_RUNS);
        let names: Vec<String> = (0..TRACKED * 2).map(|n| format!("p{n}")).collect();
        assert_eq!(providers.reports(names.iter().map(String::as_str)).len(), PROVIDERS_TOLD);
        assert_eq!(providers.tracks().len(), TRACKED);
    }
}

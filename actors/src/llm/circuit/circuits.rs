//! The circuits of a process, and that of one provider: the machines with their time, what they did,
//! and what others hear of it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::Clock;
use clawnode_proto::{
    Timestamp,
    circuit::{
        CircuitChange, CircuitFailure, CircuitFailures, CircuitReport, CircuitState, ProviderLimit,
        ProviderProbe,
    },
    limits::{CIRCUIT_CHANGES, LIMIT_MODEL_CHARS, PROVIDER_LIMITS},
    llm::{FailureClass, ModelFailure},
};
use reqwest::header::HeaderMap;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    headers::reported,
    machine::{Circuit, CircuitTicket},
    pace::Pace,
};

/// Models of one provider whose pace is remembered; the one that was heard of least recently goes.
const MODELS: usize = 64;

/// What the failure of a call begins with that was not sent.
const NOT_SENT: &str = "not sent: ";

/// Whether a call failed without a request to its provider, about which it says nothing.
pub fn is_not_sent(failure: &ModelFailure) -> bool {
    failure.message.starts_with(NOT_SENT)
}

/// The circuits of a process by provider. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Circuits(Arc<Mutex<BTreeMap<String, Arc<ProviderCircuit>>>>);

/// The circuit of one provider.
#[derive(Debug)]
pub(in crate::llm) struct ProviderCircuit {
    /// What it is called, and where it is.
    name: String,
    url: String,
    /// The time of day.
    clock: Arc<dyn Clock>,
    /// What the machines' time counts from: the clock of the runtime never goes back.
    started: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    circuit: Circuit,
    /// What was last said of its state.
    seen: CircuitState,
    paces: BTreeMap<String, Pace>,
    history: VecDeque<PastChange>,
    failures: BTreeMap<CircuitFailure, (u64, Timestamp)>,
    /// The kind of the last failure.
    last: Option<CircuitFailure>,
    /// Whether it failed because the provider was not reached: then a probe can tell that it works.
    is_out_of_reach: bool,
    /// The last probe.
    probe: Option<(Timestamp, Option<CircuitFailure>)>,
    /// A probe changes it now.
    is_probed: bool,
    refused: u64,
}

/// A change of state, by the machines' time.
#[derive(Clone, Copy, Debug)]
struct PastChange {
    at: Timestamp,
    state: CircuitState,
    failure: Option<CircuitFailure>,
    by_probe: bool,
}

/// What keeps a call from being sent now.
#[derive(Debug)]
pub(in crate::llm) struct CallRefused {
    class: FailureClass,
    message: String,
    wait: Duration,
}

// === impl Circuits ===

impl Circuits {
    /// The circuit of the provider of this name at this address: the one from `before`, if it was
    /// there.
    pub(in crate::llm) fn of(
        &self,
        name: &str,
        url: &str,
        before: &Self,
        clock: &Arc<dyn Clock>,
    ) -> Arc<ProviderCircuit> {
        let known = before.all().get(name).filter(|known| known.url == url).cloned();
        let circuit =
            known.unwrap_or_else(|| Arc::new(ProviderCircuit::new(name, url, Arc::clone(clock))));
        self.all().insert(name.to_owned(), Arc::clone(&circuit));
        circuit
    }

    /// What is known of each provider of which something is.
    pub fn reports(&self) -> BTreeMap<String, CircuitReport> {
        let all: Vec<_> = self.all().values().cloned().collect();
        let report =
            |circuit: Arc<ProviderCircuit>| Some((circuit.name.clone(), circuit.report()?));
        all.into_iter().filter_map(report).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ProviderCircuit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ProviderCircuit ===

impl ProviderCircuit {
    pub(in crate::llm) fn new(name: &str, url: &str, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner {
            circuit: Circuit::new(Timestamp(0)),
            seen: CircuitState::Closed,
            paces: BTreeMap::new(),
            history: VecDeque::new(),
            failures: BTreeMap::new(),
            last: None,
            is_out_of_reach: false,
            probe: None,
            is_probed: false,
            refused: 0,
        };
        let (name, url, started) = (name.to_owned(), url.to_owned(), Instant::now());
        Self { name, url, clock, started, inner: Mutex::new(inner) }
    }

    /// How long no call is sent; nothing if one may be.
    pub(in crate::llm) fn refuses(&self) -> Option<Duration> {
        self.with(|inner, now| inner.circuit.refuses(now))
    }

    /// How long a call of this model waits before it is sent.
    pub(super) fn pace(&self, model: &str) -> Result<Duration, CallRefused> {
        self.with(|inner, now| {
            if let Some(wait) = inner.circuit.refuses(now) {
                return Err(inner.refusal(wait));
            }
            let Some(pace) = inner.paces.get_mut(model) else { return Ok(Duration::ZERO) };
            pace.next(now).map_err(|wait| {
                inner.refused += 1;
                let message = format!("{NOT_SENT}the provider asks to wait {} s", seconds(wait));
                CallRefused { class: FailureClass::RateLimited, message, wait }
            })
        })
    }

    pub(super) fn admit(&self) -> Result<CircuitTicket, CallRefused> {
        self.with(|inner, now| inner.circuit.admit(now).map_err(|wait| inner.refusal(wait)))
    }

    pub(super) fn begun(&self, ticket: &mut CircuitTicket) {
        self.with(|inner, now| inner.circuit.begun(ticket, now));
    }

    pub(super) fn answered(&self, ticket: CircuitTicket) {
        self.with(|inner, now| inner.circuit.answered(ticket, now));
    }

    pub(super) fn gave_up(&self, ticket: CircuitTicket) {
        self.with(|inner, now| inner.circuit.gave_up(ticket, now));
    }

    /// An attempt with this model failed, and the provider `asked` to wait.
    pub(super) fn failed(
        &self,
        ticket: CircuitTicket,
        model: &str,
        kind: CircuitFailure,
        asked: Option<Duration>,
    ) {
        self.with(|inner, now| {
            let (count, last) = inner.failures.entry(kind).or_insert((0, now));
            (*count, *last) = (count.saturating_add(1), now);
            inner.last = Some(kind);
            inner.is_out_of_reach = kind == CircuitFailure::Unreachable;
            if let Some(asked) = asked {
                inner.pace(model).hold(asked, now);
            }
            inner.circuit.failed(ticket, asked, now);
        });
    }

    /// Permission for what a probe finds to have a say. An open circuit gives none, and neither does a half-open
    /// one whose provider was reached and failed: a call has to try that.
    pub(super) fn admit_probe(&self) -> Option<CircuitTicket> {
        self.with(|inner, now| match inner.circuit.state(now).0 {
            CircuitState::Closed => inner.circuit.admit(now).ok(),
            CircuitState::HalfOpen if inner.is_out_of_reach => inner.circuit.admit(now).ok(),
            CircuitState::HalfOpen | CircuitState::Open => None,
        })
    }

    /// A probe has ended; `failure` is why it did not reach the provider.
    pub(super) fn probed(&self, ticket: Option<CircuitTicket>, failure: Option<CircuitFailure>) {
        self.with(|inner, now| {
            inner.probe = Some((now, failure));
            inner.is_probed = true;
            let state = inner.circuit.state(now).0;
            match (ticket, failure) {
                (Some(ticket), Some(kind)) => {
                    inner.last = Some(kind);
                    inner.is_out_of_reach = true;
                    inner.circuit.failed(ticket, None, now);
                }
                (Some(mut ticket), None) if state == CircuitState::HalfOpen => {
                    inner.circuit.begun(&mut ticket, now);
                }
                // That it can be reached takes back no failure of a call.
                (Some(ticket), None) => inner.circuit.gave_up(ticket, now),
                (None, None) if inner.is_out_of_reach => {
                    inner.circuit.half_open(now);
                }
                (None, _) => {}
            }
        });
    }

    /// What an answer says of the limits of this model.
    pub(super) fn reported(&self, model: &str, headers: &HeaderMap) {
        let limits = reported(headers, self.clock.now());
        if !limits.is_empty() {
            self.with(|inner, now| inner.pace(model).reported(&limits, now));
        }
    }

    /// What is known of it; none if there is nothing.
    fn report(&self) -> Option<CircuitReport> {
        self.with(|inner, now| {
            let (state, since) = inner.circuit.state(now);
            let wall = self.clock.now();
            let at = |time: Timestamp| {
                let past = Timestamp(wall.0.saturating_sub(now.0.saturating_sub(time.0)));
                past.plus(time.since(now))
            };
            let limits = inner.limits(&at);
            if inner.failures.is_empty() && limits.is_empty() && inner.probe.is_none() {
                return None;
            }
            let is_open = state == CircuitState::Open;
            let failures = inner.failures.iter();
            Some(CircuitReport {
                state,
                since: at(since),
                next_try: inner
                    .circuit
                    .refuses(now)
                    .filter(|_| is_open)
                    .map(|wait| wall.plus(wait)),
                refused: inner.refused,
                failures: failures
                    .map(|(kind, (count, last))| CircuitFailures {
                        kind: *kind,
                        count: *count,
                        last: at(*last),
                    })
                    .collect(),
                history: inner
                    .history
                    .iter()
                    .map(|past| CircuitChange {
                        at: at(past.at),
                        state: past.state,
                        failure: past.failure,
                        by_probe: past.by_probe,
                    })
                    .collect(),
                probe: inner.probe.map(|(ended, failure)| ProviderProbe { at: at(ended), failure }),
                limits,
            })
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner, Timestamp) -> T) -> T {
        let now = Timestamp(0).plus(self.started.elapsed());
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.notice(&self.name, now);
        let result = change(&mut inner, now);
        inner.notice(&self.name, now);
        result
    }
}

// === impl Inner ===

impl Inner {
    /// Writes a change of state down.
    fn notice(&mut self, provider: &str, now: Timestamp) {
        let by_probe = std::mem::take(&mut self.is_probed);
        let (state, at) = self.circuit.state(now);
        if state == self.seen {
            return;
        }
        self.seen = state;
        let failure = self.last.filter(|_| state == CircuitState::Open);
        while self.history.len() >= CIRCUIT_CHANGES {
            self.history.pop_front();
        }
        self.history.push_back(PastChange { at, state, failure, by_probe });
        match state {
            CircuitState::Open => {
                let wait = self.circuit.refuses(now).unwrap_or_default();
                let why = failure.map_or("", CircuitFailure::as_str);
                warn!(provider, why, wait_s = seconds(wait), "calls to a provider are not sent");
            }
            CircuitState::HalfOpen => info!(provider, "one call tries the provider again"),
            CircuitState::Closed => info!(provider, "the provider answers again"),
        }
    }

    fn pace(&mut self, model: &str) -> &mut Pace {
        if self.paces.len() >= MODELS && !self.paces.contains_key(model) {
            let oldest = self.paces.iter().min_by_key(|(_, pace)| pace.told);
            if let Some(oldest) = oldest.map(|(model, _)| model.clone()) {
                self.paces.remove(&oldest);
            }
        }
        self.paces.entry(model.to_owned()).or_default()
    }

    fn refusal(&mut self, wait: Duration) -> CallRefused {
        self.refused += 1;
        let why = match self.last {
            Some(CircuitFailure::Unreachable) => "could not be reached",
            Some(CircuitFailure::Timeout) => "was too slow",
            Some(CircuitFailure::Overloaded) => "reported a server error",
            Some(CircuitFailure::RateLimited) => "limited requests",
            Some(CircuitFailure::BrokenStream) => "broke off its replies",
            Some(CircuitFailure::Other) | None => "did not answer",
        };
        let message = format!(
            "{NOT_SENT}the provider {why} several times; the next call is tried in {} s",
            seconds(wait)
        );
        CallRefused { class: FailureClass::Overloaded, message, wait }
    }

    /// The limits that were reported, the newest first.
    fn limits(&self, at: &impl Fn(Timestamp) -> Timestamp) -> Vec<ProviderLimit> {
        let mut paces: Vec<_> = self.paces.iter().collect();
        paces.sort_by_key(|(_, pace)| std::cmp::Reverse(pace.told));
        let limits = paces.into_iter().flat_map(|(model, pace)| {
            pace.allowances.iter().map(|(resource, allowance)| ProviderLimit {
                model: model.chars().take(LIMIT_MODEL_CHARS).collect(),
                resource: *resource,
                limit: allowance.limit,
                remaining: allowance.remaining,
                resets: at(allowance.resets),
            })
        });
        limits.take(PROVIDER_LIMITS).collect()
    }
}

// === impl CallRefused ===

impl CallRefused {
    /// The failure of the call: that of its own last attempt, if there was one.
    pub(in crate::llm) fn failure(self, last: Option<ModelFailure>) -> ModelFailure {
        let Self { class, message, wait } = self;
        let failure = last.unwrap_or_else(|| ModelFailure::new(class, message));
        ModelFailure { retry_after_ms: Some(millis(wait)), ..failure }
    }
}

/// Whole milliseconds.
pub(in crate::llm) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

/// Whole seconds, at least one.
fn seconds(wait: Duration) -> u64 {
    wait.as_millis().div_ceil(1_000).max(1).try_into().unwrap_or(u64::MAX)
}

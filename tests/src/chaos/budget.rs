//! The scenarios under a limit in money: the owner of its account is killed, and a process that has
//! reserved is frozen until the window is over. What is spent and reserved never passes the limit.

use std::{collections::BTreeMap, fs};

use clawnode_proto::{
    budget::{AccountKey, BudgetHeld, LimitKey, WindowNumber},
    llm::Usage,
    view::EventView,
};
use rustix::process::Signal;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    ChaosError,
    evidence::{Evidence, Hits},
    script::{Play, clock_of},
    wait::{PATIENCE, eventually},
};

/// What nodes are configured with: a limit that is enough for twenty kills, each of which costs all that the calls of
/// the dead worker may have cost; and calls that may cost a hundredth of it. Turns have no limit of time, because the
/// time of the cluster may jump.
pub(super) const SETTINGS: &str = "\
[agents.default.sampling]
max_tokens = 256
[agents.default.timeouts]
global = \"0s\"
step = \"0s\"
[budgets.cluster]
usd_per_hour = \"2.00\"
[prices.\"anthropic/*\"]
input = \"1\"
output = \"40\"
";
/// The limit, in micro-dollars.
const LIMIT: u64 = 2_000_000;
/// Seconds of a window.
const WINDOW: usize = 3_600;

/// What an attempt at a call has reserved of the account, and used if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttemptCost {
    limit: LimitKey,
    window: WindowNumber,
    most: u64,
    used: Option<u64>,
}

/// What the end of an attempt says about its usage.
#[derive(Debug, Deserialize)]
struct UsedTokens {
    usage: Usage,
}

// === impl Play ===

impl Play<'_> {
    /// Kills the worker that owns the account, while calls reserve from it.
    pub(super) async fn budget_owner_kill(&mut self) -> Result<(), ChaosError> {
        let place = self.account_owner().await?;
        self.in_mid_answer().await?;
        self.kill_with_operator(place).await
    }

    /// Stops a worker whose turn has reserved, lets the window end for all others, and continues it.
    pub(super) async fn holder_freeze(&mut self) -> Result<(), ChaosError> {
        let place = self.owner().await?;
        let before = self.stage.fenced();
        let sessions = self.sessions_of(place).await?;
        let windows = self.windows().await?;
        let at = self.fault_at(place, "SIGSTOP of");
        self.stage.nodes[place].signal(Signal::STOP)?;
        let played = self.window_passes(place, &sessions, (at, windows)).await;
        // Also when nothing settled: what is left must be able to stop.
        self.stage.nodes[place].signal(Signal::CONT)?;
        played?;
        self.fenced(before).await
    }

    /// Others take over from the worker that is stopped, the window ends, and calls reserve in the next one.
    async fn window_passes(
        &mut self,
        place: usize,
        sessions: &[String],
        (at, windows): (Instant, usize),
    ) -> Result<(), ChaosError> {
        self.taken_over(place, sessions, at).await?;
        self.fault("all clocks are set into another window", Hits::Nothing);
        // Each time later than the last time. Clocks of gateways count as those of workers: a time that fewer
        // than half of the nodes share is not the time of the cluster. The clock of the stopped worker goes on
        // like the others.
        let ahead = format!("+{}", self.faults.len() * WINDOW);
        for node in &self.stage.nodes {
            let clock = self.stage.dir.join(clock_of(&node.name));
            fs::write(&clock, &ahead).map_err(ChaosError::io("set a clock"))?;
        }
        eventually("the end of a window", PATIENCE, async || {
            let now = self.windows().await.map_err(|error| error.to_string())?;
            if now > windows { Ok(()) } else { Err(format!("{now} have ended")) }
        })
        .await?;
        self.load.round().await
    }

    /// The worker that owns the account of the cluster.
    async fn account_owner(&self) -> Result<usize, ChaosError> {
        let (stage, account) = (&self.stage, AccountKey::Cluster.entity().to_string());
        eventually("an owner of the account", PATIENCE, async || {
            let owner = stage.owner(&account).await.map_err(|error| error.to_string())?;
            let place = owner.and_then(|owner| stage.place_of(owner));
            place.ok_or_else(|| format!("{owner:?} is not here"))
        })
        .await
    }

    /// How many windows of the account have ended.
    async fn windows(&self) -> Result<usize, ChaosError> {
        let account = AccountKey::Cluster.entity().to_string();
        let events = self.journal(&account).await?;
        Ok(events.iter().filter(|event| event.kind == "budget_window").count())
    }
}

/// What is wrong with what was spent: a window has more than the limit.
pub(super) fn over_the_limit(evidence: &Evidence) -> Vec<String> {
    let mut sums: BTreeMap<(LimitKey, WindowNumber), u64> = BTreeMap::new();
    for cost in evidence.sessions.values().flat_map(|stored| costs(&stored.events)) {
        *sums.entry((cost.limit, cost.window)).or_default() += cost.used.unwrap_or(cost.most);
    }
    let over = sums.into_iter().filter(|(_, sum)| *sum > LIMIT);
    let text = |((limit, window), sum): ((LimitKey, WindowNumber), u64)| {
        format!("`{limit}` in {}: {sum} micro-dollars, of {LIMIT}", window.0)
    };
    over.map(text).collect()
}

/// Why a run proves nothing, if it does not.
pub(super) fn proves_nothing(evidence: &Evidence) -> Option<&'static str> {
    let mut all = evidence.sessions.values().flat_map(|stored| costs(&stored.events));
    if all.next().is_none() { Some("no call has reserved anything") } else { None }
}

/// What each attempt of a session has reserved of the cluster's account. An attempt whose usage no event
/// says counts whole: its process has died.
fn costs(events: &[EventView]) -> Vec<AttemptCost> {
    let mut costs = Vec::new();
    for (at, event) in events.iter().enumerate().filter(|(_, event)| event.kind == "budget_held") {
        let Ok(held) = BudgetHeld::deserialize(&event.body) else { continue };
        let ends = |other: &&EventView| {
            matches!(other.kind.as_str(), "model_done" | "model_failed" | "model_gave_way")
                && other.body["call"] == event.body["call"]
        };
        let next = |other: &&EventView| {
            other.kind == "budget_held" && other.body["call"] == event.body["call"]
        };
        let later = &events[at + 1..];
        let until = later.iter().position(|other| next(&other)).unwrap_or(later.len());
        let end = later[..until].iter().find(ends);
        let used = end.and_then(|end| UsedTokens::deserialize(&end.body).ok());
        let used = used.map(|used| held.price.cost(&used.usage).0);
        let own = held.holds.iter().filter(|hold| hold.account == AccountKey::Cluster);
        costs.extend(own.map(|hold| AttemptCost {
            limit: hold.limit,
            window: hold.window,
            most: hold.amount,
            used,
        }));
    }
    costs
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Attempt, CallId, Digest, EntityId, Epoch, EventId, Incarnation, ProcessId, Seq, Timestamp,
        budget::{BudgetUnit, Hold, WindowLength},
        model::ModelPrice,
        view::HistoryView,
    };
    use serde_json::{Value, json};

    use super::{super::evidence::Stored, *};

    const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };

    fn event(kind: &str, body: Value) -> EventView {
        EventView {
            n: Seq(0),
            kind: kind.to_owned(),
            eid: EventId::from_u128(0),
            epoch: Epoch(1),
            incarnation: Incarnation { process: ProcessId::from_u128(1), counter: 1 },
            ts: Timestamp(0),
            hash: Digest::ZERO,
            body,
        }
    }

    /// An attempt that has reserved so much.
    fn held(call: u128, attempt: u32, amount: u64) -> EventView {
        let (account, window) = (AccountKey::Cluster, WindowNumber(7));
        let held = BudgetHeld {
            call: CallId::from_u128(call),
            attempt: Attempt(attempt),
            process: ProcessId::from_u128(1),
            model: "anthropic/scripted".parse().unwrap(),
            price: ModelPrice { output: 40_000_000, ..ModelPrice::FREE },
            input: 10,
            max_output: 256,
            holds: vec![Hold { account, limit: USD, number: 1, window, amount }],
        };
        event("budget_held", serde_json::to_value(held).unwrap())
    }

    fn done(call: u128, output: u64) -> EventView {
        let call = serde_json::to_value(CallId::from_u128(call)).unwrap();
        let usage = Usage { output_tokens: output, ..Usage::default() };
        event("model_done", json!({"call": call, "usage": usage}))
    }

    fn evidence(events: Vec<EventView>) -> Evidence {
        let (id, key) = (EntityId::from_u128(1), "key".to_owned());
        let (state, turns) = ("idle".to_owned(), Vec::new());
        let history = HistoryView { id, key, state, turns, next: None };
        let sessions = [("key".to_owned(), Stored { history, events })].into();
        Evidence { sessions, ..Evidence::default() }
    }

    #[test]
    fn what_no_event_says_the_end_of_counts_whole() {
        // The first attempt died with its process; the second one has used 16 tokens.
        let events = vec![held(1, 1, 1_999_000), held(1, 2, 10_240), done(1, 16)];
        let used: Vec<Option<u64>> = costs(&events).iter().map(|cost| cost.used).collect();
        assert_eq!(used, [None, Some(640)]);
        assert_eq!(over_the_limit(&evidence(events.clone())), [""; 0]);
        let more = events.into_iter().chain([held(2, 1, 361)]).collect();
        let over = over_the_limit(&evidence(more));
        assert_eq!(over.len(), 1, "{over:?}");
        assert!(over[0].contains("2000001"), "{over:?}");
    }

    #[test]
    fn a_run_without_reservations_proves_nothing() {
        assert!(proves_nothing(&evidence(vec![done(1, 16)])).is_some());
        assert_eq!(proves_nothing(&evidence(vec![held(1, 1, 10)])), None);
    }
}

//! What the slices of dead processes count for, by the journals of sessions. Pure.
//!
//! A call is sent only after the append that has its holds (BUD-1), so no spending of a dead process is
//! missing in the journals. A call without an outcome counts whole: it may have been billed.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_budget::{BudgetState, account::LimitBook};
use clawnode_proto::{
    Attempt, CallId, ProcessId,
    budget::{
        AccountKey, BudgetHeld, BudgetUnit, ClosedSlice, Hold, LimitKey, SliceReport, WindowNumber,
    },
    llm::{FailureClass, Usage},
    session::SessionEvent,
};

/// A slice that a process has, as the account knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenSlice {
    pub process: ProcessId,
    pub limit: LimitKey,
    pub number: u64,
    pub window: WindowNumber,
    /// What is reckoned with.
    pub counted: u64,
    /// What the process has reported as spent.
    pub spent: u64,
    /// What its calls had reserved at its last report.
    pub running: u64,
}

/// Which slice: of one account, so without the account.
type SliceKey = (ProcessId, LimitKey, u64, WindowNumber);

/// What calls have used of slices, as journals have it.
#[derive(Clone, Debug, Default)]
pub(super) struct UsedSlices {
    sums: BTreeMap<SliceKey, Used>,
}

/// What the calls of a slice have used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    spent: u64,
    /// By how much calls have used more than they had reserved.
    over: u64,
}

/// The calls of one session that have holds, and no outcome yet. It takes the session's events in order.
#[derive(Debug)]
pub(super) struct SessionHolds<'a> {
    account: &'a AccountKey,
    processes: &'a [ProcessId],
    open: BTreeMap<(CallId, Attempt), BudgetHeld>,
    used: UsedSlices,
}

/// The slices that these processes have, of the present windows and those before.
pub(super) fn open_slices(state: &BudgetState, processes: &[ProcessId]) -> Vec<OpenSlice> {
    let mut open = Vec::new();
    for book in &state.books {
        for window in book.windows() {
            let own = window.slices.iter().filter(|slice| processes.contains(&slice.process));
            open.extend(own.map(|slice| OpenSlice {
                process: slice.process,
                limit: book.key,
                number: slice.number,
                window: window.number,
                counted: slice.counts(),
                spent: slice.spent,
                running: slice.held,
            }));
        }
    }
    open
}

/// The last report about each slice, as its process would have made it. `has_unread` says that some
/// journals cannot be read: then calls that ran at the last report count whole.
pub(super) fn closed(
    slices: &[OpenSlice],
    used: &UsedSlices,
    has_unread: bool,
) -> Vec<(ClosedSlice, SliceReport)> {
    let close = |slice: &OpenSlice| {
        let OpenSlice { process, limit, number, window, counted, spent, running } = *slice;
        let key = (process, limit, number, window);
        let journaled = used.sums.get(&key).copied().unwrap_or_default();
        let unread = if has_unread { running } else { 0 };
        // What went back was not spent: a call that has settled may have no outcome in any journal.
        let most = counted.saturating_add(journaled.over);
        // BUD-3: what was reported as spent stays spent.
        let spent = journaled.spent.min(most).max(spent.saturating_add(unread));
        let seq = SliceReport::LAST;
        let (held, returned, over, closed) = (0, 0, journaled.over, true);
        let report = SliceReport { number, window, seq, spent, held, returned, over, closed };
        (ClosedSlice { process, limit, counted, spent }, report)
    };
    slices.iter().map(close).collect()
}

/// The last report of a process without a slice. It is about none: the numbers of slices begin with 1. What the
/// process asked for before it died gets nothing from then on.
pub(super) const fn nothing_out() -> SliceReport {
    let (number, window, seq) = (0, WindowNumber(0), SliceReport::LAST);
    let (spent, held, returned, over, closed) = (0, 0, 0, 0, true);
    SliceReport { number, window, seq, spent, held, returned, over, closed }
}

/// The processes that have a part of an account, or wait for one: an ask is granted, also if its process has died.
pub(super) fn with_parts(state: &BudgetState) -> BTreeSet<ProcessId> {
    let windows = state.books.iter().flat_map(LimitBook::windows);
    let slices = windows.flat_map(|window| &window.slices).map(|slice| slice.process);
    let asks = state.asks.iter().filter(|ask| ask.may_get()).map(|ask| ask.process);
    slices.chain(asks).collect()
}

// === impl SessionHolds ===

impl<'a> SessionHolds<'a> {
    /// Holds of this account that these processes made.
    pub(super) const fn new(account: &'a AccountKey, processes: &'a [ProcessId]) -> Self {
        let used = UsedSlices { sums: BTreeMap::new() };
        Self { account, processes, open: BTreeMap::new(), used }
    }

    /// Takes the session's next event.
    pub(super) fn take(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::BudgetHeld(held) if self.processes.contains(&held.process) => {
                self.open.insert((held.call, held.attempt), held);
            }
            SessionEvent::ModelDone(done) => self.ended(done.call, done.attempt, done.usage, None),
            SessionEvent::ModelFailed(failed) => {
                self.ended(failed.call, failed.attempt, failed.usage, Some(failed.failure.class));
            }
            SessionEvent::ModelGaveWay(gave_way) => {
                self.ended(
                    gave_way.call,
                    gave_way.attempt,
                    gave_way.usage,
                    Some(gave_way.why.class),
                );
            }
            SessionEvent::Compacted(compacted) => {
                self.ended(compacted.call, compacted.attempt, compacted.usage, None);
            }
            SessionEvent::CompactionFailed(failed) => {
                self.ended(failed.call, failed.attempt, failed.usage, Some(failed.failure.class));
            }
            SessionEvent::Reflected(done) => {
                self.ended(done.call, done.attempt, done.usage, None);
            }
            SessionEvent::ReflectionFailed(failed) => {
                self.ended(failed.call, failed.attempt, failed.usage, Some(failed.failure.class));
            }
            _ => {}
        }
    }

    fn ended(
        &mut self,
        call: CallId,
        attempt: Attempt,
        usage: Usage,
        failed: Option<FailureClass>,
    ) {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        // No usage is not a usage of 0: servers leave it out, and streams break before it. The hold
        // stays, and counts whole.
        if tokens == 0 && !failed.is_some_and(FailureClass::is_free) {
            return;
        }
        let Some(held) = self.open.remove(&(call, attempt)) else { return };
        let cost = held.price.cost(&usage).0;
        for hold in held.holds.iter().filter(|hold| hold.account == *self.account) {
            let used = match hold.limit.unit {
                BudgetUnit::Usd => cost,
                BudgetUnit::Tokens => tokens,
                BudgetUnit::Loops => hold.amount,
            };
            self.used.add(held.process, hold, used);
        }
    }

    /// All that its calls have used. Those without an outcome count whole.
    pub(super) fn total(mut self) -> UsedSlices {
        for held in self.open.values() {
            for hold in held.holds.iter().filter(|hold| hold.account == *self.account) {
                self.used.add(held.process, hold, hold.amount);
            }
        }
        self.used
    }
}

// === impl UsedSlices ===

impl UsedSlices {
    fn add(&mut self, process: ProcessId, hold: &Hold, used: u64) {
        let sum = self.sums.entry((process, hold.limit, hold.number, hold.window)).or_default();
        sum.spent = sum.spent.saturating_add(used);
        sum.over = sum.over.saturating_add(used.saturating_sub(hold.amount));
    }

    /// Both together.
    pub(super) fn plus(mut self, other: Self) -> Self {
        for (key, used) in other.sums {
            let sum = self.sums.entry(key).or_default();
            sum.spent = sum.spent.saturating_add(used.spent);
            sum.over = sum.over.saturating_add(used.over);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        TurnId,
        llm::{ModelFailure, StopReason, Text},
        model::ModelPrice,
        session::{Compacted, CompactionFailed, ModelDone, ModelGaveWay},
    };

    use super::{super::test_account::*, *};

    const PRICE: ModelPrice =
        ModelPrice { input: 1_000_000, output: 2_000_000, ..ModelPrice::FREE };

    /// A call of this number, which has reserved so much of slice 1.
    fn held(call: u128, attempt: u32, process: ProcessId, amount: u64) -> SessionEvent {
        let hold = |account| Hold {
            account: key(account),
            limit: USD,
            number: 1,
            window: WindowNumber(0),
            amount,
        };
        let reserved = BudgetHeld {
            call: CallId::from_u128(call),
            attempt: Attempt(attempt),
            process,
            model: "p/m".parse().unwrap(),
            price: PRICE,
            input: 10,
            max_output: 256,
            holds: vec![hold("agent:a"), hold("cluster")],
        };
        reserved.into()
    }

    fn done(call: u128, attempt: u32, input: u64, output: u64) -> SessionEvent {
        let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
        let done = ModelDone {
            call: CallId::from_u128(call),
            attempt: Attempt(attempt),
            content: Text::from(String::new()),
            stop: StopReason::EndTurn,
            usage,
            model: "m".to_owned(),
            tool_uses: Vec::new(),
            blocks: None,
        };
        done.into()
    }

    fn gave_way(call: u128, class: FailureClass) -> SessionEvent {
        let why = ModelFailure::new(class, "no".to_owned());
        let (call, attempt, usage) = (CallId::from_u128(call), Attempt(1), Usage::default());
        ModelGaveWay { call, attempt, why, usage, wait_ms: 0 }.into()
    }

    /// A summary that used so much.
    fn compacted(call: u128, attempt: u32, usage: Usage) -> SessionEvent {
        let compacted = Compacted {
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(call),
            attempt: Attempt(attempt),
            upto: TurnId::from_u128(2),
            text: "Ada likes tea".to_owned(),
            by: "p/m".parse().unwrap(),
            usage,
        };
        compacted.into()
    }

    /// A summary that there is not, whose last attempt used so much.
    fn compaction_failed(
        (call, attempt): (u128, u32),
        class: FailureClass,
        usage: Usage,
    ) -> SessionEvent {
        let failed = CompactionFailed {
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(call),
            attempt: Attempt(attempt),
            failure: ModelFailure::new(class, "no".to_owned()),
            usage,
        };
        failed.into()
    }

    fn used(events: Vec<SessionEvent>) -> UsedSlices {
        let (cluster, processes) = (key("cluster"), [PROCESS]);
        let mut holds = SessionHolds::new(&cluster, &processes);
        for event in events {
            holds.take(event);
        }
        holds.total()
    }

    /// The account after one slice of 400, of which its process has reported this.
    fn reported(spent: u64, running: u64) -> TestAccount {
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 400);
        account.report(PROCESS, SliceReport { spent, held: running, ..report(1) });
        account.ask(OTHER, 1, 100);
        account
    }

    fn spent(account: &TestAccount, events: Vec<SessionEvent>, has_unread: bool) -> u64 {
        let open = open_slices(&account.state, &[PROCESS]);
        let closed = closed(&open, &used(events), has_unread);
        assert_eq!(closed.len(), 1, "only the dead process's");
        assert_eq!(closed[0].0.counted, 400);
        closed[0].1.spent
    }

    #[test]
    fn calls_count_as_journals_have_them_and_those_without_an_end_whole() {
        let account = reported(30, 0);
        let calls = || vec![held(1, 1, PROCESS, 100), done(1, 1, 10, 10)];
        assert_eq!(spent(&account, calls(), false), 30);
        // An attempt that a crash interrupted, and the one after it.
        let mut retried = calls();
        retried.extend([held(2, 1, PROCESS, 100), held(2, 2, OTHER, 100), done(2, 2, 10, 10)]);
        assert_eq!(spent(&account, retried, false), 130);
        // What was reported stays spent, whatever journals say.
        assert_eq!(spent(&reported(99, 50), calls(), false), 99);
        // The holds of other processes do not count.
        assert_eq!(spent(&account, vec![held(3, 1, OTHER, 100)], false), 30);
    }

    #[test]
    fn what_went_back_was_not_spent_by_a_call_without_an_outcome() {
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 400);
        account.report(PROCESS, SliceReport { spent: 30, returned: 360, ..report(1) });
        let open = open_slices(&account.state, &[PROCESS]);
        let closed = closed(&open, &used(vec![held(1, 1, PROCESS, 100)]), false);
        assert_eq!((closed[0].0.counted, closed[0].1.spent), (40, 40));
    }

    #[test]
    fn what_a_dead_process_without_a_slice_asked_for_is_not_granted_once_it_is_closed() {
        let mut account = TestAccount::with(&[usd(400)]);
        account.ask(OTHER, 1, 300);
        account.ask(PROCESS, 1, 200);
        assert_eq!(with_parts(&account.state), BTreeSet::from([PROCESS, OTHER]));
        assert_eq!(open_slices(&account.state, &[PROCESS]), []);
        account.report(PROCESS, nothing_out());
        account.report(OTHER, SliceReport { spent: 100, closed: true, ..report(1) });
        assert_eq!(open_slices(&account.state, &[PROCESS]), [], "it would be lost");
        assert!(with_parts(&account.state).is_empty());
        account.ask(OTHER, 2, 100);
        assert_eq!(
            with_parts(&account.state),
            BTreeSet::from([OTHER]),
            "others are not held up by it"
        );
    }

    #[test]
    fn no_usage_is_not_a_usage_of_0_unless_the_provider_refused_the_call() {
        let account = reported(0, 0);
        let ends = |end| spent(&account, vec![held(1, 1, PROCESS, 70), end], false);
        assert_eq!(ends(done(1, 1, 0, 0)), 70);
        assert_eq!(ends(gave_way(1, FailureClass::BrokenStream)), 70);
        assert_eq!(ends(gave_way(1, FailureClass::RateLimited)), 0);
    }

    #[test]
    fn calls_of_summaries_count_once_as_journals_have_them() {
        let account = reported(0, 0);
        let ends = |ends: Vec<SessionEvent>| {
            let held = [held(1, 1, PROCESS, 100)];
            spent(&account, held.into_iter().chain(ends).collect(), false)
        };
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        let (none, broken) = (Usage::default(), FailureClass::BrokenStream);
        assert_eq!(ends(vec![compacted(1, 1, usage)]), 30);
        assert_eq!(ends(vec![compaction_failed((1, 1), broken, usage)]), 30);
        // No usage is not a usage of 0, unless the provider refused it.
        assert_eq!(ends(vec![compacted(1, 1, none)]), 100);
        assert_eq!(ends(vec![compaction_failed((1, 1), broken, none)]), 100);
        assert_eq!(ends(vec![compaction_failed((1, 1), FailureClass::RateLimited, none)]), 0);
        // It was interrupted, and not made again: what it used is unknown.
        assert_eq!(ends(vec![compaction_failed((1, 0), FailureClass::Rejected, none)]), 100);
        assert_eq!(ends(vec![compaction_failed((1, 0), FailureClass::Rejected, usage)]), 100);
        // Its turn goes on with a call of its own.
        let turn = vec![compacted(1, 1, usage), held(2, 1, PROCESS, 70), done(2, 1, 10, 10)];
        assert_eq!(ends(turn), 60);
        // Another process made it again.
        let again = vec![held(1, 2, OTHER, 100), compacted(1, 2, usage)];
        assert_eq!(ends(again), 100);
    }

    #[test]
    fn calls_that_ran_count_whole_if_a_journal_cannot_be_read() {
        assert_eq!(spent(&reported(30, 50), Vec::new(), true), 80);
        assert_eq!(spent(&reported(30, 50), Vec::new(), false), 30);
    }

    #[test]
    fn sessions_add_up_and_the_account_takes_it_once() {
        let mut account = reported(0, 0);
        let one = used(vec![held(1, 1, PROCESS, 20), done(1, 1, 10, 10)]);
        let other = used(vec![held(2, 1, PROCESS, 100)]);
        let open = open_slices(&account.state, &[PROCESS]);
        let closed = closed(&open, &one.plus(other), false);
        let (slice, report) = closed[0].clone();
        assert_eq!(
            (slice.spent, report.over),
            (130, 10),
            "a call cost 10 more than it had reserved"
        );
        account.report(PROCESS, report);
        account.report(PROCESS, report);
        let book = account.state.book(USD).unwrap();
        assert_eq!((book.current.spent(), book.current.committed()), (130, 255));
        assert_eq!(book.current.over, 10, "a person looks at it");
        assert_eq!(open_slices(&account.state, &[PROCESS]), []);
    }
}

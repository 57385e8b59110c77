//! Accounts: a separate model checks their limits, whatever the order of their inputs.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AskVerdict, BudgetEvent, BudgetGranted, BudgetInput, BudgetLimit, BudgetUnit, BudgetView,
        LimitKey, LimitSource, SliceAsk, SliceReport, WindowLength, WindowNumber,
    },
    codec,
};

use super::{Budget, BudgetEffect, BudgetJob, BudgetState};

pub(super) const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };
const LOOPS: LimitKey = LimitKey { unit: BudgetUnit::Loops, window: WindowLength::Day };
pub(super) const HOUR: u64 = 3_600_000;

/// An account with its journal, and a model of the sums that it must have.
#[derive(Default)]
pub(super) struct Account {
    pub(super) state: BudgetState,
    journal: Vec<Recorded>,
    pub(super) ts: u64,
    limits: BTreeMap<LimitKey, u64>,
    pub(super) slices: BTreeMap<(LimitKey, WindowNumber, ProcessId, u64), ModelSlice>,
    spent: BTreeMap<(LimitKey, WindowNumber), u64>,
}

#[derive(Clone)]
enum Recorded {
    Input(u64, Timestamp, BudgetInput),
    Event(u64, BudgetEvent),
}

#[derive(Clone, Copy, Default)]
pub(super) struct ModelSlice {
    pub(super) amount: u64,
    pub(super) spent: u64,
    returned: u64,
    pub(super) seq: u64,
    closed: bool,
}

impl ModelSlice {
    fn counts(&self) -> u64 {
        if self.closed { self.spent } else { self.spent.max(self.amount - self.returned) }
    }
}

fn process(number: u128) -> ProcessId {
    ProcessId::from_u128(number)
}

pub(super) fn limit(key: LimitKey, amount: u64) -> BudgetLimit {
    BudgetLimit { ask_at: 100, ..BudgetLimit::new(key.unit, key.window, amount) }
}

pub(super) fn ask(number: u64, call: u64, least: u64) -> SliceAsk {
    SliceAsk { number, limit: USD, call, least, waits: call }
}

pub(super) fn report(number: u64, seq: u64, spent: u64, closed: bool) -> SliceReport {
    let window = WindowNumber(0);
    SliceReport { number, window, seq, spent, held: 0, returned: 0, over: 0, closed }
}

impl Account {
    pub(super) fn with(limits: &[BudgetLimit]) -> Self {
        let mut account = Self::default();
        Budget::born(&mut account.state, "cluster").unwrap();
        account.set(limits);
        account
    }

    pub(super) fn set(&mut self, limits: &[BudgetLimit]) -> Vec<BudgetEvent> {
        self.limits = limits.iter().map(|limit| (limit.key, limit.amount)).collect();
        let source = LimitSource::Person { name: "ada".to_owned() };
        self.send(BudgetInput::Set { source, limits: Some(limits.to_vec()), decides: None })
    }

    pub(super) fn ask(&mut self, by: u128, wants: SliceAsk) -> Vec<BudgetEvent> {
        let (process, asks) = (process(by), vec![wants]);
        self.send(BudgetInput::Ask { process, asks, reports: vec![], dead: vec![] })
    }

    pub(super) fn report(&mut self, by: u128, report: SliceReport) -> Vec<BudgetEvent> {
        self.send(BudgetInput::Report { process: process(by), reports: vec![report] })
    }

    /// Takes an input, and decides; the model checks each event.
    pub(super) fn send(&mut self, input: BudgetInput) -> Vec<BudgetEvent> {
        let n = self.state.n + 1;
        if let BudgetInput::Ask { process, reports, .. }
        | BudgetInput::Report { process, reports } = &input
        {
            for report in reports {
                self.model_hears(*process, report);
            }
        }
        self.state.accept(n, Timestamp(self.ts), input.clone());
        self.journal.push(Recorded::Input(n, Timestamp(self.ts), input));
        let mut events = Vec::new();
        loop {
            let decided = Budget::advance(&self.state);
            if decided.is_empty() {
                break;
            }
            for event in decided {
                self.model_sees(&event);
                self.state.n += 1;
                self.state.fold(&event).unwrap();
                self.journal.push(Recorded::Event(self.state.n, event.clone()));
                events.push(event);
            }
        }
        self.check();
        events
    }

    fn model_hears(&mut self, by: ProcessId, report: &SliceReport) {
        for ((_, window, process, number), slice) in &mut self.slices {
            let is_it = *process == by && *number == report.number && *window == report.window;
            if is_it && !slice.closed && report.seq > slice.seq {
                slice.seq = report.seq;
                slice.spent = slice.spent.max(report.spent);
                let free = slice.amount.saturating_sub(slice.spent + report.held);
                slice.returned = slice.returned.max(report.returned.min(free));
                slice.closed = report.closed;
            }
        }
    }

    fn model_sees(&mut self, event: &BudgetEvent) {
        match event {
            BudgetEvent::Granted(granted) => {
                let is_of_window = |key: &&(LimitKey, WindowNumber, ProcessId, u64)| {
                    key.0 == granted.limit && key.1 == granted.window
                };
                let before: u64 = self
                    .slices
                    .keys()
                    .filter(is_of_window)
                    .map(|key| self.slices[key].counts())
                    .sum();
                let most = self.limits[&granted.limit];
                assert!(
                    before + granted.amount <= most,
                    "I6: {before} and {} of {most}",
                    granted.amount
                );
                let key = (granted.limit, granted.window, granted.process, granted.number);
                let new = ModelSlice { amount: granted.amount, ..ModelSlice::default() };
                assert!(self.slices.insert(key, new).is_none(), "BUD-4: {key:?} twice");
            }
            BudgetEvent::Window(closed) => {
                let spent = self.model_spent(closed.limit, closed.ended);
                assert_eq!(closed.spent, spent, "BUD-3");
            }
            _ => {}
        }
    }

    fn model_spent(&self, limit: LimitKey, window: WindowNumber) -> u64 {
        let slices = self.slices.iter().filter(|(key, _)| key.0 == limit && key.1 == window);
        slices.map(|(_, slice)| slice.spent).sum()
    }

    fn check(&mut self) {
        for book in &self.state.books {
            for window in book.windows() {
                let spent = self.model_spent(book.key, window.number);
                assert_eq!(window.spent(), spent, "BUD-3: the sum of its slices");
                let before = self.spent.insert((book.key, window.number), spent);
                assert!(before.unwrap_or_default() <= spent, "BUD-3: it never falls");
            }
        }
    }

    /// The journal, folded again.
    pub(super) fn replayed(&self) -> BudgetState {
        let mut state = BudgetState::default();
        Budget::born(&mut state, "cluster").unwrap();
        for recorded in self.journal.iter().cloned() {
            match recorded {
                Recorded::Input(n, ts, input) => state.accept(n, ts, input),
                Recorded::Event(n, event) => {
                    state.n = n;
                    state.fold(&event).unwrap();
                }
            }
        }
        state
    }
}

pub(super) fn amounts(events: &[BudgetEvent]) -> Vec<(u128, u64)> {
    let granted = events.iter().filter_map(|event| match event {
        BudgetEvent::Granted(granted) => Some((granted.process.as_u128(), granted.amount)),
        _ => None,
    });
    granted.collect()
}

#[test]
fn a_slice_is_given_once_and_its_answer_as_often_as_needed() {
    let mut account = Account::with(&[limit(USD, 1_000)]);
    assert_eq!(amounts(&account.ask(1, ask(1, 50, 5))), [(1, 200)]);
    let told = account.state.told();
    assert_eq!(amounts(&account.ask(1, ask(1, 50, 5))), []);
    assert_ne!(account.state.told(), told, "the account tells it again");
    assert_eq!(account.state.slices_of(process(1)).len(), 1);
}

#[test]
fn who_came_first_is_served_first_and_a_small_ask_does_not_overtake() {
    let mut account = Account::with(&[limit(USD, 100)]);
    assert_eq!(amounts(&account.ask(1, ask(1, 80, 80))), [(1, 80)]);
    assert_eq!(amounts(&account.ask(2, ask(1, 50, 50))), []);
    assert_eq!(amounts(&account.ask(3, ask(1, 10, 10))), []);
    assert!(account.state.slices_of(process(1))[0].recalled, "others wait for it");
    assert_eq!(account.state.answers_to(process(3))[0].verdict, AskVerdict::Waits);
    let events = account.report(1, report(1, 1, 10, true));
    assert_eq!(amounts(&events), [(2, 50), (3, 10)]);
}

#[test]
fn what_is_left_for_good_makes_a_call_smaller_and_only_what_is_spent_ends_it() {
    let mut account = Account::with(&[limit(USD, 100)]);
    account.ask(1, ask(1, 60, 60));
    account.report(1, report(1, 1, 60, true));
    // 70 will never be there.
    assert_eq!(amounts(&account.ask(2, ask(1, 70, 30))), [(2, 40)]);
    // 10 may come back.
    account.ask(3, ask(1, 10, 10));
    assert_eq!(account.state.answers_to(process(3))[0].verdict, AskVerdict::Waits);
    account.report(2, report(1, 1, 35, true));
    let spent_out = AskVerdict::SpentOut { spent: 95, limit: 100 };
    assert_eq!(account.state.answers_to(process(3))[0].verdict, spent_out);
}

#[test]
fn a_person_allows_what_is_above_the_share() {
    let mut account = Account::with(&[BudgetLimit { ask_at: 90, ..limit(USD, 100) }]);
    account.ask(1, ask(1, 85, 85));
    let events = account.report(1, report(1, 1, 85, true));
    assert!(matches!(events.as_slice(), [BudgetEvent::Warned(warned)] if warned.spent == 85));
    let events = account.ask(1, ask(2, 8, 8));
    assert!(matches!(events.as_slice(), [BudgetEvent::Asked(_)]), "{events:?}");
    assert_eq!(account.ask(1, ask(2, 8, 8)), [], "it is recorded once");
    let allow = |window| BudgetInput::Allow {
        by: "ada".to_owned(),
        limit: USD,
        window: WindowNumber(window),
    };
    assert_eq!(account.send(allow(7)), [], "that is another window");
    let events = account.send(allow(0));
    assert!(matches!(events.as_slice(), [BudgetEvent::Allowed(_), BudgetEvent::Granted(_)]));
}

#[test]
fn usage_above_a_hold_stops_the_account_until_a_person_allows_it() {
    let mut account = Account::with(&[limit(USD, 1_000)]);
    account.ask(1, ask(1, 50, 5));
    let events = account.report(1, SliceReport { over: 20, ..report(1, 1, 70, false) });
    assert!(matches!(events.as_slice(), [BudgetEvent::Over(over)] if over.excess == 20));
    assert_eq!(amounts(&account.ask(2, ask(1, 5, 5))), []);
    // The next window does not forget it.
    account.ts = HOUR;
    account.report(2, report(9, 1, 0, true));
    assert_eq!(amounts(&account.ask(2, ask(1, 5, 5))), []);
    let (by, window) = ("ada".to_owned(), WindowNumber(1));
    let events = account.send(BudgetInput::Allow { by, limit: USD, window });
    assert_eq!(amounts(&events), [(2, 20)]);
}

#[test]
fn a_process_that_is_gone_asks_for_nothing_more() {
    let granted = |seq| {
        let mut account = Account::with(&[limit(USD, 1_000)]);
        account.ask(1, ask(1, 900, 5));
        assert_eq!(amounts(&account.ask(1, ask(2, 500, 500))), []);
        amounts(&account.report(1, report(1, seq, 100, true)))
    };
    assert_eq!(granted(1), [(1, 500)], "of one that lives, the next call goes on");
    assert_eq!(granted(SliceReport::LAST), []);
}

/// A process that is gone gets nothing, so others need not give anything back for it.
#[test]
fn what_a_process_asked_for_that_is_gone_recalls_nothing_and_keeps_no_timer() {
    let mut account = Account::with(&[limit(USD, 1_000)]);
    account.ask(2, ask(1, 600, 600));
    assert_eq!(amounts(&account.ask(1, ask(1, 500, 500))), []);
    assert!(account.state.slices_of(process(2))[0].recalled, "the other one waits for it");
    account.report(1, report(9, SliceReport::LAST, 0, true));
    assert!(!account.state.slices_of(process(2))[0].recalled);
    account.report(2, report(1, 1, 0, true));
    assert_eq!(account.state.due(), None, "no process spends or waits");
    let whole = SliceAsk { waits: 900, ..ask(2, 5, 5) };
    assert_eq!(amounts(&account.ask(2, whole)), [(2, 900)], "it shares with no process");
}

#[test]
fn a_journal_of_an_earlier_build_that_granted_to_a_process_that_was_gone_is_read() {
    let mut account = Account::with(&[limit(USD, 1_000)]);
    account.ask(1, ask(1, 900, 5));
    account.ask(1, ask(2, 500, 500));
    account.ask(2, ask(1, 600, 600));
    let last = |number| report(number, SliceReport::LAST, 100, true);
    let mut state = account.state;
    let accepts = |state: &mut BudgetState, report| {
        let input = BudgetInput::Report { process: process(1), reports: vec![report] };
        state.accept(state.n + 1, Timestamp(0), input);
    };
    accepts(&mut state, last(1));
    // It did not know that who reports so asks for nothing more.
    let (number, limit, window, amount) = (2, USD, WindowNumber(0), 500);
    let granted = BudgetGranted { process: process(1), number, limit, window, amount };
    state.fold(&granted.into()).unwrap();
    let committed = |state: &BudgetState| state.book(USD).unwrap().current.committed();
    assert_eq!(committed(&state), 600);
    assert_eq!(Budget::advance(&state), [], "the others wait until that is closed, too");
    accepts(&mut state, last(2));
    assert_eq!(amounts(&Budget::advance(&state)), [(2, 600)]);
}

#[test]
fn a_limit_below_what_is_spent_only_stops_grants() {
    let mut account = Account::with(&[limit(USD, 1_000), limit(LOOPS, 10)]);
    account.ask(1, ask(1, 500, 5));
    account.report(1, report(1, 1, 400, false));
    account.set(&[limit(USD, 100)]);
    account.ask(2, ask(1, 1, 1));
    let spent_out = AskVerdict::SpentOut { spent: 400, limit: 100 };
    assert_eq!(account.state.answers_to(process(2))[0].verdict, spent_out);
    account.report(1, report(1, 2, 500, true));
    assert_eq!(account.state.book(USD).unwrap().current.spent(), 500);
    // Raised again, it goes on from there; a limit that is gone holds nothing.
    let events = account.set(&[limit(USD, 600)]);
    assert_eq!(amounts(&events), [(2, 4)]);
    account.ask(3, SliceAsk { limit: LOOPS, ..ask(1, 1, 1) });
    assert_eq!(account.state.answers_to(process(3))[0].verdict, AskVerdict::NoLimit);
}

#[test]
fn what_people_set_wins_until_it_is_reset_and_nothing_is_half_set() {
    let mut account = Account::default();
    let configured = |limits: &[BudgetLimit]| BudgetInput::Set {
        source: LimitSource::Configured,
        limits: Some(limits.to_vec()),
        decides: None,
    };
    let file = limit(USD, 1_000);
    assert_eq!(account.send(configured(&[file])).len(), 1);
    assert_eq!(account.send(configured(&[file])), [], "every node says it at its start");
    account.set(&[limit(USD, 5)]);
    account.send(configured(&[limit(USD, 2_000)]));
    assert_eq!(account.state.limits(), [limit(USD, 5)]);
    assert_eq!(account.set(&[file, limit(LOOPS, 1), file]), [], "it is refused whole");
    assert_eq!(account.state.limits(), [limit(USD, 5)]);
    let source = LimitSource::Person { name: "bob".to_owned() };
    account.send(BudgetInput::Set { source, limits: None, decides: None });
    assert_eq!(account.state.limits(), [limit(USD, 2_000)]);
}

/// What an account shows all processes.
fn shown(account: &Account) -> BudgetView {
    let mut effects = Budget::decide(&account.state).into_iter();
    let effect = effects.find(|effect| matches!(effect, BudgetEffect::Show(_))).unwrap();
    match Budget::prepare(&account.state, &effect, false) {
        Some(BudgetJob::Show(view)) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_change_of_the_limits_is_shown_and_a_default_is_named_until_it_is_none() {
    let mut account = Account::default();
    Budget::born(&mut account.state, "cluster").unwrap();
    assert_eq!(Budget::decide(&account.state), [], "it has nothing to show");
    let set = |source, amount| BudgetInput::Set {
        source,
        limits: Some(vec![limit(USD, amount)]),
        decides: None,
    };
    assert_eq!(account.send(set(LimitSource::BuiltIn, 5)).len(), 1);
    assert_eq!(account.send(set(LimitSource::BuiltIn, 5)), [], "every node says it at its start");
    let first = shown(&account);
    assert!(first.is_default && first.limits == [limit(USD, 5)]);
    // For the model: the limit was not set by a person.
    account.limits.insert(USD, 5);
    account.ask(1, ask(1, 5, 5));
    assert_eq!(shown(&account), first, "a grant changes no limit");
    account.set(&[limit(USD, 7)]);
    let second = shown(&account);
    assert!(!second.is_default && second.version > first.version);
    let source = LimitSource::Person { name: "bob".to_owned() };
    account.send(BudgetInput::Set { source, limits: None, decides: None });
    assert!(shown(&account).is_default, "reset, it is the default again");
    // The same limits in the configuration are a limit that a person wants.
    assert_eq!(account.send(set(LimitSource::Configured, 5)).len(), 1);
    assert!(!shown(&account).is_default);
}

#[test]
fn bud_4_what_is_settled_late_counts_in_the_window_that_held_it() {
    let mut account = Account::with(&[limit(USD, 100)]);
    account.ask(1, ask(1, 60, 60));
    account.ts = HOUR - 1;
    assert_eq!(account.state.due(), Some(Timestamp(HOUR)));
    // The timer says that the window has ended, whatever the clock says.
    let events = account.send(BudgetInput::TimerFired { due: Timestamp(HOUR) });
    assert!(
        matches!(events.as_slice(), [BudgetEvent::Window(closed)] if (closed.spent, closed.open) == (0, 60))
    );
    assert_eq!(amounts(&account.ask(2, ask(1, 100, 100))), [(2, 100)]);
    assert!(account.state.slices_of(process(1))[0].recalled);
    // Another process's slice of that number is not touched.
    account.report(2, report(1, 9, 60, true));
    account.report(1, report(1, 1, 60, true));
    let book = account.state.book(USD).unwrap();
    assert_eq!(book.previous.as_ref().unwrap().spent(), 60);
    assert_eq!((book.current.spent(), book.current.committed()), (0, 100));
}

#[test]
fn an_ask_that_is_not_repeated_is_forgotten() {
    let mut account = Account::with(&[limit(USD, 100)]);
    account.ask(1, ask(1, 100, 100));
    account.ask(2, ask(1, 50, 50));
    account.ts = 31_000;
    assert_eq!(amounts(&account.report(1, report(1, 1, 0, true))), []);
    let decided = Budget::decide(&account.state).into_iter();
    let told: BTreeSet<_> =
        decided.filter(|effect| matches!(effect, BudgetEffect::Tell(..))).collect();
    assert!(told.len() <= 2 && account.state.asks.is_empty());
}

#[test]
fn a_resident_account_is_small() {
    let mut account = Account::with(&[limit(USD, 1_000_000), limit(LOOPS, 1_000)]);
    for by in 1..=32 {
        account.ask(by, ask(1, 50, 5));
        account.ask(by, SliceAsk { limit: LOOPS, ..ask(2, 1, 1) });
    }
    let bytes = codec::encode(&account.state).unwrap().len();
    assert!(bytes < 16 << 10, "32 busy processes take {bytes} bytes");
}

#[test]
fn bud_3_a_limit_that_was_taken_away_knows_what_was_spent_when_it_is_set_again() {
    let mut account = Account::with(&[limit(USD, 100)]);
    account.ask(1, ask(1, 80, 80));
    account.report(1, report(1, 1, 80, true));
    account.set(&[]);
    account.ask(2, ask(1, 50, 50));
    assert_eq!(account.state.answers_to(process(2))[0].verdict, AskVerdict::NoLimit);
    account.set(&[limit(USD, 100)]);
    assert_eq!(amounts(&account.ask(2, ask(2, 50, 10))), [(2, 20)], "I6");
    account.report(2, report(2, 1, 20, true));
    account.set(&[]);
    account.ts = HOUR;
    account.report(2, report(9, 1, 0, true));
    assert!(account.state.books.is_empty(), "another window knows nothing of it");
}

/// BUD-4, for an ask that comes late.
#[test]
fn bud_4_a_limit_that_is_set_again_grants_no_old_number_again() {
    let mut account = Account::with(&[limit(USD, 1_000)]);
    assert_eq!(amounts(&account.ask(1, ask(1, 10, 10))).len(), 1);
    account.report(1, report(1, 1, 0, true));
    account.set(&[]);
    account.set(&[limit(USD, 1_000)]);
    assert!(account.ask(1, ask(1, 10, 10)).is_empty(), "it is late");
    assert_eq!(amounts(&account.ask(1, ask(2, 10, 10))).len(), 1);
}

#[test]
fn who_waits_for_a_person_hears_that_they_have_allowed_more() {
    let mut account = Account::with(&[BudgetLimit { ask_at: 90, ..limit(USD, 100) }]);
    account.ask(1, ask(1, 90, 90));
    account.report(1, report(1, 1, 80, false));
    account.ask(2, ask(1, 15, 15));
    let needs_person = AskVerdict::NeedsPerson { spent: 80, limit: 100 };
    assert_eq!(account.state.answers_to(process(2))[0].verdict, needs_person);
    let told = account.state.told();
    let (by, window) = ("ada".to_owned(), WindowNumber(0));
    account.send(BudgetInput::Allow { by, limit: USD, window });
    let answer = account.state.answers_to(process(2))[0];
    assert_eq!((answer.verdict, answer.holder), (AskVerdict::Waits, Some(process(1))));
    assert!(account.state.slices_of(process(1))[0].recalled);
    for (after, before) in account.state.told().iter().zip(&told) {
        assert!(after.1 > before.1, "{after:?} hears again after {before:?}");
    }
}

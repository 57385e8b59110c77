//! An account as people see it, from its folded journal. Pure.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_budget::{
    BudgetState,
    account::{LimitBook, WindowBook},
};
use clawnode_proto::{
    NodeName, ProcessId, Timestamp,
    budget::{
        AccountChange, AccountKey, AccountView, BudgetLimit, ChangeKind, LimitOrigin, LimitSource,
        LimitState, LimitView, SliceHolderView,
    },
};

use super::slice_owners::PeerState;

/// Processes that one limit shows. The others are in its sums.
const HOLDERS_SHOWN: usize = 64;

/// What a view says of a process: its state, and the name of its node.
pub(super) type PeerLookup<'a> = &'a dyn Fn(ProcessId) -> (PeerState, Option<NodeName>);

/// An account at this time.
pub(super) fn account(
    key: AccountKey,
    state: &BudgetState,
    now: Timestamp,
    peers: PeerLookup<'_>,
) -> AccountView {
    let origin = match (state.is_set_by_person(), state.is_built_in()) {
        (true, _) => LimitOrigin::Person,
        (false, true) => LimitOrigin::Default,
        (false, false) => LimitOrigin::Configured,
    };
    let is_person = |by: &LimitSource| matches!(by, LimitSource::Person { .. });
    let has_set = |change: &&AccountChange| {
        let sets = matches!(change.what, ChangeKind::Set { .. });
        sets && is_person(&change.by) == state.is_set_by_person()
    };
    let set = state.changes.iter().rev().find(has_set);
    let name = |change: &AccountChange| {
        if let LimitSource::Person { name } = &change.by { Some(name.clone()) } else { None }
    };
    let set_by = set.and_then(name);
    AccountView {
        account: key,
        origin,
        set_by,
        set_at: set.map(|change| change.at),
        limits: state.books.iter().filter_map(|book| limit(state, book, now, peers)).collect(),
        changes: state.changes.iter().rev().cloned().collect(),
    }
}

/// A limit that is in force, in the window that this time is in.
fn limit(
    state: &BudgetState,
    book: &LimitBook,
    now: Timestamp,
    peers: PeerLookup<'_>,
) -> Option<LimitView> {
    let in_force = book.limit?;
    let BudgetLimit { key, amount, warn_at, ask_at, lanes } = in_force;
    // An account notices the end of a window with its next input. Until then, the journal has the old one.
    let number = key.window.at(now).max(book.current.number);
    let next = WindowBook::default();
    let window = if number > book.current.number { &next } else { &book.current };
    let spent = window.spent();
    let held = window.committed().saturating_sub(spent);
    let holders = holders(window, peers);
    let stranded =
        holders.iter().filter(|holder| holder.dead).fold(0_u64, |sum, holder| sum + holder.held);
    let is_others = state.is_set_by_person() && !state.is_decided_by_person(key);
    let by_file = || {
        if state.is_built_in() { LimitOrigin::Default } else { LimitOrigin::Configured }
    };
    let waits = state.asks.iter().filter(|ask| ask.wants.limit == key && ask.is_open(now));
    let waiting = waits.map(|ask| ask.process).collect::<BTreeSet<_>>().len();
    Some(LimitView {
        unit: key.unit,
        window: key.window,
        origin: is_others.then(by_file),
        limit: amount,
        warn_at,
        ask_at,
        lanes,
        spent,
        held,
        stranded,
        left: amount.saturating_sub(spent.saturating_add(held)),
        state: limit_state(&in_force, window, book.current.over),
        allowed: window.allowed,
        excess: book.current.over,
        waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
        ends: key.window.end(number),
        holders: holders.into_iter().take(HOLDERS_SHOWN).collect(),
    })
}

fn limit_state(limit: &BudgetLimit, window: &WindowBook, over: u64) -> LimitState {
    let spent = window.spent();
    let asks = limit.ask_at < 100 && spent > 0 && spent >= limit.share(limit.ask_at);
    let warns = spent > 0 && spent >= limit.share(limit.warn_at);
    match () {
        () if over > 0 => LimitState::Over,
        () if spent >= limit.amount => LimitState::Spent,
        () if (asks || window.asked) && !window.allowed => LimitState::NeedsPerson,
        () if warns || window.warned => LimitState::Warned,
        () => LimitState::Ok,
    }
}

fn holders(window: &WindowBook, peers: PeerLookup<'_>) -> Vec<SliceHolderView> {
    let mut sums: BTreeMap<ProcessId, (u64, u64)> = BTreeMap::new();
    for slice in &window.slices {
        let (held, running) = sums.entry(slice.process).or_default();
        let open = slice.counts().saturating_sub(slice.spent);
        *held = held.saturating_add(open);
        *running = running.saturating_add(slice.held.min(open));
    }
    let holder = |(process, (held, running))| {
        let (state, node) = peers(process);
        SliceHolderView { process, node, dead: state == PeerState::Dead, held, running }
    };
    let mut holders: Vec<_> =
        sums.into_iter().map(holder).filter(|holder| holder.held > 0).collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.held), holder.process));
    holders
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::{BudgetInput, BudgetUnit, SliceReport, WindowNumber};

    use super::{super::test_account::*, *};

    /// The first process is dead.
    fn seen(account: &TestAccount, now: Timestamp) -> AccountView {
        let peers = |process| {
            let is_dead = process == PROCESS;
            let state = if is_dead { PeerState::Dead } else { PeerState::Alive };
            (state, is_dead.then(|| "a".parse().unwrap()))
        };
        super::account(key("cluster"), &account.state, now, &peers)
    }

    #[test]
    fn what_is_spent_held_and_stranded_adds_up() {
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 400);
        account.report(PROCESS, SliceReport { spent: 100, held: 50, ..report(1) });
        account.ask(OTHER, 1, 200);
        let view = seen(&account, NOW);
        let limit = &view.limits[0];
        assert_eq!((limit.spent, limit.held, limit.stranded, limit.left), (100, 500, 300, 400));
        let held: Vec<_> =
            limit.holders.iter().map(|holder| (holder.dead, holder.held, holder.running)).collect();
        assert_eq!(held, [(true, 300, 50), (false, 200, 0)], "the most first");
        assert_eq!(limit.holders[0].node.as_ref().unwrap().as_str(), "a");
        assert_eq!(limit.ends, Some(Timestamp(HOUR)));
        assert_eq!(limit.state, LimitState::Ok);
    }

    #[test]
    fn a_window_that_has_ended_shows_nothing_as_spent() {
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 400);
        account.report(PROCESS, SliceReport { spent: 400, ..report(1) });
        let limit = seen(&account, Timestamp(HOUR)).limits.remove(0);
        assert_eq!((limit.spent, limit.held, limit.left), (0, 0, 1_000));
        assert_eq!((limit.ends, limit.holders), (Some(Timestamp(2 * HOUR)), Vec::new()));
        // The clock of the reader may be behind that of the account.
        account.fire();
        let limit = seen(&account, Timestamp(HOUR - 1)).limits.remove(0);
        assert_eq!((limit.spent, limit.ends), (0, Some(Timestamp(2 * HOUR))));
    }

    #[test]
    fn an_ask_that_is_not_repeated_waits_no_more() {
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 900);
        account.ask(OTHER, 1, 200);
        let waiting = |later: u64| seen(&account, Timestamp(NOW.0 + later)).limits[0].waiting;
        assert_eq!((waiting(0), waiting(60_000)), (1, 0));
    }

    #[test]
    fn a_limit_says_what_has_to_be_done() {
        let state = |account: &TestAccount| seen(account, NOW).limits[0].state;
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 900);
        assert_eq!(state(&account), LimitState::Ok);
        for (seq, spent, expected) in
            [(1, 750, LimitState::Warned), (2, 900, LimitState::NeedsPerson)]
        {
            account.report(PROCESS, SliceReport { seq, spent, ..report(1) });
            assert_eq!(state(&account), expected, "{spent}");
        }
        account.allow(WindowNumber(0));
        assert_eq!(state(&account), LimitState::Warned);
        assert!(seen(&account, NOW).limits[0].allowed);
        account.ask(PROCESS, 2, 100);
        account.report(PROCESS, SliceReport { spent: 100, over: 7, ..report(2) });
        assert_eq!(state(&account), LimitState::Over);
        assert_eq!(seen(&account, NOW).limits[0].excess, 7);
        account.allow(WindowNumber(0));
        assert_eq!(state(&account), LimitState::Spent);
    }

    #[test]
    fn a_limit_that_a_person_left_to_the_configuration_says_so() {
        let tokens = BudgetLimit::new(BudgetUnit::Tokens, USD.window, 1_000);
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.reset();
        account.configured(&[usd(5)]);
        account.set_beside(&[usd(5), tokens], &[tokens.key]);
        let view = seen(&account, NOW);
        assert_eq!((view.origin, view.set_by.as_deref()), (LimitOrigin::Person, Some("ada")));
        let origins: Vec<_> = view.limits.iter().map(|limit| (limit.unit, limit.origin)).collect();
        let configured = Some(LimitOrigin::Configured);
        assert_eq!(origins, [(BudgetUnit::Usd, configured), (BudgetUnit::Tokens, None)]);
    }

    #[test]
    fn it_says_who_set_the_limits_that_are_in_force() {
        let mut account = TestAccount::with(&[usd(1_000)]);
        let view = seen(&account, NOW);
        assert_eq!(view.origin, LimitOrigin::Person);
        assert_eq!((view.set_by.as_deref(), view.set_at), (Some("ada"), Some(NOW)));
        let source = LimitSource::BuiltIn;
        let limits = Some(vec![usd(5)]);
        account.send(&BudgetInput::Set { source, limits, decides: None });
        assert_eq!(seen(&account, NOW).set_by.as_deref(), Some("ada"), "that has no effect");
        account.reset();
        let view = seen(&account, NOW);
        assert_eq!((view.origin, view.set_by), (LimitOrigin::Default, None));
        assert_eq!(view.limits[0].limit, 5);
        assert_eq!(view.changes[0].what, ChangeKind::Reset, "the newest first");
        assert_eq!(view.changes.len(), 3);
        assert_eq!(view.limits[0].unit, BudgetUnit::Usd);
        account.configured(&[usd(5)]);
        assert_eq!(seen(&account, NOW).origin, LimitOrigin::Configured);
    }
}

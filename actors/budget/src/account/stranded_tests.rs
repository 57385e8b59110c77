//! Asks of a limit of which dead processes have a part.

use clawnode_proto::{
    ProcessId,
    budget::{AskVerdict, BudgetEvent, BudgetInput, BudgetLimit, SliceAsk, WindowNumber},
};

use super::tests::{Account, USD, amounts, ask, limit, report};

/// A dollar, what is spent of it, and what a dead process has.
const LIMIT: u64 = 1_000_000;
const SPENT: u64 = 504_900;
const DEAD: u64 = 372_768;
/// What a call can cost at most, what it needs at least, and what it costs.
const CALL: u64 = 124_254;
const LEAST: u64 = 5_214;
const COST: u64 = 3_300;

fn process(number: u128) -> ProcessId {
    ProcessId::from_u128(number)
}

/// Process 2 has a part, and 1 has spent what is spent.
fn account() -> Account {
    let mut account = Account::with(&[limit(USD, LIMIT)]);
    assert_eq!(amounts(&account.ask(2, ask(1, DEAD, DEAD))), [(2, DEAD)]);
    assert_eq!(amounts(&account.ask(1, ask(1, SPENT, SPENT))), [(1, SPENT)]);
    account.report(1, report(1, 1, SPENT, true));
    account
}

/// Process 1 asks, and says that others are dead.
fn ask_beside(account: &mut Account, wants: SliceAsk, dead: &[u128]) -> Vec<BudgetEvent> {
    let dead = dead.iter().copied().map(process).collect();
    let (process, asks, reports) = (process(1), vec![wants], Vec::new());
    account.send(BudgetInput::Ask { process, asks, reports, dead })
}

/// What process 1 hears: the verdict, and for whom it waits.
fn answer(account: &Account) -> Option<(AskVerdict, Option<ProcessId>)> {
    let answers = account.state.answers_to(process(1));
    answers.first().map(|answer| (answer.verdict, answer.holder))
}

fn sums(account: &Account) -> (u64, u64) {
    let current = &account.state.book(USD).unwrap().current;
    (current.spent(), current.committed())
}

/// C20: what a dead process has counts as before. A call that can be made with the rest gets that.
#[test]
fn c20_a_call_does_not_wait_for_what_a_dead_process_has_if_the_rest_is_enough() {
    let mut account = account();
    let wants = ask(2, CALL, LEAST);
    assert_eq!(amounts(&ask_beside(&mut account, wants, &[])), []);
    assert_eq!(answer(&account), Some((AskVerdict::Waits, Some(process(2)))));
    let rest = LIMIT - SPENT - DEAD;
    assert_eq!(amounts(&ask_beside(&mut account, wants, &[2])), [(1, rest)]);
    assert_eq!(sums(&account), (SPENT, LIMIT), "C20, I6");
    account.report(1, report(2, 1, COST, true));
    // It need not be said again.
    assert_eq!(amounts(&account.ask(1, ask(3, CALL, LEAST))), [(1, rest - COST)]);
    assert_eq!(account.replayed(), account.state, "the journal is all there is");
}

/// The rest is too little for a call: it waits for the dead process, and holds up no call for which it is enough. Who
/// reports lives, and gives back what others wait for.
#[test]
fn a_call_that_needs_what_a_dead_process_has_waits_for_it_alone() {
    let mut account = account();
    let rest = LIMIT - SPENT - DEAD;
    assert_eq!(amounts(&ask_beside(&mut account, ask(2, CALL, LEAST), &[2])), [(1, rest)]);
    account.report(1, report(2, 1, rest - 32, true));
    assert_eq!(amounts(&account.ask(1, ask(3, CALL, LEAST))), []);
    assert_eq!(answer(&account), Some((AskVerdict::Waits, Some(process(2)))));
    assert_eq!(amounts(&account.ask(3, ask(1, 30, 30))), [(3, 30)]);
    account.report(2, report(1, 1, 0, false));
    let of_two = account.state.slices_of(process(2));
    assert!(of_two.iter().all(|slice| slice.recalled), "{of_two:?}");
    assert_eq!(amounts(&account.report(2, report(1, 2, 0, true))), [(1, CALL)]);
    assert_eq!(account.replayed(), account.state, "the journal is all there is");
}

/// What living processes have is waited for: then the call keeps its cap on output.
#[test]
fn a_call_waits_for_living_processes_as_before() {
    let wants = ask(1, 200_000, 1_000);
    let two_others = || {
        let mut account = Account::with(&[limit(USD, 500_000)]);
        account.ask(2, ask(1, 200_000, 200_000));
        account.ask(3, ask(1, 150_000, 150_000));
        assert_eq!(amounts(&ask_beside(&mut account, wants, &[2])), []);
        assert_eq!(answer(&account), Some((AskVerdict::Waits, Some(process(3)))));
        account
    };
    let mut account = two_others();
    assert_eq!(amounts(&account.report(3, report(1, 1, 0, true))), [(1, 200_000)]);
    // Both are dead: the account names one after the other.
    let mut account = two_others();
    assert_eq!(amounts(&ask_beside(&mut account, wants, &[3])), [(1, 150_000)]);
    assert_eq!(sums(&account), (0, 500_000), "C20, I6");
}

/// Above `ask_at` there is enough for the call, so a person can help it at once. It is not said to wait for a dead process
/// alone, and what that has goes on to be recalled: it may live.
#[test]
fn a_person_is_asked_if_that_is_enough_without_what_a_dead_process_has() {
    let of_dead = || {
        let mut account = Account::with(&[BudgetLimit { ask_at: 90, ..limit(USD, 1_000) }]);
        assert_eq!(amounts(&account.ask(2, ask(1, 750, 750))), [(2, 750)]);
        assert_eq!(amounts(&account.ask(1, ask(1, 100, 100))), [(1, 100)]);
        account.report(1, report(1, 1, 100, true));
        account
    };
    let mut account = of_dead();
    let events = ask_beside(&mut account, ask(2, 60, 60), &[2]);
    assert!(matches!(events[..], [BudgetEvent::Asked(_)]), "{events:?}");
    let asks = AskVerdict::NeedsPerson { spent: 100, limit: 1_000 };
    assert_eq!(answer(&account), Some((asks, None)));
    assert!(account.state.slices_of(process(2)).iter().all(|slice| slice.recalled));
    let by = "ada".to_owned();
    let allow = BudgetInput::Allow { by, limit: USD, window: WindowNumber(0) };
    assert_eq!(amounts(&account.send(allow)), [(1, 60)]);
    assert_eq!(account.replayed(), account.state, "the journal is all there is");

    // With all of the limit it would be too little.
    let mut account = of_dead();
    assert!(ask_beside(&mut account, ask(2, 151, 151), &[2]).is_empty());
    assert_eq!(answer(&account), Some((AskVerdict::Waits, Some(process(2)))));
}

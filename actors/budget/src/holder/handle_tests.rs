//! Unit tests of handles: what stays in them while tasks come and go.

use std::{collections::BTreeMap, time::Duration};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, AskAnswer, AskVerdict, BudgetInput, BudgetLimit, BudgetView, GrantedSlice,
        LimitKey, LimitSource, ProcessStanding, WindowNumber,
    },
};
use tokio::{sync::mpsc, time::advance};

use super::{
    CallHold, CallNeeds, ConfiguredBudgets, HolderHandle, HolderInput, HolderOptions, Refusal,
    ReservePort, WaitReason,
    tests::{USD, cluster, need},
};

/// Hears why a call may not be made.
struct Refused(mpsc::Sender<Refusal>);

impl ReservePort for Refused {
    fn reserved(self: Box<Self>, _: CallHold) {}

    fn waits(&self, _: &AccountKey, _: LimitKey, _: WaitReason) {}

    fn refused(self: Box<Self>, refusal: Refusal) {
        self.0.try_send(refusal).unwrap();
    }
}

/// A holder of which one call waits, and what becomes of that.
fn waiting() -> (HolderHandle, mpsc::Receiver<Refusal>) {
    let handle = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
    let (tell, refused) = mpsc::channel(1);
    let needs =
        CallNeeds { needs: vec![need(cluster(), USD, 10, 0)], least_output: 1, most_output: 1 };
    assert!(handle.reserve(needs, Box::new(Refused(tell))).is_none());
    (handle, refused)
}

fn numbers(handle: &HolderHandle) -> Vec<u64> {
    handle.outbox().into_iter().map(|(_, number, _)| number).collect()
}

#[tokio::test]
async fn a_message_stays_under_its_number_until_it_is_stored() {
    let (handle, _refused) = waiting();
    let first = numbers(&handle);
    assert_eq!(first.len(), 1);
    assert_eq!(numbers(&handle), first, "a task that starts again sends it again");
    handle.sent(&cluster(), first[0] + 1, true);
    assert_eq!(numbers(&handle), first, "it was another one that is stored");
    handle.sent(&cluster(), first[0], true);
    assert!(numbers(&handle).is_empty());
    assert!(!handle.sleeps(), "a call waits");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_not_stored_is_sent_again_under_another_number() {
    let (handle, _refused) = waiting();
    let first = numbers(&handle);
    handle.sent(&cluster(), first[0], false);
    advance(Duration::from_millis(250)).await;
    handle.hears(HolderInput::Tick);
    let second = numbers(&handle);
    assert!(second.len() == 1 && second[0] > first[0], "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_run_has_not_waited() {
    let (handle, mut refused) = waiting();
    advance(Duration::from_hours(1)).await;
    handle.hears(HolderInput::Tick);
    refused.try_recv().unwrap_err();
    let patience = HolderOptions::default().patience.as_secs();
    for _ in 0..patience - 2 {
        advance(Duration::from_secs(1)).await;
        handle.hears(HolderInput::Tick);
    }
    refused.try_recv().unwrap_err();
    for _ in 0..2 {
        advance(Duration::from_secs(1)).await;
        handle.hears(HolderInput::Tick);
    }
    assert_eq!(refused.recv().await, Some(Refusal::Unavailable { account: cluster() }));
    assert!(!handle.sleeps(), "what it sent is not stored");
}

#[tokio::test(start_paused = true)]
async fn an_account_is_made_before_its_first_ask_and_when_it_is_silent() {
    let (handle, _refused) = waiting();
    assert_eq!(handle.birth_of(&cluster()), None, "there is no limit to make it with");
    let limit = BudgetLimit::new(USD.unit, USD.window, 5);
    let accounts = BTreeMap::from([(cluster(), vec![limit])]);
    let configured = ConfiguredBudgets { accounts, is_default: true, ..Default::default() };
    handle.configure(configured, HolderOptions::default());
    let birth =
        BudgetInput::Set { source: LimitSource::BuiltIn, limits: Some(vec![limit]), decides: None };
    assert_eq!(handle.birth_of(&cluster()), Some(birth.clone()));
    let (limits, is_default, by_person) = (vec![limit], true, false);
    handle.knows(BudgetView {
        account: cluster(),
        limits,
        is_default,
        by_person,
        version: 7,
        begun: None,
    });
    assert_eq!(handle.birth_of(&cluster()), None, "it is there");
    for _ in 0..2 {
        for number in numbers(&handle) {
            handle.sent(&cluster(), number, true);
        }
        for _ in 0..3 {
            advance(Duration::from_secs(1)).await;
            handle.hears(HolderInput::Tick);
        }
    }
    assert_eq!(handle.birth_of(&cluster()), Some(birth), "it may be gone");
    let (slices, answers) = (Vec::new(), Vec::new());
    handle.tells(ProcessStanding { account: cluster(), version: 8, begun: None, slices, answers });
    assert_eq!(handle.birth_of(&cluster()), None, "it answers");
}

/// The process has run since before the account was deleted, and heard it at a later event than any of the new one.
#[test]
fn an_account_that_began_again_is_heard_from_its_first_event_on() {
    let (handle, mut refused) = waiting();
    let Some((_, number, BudgetInput::Ask { asks, .. })) = handle.outbox().pop() else {
        panic!("no ask")
    };
    handle.sent(&cluster(), number, true);
    let spent_out = AskVerdict::SpentOut { spent: 100, limit: 100 };
    let says = |begun, version, verdict| {
        let (number, limit) = (asks[0].number, USD);
        let answers = vec![AskAnswer { number, limit, verdict, holder: None }];
        let (account, begun, slices) = (cluster(), Some(Timestamp(begun)), Vec::new());
        handle.tells(ProcessStanding { account, version, begun, slices, answers });
    };
    says(1, 90, AskVerdict::Waits);
    says(1, 80, spent_out);
    refused.try_recv().unwrap_err();
    says(2, 3, spent_out);
    assert!(matches!(refused.try_recv(), Ok(Refusal::Bankrupt { used: 100, .. })));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_gives_back_what_no_call_uses() {
    let (handle, _refused) = waiting();
    let Some((_, number, BudgetInput::Ask { asks, .. })) = handle.outbox().pop() else {
        panic!("no ask")
    };
    handle.sent(&cluster(), number, true);
    let (limit, window, amount) = (USD, WindowNumber(0), 100);
    let slice = GrantedSlice { number: asks[0].number, limit, window, amount, recalled: false };
    let (slices, answers) = (vec![slice], Vec::new());
    // The call is granted, and is gone at once.
    handle.tells(ProcessStanding { account: cluster(), version: 1, begun: None, slices, answers });
    let leaving = tokio::spawn({
        let handle = handle.clone();
        async move { handle.leave().await }
    });
    let closed = loop {
        tokio::task::yield_now().await;
        advance(Duration::from_millis(100)).await;
        let Some((_, number, body)) = handle.outbox().pop() else { continue };
        handle.sent(&cluster(), number, true);
        if let BudgetInput::Report { reports, .. } = body {
            break reports;
        }
    };
    assert!(
        matches!(closed.as_slice(), [report] if report.closed && report.returned == 100),
        "{closed:?}"
    );
    leaving.await.unwrap();
    assert!(handle.sleeps());
}

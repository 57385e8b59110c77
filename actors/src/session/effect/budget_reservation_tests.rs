//! Tests: how calls wait for money, and how long.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use clawnode_budget::holder::{CallCost, CallNeeds, Need};
use clawnode_kernel::{MachineInput, driver::Port};
use clawnode_proto::{
    CallId, TurnId,
    budget::AccountKey,
    lane::Lane,
    limits::{REFLECTION_TIME, SUMMARY_TIME},
    llm::{FailureClass, Usage},
};
use tokio::{
    sync::mpsc::{Receiver, error::TryRecvError},
    time::advance,
};
use tokio_util::sync::CancellationToken;

use super::model_call_tests::{DAILY_USD, Scripted, runner};
use crate::{
    agent::{Grant, Permit},
    session::{
        Effect, Outcome, Session, SessionRunner,
        played::{PlayedActivation, key},
        turn::effect::WantedHold,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// A call whose account has not answered yet.
struct WaitingCase {
    run: PlayedActivation,
    _runner: SessionRunner,
    effect: Effect,
    heard: Receiver<MachineInput<Session>>,
    /// Its place at its agent, as long as it has one.
    place: Weak<Permit>,
    _dir: tempfile::TempDir,
}

impl WaitingCase {
    async fn new(effect: impl FnOnce(TurnId, CallId) -> Effect, lane: Lane) -> Self {
        let model = Scripted { pieces: Vec::new(), cancelled: CancellationToken::new() };
        let (dir, runner, run) = runner(model).await;
        let (port, heard) = Port::<Session>::heard().await.unwrap();
        // From here on, time passes only as the test says.
        tokio::time::pause();
        let turn = TurnId::from_u128(7);
        let call = CallId::derive(turn, 3);
        let cost = CallCost { fixed: 100, per_million: 0 };
        let need = Need { account: AccountKey::Cluster, limit: DAILY_USD, cost, beside: 0 };
        let needs = CallNeeds { needs: vec![need], least_output: 1, most_output: 1 };
        let permit = Arc::new(Permit::outside(lane));
        let place = Arc::downgrade(&permit);
        let grant = Grant { permit, ..run.grant.clone() };
        let effect = effect(turn, call);
        let wanted = WantedHold { turn, call, grant, needs };
        assert!(runner.reserve(key().entity(), effect, wanted, &port).is_none());
        let mut case = Self { run, _runner: runner, effect, heard, place, _dir: dir };
        assert!(matches!(case.next().await, Some(MachineInput::Deferred(made)) if made == effect));
        case
    }

    async fn next(&mut self) -> Option<MachineInput<Session>> {
        self.heard.recv().await
    }

    /// What was said until now, and the tasks that say it have run.
    async fn is_silent(&mut self) -> bool {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        matches!(self.heard.try_recv(), Err(TryRecvError::Empty))
    }

    fn answer(&mut self) {
        self.run.budgets.as_mut().unwrap().answer();
    }

    /// What is spent and what is reserved, as the holder reports it.
    async fn reported(&mut self) -> (u64, u64) {
        let budgets = self.run.budgets.as_mut().unwrap();
        let mut last = None;
        for _ in 0..3 {
            advance(2 * SECOND).await;
            last = budgets.reported().or(last);
        }
        last.unwrap()
    }
}

fn summary(turn: TurnId, call: CallId) -> Effect {
    Effect::Compact { turn, call }
}

fn reflection(turn: TurnId, call: CallId) -> Effect {
    Effect::Reflect { turn, call }
}

fn usual(turn: TurnId, call: CallId) -> Effect {
    Effect::Call { turn, call }
}

/// Its turn goes on without a summary, and its place is free for others.
#[tokio::test]
async fn a_summary_that_waits_for_money_gives_up_after_a_minute() {
    let mut case = WaitingCase::new(summary, Lane::System).await;
    assert!(case.is_silent().await);
    advance(SUMMARY_TIME.saturating_sub(SECOND)).await;
    assert!(case.is_silent().await, "it waits for a whole minute");
    assert!(case.place.upgrade().is_some(), "it keeps its place meanwhile");
    advance(SECOND).await;
    let Some(MachineInput::Refused(effect, outcome)) = case.next().await else { panic!("granted") };
    let Outcome::Failed { failure, usage, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((effect, usage), (case.effect, Usage::default()));
    assert_eq!(failure.class, FailureClass::BudgetUnavailable);
    assert!(case.place.upgrade().is_none(), "its place is free");

    // Its money comes too late, and goes back.
    case.answer();
    assert!(case.is_silent().await, "its session has the answer");
    assert_eq!(case.reported().await, (0, 0), "BUD-2");
}

#[tokio::test]
async fn a_summary_whose_money_comes_in_time_is_granted_once() {
    let mut case = WaitingCase::new(summary, Lane::System).await;
    advance(SUMMARY_TIME.saturating_sub(SECOND)).await;
    case.answer();
    let Some(MachineInput::Granted(effect, grant)) = case.next().await else { panic!("refused") };
    assert_eq!(effect, case.effect);
    assert!(grant.hold.is_some() && case.place.upgrade().is_some());
    advance(2 * SUMMARY_TIME).await;
    assert!(case.is_silent().await, "the wait is over");
}

/// Other calls of the background wait on. Nothing waits for this one.
#[tokio::test]
async fn a_reflection_that_waits_for_money_gives_up_after_a_minute() {
    let mut case = WaitingCase::new(reflection, Lane::Background).await;
    assert!(case.is_silent().await);
    advance(REFLECTION_TIME.saturating_sub(SECOND)).await;
    assert!(case.is_silent().await, "it waits for a whole minute");
    advance(SECOND).await;
    let Some(MachineInput::Refused(effect, outcome)) = case.next().await else { panic!("granted") };
    let Outcome::Failed { failure, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((effect, failure.class), (case.effect, FailureClass::BudgetUnavailable));
    assert!(case.place.upgrade().is_none(), "its place is free");
    case.answer();
    assert!(case.is_silent().await, "its session has the answer");
}

#[tokio::test]
async fn other_calls_wait_on_for_their_money() {
    for lane in [Lane::Interactive, Lane::Background, Lane::System] {
        let mut case = WaitingCase::new(usual, lane).await;
        advance(2 * SUMMARY_TIME).await;
        assert!(case.is_silent().await, "{lane:?}");
        case.answer();
        let granted = case.next().await;
        assert!(matches!(granted, Some(MachineInput::Granted(..))), "{lane:?}");
        tokio::time::resume();
    }
}

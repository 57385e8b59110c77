//! How a model call gets what it may cost, or waits for it.
//!
//! A call that waits keeps its place at its agent: when its money comes, it begins at once. Its turn can be
//! cancelled meanwhile, and its session can leave memory: then it waits no more, and gives its place back.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use clawnode_budget::holder::{CallHold, CallNeeds, Refusal, ReservePort, WaitReason};
use clawnode_kernel::driver::Port;
use clawnode_proto::{
    Attempt, CallId, EntityId, Frame, FrameBody, FrameKey, TurnId,
    budget::{AccountKey, LimitKey, allow_command, reconcile_command},
    frame::Notice,
    llm::{FailureClass, ModelFailure},
    session::TurnOutcome,
};
use tracing::debug;

use super::{run::SessionRunner, waiting_holds::WaitingHold};
use crate::{
    agent::Grant,
    llm::profile::CallPrice,
    session::turn::{
        effect::Effect,
        kind::{Outcome, Session},
    },
};

/// The place of notices about a wait for money among the frames of the attempt before: after those of a
/// wait for a provider.
const WAIT_INDEX: u32 = (1 << 30) + (1 << 20);

/// Brings the holder's answer to a session's actor.
struct ReserveAnswer {
    runner: SessionRunner,
    entity: EntityId,
    effect: Effect,
    port: Port<Session>,
    grant: Grant,
    turn: TurnId,
    call: CallId,
    waiting: Arc<WaitingHold>,
    notices: AtomicU32,
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Reserves what a call may cost. If it has to wait, its session hears of the answer.
    pub(in crate::session) fn reserve(
        &self,
        (entity, effect): (EntityId, Effect),
        (turn, call): (TurnId, CallId),
        (grant, needs): (Grant, CallNeeds),
        port: &Port<Session>,
    ) -> Option<Grant> {
        if let Some(terms) = &grant.terms
            && matches!(grant.options.profiles.call_price(&terms.model), CallPrice::Unknown(_))
        {
            grant.options.profiles.warn_unpriced(&terms.model);
        }
        let waiting = Arc::new(WaitingHold::default());
        let answer = ReserveAnswer {
            runner: self.clone(),
            entity,
            effect,
            port: port.clone(),
            grant: grant.clone(),
            turn,
            call,
            waiting: Arc::clone(&waiting),
            notices: AtomicU32::new(0),
        };
        // Before it is asked for: the answer may come before this returns.
        self.holds.add((entity, effect), &waiting);
        if let Some(hold) = self.parts.budgets.reserve(needs, Box::new(answer)) {
            self.holds.forget((entity, effect), &waiting);
            return Some(Grant { hold: Some(Arc::new(hold)), ..grant });
        }
        let answered = waiting.answered();
        if !*answered {
            port.deferred(effect);
        }
        None
    }
}

// === impl ReserveAnswer ===

impl ReserveAnswer {
    /// What people read while the call waits. It is provisional, so it does not matter whether it is lost.
    fn notify(&self, name: &str, message: String) {
        let index = WAIT_INDEX.saturating_add(self.notices.fetch_add(1, Ordering::Relaxed));
        let terms = self.grant.terms.as_ref();
        let attempt = terms.map_or(0, |terms| terms.attempt.0.saturating_sub(1));
        let (turn, call, attempt) = (self.turn, self.call, Attempt(attempt));
        let key = FrameKey { turn, call, attempt, index };
        let body = FrameBody::Notice(Notice { name: name.to_owned(), message });
        let (runner, entity) = (self.runner.clone(), self.entity);
        // Detached: it ends by itself, and this may be called under a lock.
        drop(tokio::spawn(async move {
            if let Err(failure) = runner.publish(entity, None, vec![Frame { key, body }]).await {
                debug!(%entity, %failure, "cannot publish a notice");
            }
        }));
    }
}

impl ReservePort for ReserveAnswer {
    fn reserved(self: Box<Self>, hold: CallHold) {
        let mut answered = self.waiting.answered();
        *answered = true;
        let grant = Grant { hold: Some(Arc::new(hold)), ..self.grant.clone() };
        self.port.granted(self.effect, grant);
    }

    fn waits(&self, account: &AccountKey, limit: LimitKey, why: WaitReason) {
        let (name, message) = match why {
            WaitReason::Calls => (
                "budget_waiting",
                format!(
                    "the call waits: other calls have reserved what is left of `{account}` \
                     ({limit}); `clawnode budget show {account}` shows them"
                ),
            ),
            WaitReason::Stranded(process) => {
                let command = reconcile_command(account, &process);
                let message = format!(
                    "the call waits: a process that is dead has what is left of `{account}` \
                     ({limit}) until the window ends; to have it back now: `{command}`"
                );
                ("budget_stranded", message)
            }
            WaitReason::Person => {
                let command = allow_command(account, limit);
                let message = format!(
                    "the call waits: most of `{account}` ({limit}) is spent, and a person has to \
                     allow more: `{command}`"
                );
                (Notice::BUDGET_ASKS, message)
            }
        };
        self.notify(name, message);
    }

    fn refused(self: Box<Self>, refusal: Refusal) {
        let mut answered = self.waiting.answered();
        *answered = true;
        self.port.refused(self.effect, Outcome::Refused(outcome(refusal)));
    }

    fn is_closed(&self) -> bool {
        self.waiting.is_withdrawn() || self.port.is_closed()
    }
}

impl Drop for ReserveAnswer {
    fn drop(&mut self) {
        self.runner.holds.forget((self.entity, self.effect), &self.waiting);
    }
}

/// How a turn ends whose call gets nothing.
pub fn outcome(refusal: Refusal) -> TurnOutcome {
    let failed =
        |class, message: String| TurnOutcome::Failed { failure: ModelFailure::new(class, message) };
    match refusal {
        Refusal::Bankrupt { account, limit: LimitKey { unit, window }, used, most, needed } => {
            let account = account.to_string();
            let (limit, window) = (most, Some(window));
            TurnOutcome::Bankrupt { account, unit, used, limit, needed, window }
        }
        Refusal::NotAllowed { account, limit } => failed(
            FailureClass::BudgetNotAllowed,
            format!(
                "most of the budget of `{account}` ({limit}) is spent, and no person has allowed \
                 more in time; allow it with `{}`",
                allow_command(&account, limit)
            ),
        ),
        Refusal::Stranded { account, limit, process } => {
            let command = reconcile_command(&account, &process);
            failed(
                FailureClass::BudgetUnavailable,
                format!(
                    "a process that is dead has what is left of the budget of `{account}` \
                     ({limit}), and no person has given it back in time: `{command}`"
                ),
            )
        }
        Refusal::Unavailable { account } => failed(
            FailureClass::BudgetUnavailable,
            format!(
                "the budget of `{account}` did not answer in time, so no call was made; see \
                 `clawnode status`"
            ),
        ),
    }
}

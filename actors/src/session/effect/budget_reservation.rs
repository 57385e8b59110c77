//! How a model call gets what it may cost, or waits for it.
//!
//! A call that waits keeps its place at its agent: when its money comes, it begins at once. Its turn can be
//! cancelled meanwhile, and its session can leave memory: then it waits no more, and gives its place back. So does a
//! call of the background for which a more urgent one waits (LANE-1): it asks for a place again, and then for its
//! money. It does not wait for the money without a place: if it had that and no place, calls with places could wait
//! for it for ever.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, Ordering},
};

use clawnode_budget::holder::{CallHold, CallNeeds, Refusal, ReservePort, WaitReason};
use clawnode_kernel::driver::Port;
use clawnode_proto::{
    Attempt, CallId, EntityId, Frame, FrameBody, FrameKey, TurnId,
    budget::{AccountKey, LimitKey, WindowLength, allow_command, reconcile_command},
    frame::Notice,
    kill_switch::KillSwitch,
    lane::Lane,
    limits::{REFLECTION_TIME, SUMMARY_TIME},
    llm::{FailureClass, ModelFailure},
    session::TurnOutcome,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::{
    admission::{preempted, refuse, stopped},
    model_call::yields,
    session_runner::SessionRunner,
    waiting_holds::WaitingHold,
};
use crate::{
    agent::{AdmitPort, Grant, Permit, preemption::Yielding},
    llm::profile::CallPrice,
    session::turn::{
        effect::{Effect, Outcome, WantedHold},
        kind::Session,
    },
};

/// The place of notices about a wait for money among the frames of the attempt before: after those of a
/// wait for a provider.
const WAIT_INDEX: u32 = (1 << 30) + (1 << 20);

/// A call that reserves what it may cost.
#[derive(Clone)]
struct ReservingCall {
    runner: SessionRunner,
    entity: EntityId,
    effect: Effect,
    port: Port<Session>,
    turn: TurnId,
    call: CallId,
    needs: CallNeeds,
    /// What it gets with what it reserves, without its place.
    grant: Grant,
    /// Notices that were sent.
    notices: Arc<AtomicU32>,
}

/// Brings the holder's answer to a session's actor.
struct ReserveAnswer {
    it: ReservingCall,
    waiting: Arc<WaitingHold>,
    /// Cancelled when this is dropped.
    _over: DropGuard,
}

/// A call that has given its place back, and waits for another one. Dropped without one, it says so, and the
/// session asks again.
struct PlaceAgain {
    it: ReservingCall,
    waiting: Arc<WaitingHold>,
    is_answered: bool,
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Reserves what a call may cost. If it has to wait, its session hears of the answer.
    pub(in crate::session) fn reserve(
        &self,
        entity: EntityId,
        effect: Effect,
        wanted: WantedHold,
        port: &Port<Session>,
    ) -> Option<Grant> {
        let WantedHold { turn, call, grant, needs } = wanted;
        if let Some(terms) = &grant.terms
            && matches!(grant.options.profiles.call_price(&terms.model), CallPrice::Unknown(_))
        {
            grant.options.profiles.warn_unpriced(&terms.model);
        }
        let permit = Arc::clone(&grant.permit);
        let none = Arc::new(Permit::outside(permit.lane()));
        let reserving = ReservingCall {
            runner: self.clone(),
            entity,
            effect,
            port: port.clone(),
            turn,
            call,
            needs,
            grant: Grant { permit: none, ..grant },
            notices: Arc::default(),
        };
        reserving.reserve(permit)
    }
}

// === impl ReservingCall ===

impl ReservingCall {
    /// Reserves for a call that has this place.
    fn reserve(self, permit: Arc<Permit>) -> Option<Grant> {
        let (waiting, over) = (Arc::new(WaitingHold::with(&permit)), CancellationToken::new());
        let answer = ReserveAnswer {
            it: self.clone(),
            waiting: Arc::clone(&waiting),
            _over: over.clone().drop_guard(),
        };
        // Before it is asked for: the answer may come before this returns.
        self.runner.holds.add(self.entity, self.effect, &waiting);
        if let Some(hold) = self.runner.parts.budgets.reserve(self.needs.clone(), Box::new(answer))
        {
            self.runner.holds.forget(self.entity, self.effect, &waiting);
            return Some(Grant { hold: Some(Arc::new(hold)), permit, ..self.grant });
        }
        let wait = waiting.wait();
        if !wait.is_over {
            self.port.deferred(self.effect);
            let yielding = (permit.lane() == Lane::Background).then(|| {
                let yielding = Arc::new(Yielding::waiting());
                permit.may_yield(&yielding);
                yielding
            });
            let waiting = Arc::downgrade(&waiting);
            // Detached: each ends with the wait.
            match (self.effect, yielding) {
                (Effect::Compact { .. } | Effect::Reflect { .. }, yielding) => {
                    drop(tokio::spawn(self.gives_up(waiting, yielding, over)));
                }
                (_, Some(yielding)) => {
                    drop(tokio::spawn(self.gives_way(waiting, yielding, over)));
                }
                (_, None) => {}
            }
        }
        None
    }

    /// Ends the wait of a call that makes a summary or looks back at a turn after a minute: its session goes on without.
    /// One of the background ends as soon as a more urgent call waits for its place, too.
    async fn gives_up(
        self,
        waiting: Weak<WaitingHold>,
        yielding: Option<Arc<Yielding>>,
        over: CancellationToken,
    ) {
        let most = match self.effect {
            Effect::Reflect { .. } => REFLECTION_TIME,
            _ => SUMMARY_TIME,
        };
        let why = tokio::select! {
            biased;
            () = over.cancelled() => return,
            () = yields(yielding) => preempted().message,
            () = tokio::time::sleep(most) => "the budget had no room for it for a minute".to_owned(),
        };
        let Some(waiting) = waiting.upgrade() else { return };
        {
            let mut wait = waiting.wait();
            if std::mem::replace(&mut wait.is_over, true) {
                return;
            }
            // If its money comes now, it goes back.
            waiting.withdraw();
            drop(wait.permit.take());
        }
        refuse(&self.port, self.effect, ModelFailure::new(FailureClass::BudgetUnavailable, why));
    }

    /// Gives the place back as soon as a more urgent call waits for it.
    async fn gives_way(
        self,
        waiting: Weak<WaitingHold>,
        yielding: Arc<Yielding>,
        over: CancellationToken,
    ) {
        tokio::select! {
            biased;
            () = over.cancelled() => return,
            () = yielding.ended() => {}
        }
        let Some(waiting) = waiting.upgrade() else { return };
        {
            let mut wait = waiting.wait();
            if std::mem::replace(&mut wait.is_over, true) {
                return;
            }
            // Its holder forgets it with the next tick. If its money comes before that, it goes back.
            waiting.withdraw();
            drop(wait.permit.take());
        }
        let again = Arc::new(WaitingHold::default());
        self.runner.holds.add(self.entity, self.effect, &again);
        let found = self.runner.parts.agents.get(&self.grant.options.name);
        let asks = Box::new(PlaceAgain { it: self, waiting: again, is_answered: false });
        if let Ok(agent) = found {
            agent.admit(asks);
        }
    }

    /// What people read while the call waits. It is provisional, so it does not matter whether it is lost.
    fn notify(&self, name: &str, message: String) {
        if let Effect::Reflect { .. } = self.effect {
            // Clients are shown nothing of it: its turn has ended.
            return;
        }
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

// === impl ReserveAnswer ===

impl ReserveAnswer {
    /// Ends the wait, and says so with this; not if it is over.
    fn answer(&self, say: impl FnOnce(&ReservingCall, Arc<Permit>)) {
        let mut wait = self.waiting.wait();
        wait.is_over = true;
        if let Some(permit) = wait.permit.take() {
            permit.stays();
            say(&self.it, permit);
        }
    }
}

impl ReservePort for ReserveAnswer {
    fn reserved(self: Box<Self>, hold: CallHold) {
        self.answer(|reserving, permit| {
            let grant = Grant { hold: Some(Arc::new(hold)), permit, ..reserving.grant.clone() };
            reserving.port.granted(reserving.effect, grant);
        });
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
                let is_endless = limit.window == WindowLength::Forever;
                let until = if is_endless { "" } else { " until the window ends" };
                let message = format!(
                    "the call waits: what is left of `{account}` ({limit}) is too little for it, \
                     and a process that is dead has the rest{until}; to have that back now: \
                     `{command}`"
                );
                ("budget_stranded", message)
            }
            WaitReason::Person => {
                let command = allow_command(account, limit);
                let message = format!(
                    "the call waits: with what it may cost, most of `{account}` ({limit}) would be \
                     spent, and a person has to allow that: `{command}`"
                );
                (Notice::BUDGET_ASKS, message)
            }
        };
        self.it.notify(name, message);
    }

    fn refused(self: Box<Self>, refusal: Refusal) {
        self.answer(|reserving, _| {
            reserving.port.refused(reserving.effect, Outcome::Refused(outcome(refusal)));
        });
    }

    fn is_closed(&self) -> bool {
        self.waiting.is_withdrawn() || self.it.port.is_closed()
    }
}

impl Drop for ReserveAnswer {
    fn drop(&mut self) {
        let ReservingCall { runner, entity, effect, .. } = &self.it;
        runner.holds.forget(*entity, *effect, &self.waiting);
    }
}

// === impl PlaceAgain ===

impl AdmitPort for PlaceAgain {
    fn granted(mut self: Box<Self>, grant: Grant) {
        self.is_answered = true;
        let reserving = self.it.clone();
        let (port, effect) = (reserving.port.clone(), reserving.effect);
        if let Some(grant) = reserving.reserve(grant.permit) {
            port.granted(effect, grant);
        }
    }

    fn deferred(&self) {
        self.it.port.deferred(self.it.effect);
    }

    fn is_closed(&self) -> bool {
        self.waiting.is_withdrawn() || self.it.port.is_closed()
    }

    fn lane(&self) -> Option<Lane> {
        Some(self.it.grant.permit.lane())
    }

    fn stopped(mut self: Box<Self>, switch: &KillSwitch) -> Option<Box<dyn AdmitPort>> {
        // A turn that has begun ends; another waits, and comes back.
        if self.it.call.is_at(self.it.turn, 0) {
            return Some(self);
        }
        self.is_answered = true;
        refuse(&self.it.port, self.it.effect, stopped(switch));
        None
    }
}

impl Drop for PlaceAgain {
    fn drop(&mut self) {
        let ReservingCall { runner, entity, effect, .. } = &self.it;
        runner.holds.forget(*entity, *effect, &self.waiting);
        if !self.is_answered {
            self.it.port.forgotten(self.it.effect);
        }
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
                "with what the call may cost, most of `{account}` ({limit}) would be spent, and no \
                 person has allowed that in time; allow it with `{}`",
                allow_command(&account, limit)
            ),
        ),
        Refusal::Stranded { account, limit, process } => {
            let command = reconcile_command(&account, &process);
            failed(
                FailureClass::BudgetUnavailable,
                format!(
                    "what is left of the budget of `{account}` ({limit}) is too little for the \
                     call, a process that is dead has the rest, and no person has given that back \
                     in time: `{command}`"
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

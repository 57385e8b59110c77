//! The calls of sessions: they reserve from the holder of their process before they begin, and end what
//! they reserved with what they used.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use clawnode_actors::{
    agent::Grant,
    session::{Effect, Outcome},
};
use clawnode_budget::holder::{
    AccountLimits, AccountsView, CallHold, CallNeeds, CallUsage, EndHold, HolderInput, Reservation,
};
use clawnode_kernel::{KernelBug, MachineInput};
use clawnode_proto::{
    Attempt, CallId, EntityId, ProcessId, TurnId,
    budget::{AccountKey, BudgetLimit, Hold},
    llm::{FailureClass, ModelFailure, Text, Usage},
};
use rand::Rng;

use super::{account::accounts, bills::Bill};
use crate::{
    JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, process::PlannedNote,
};

/// Reservations of sessions have larger numbers than synthetic calls ever have.
const FIRST: u64 = 1 << 40;

/// How reservations have ended, until the holder hears of it: a call's end is said by what is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoldEnds(Arc<Mutex<Vec<HoldEnd>>>);

/// Which reservation has ended, and what it has used; nothing if its call was not made.
type HoldEnd = (Reservation, Option<CallUsage>);

/// The calls of sessions that have asked for a reservation, or have one.
#[derive(Debug, Default)]
pub(crate) struct SessionHolds {
    last: u64,
    granted: usize,
    waiting: BTreeMap<(ProcessId, Reservation), WaitingCall>,
    /// What each call has: granted, or running.
    held: BTreeMap<CallPlace, HeldCall>,
    /// What providers bill, once calls have ended.
    billed: BTreeMap<(ProcessId, Reservation), Bill>,
    /// Calls that have reserved before, wherever.
    before: BTreeMap<CallId, ProcessId>,
}

/// A call of one activation.
type CallPlace = (ProcessId, EntityId, u64, Effect);

#[derive(Debug)]
struct WaitingCall {
    at: ActivationPlace,
    effect: Effect,
    want: WantedCall,
    grant: Grant,
}

#[derive(Debug)]
struct HeldCall {
    hold: Arc<CallHold>,
    reservation: Reservation,
    input: u64,
}

/// Which call it is, and how many tokens it sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedCall {
    call: CallId,
    turn: TurnId,
    input: u64,
}

/// How a call ended, as its provider sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// With a reply, or a part of one: its usage is reported.
    Reported,
    /// Its stream broke before that.
    Broken,
    /// It was refused before it had cost anything.
    Refused,
}

// === impl HoldEnds ===

impl HoldEnds {
    fn take(&self) -> Vec<HoldEnd> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EndHold for HoldEnds {
    fn ends(&self, reservation: Reservation, usage: Option<CallUsage>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((reservation, usage));
    }
}

// === impl CallEnd ===

impl CallEnd {
    /// Of a call that failed so, if it did.
    pub(crate) fn of(failed: Option<FailureClass>) -> Self {
        match failed {
            None => Self::Reported,
            Some(FailureClass::BrokenStream | FailureClass::Timeout) => Self::Broken,
            Some(_) => Self::Refused,
        }
    }
}

// === impl SessionHolds ===

impl SessionHolds {
    /// Reservations that calls of sessions have got.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }
}

// === impl Sim ===

impl Sim {
    /// Whether the calls of sessions reserve.
    pub(crate) fn sessions_reserve(&self) -> bool {
        self.plan.budgets.accounts > 0 && self.plan.budgets.sessions
    }

    /// Which accounts there are, for a grant.
    pub(crate) fn accounts_view(&self) -> Arc<AccountsView> {
        if !self.sessions_reserve() {
            return Arc::default();
        }
        let limits = |(account, limits): (AccountKey, Vec<_>)| {
            let limits = limits.iter().map(|limit: &BudgetLimit| limit.key);
            (account, AccountLimits { limits: limits.collect(), ..AccountLimits::default() })
        };
        let accounts = accounts(&self.plan).into_iter().map(limits).collect();
        Arc::new(AccountsView { accounts, each_user: None })
    }

    /// A call has its place, and reserves what it may cost. Its request has some of the tokens that it may
    /// have at most.
    pub(crate) fn session_reserves(
        &mut self,
        at: ActivationPlace,
        (effect, turn, call): (Effect, TurnId, CallId),
        (needs, grant): (CallNeeds, Grant),
    ) {
        let most = grant.terms.as_ref().map_or(1, |terms| terms.input.max(1));
        let input = self.world.rng.random_range(1..=most);
        let want = WantedCall { call, turn, input };
        let process = at.process;
        let deferred = MachineInput::Deferred(effect);
        self.world.mail(
            process,
            at.entity.as_u128(),
            PlannedNote::Feed(at.entity, at.counter, deferred),
        );
        let before = self.session_holds.before.get(&want.call).copied();
        if self.planted == KernelBug::ForgetsHold && before.is_some_and(|one| one != process) {
            let granted = Grant { accounts: Arc::default(), ..grant };
            let granted = MachineInput::Granted(effect, granted);
            let granted = PlannedNote::Feed(at.entity, at.counter, granted);
            self.world.mail(process, at.entity.as_u128(), granted);
            return;
        }
        self.session_holds.last += 1;
        let reservation = Reservation(FIRST + self.session_holds.last);
        let waiting = WaitingCall { at, effect, want, grant };
        self.session_holds.waiting.insert((process, reservation), waiting);
        let about = format!("call {} of a session wants {needs:?}", reservation.0);
        let wants = PlannedNote::own(about, move |sim| {
            if sim.session_holds.waiting.contains_key(&(process, reservation)) {
                sim.bills.wants(process, reservation);
                sim.holder_takes(process, HolderInput::Reserve(reservation, needs))?;
            }
            Ok(())
        });
        self.world.mail(process, 0, wants);
    }

    /// A holder has granted what a session's call wants. Says whether it was one.
    pub(super) fn session_call_granted(
        &mut self,
        process: ProcessId,
        (reservation, output): (Reservation, u64),
        holds: &[Hold],
    ) -> Result<bool, JudgeViolation> {
        let waiting = self.session_holds.waiting.remove(&(process, reservation));
        let Some(WaitingCall { at, effect, want, grant }) = waiting else {
            return Ok(false);
        };
        self.session_holds.granted += 1;
        self.bills.begins(process, reservation, holds.to_vec())?;
        let Some(ends) = self.hold_ends(process) else { return Ok(true) };
        let hold = CallHold::of((reservation, output, holds.to_vec()), Box::new(ends));
        let hold = Arc::new(hold);
        let place = (process, at.entity, at.counter, effect);
        let call = HeldCall { hold: Arc::clone(&hold), reservation, input: want.input };
        self.session_holds.held.insert(place, call);
        self.session_holds.before.insert(want.call, process);
        let granted = MachineInput::Granted(effect, Grant { hold: Some(hold), ..grant });
        let granted = PlannedNote::Feed(at.entity, at.counter, granted);
        self.world.mail(process, at.entity.as_u128(), granted);
        Ok(true)
    }

    /// A holder refuses what a session's call wants. Says whether it was one.
    pub(super) fn session_call_refused(&mut self, process: ProcessId, call: Reservation) -> bool {
        let Some(waiting) = self.session_holds.waiting.remove(&(process, call)) else {
            return false;
        };
        let WaitingCall { at, effect, want, .. } = waiting;
        self.judge.refused(at.entity, want.turn);
        let failure = ModelFailure::new(FailureClass::NoAgent, "no money".to_owned());
        let (attempt, partial, usage) = (Attempt(0), Text::from(""), Usage::default());
        let refused = Outcome::Failed { attempt, failure, partial, usage };
        let refused =
            PlannedNote::Feed(at.entity, at.counter, MachineInput::Refused(effect, refused));
        self.world.mail(process, at.entity.as_u128(), refused);
        true
    }

    /// A machine does not want a call any more that asked for a reservation, or has one.
    pub(crate) fn session_call_released(&mut self, at: ActivationPlace, effect: Effect) -> Checked {
        let process = at.process;
        let is_it = |one: &WaitingCall| one.at == at && one.effect == effect;
        let waiting = self.session_holds.waiting.iter();
        let found = waiting.filter(|(_, one)| is_it(one)).map(|(key, _)| *key);
        for (of, reservation) in found.collect::<Vec<_>>() {
            self.session_holds.waiting.remove(&(of, reservation));
            self.bills.refused(process, reservation);
            self.holder_takes(process, HolderInput::Release(reservation))?;
        }
        self.session_holds.held.remove(&(process, at.entity, at.counter, effect));
        self.holds_end_for(process)
    }

    /// An activation has ended, with all of its calls.
    pub(crate) fn session_calls_end(&mut self, at: ActivationPlace) -> Checked {
        let waiting = self.session_holds.waiting.values().filter(|one| one.at == at);
        let mut effects: Vec<Effect> = waiting.map(|one| one.effect).collect();
        let of = |(process, entity, counter, _): &&CallPlace| {
            (*process, *entity, *counter) == (at.process, at.entity, at.counter)
        };
        effects.extend(self.session_holds.held.keys().filter(of).map(|place| place.3));
        effects.into_iter().try_for_each(|effect| self.session_call_released(at, effect))
    }

    /// A process has died, and what its calls had reserved with it.
    pub(crate) fn session_calls_die(&mut self, process: ProcessId) {
        self.session_holds.waiting.retain(|(of, _), _| *of != process);
        self.session_holds.held.retain(|(of, ..), _| *of != process);
        self.session_holds.billed.retain(|(of, _), _| *of != process);
    }

    /// BUD-1: a call that limits hold for begins with what it has reserved.
    pub(crate) fn session_call_starts(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        call: CallId,
    ) -> Checked {
        if !self.sessions_reserve() {
            return Ok(());
        }
        let place = (at.process, at.entity, at.counter, effect);
        let Some(held) = self.session_holds.held.get(&place) else {
            let text = format!("`{call}` begins by `{}` without a hold of its own", at.process);
            return Err(JudgeViolation::new("BUD-1", text));
        };
        held.hold.sent();
        Ok(())
    }

    /// A session's call ends; its usage, if it reserved any.
    pub(crate) fn session_call_ends(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        end: CallEnd,
    ) -> Result<Option<Usage>, JudgeViolation> {
        let place = (at.process, at.entity, at.counter, effect);
        let Some(held) = self.session_holds.held.remove(&place) else { return Ok(None) };
        let HeldCall { hold, reservation, input } = held;
        let most = hold.output;
        let (input, output) = match end {
            CallEnd::Reported => (input, self.world.rng.random_range(0..=most)),
            CallEnd::Broken => (input, most),
            CallEnd::Refused => (0, 0),
        };
        let bill = match end {
            CallEnd::Broken => Bill::Unknown,
            CallEnd::Reported | CallEnd::Refused => Bill::Exact(Self::exact(input, output)),
        };
        self.session_holds.billed.insert((at.process, reservation), bill);
        let known = CallUsage::Known { usd: self.cost(input, output), tokens: input + output };
        hold.settle(if end == CallEnd::Broken { CallUsage::Unknown } else { known });
        drop(hold);
        self.holds_end_for(at.process)?;
        Ok(Some(Usage { input_tokens: input, output_tokens: output, ..Usage::default() }))
    }

    fn hold_ends(&self, process: ProcessId) -> Option<HoldEnds> {
        Some(self.processes.get(&process)?.holder.as_ref()?.ends.clone())
    }

    /// The holder hears how calls have ended.
    pub(crate) fn holds_end_for(&mut self, process: ProcessId) -> Checked {
        let Some(ends) = self.hold_ends(process) else { return Ok(()) };
        for (reservation, usage) in ends.take() {
            let billed = self.session_holds.billed.remove(&(process, reservation));
            let bill = match usage {
                None => Bill::None,
                Some(_) => billed.unwrap_or(Bill::Unknown),
            };
            self.bills.ends(process, reservation, bill)?;
            let end = match usage {
                None => HolderInput::Release(reservation),
                Some(usage) => HolderInput::Settle(reservation, usage),
            };
            self.holder_takes(process, end)?;
        }
        Ok(())
    }
}

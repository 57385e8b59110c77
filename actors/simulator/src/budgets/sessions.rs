//! The calls of sessions: they reserve from the holder of their process before they begin, and end what
//! they reserved with what they used.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use clawnode_actors::{
    agent::{CallBill, Grant},
    session::{
        Effect, Outcome, WantedHold,
        turn::{prepare::CallJob, state_parts::settled_cost::settles},
    },
};
use clawnode_budget::holder::{
    AccountLimits, AccountsView, CallHold, CallUsage, EndHold, GrantedHolds, HolderInput,
    Reservation,
};
use clawnode_kernel::{KernelBug, MachineInput};
use clawnode_proto::{
    Attempt, CallId, EntityId, ProcessId, TurnId,
    budget::{AccountKey, BudgetLimit, Hold},
    llm::{FailureClass, ModelFailure, Text, Usage},
    model::ModelPrice,
};
use rand::Rng;

use super::{
    account::accounts,
    bills::Bill,
    calls::{exact_at, price_at},
};
use crate::{
    JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, judge::CallMade,
    process::PlannedNote,
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
    /// What its provider takes for a million tokens: prices may change before it ends.
    price: ModelPrice,
    want: WantedCall,
    /// What it was begun with.
    paid: Option<(Attempt, CallBill)>,
}

/// Which call it is, and how many tokens it sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedCall {
    call: CallId,
    turn: TurnId,
    input: u64,
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

// === impl SessionHolds ===

impl SessionHolds {
    /// Reservations that calls of sessions have got.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// What calls of this process have reserved that were not sent, and whose calls they are.
    pub(super) fn unsent(&self, process: ProcessId) -> impl Iterator<Item = (EntityId, &[Hold])> {
        let held = self.held.iter().filter(move |((owner, ..), _)| *owner == process);
        let unsent = held.filter(|(_, call)| call.paid.is_none());
        unsent.map(|((_, entity, ..), call)| (*entity, &call.hold.holds[..]))
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
        effect: Effect,
        wants: WantedHold,
    ) {
        let WantedHold { turn, call, needs, grant } = wants;
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
        let is_unheld = match self.planted {
            KernelBug::ForgetsHold => before.is_some_and(|one| one != process),
            KernelBug::ReflectionHoldForgotten => {
                let is_reflection = matches!(effect, Effect::Reflect { .. });
                is_reflection && before.is_some_and(|one| one != process)
            }
            KernelBug::SummaryUnheld => matches!(effect, Effect::Compact { .. }),
            KernelBug::ReflectionUnheld => matches!(effect, Effect::Reflect { .. }),
            _ => false,
        };
        if is_unheld {
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
        let about = self.about(|| format!("call {} of a session wants {needs:?}", reservation.0));
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
        granted: &GrantedHolds,
    ) -> Result<bool, JudgeViolation> {
        let reservation = granted.reservation;
        let waiting = self.session_holds.waiting.remove(&(process, reservation));
        let Some(WaitingCall { at, effect, want, grant }) = waiting else {
            return Ok(false);
        };
        self.session_holds.granted += 1;
        self.bills.begins(process, reservation, granted.holds.clone())?;
        let Some(ends) = self.hold_ends(process) else { return Ok(true) };
        let hold = Arc::new(CallHold::of(granted.clone(), Box::new(ends)));
        let place = (process, at.entity, at.counter, effect);
        let price = grant.terms.as_ref().map_or(ModelPrice::FREE, |terms| terms.price);
        let call = HeldCall { hold: Arc::clone(&hold), reservation, price, want, paid: None };
        self.session_holds.held.insert(place, call);
        self.session_holds.before.insert(want.call, process);
        let granted = MachineInput::Granted(effect, Grant { hold: Some(hold), ..grant });
        let granted = PlannedNote::Feed(at.entity, at.counter, granted);
        self.world.mail(process, at.entity.as_u128(), granted);
        if self.plan.budgets.dies_holding {
            self.plan_death(process, reservation);
        }
        Ok(true)
    }

    /// A holder refuses what a session's call wants. Says whether it was one.
    pub(super) fn session_call_refused(&mut self, process: ProcessId, call: Reservation) -> bool {
        let Some(waiting) = self.session_holds.waiting.remove(&(process, call)) else {
            return false;
        };
        let WaitingCall { at, effect, want, .. } = waiting;
        // A session goes on without a summary or a reflection.
        if !effect.is_beside() {
            self.judge.refused(at.entity, want.turn);
        }
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
        for (owner, reservation) in found.collect::<Vec<_>>() {
            self.session_holds.waiting.remove(&(owner, reservation));
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
        let is_of_activation = |(process, entity, counter, _): &&CallPlace| {
            (*process, *entity, *counter) == (at.process, at.entity, at.counter)
        };
        effects
            .extend(self.session_holds.held.keys().filter(is_of_activation).map(|place| place.3));
        effects.into_iter().try_for_each(|effect| self.session_call_released(at, effect))
    }

    /// A process has died, and what its calls had reserved with it.
    pub(crate) fn session_calls_die(&mut self, process: ProcessId) {
        self.session_holds.waiting.retain(|(owner, _), _| *owner != process);
        self.session_holds.held.retain(|(owner, ..), _| *owner != process);
        self.session_holds.billed.retain(|(owner, _), _| *owner != process);
    }

    /// BUD-1: a call that limits hold for begins with what it has reserved.
    pub(crate) fn session_call_starts(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        job: &CallJob,
    ) -> Checked {
        if !self.sessions_reserve() {
            return Ok(());
        }
        let place = (at.process, at.entity, at.counter, effect);
        let held = self.session_holds.held.get_mut(&place);
        let Some((held, paid)) = held.zip(job.paid.clone()) else {
            let (call, process) = (job.call, at.process);
            let text = format!("`{call}` begins by `{process}` without a hold of its own");
            return Err(JudgeViolation::new("BUD-1", text));
        };
        held.hold.sent();
        held.paid = Some((job.attempt, paid));
        Ok(())
    }

    /// A session's call ends in this way; its usage, if it had reserved any.
    pub(crate) fn session_call_ends(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        failure: Option<&ModelFailure>,
    ) -> Result<Option<Usage>, JudgeViolation> {
        let place = (at.process, at.entity, at.counter, effect);
        let Some(held) = self.session_holds.held.remove(&place) else { return Ok(None) };
        let HeldCall { hold, reservation, price, want, paid } = held;
        let Some((attempt, paid)) = paid else {
            drop(hold);
            self.holds_end_for(at.process)?;
            return Ok(None);
        };
        let usage = self.session_usage(want.input, &paid, hold.output, failure);
        // What the provider takes, by its price when the call was granted. An estimate is believed.
        let exact = exact_at(&price, &usage);
        let settled = self.session_settles(&paid, &usage, failure);
        let (bill, exact) = match settled {
            CallUsage::Known { .. } => (Bill::Exact(exact), Some(exact)),
            CallUsage::Unknown => (Bill::Unknown, None),
        };
        let made = CallMade { process: at.process, call: want.call, attempt };
        self.judge.settles(made, settled, exact)?;
        self.session_holds.billed.insert((at.process, reservation), bill);
        hold.settle(settled);
        drop(hold);
        self.holds_end_for(at.process)?;
        Ok(Some(usage))
    }

    /// What a call has used: by its provider, by an estimate if it broke off, or nothing is known.
    fn session_usage(
        &mut self,
        input: u64,
        paid: &CallBill,
        most: u64,
        failure: Option<&ModelFailure>,
    ) -> Usage {
        let rng = &mut self.world.rng;
        let output_tokens = rng.random_range(0..=most);
        let Some(failure) = failure else {
            let cache_read_tokens = rng.random_range(0..=input);
            let cache_write_tokens = rng.random_range(0..=input - cache_read_tokens);
            let cached = Usage { cache_read_tokens, cache_write_tokens, ..Usage::default() };
            return Usage { input_tokens: input, output_tokens, ..cached };
        };
        match failure.class {
            FailureClass::BrokenStream | FailureClass::Timeout if rng.random_bool(0.5) => {
                Usage::default()
            }
            FailureClass::BrokenStream
            | FailureClass::Timeout
            | FailureClass::Cancelled
            | FailureClass::GlobalTime
            | FailureClass::StepTime
            | FailureClass::Stopped
            | FailureClass::Preempted => {
                let (input_tokens, estimated) = (paid.input, true);
                Usage { input_tokens, output_tokens, estimated, ..Usage::default() }
            }
            _ => Usage::default(),
        }
    }

    /// What production settles, or a planted bug.
    fn session_settles(
        &self,
        paid: &CallBill,
        usage: &Usage,
        failure: Option<&ModelFailure>,
    ) -> CallUsage {
        let now = self.world.now().0.saturating_sub(self.started);
        let settled = match self.planted {
            KernelBug::SettlesAtNewPrice => {
                settles(&CallBill { price: price_at(now), ..paid.clone() }, usage, failure)
            }
            _ => settles(paid, usage, failure),
        };
        match settled {
            CallUsage::Known { usd, tokens } if self.planted == KernelBug::RoundsDown => {
                CallUsage::Known { usd: usd.saturating_sub(1), tokens }
            }
            settled => settled,
        }
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

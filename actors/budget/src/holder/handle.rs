//! What calls of a process use to reserve, and to say what they cost.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountKey, BudgetInput, Hold, LimitKey},
};
use tokio::{sync::Notify, time::Instant};

use super::{
    AccountsView, CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Refusal,
    Reservation,
};

/// Where the answer to a reservation goes.
pub trait ReservePort: Send + 'static {
    /// The call may be made.
    fn reserved(self: Box<Self>, hold: CallHold);
    /// The call waits for others to give something back. Said once for each limit.
    fn waits(&self, account: &AccountKey, limit: LimitKey);
    /// The call may not be made.
    fn refused(self: Box<Self>, refusal: Refusal);
    /// Whether the call is not wanted any more. One that waits is then forgotten with the next tick.
    fn is_closed(&self) -> bool {
        false
    }
}

/// The holder of a process. Cheap to clone.
#[derive(Clone)]
pub struct HolderHandle {
    shared: Arc<HolderShared>,
}

/// What a call has reserved. It ends once (BUD-2): settled, or released if it is dropped before
/// [`CallHold::sent`], or counted whole if it is dropped after that.
#[derive(Debug)]
pub struct CallHold {
    /// The cap on output with which the call is paid.
    pub output: u64,
    /// What is reserved, in the order of accounts and limits.
    pub holds: Vec<Hold>,
    reservation: Reservation,
    end: Mutex<HoldPhase>,
    holder: HolderHandle,
}

/// How far a call is that has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldPhase {
    NotSent,
    Sent,
    Ended,
}

struct HolderShared {
    state: Mutex<HolderState>,
    accounts: RwLock<Arc<AccountsView>>,
    /// Wakes the task that sends what the machine wants to send.
    wake: Notify,
    begun: Instant,
}

struct HolderState {
    holder: Holder,
    last: u64,
    ports: BTreeMap<Reservation, Box<dyn ReservePort>>,
    /// At most one for each account: the machine sends the next one after `Stored`.
    outbox: Vec<(AccountKey, BudgetInput)>,
}

/// What is said to calls once the lock is free: ports may call the holder.
enum Said {
    Reserved(Box<dyn ReservePort>, CallHold),
    Refused(Box<dyn ReservePort>, Refusal),
}

// === impl HolderHandle ===

impl HolderHandle {
    /// The holder of a process that begins. Its task (`actor`) has to run.
    pub fn new(process: ProcessId, options: HolderOptions) -> Self {
        let state = HolderState {
            holder: Holder::new(process, options),
            last: 0,
            ports: BTreeMap::new(),
            outbox: Vec::new(),
        };
        let shared = HolderShared {
            state: Mutex::new(state),
            accounts: RwLock::default(),
            wake: Notify::new(),
            begun: Instant::now(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The process whose slices these are.
    pub fn process(&self) -> ProcessId {
        self.state().holder.process()
    }

    /// Which accounts there are, as this process knows it.
    pub fn accounts(&self) -> Arc<AccountsView> {
        Arc::clone(&self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reserves what a call needs. Returns it if there is enough at hand; else the port is told later.
    pub fn reserve(&self, needs: CallNeeds, port: Box<dyn ReservePort>) -> Option<CallHold> {
        let reservation = {
            let mut state = self.state();
            state.last += 1;
            let reservation = Reservation(state.last);
            state.ports.insert(reservation, port);
            reservation
        };
        let said = self.takes(HolderInput::Reserve(reservation, needs));
        let mut at_once = None;
        for one in said {
            match one {
                Said::Reserved(_, hold) if hold.reservation == reservation => at_once = Some(hold),
                other => other.say(),
            }
        }
        at_once
    }

    /// Takes what happened, and says what follows.
    pub(super) fn hears(&self, input: HolderInput) {
        self.takes(input).into_iter().for_each(Said::say);
    }

    fn takes(&self, input: HolderInput) -> Vec<Said> {
        let now = self.shared.begun.elapsed().as_millis();
        let now = Timestamp(u64::try_from(now).unwrap_or(u64::MAX));
        let mut said = Vec::new();
        let mut state = self.state();
        let is_tick = matches!(input, HolderInput::Tick);
        let mut outputs = state.holder.handle(now, input);
        // Dropped once the lock is free.
        let closed = if is_tick { state.forget_closed(now, &mut outputs) } else { Vec::new() };
        for output in outputs {
            match output {
                HolderOutput::Send(account, body) => {
                    state.outbox.push((account, body));
                    self.shared.wake.notify_one();
                }
                HolderOutput::Granted(reservation, output, holds) => {
                    let end = Mutex::new(HoldPhase::NotSent);
                    let holder = self.clone();
                    let hold = CallHold { output, holds, reservation, end, holder };
                    let port = state.ports.remove(&reservation);
                    said.extend(port.map(|port| Said::Reserved(port, hold)));
                }
                HolderOutput::Waits(reservation, account, limit) => {
                    if let Some(port) = state.ports.get(&reservation) {
                        port.waits(&account, limit);
                    }
                }
                HolderOutput::Refused(reservation, refusal) => {
                    let port = state.ports.remove(&reservation);
                    said.extend(port.map(|port| Said::Refused(port, refusal)));
                }
            }
        }
        drop(state);
        drop(closed);
        said
    }

    fn state(&self) -> MutexGuard<'_, HolderState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For tests, which are its accounts and its task.
#[cfg(feature = "test-util")]
impl HolderHandle {
    /// These accounts there are.
    pub fn knows(&self, accounts: AccountsView) {
        *self.shared.accounts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(accounts);
    }

    /// What it has sent.
    pub fn asked(&self) -> Vec<(AccountKey, BudgetInput)> {
        std::mem::take(&mut self.state().outbox)
    }

    /// This happened.
    pub fn happens(&self, input: HolderInput) {
        self.hears(input);
    }
}

impl fmt::Debug for HolderHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderHandle").finish_non_exhaustive()
    }
}

// === impl HolderState ===

impl HolderState {
    /// Calls that wait and are not wanted any more do not hold others up.
    fn forget_closed(
        &mut self,
        now: Timestamp,
        outputs: &mut Vec<HolderOutput>,
    ) -> Vec<Box<dyn ReservePort>> {
        let closed = self.ports.extract_if(.., |_, port| port.is_closed());
        let closed: Vec<_> = closed.collect();
        for (reservation, _) in &closed {
            outputs.extend(self.holder.handle(now, HolderInput::Release(*reservation)));
        }
        closed.into_iter().map(|(_, port)| port).collect()
    }
}

// === impl CallHold ===

impl CallHold {
    /// The request is about to be sent: from here on the provider may bill it.
    pub fn sent(&self) {
        let mut end = self.phase();
        if *end == HoldPhase::NotSent {
            *end = HoldPhase::Sent;
        }
    }

    /// The call was not made, even if it was about to be. Only the first end counts.
    pub fn release(&self) {
        if std::mem::replace(&mut *self.phase(), HoldPhase::Ended) != HoldPhase::Ended {
            self.holder.hears(HolderInput::Release(self.reservation));
        }
    }

    /// The call has ended. Only the first time counts.
    pub fn settle(&self, usage: CallUsage) {
        if std::mem::replace(&mut *self.phase(), HoldPhase::Ended) != HoldPhase::Ended {
            self.holder.hears(HolderInput::Settle(self.reservation, usage));
        }
    }

    fn phase(&self) -> MutexGuard<'_, HoldPhase> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallHold {
    fn drop(&mut self) {
        let phase = *self.phase();
        match phase {
            HoldPhase::NotSent => self.release(),
            HoldPhase::Sent => self.settle(CallUsage::Unknown),
            HoldPhase::Ended => {}
        }
    }
}

// === impl Said ===

impl Said {
    fn say(self) {
        match self {
            Self::Reserved(port, hold) => port.reserved(hold),
            Self::Refused(port, refusal) => port.refused(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use clawnode_proto::budget::{
        BudgetUnit, GrantedSlice, ProcessStanding, WindowLength, WindowNumber,
    };

    use super::*;
    use crate::holder::{CallCost, Need};

    const LIMIT: LimitKey = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Day };

    struct FlaggedPort(Arc<AtomicBool>);

    impl ReservePort for FlaggedPort {
        fn reserved(self: Box<Self>, _: CallHold) {}

        fn waits(&self, _: &AccountKey, _: LimitKey) {}

        fn refused(self: Box<Self>, _: Refusal) {}

        fn is_closed(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn port() -> (Arc<AtomicBool>, Box<FlaggedPort>) {
        let is_closed = Arc::new(AtomicBool::new(false));
        (Arc::clone(&is_closed), Box::new(FlaggedPort(is_closed)))
    }

    /// A call that needs 100 tokens.
    fn needs() -> CallNeeds {
        let cost = CallCost { fixed: 100, per_million: 0 };
        let needs = vec![Need { account: AccountKey::Cluster, limit: LIMIT, cost }];
        CallNeeds { needs, least_output: 1, most_output: 1 }
    }

    #[test]
    fn a_call_that_is_not_wanted_any_more_does_not_wait() {
        let handle = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        let (is_closed, port) = port();
        assert!(handle.reserve(needs(), port).is_none());
        handle.hears(HolderInput::Tick);
        assert_eq!((Arc::strong_count(&is_closed), handle.state().holder.waiting()), (2, 1));
        is_closed.store(true, Ordering::Relaxed);
        handle.hears(HolderInput::Tick);
        let waiting = handle.state().holder.waiting();
        assert_eq!((Arc::strong_count(&is_closed), waiting), (1, 0), "its place is given back");
    }

    #[test]
    fn what_was_about_to_be_sent_and_was_not_is_given_back() {
        let handle = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        assert!(handle.reserve(needs(), port().1).is_none());
        let (number, amount, window) = (1, 100, WindowNumber(7));
        let slice = GrantedSlice { number, limit: LIMIT, window, amount, recalled: false };
        handle.hears(HolderInput::Told(ProcessStanding {
            account: AccountKey::Cluster,
            version: 1,
            slices: vec![slice],
            answers: Vec::new(),
        }));
        // The port has dropped the first hold, which was never sent.
        let hold = handle.reserve(needs(), port().1).expect("the slice is enough for one");
        hold.sent();
        hold.release();
        drop(hold);
        assert_eq!(handle.state().holder.holds().count(), 0);
        let again = handle.reserve(needs(), port().1).expect("nothing of it is spent");
        again.sent();
        drop(again);
        assert!(handle.reserve(needs(), port().1).is_none(), "a call without an end counts whole");
    }
}

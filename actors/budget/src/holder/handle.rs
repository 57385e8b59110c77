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
    holder: Box<dyn EndHold>,
}

/// Who hears that a call's reservation has ended.
pub trait EndHold: fmt::Debug + Send + Sync {
    /// It has ended: with this usage, or its call was never made.
    fn ends(&self, reservation: Reservation, usage: Option<CallUsage>);
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
        for output in state.holder.handle(now, input) {
            match output {
                HolderOutput::Send(account, body) => {
                    state.outbox.push((account, body));
                    self.shared.wake.notify_one();
                }
                HolderOutput::Granted(reservation, output, holds) => {
                    let granted = (reservation, output, holds);
                    let hold = CallHold::of(granted, Box::new(self.clone()));
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
        said
    }

    fn state(&self) -> MutexGuard<'_, HolderState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HolderHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderHandle").finish_non_exhaustive()
    }
}

impl EndHold for HolderHandle {
    fn ends(&self, reservation: Reservation, usage: Option<CallUsage>) {
        self.hears(match usage {
            Some(usage) => HolderInput::Settle(reservation, usage),
            None => HolderInput::Release(reservation),
        });
    }
}

// === impl CallHold ===

impl CallHold {
    /// What a holder has granted; `holder` hears how it ends.
    pub fn of(
        (reservation, output, holds): (Reservation, u64, Vec<Hold>),
        holder: Box<dyn EndHold>,
    ) -> Self {
        Self { output, holds, reservation, end: Mutex::new(HoldPhase::NotSent), holder }
    }

    /// The request is about to be sent: from here on the provider may bill it.
    pub fn sent(&self) {
        let mut end = self.phase();
        if *end == HoldPhase::NotSent {
            *end = HoldPhase::Sent;
        }
    }

    /// The call has ended. Only the first time counts.
    pub fn settle(&self, usage: CallUsage) {
        if std::mem::replace(&mut *self.phase(), HoldPhase::Ended) != HoldPhase::Ended {
            self.holder.ends(self.reservation, Some(usage));
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
            HoldPhase::NotSent => self.holder.ends(self.reservation, None),
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

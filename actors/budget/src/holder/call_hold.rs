//! What a call has reserved, and how that ends.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use clawnode_proto::budget::Hold;

use super::{CallUsage, GrantedHolds, Reservation};

/// What a call has reserved. It ends once (BUD-2): settled, or released if it is dropped before
/// [`CallHold::sent`], or counted whole if it is dropped after that.
#[derive(Debug)]
pub struct CallHold {
    /// The cap on output with which the call is paid.
    pub output: u64,
    /// What is reserved, in the order of accounts and limits.
    pub holds: Vec<Hold>,
    pub(super) reservation: Reservation,
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

// === impl CallHold ===

impl CallHold {
    /// What a holder has granted; `holder` hears how it ends.
    pub fn of(granted: GrantedHolds, holder: Box<dyn EndHold>) -> Self {
        let GrantedHolds { reservation, output, holds } = granted;
        Self { output, holds, reservation, end: Mutex::new(HoldPhase::NotSent), holder }
    }

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
            self.holder.ends(self.reservation, None);
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
            HoldPhase::NotSent => self.release(),
            HoldPhase::Sent => self.settle(CallUsage::Unknown),
            HoldPhase::Ended => {}
        }
    }
}

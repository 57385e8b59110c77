//! The slices of one limit that a process has, and when one that no call uses is idle.

use std::time::Duration;

#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountVersion, GrantedSlice, WindowNumber},
};

use super::CallCost;

/// A slice that no call has used for this long is given back.
const IDLE: Duration = Duration::from_mins(1);

/// What waits for a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolWants {
    /// What the first call can cost at most.
    pub(super) call: u64,
    /// With how much it could still be made.
    pub(super) least: u64,
    /// What all can cost at most.
    pub(super) waits: u64,
}

/// A slice that was asked for and is not here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenAsk {
    pub(super) number: u64,
    pub(super) wants: PoolWants,
    /// The least that a call was said to cost at most.
    pub(super) said: u64,
    /// When it was sent last; nothing if it has to be sent now.
    pub(super) sent: Option<Timestamp>,
    /// Whether the account has answered, so that it need not hear of it so often.
    pub(super) answered: bool,
    /// Since when a person has to allow more.
    pub(super) person: Option<Timestamp>,
    /// Whether there will be a slice once something comes back.
    pub(super) waits: bool,
    /// The process that holds the most that could come back.
    pub(super) behind: Option<ProcessId>,
    /// That process, if it is dead.
    pub(super) stranded: Option<DeadBehind>,
}

/// A dead process that holds most of the amount that an ask waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadBehind {
    pub(super) process: ProcessId,
    /// The account was sent that, and this was the last that it had said then. It grants what is left, if the call can
    /// be made with it.
    pub(super) sent: Option<AccountVersion>,
    /// The account has named the process again since: without what it has, there is too little.
    pub(super) confirmed: bool,
}

/// The slices of one limit.
#[derive(Clone, Debug, Default)]
pub(super) struct SlicePool {
    /// From which calls reserve.
    pub(super) open: Option<HeldSlice>,
    /// From which they do not any more.
    pub(super) closing: Vec<HeldSlice>,
    pub(super) ask: Option<OpenAsk>,
}

#[derive(Clone, Debug)]
pub(super) struct HeldSlice {
    pub(super) number: u64,
    pub(super) window: WindowNumber,
    amount: u64,
    pub(super) spent: u64,
    pub(super) held: u64,
    pub(super) returned: u64,
    pub(super) over: u64,
    /// The last report.
    pub(super) seq: u64,
    /// Something is not reported.
    pub(super) dirty: bool,
    /// There is no more where it came from: calls may be made smaller.
    is_last: bool,
    /// It should come back.
    pub(super) recalled: bool,
    pub(super) used: Timestamp,
    #[cfg(feature = "test-util")]
    pub(super) planted: KernelBug,
    /// What was reported last, if a planted bug needs it.
    #[cfg(feature = "test-util")]
    pub(super) said: u64,
}

// === impl OpenAsk ===

impl OpenAsk {
    /// One that is to be sent.
    pub(super) const fn new(number: u64, wants: PoolWants) -> Self {
        Self {
            number,
            wants,
            said: u64::MAX,
            sent: None,
            answered: false,
            person: None,
            waits: false,
            behind: None,
            stranded: None,
        }
    }

    /// What was sent last may not be stored.
    pub(super) const fn forget_sent(&mut self) {
        self.sent = None;
        if let Some(dead) = &mut self.stranded {
            dead.sent = None;
        }
    }

    /// This waits for it from now on.
    pub(super) fn changes(&mut self, wants: PoolWants) {
        if (self.wants.call, self.wants.least) != (wants.call, wants.least) {
            self.sent = None;
        }
        if wants.least < self.wants.least
            && let Some(dead) = &mut self.stranded
        {
            // What is left may be enough for this one: the account has to judge it, too.
            (dead.sent, dead.confirmed) = (None, false);
        }
        self.wants = wants;
    }
}

// === impl HeldSlice ===

impl HeldSlice {
    /// A slice that was granted, for a call that can cost so much.
    pub(super) fn new(granted: &GrantedSlice, call: u64, now: Timestamp) -> Self {
        Self {
            number: granted.number,
            window: granted.window,
            amount: granted.amount,
            spent: 0,
            held: 0,
            returned: 0,
            over: 0,
            seq: 0,
            dirty: false,
            is_last: granted.amount < call,
            recalled: granted.recalled,
            used: now,
            #[cfg(feature = "test-util")]
            planted: KernelBug::None,
            #[cfg(feature = "test-util")]
            said: 0,
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn with(self, planted: KernelBug) -> Self {
        Self { planted, ..self }
    }

    /// What may still be reserved.
    pub(super) fn free(&self) -> u64 {
        let held = self.held;
        #[cfg(feature = "test-util")]
        let held = if self.planted == KernelBug::ChecksThenSpends { 0 } else { held };
        self.amount.saturating_sub(self.returned.saturating_add(self.spent).saturating_add(held))
    }

    /// The cap on output with which a call can be paid, at most `output` and at least `least`.
    pub(super) fn fits(&self, cost: CallCost, output: u64, least: u64) -> Option<u64> {
        let free = self.free();
        if cost.at(output) <= free {
            return Some(output);
        }
        let smaller = cost.output_for(free).filter(|_| self.is_last)?;
        (smaller >= least).then_some(smaller.min(output))
    }

    pub(super) fn reserve(&mut self, amount: u64, now: Timestamp) {
        self.held = self.held.saturating_add(amount);
        self.used = now;
        self.dirty = true;
    }

    /// BUD-2: ends what was reserved, at what was used.
    pub(super) fn settle(&mut self, amount: u64, used: u64, now: Timestamp) {
        self.held = self.held.saturating_sub(amount);
        self.spent = self.spent.saturating_add(used);
        self.over = self.over.saturating_add(used.saturating_sub(amount));
        self.used = now;
        self.dirty = true;
    }

    /// Gives back what is not in use, except for so much.
    pub(super) fn give_back(&mut self, except: u64) {
        let back = self.free().saturating_sub(except);
        self.returned = self.returned.saturating_add(back);
        self.dirty |= back > 0;
    }
}

// === impl SlicePool ===

impl SlicePool {
    /// Whether no call has used the open slice for a minute.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.open.as_ref().is_some_and(|slice| now.since(slice.used) >= IDLE)
    }

    /// Nothing more is reserved from the open slice.
    pub(super) fn close(&mut self) {
        if let Some(mut slice) = self.open.take() {
            slice.give_back(0);
            slice.dirty = true;
            self.closing.push(slice);
        }
    }

    pub(super) fn slices(&mut self) -> impl Iterator<Item = &mut HeldSlice> {
        self.open.iter_mut().chain(&mut self.closing)
    }

    pub(super) fn slice(&mut self, number: u64, window: WindowNumber) -> Option<&mut HeldSlice> {
        self.slices().find(|slice| slice.number == number && slice.window == window)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none() && self.closing.is_empty() && self.ask.is_none()
    }
}

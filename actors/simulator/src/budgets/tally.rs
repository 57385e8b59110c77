//! What became of calls under budgets, and which crash points they came past.

use std::collections::BTreeSet;

use clawnode_budget::holder::Refusal;
use clawnode_proto::{
    ProcessId,
    budget::{AccountKey, LimitKey, ProcessStanding},
};

/// Why calls under budgets were not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedCalls {
    /// Too much was spent.
    pub bankrupt: usize,
    /// No person allowed more in time.
    pub not_allowed: usize,
    /// The account did not answer in time.
    pub unavailable: usize,
    /// Its turn ended while it waited.
    pub gave_up: usize,
}

/// How often each crash point of budgets was come past (see `docs/internals/crash-recovery.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashPoints {
    /// C5: calls that had reserved when their process died, and whose append was not stored.
    pub unappended: usize,
    /// C5b: calls whose append was stored when their process died, and that were not sent.
    pub unsent: usize,
    /// C18: the owner of an account died while inputs waited for it.
    pub owners_died: usize,
    /// C19: a slice reached its process only with a later answer.
    pub answered_again: usize,
    /// C20: slices of processes that died.
    pub stranded: usize,
    /// C21: calls that were settled in a window that was over.
    pub settled_late: usize,
    /// C22: calls that cost more than they had reserved.
    pub exceeded: usize,
}

/// What people have changed of limits, as journals have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitChanges {
    /// Limits that were raised.
    pub raised: usize,
    /// Limits that were lowered below what calls had cost in their window.
    pub below_spent: usize,
    /// How often a person allowed more.
    pub allowed: usize,
}

/// A slice of a process, by its number there.
type SliceKey = (ProcessId, AccountKey, LimitKey, u64);

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct BudgetTally {
    pub(crate) refused: RefusedCalls,
    pub(crate) points: CrashPoints,
    /// Slices that processes were told of once.
    told: BTreeSet<SliceKey>,
    /// The same, more than once.
    told_again: BTreeSet<SliceKey>,
    /// Slices that have reached their processes.
    heard: BTreeSet<SliceKey>,
}

// === impl RefusedCalls ===

impl RefusedCalls {
    pub(super) const fn count(&mut self, why: &Refusal) {
        match why {
            Refusal::Bankrupt { .. } => self.bankrupt += 1,
            Refusal::NotAllowed { .. } => self.not_allowed += 1,
            Refusal::Unavailable { .. } | Refusal::Stranded { .. } => self.unavailable += 1,
        }
    }
}

// === impl CrashPoints ===

impl CrashPoints {
    /// Those of two runs.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            unappended: self.unappended + other.unappended,
            unsent: self.unsent + other.unsent,
            owners_died: self.owners_died + other.owners_died,
            answered_again: self.answered_again + other.answered_again,
            stranded: self.stranded + other.stranded,
            settled_late: self.settled_late + other.settled_late,
            exceeded: self.exceeded + other.exceeded,
        }
    }
}

// === impl LimitChanges ===

impl LimitChanges {
    /// Those of two runs.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            raised: self.raised + other.raised,
            below_spent: self.below_spent + other.below_spent,
            allowed: self.allowed + other.allowed,
        }
    }
}

// === impl BudgetTally ===

impl BudgetTally {
    fn slices(process: ProcessId, standing: &ProcessStanding) -> impl Iterator<Item = SliceKey> {
        let account = standing.account.clone();
        let slices = standing.slices.iter();
        slices.map(move |slice| (process, account.clone(), slice.limit, slice.number))
    }

    /// An account tells a process how things stand.
    pub(super) fn tells(&mut self, process: ProcessId, standing: &ProcessStanding) {
        for slice in Self::slices(process, standing).filter(|slice| !self.heard.contains(slice)) {
            if !self.told.insert(slice.clone()) {
                self.told_again.insert(slice);
            }
        }
    }

    /// A process hears it.
    pub(super) fn hears(&mut self, process: ProcessId, standing: &ProcessStanding) {
        for slice in Self::slices(process, standing) {
            let was_lost = self.told.remove(&slice) && self.told_again.remove(&slice);
            if self.heard.insert(slice) && was_lost {
                self.points.answered_again += 1;
            }
        }
    }
}

//! Mailboxes: when the last thing in each comes, so that the next comes after it.

use std::collections::BTreeMap;

use clawnode_proto::ProcessId;

/// Mailboxes that are kept in mind at least.
const FEW: usize = 4_096;

/// All mailboxes in which something is under way, and some in which nothing is any more.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    last: BTreeMap<(ProcessId, u128), u64>,
    /// How many there may be before the empty ones are forgotten.
    most: usize,
}

impl Lanes {
    /// When something comes that should come soon, and in order with the mailbox's others.
    pub(super) fn next(&mut self, now: u64, soon: u64, to: ProcessId, lane: u128) -> u64 {
        if self.last.len() > self.most.max(FEW) {
            self.last.retain(|_, last| *last > now);
            self.most = self.last.len() * 2;
        }
        let last = self.last.entry((to, lane)).or_insert(0);
        *last = soon.max(*last);
        *last
    }
}

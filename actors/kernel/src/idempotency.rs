//! Idempotency keys: how long an entity remembers its inputs, so that one which comes twice is taken once. The id of an
//! input follows from its key; [`Core::has`](super::Core::has) knows it, and a machine leaves out what its journal has.

use std::time::Duration;

use clawnode_proto::{
    Timestamp,
    limits::{DEDUP_AGE, DEDUP_MIN},
};

/// How long inputs are remembered, so that one which comes twice is taken once: at least this many
/// of them, and all up to this age by the time of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputMemory {
    /// How many at least.
    pub least: usize,
    /// Up to which age.
    pub age: Duration,
}

// === impl InputMemory ===

impl InputMemory {
    /// Enough for most kinds: clients repeat a request for days, and send few.
    pub const DAYS: Self = Self { least: DEDUP_MIN, age: DEDUP_AGE };

    /// Whether the oldest of so many remembered inputs is forgotten now. Both times are those of events.
    pub(super) fn forgets(self, remembered: usize, oldest: Timestamp, now: Timestamp) -> bool {
        remembered > self.least && now.since(oldest) > self.age
    }
}

//! Whether a turn waits for its providers once all of its models have failed, and how long; or whether it fails. Pure.
//!
//! It waits only if a provider is down. A model that is too slow, or breaks off its reply, fails without a wait: each
//! try may cost money.

use std::time::Duration;

use clawnode_proto::{
    Timestamp,
    llm::{FailureClass, ModelFailure},
};
use serde::{Deserialize, Serialize};

/// How long a turn waits at first while no provider is available, and at most at a time.
const WAIT: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// A turn waits for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderWait {
    /// Which wait of its call this is, from 1.
    pub number: u32,
    /// How long it takes, in milliseconds.
    pub wait_ms: u32,
    /// When it ends.
    pub until: Timestamp,
}

/// The waits of a call so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitsSoFar {
    /// How many there were.
    pub(super) count: u32,
    /// When the first one began.
    pub(super) since: Option<Timestamp>,
}

// === impl WaitsSoFar ===

impl WaitsSoFar {
    /// How long the turn waits now that all models failed so, in milliseconds; nothing if no provider is down, if it
    /// has waited for `most` already, or if a provider asks to wait longer than what is left of that.
    pub(super) fn wait_ms<'a>(
        self,
        failures: impl Iterator<Item = &'a ModelFailure> + Clone,
        now: Timestamp,
        most: u32,
    ) -> Option<u32> {
        if !failures.clone().map(|why| why.class).any(FailureClass::is_down) {
            return None;
        }
        let waited = self.since.map_or(0, |since| now.0.saturating_sub(since.0));
        let left = u64::from(most).checked_sub(waited).filter(|left| *left > 0)?;
        let asked = failures.map(|why| why.retry_after_ms.unwrap_or_default()).min();
        let asked = asked.unwrap_or_default();
        if asked > left {
            return None;
        }
        let wait = WAIT.0.saturating_mul(1 << self.count.min(16)).min(WAIT.1);
        let wait = u64::try_from(wait.as_millis()).unwrap_or(left);
        u32::try_from(wait.max(asked).min(left)).ok()
    }
}

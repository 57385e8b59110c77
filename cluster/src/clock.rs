//! Time and chance as values, so that tests control them.

use std::{fmt, time::Duration};

use clawnode_proto::Timestamp;
use rand::Rng;

/// The time of day. Durations are measured by the runtime, not by this.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970, in UTC.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// How long to wait before each next try: exponential with full jitter.
///
/// After Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    tries: u32,
}

impl Backoff {
    /// Waits between nothing and `first` at first, doubling up to `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, tries: 0 }
    }

    /// The next wait.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let ceiling = self.first.saturating_mul(1 << self.tries.min(20)).min(self.most);
        self.tries = self.tries.saturating_add(1);
        ceiling.mul_f64(rng.random_range(0.0..=1.0))
    }

    /// How many waits there were.
    pub const fn tries(&self) -> u32 {
        self.tries
    }
}

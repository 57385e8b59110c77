//! F-19: panics by chance, at handles and wherever an actor of a session asks for the time: in its
//! handler and at its start.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use clawnode_cluster::Clock;
use clawnode_proto::Timestamp;

use crate::config::Env;

/// The variable that names a point.
pub(super) const VARIABLE: &str = "CLAWNODE_TEST_KILL";

/// Strikes so often in a million, as a seed has it.
#[derive(Debug)]
pub(super) struct Chance {
    per_million: u64,
    seed: u64,
    passed: AtomicU64,
}

/// A clock that panics by chance.
#[derive(Debug)]
struct Stumbling {
    inner: Arc<dyn Clock>,
    chance: Chance,
}

/// The clock of sessions' actors, which panics if `env` says that callers of handles do.
pub fn clock(inner: Arc<dyn Clock>, env: &Env) -> Arc<dyn Clock> {
    let chance = env.get(VARIABLE).and_then(|value| value.strip_prefix("panics:"));
    match chance.and_then(Chance::parse) {
        Some(chance) => Arc::new(Stumbling { inner, chance }),
        None => inner,
    }
}

/// As an assertion would that does not hold.
#[expect(clippy::panic, reason = "that is what it is for")]
pub(super) fn stumble(here: &'static str) -> ! {
    panic!("a planted panic: {here}")
}

// === impl Chance ===

impl Chance {
    /// Of `PER_MILLION:SEED`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (per_million, seed) = text.split_once(':')?;
        let (per_million, seed) = (per_million.parse().ok()?, seed.parse().ok()?);
        Some(Self { per_million, seed, passed: AtomicU64::new(0) })
    }

    pub(super) fn strikes(&self) -> bool {
        self.strikes_in(self.per_million)
    }

    /// A fortieth as often.
    pub(super) fn strikes_rarely(&self) -> bool {
        self.strikes_in(self.per_million / 40)
    }

    fn strikes_in(&self, per_million: u64) -> bool {
        let passed = self.passed.fetch_add(1, Ordering::Relaxed);
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        hasher.hash_one((self.seed, passed)) % 1_000_000 < per_million
    }
}

impl Clock for Stumbling {
    fn now(&self) -> Timestamp {
        // A panic while another unwinds would end the process.
        if !std::thread::panicking() && self.chance.strikes_rarely() {
            stumble("clock");
        }
        self.inner.now()
    }
}

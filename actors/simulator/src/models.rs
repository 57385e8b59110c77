//! The models of the simulated world: chains of them, providers that are down for a while, and how their
//! calls fail.

use std::time::Duration;

use clawnode_proto::{
    Attempt, CallId,
    llm::{FailureClass, ModelFailure, ModelRef, PromptTooLong},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The models that agents may have, the usual one first.
const MODELS: [&str; 3] = ["sim/model", "other/model", "third/model"];

/// A long outage, in milliseconds.
const DOWN_LONG: u64 = 600_000;

/// The models of agents, and when their providers are down.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelPlan {
    /// Models besides the first.
    fallbacks: usize,
    /// How long turns wait for providers.
    pub(super) outage: Duration,
    /// Which provider is down, from when to when, in milliseconds since the beginning.
    downs: Vec<(usize, u64, u64)>,
    /// Whether one that is down begins its replies, and breaks them off.
    breaks_off: bool,
}

// === impl ModelPlan ===

impl ModelPlan {
    /// From a stream of its own, so that it does not shift what happens besides.
    pub(super) fn of(seed: u64, busy: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x0c4a_1ed0_0de1_5000);
        let fallbacks = if rng.random_bool(0.5) { rng.random_range(1..MODELS.len()) } else { 0 };
        let outage = if rng.random_bool(0.5) { rng.random_range(20..900) } else { 0 };
        let mut downs = Vec::new();
        for provider in 0..=fallbacks {
            for _ in 0..rng.random_range(0..3) {
                let from = rng.random_range(0..busy);
                downs.push((provider, from, from + rng.random_range(1_000..60_000)));
            }
        }
        Self { fallbacks, outage: Duration::from_secs(outage), downs, breaks_off: false }
    }

    /// The first of two providers is down for ten minutes: in half of the worlds nothing answers, in the others each
    /// reply breaks off.
    pub(super) fn losing_first(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x0c4a_1ed0_0de1_5001);
        let from = rng.random_range(10_000..60_000);
        let downs = vec![(0, from, from + DOWN_LONG)];
        let breaks_off = seed % 2 == 1;
        Self { fallbacks: 1, outage: Duration::from_mins(15), downs, breaks_off }
    }

    /// The model that agents name.
    pub(super) fn first() -> Option<ModelRef> {
        MODELS.first()?.parse().ok()
    }

    /// The models besides.
    pub(super) fn fallback(&self) -> Vec<ModelRef> {
        let names = MODELS.iter().skip(1).take(self.fallbacks);
        names.filter_map(|name| name.parse().ok()).collect()
    }

    /// Whether the provider of this model is down.
    pub(super) fn is_down(&self, model: &ModelRef, since_start: u64) -> bool {
        let at = MODELS.iter().position(|name| *name == model.to_string());
        let is_it = |(provider, from, to): &(usize, u64, u64)| {
            at == Some(*provider) && (*from..*to).contains(&since_start)
        };
        self.downs.iter().any(is_it)
    }

    /// How an attempt fails whose provider is there.
    pub(super) fn failure(call: CallId, attempt: Attempt) -> ModelFailure {
        let new = |class| ModelFailure::new(class, "try later");
        // It follows from the attempt alone.
        match (call.as_u128() >> 8).wrapping_add(u128::from(attempt.0)) % 8 {
            0 => ModelFailure { retry_after_ms: Some(15_000), ..new(FailureClass::RateLimited) },
            1 => new(FailureClass::BrokenStream),
            2 => new(FailureClass::Timeout),
            3 => new(FailureClass::Rejected),
            // Less than the reply: nothing but the turn itself is left.
            4 => ModelFailure {
                too_long: Some(PromptTooLong { window: Some(1_000), request: Some(1_500) }),
                ..new(FailureClass::Rejected)
            },
            _ => new(FailureClass::Overloaded),
        }
    }

    /// How an attempt fails whose provider is down.
    pub(super) fn down(&self) -> ModelFailure {
        if self.breaks_off {
            return ModelFailure::new(FailureClass::BrokenStream, "the reply ended too early");
        }
        ModelFailure::new(FailureClass::Unreachable, "connection refused")
    }
}

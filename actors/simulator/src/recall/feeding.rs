//! What clients tell the memories that sessions read, and those that they do not.

use clawnode_memory::Memory;
use clawnode_proto::{
    EntityId, IdempotencyKey, MemoryPointId, Timestamp,
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{LearnedPoint, MemoryInput, PointContent},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::told::{memories, token};
use crate::{
    clients::{SimClient, session_key},
    plan::SeedPlan,
};

/// Inputs of one memory.
const INPUTS: usize = 4;
/// Events that the points of one memory come from.
const SOURCES: u64 = 8;
/// The entity that these events are of, for the first memory.
const ORIGIN: u128 = 0x0fee_d000;

/// What clients tell and have forgotten.
pub(crate) fn clients(plan: &SeedPlan) -> Vec<SimClient> {
    if !plan.recalls {
        return Vec::new();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x00fe_ed13);
    let mut clients = Vec::new();
    for (index, key) in memories(plan.sessions).into_iter().enumerate() {
        for number in 0..INPUTS {
            let after = rng.random_range(0..plan.busy);
            let body = if number > 0 && rng.random_bool(0.5) {
                let by = "a client".to_owned();
                let points = forgotten(index, &key, &mut rng);
                MemoryInput::Forget { points, by, now: rng.random_bool(0.3) }
            } else {
                let count = rng.random_range(2..5);
                let points = (0..count).map(|_| point(index, rng.random_range(0..SOURCES)));
                MemoryInput::Put { points: points.collect() }
            };
            let Ok(name) = format!("key{number}").parse::<IdempotencyKey>() else { continue };
            let Ok(input) = Memory::input(&key, name, Timestamp(0), &body) else { continue };
            clients.push(SimClient { after, input, answered: false });
        }
    }
    clients
}

/// Points of clients, and some that a session may have taught: their number is guessed.
fn forgotten(index: usize, key: &MemoryKey, rng: &mut ChaCha8Rng) -> Vec<MemoryPointId> {
    let mut points: Vec<_> =
        (0..2).map(|_| source(index, rng.random_range(0..SOURCES)).point()).collect();
    let session = session_key(index).filter(|_| matches!(key, MemoryKey::Peer { .. }));
    if let Some(entity) = session.map(|session| session.entity()) {
        let learned = |event| MemorySource { entity, event, part: 0, at: Timestamp(0) };
        points.extend((2..20).filter(|_| rng.random_bool(0.3)).map(|n| learned(n).point()));
    }
    points
}

fn source(index: usize, event: u64) -> MemorySource {
    let entity = EntityId::from_u128(ORIGIN + index as u128);
    MemorySource { entity, event, part: 0, at: Timestamp(event) }
}

/// The point of this event, always the same one.
fn point(index: usize, event: u64) -> LearnedPoint {
    // Sessions have the first groups.
    let token = token(10 + index, usize::try_from(event).unwrap_or(0));
    let is_standing = event == 7;
    let text =
        if is_standing { format!("Always say {token}.") } else { format!("A note: {token}") };
    let content = PointContent {
        layer: if is_standing { MemoryLayer::Procedural } else { MemoryLayer::Semantic },
        text,
        subject: event.is_multiple_of(2).then(|| format!("thing {}", event % 4)),
        predicate: event.is_multiple_of(2).then(|| "is".to_owned()),
        object: None,
        confidence: 100,
        importance: 5,
        trust: MemoryTrust::Operator,
    };
    LearnedPoint { content, source: Some(source(index, event)) }
}

//! The kind `memory`: what follows from the state of a memory.

use std::convert::Infallible;

use clawnode_cluster::Timer;
use clawnode_kernel::{Begun, EffectKind, EntityKind, Violation};
use clawnode_proto::{
    Head, IdempotencyKey, Input, Kind, TimerId, Timestamp, TurnId, codec,
    envelope::IMPORT,
    memory::MemoryKey,
    memory_point::{MemoryEvent, MemoryInput, PointRefusal},
    memory_view::ListedMemory,
};
use serde_json::Value;
use tracing::warn;

use super::{MemoryState, consolidate::PointsSize, points_limit};

/// Events that one look at the state may decide, and bytes of texts and long lists in them: they go into one append, with
/// the input that brought them. What is left is decided in the next look.
const DECIDED_MOST: (usize, usize) = (16, 96 << 10);
/// Bytes of one id in a list, with what is around it.
const ID_BYTES: usize = 48;

/// The memory entity kind.
#[derive(Debug)]
pub struct Memory;

/// What must be under way for a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryEffect {
    /// A timer for the daily consolidation, or for a purge.
    Timer(Timestamp),
    /// The bucket lists the memory, which began with this event.
    List(u64),
}

/// What that takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryJob {
    /// Stored.
    Timer(Timer),
    /// Stored, unless it is there.
    List(ListedMemory),
}

impl Memory {
    /// An input for this memory.
    pub fn input(
        memory: &MemoryKey,
        name: IdempotencyKey,
        sent: Timestamp,
        body: &MemoryInput,
    ) -> Result<Input, codec::CodecError> {
        let mut input = Input::new(Self::KIND, &memory.to_string(), name, sent, body)?;
        if matches!(body, MemoryInput::Import { .. }) {
            (input.v, input.v_min) = (IMPORT, IMPORT);
        }
        Ok(input)
    }
}

impl EntityKind for Memory {
    const KIND: Kind = Kind::MEMORY;
    type State = MemoryState;
    type Event = MemoryEvent;
    type Effect = MemoryEffect;
    type Want = Infallible;
    type Grant = ();
    type Made = Infallible;
    type Job = MemoryJob;
    type Outcome = Infallible;

    fn born(state: &mut MemoryState, key: &str) -> Result<(), Violation> {
        key.parse::<MemoryKey>().map_err(|error| Violation(error.to_string()))?;
        key.clone_into(&mut state.key);
        Ok(())
    }

    fn fold(state: &mut MemoryState, head: &Head, event: &MemoryEvent) -> Result<(), Violation> {
        state.fold(head.ts, event)
    }

    fn accept(state: &mut MemoryState, head: &Head, input: &Input) -> Result<(), Violation> {
        let body = codec::decode(&input.body).map_err(|error| Violation(error.to_string()))?;
        state.accept(head.n.0, head.ts, input.id, body);
        Ok(())
    }

    fn emitted(_: &mut MemoryState, _: TurnId) {}

    fn deleted(state: &mut MemoryState) {
        *state = MemoryState::default();
    }

    fn doomed(state: &MemoryState) -> bool {
        state.is_doomed()
    }

    fn purges(state: &MemoryState) -> bool {
        state.purges()
    }

    fn purged(state: &mut MemoryState) {
        state.purged();
    }

    fn understands(input: &Input) -> bool {
        let key = input.key.parse::<MemoryKey>();
        input.order.is_some() || key.is_ok() && codec::decode::<MemoryInput>(&input.body).is_ok()
    }

    /// What is forgotten in a memory that is not there is forgotten.
    fn begins(input: &Input) -> bool {
        let body = codec::decode(&input.body);
        matches!(body, Ok(MemoryInput::Put { .. } | MemoryInput::Import { .. }))
    }

    fn admits(state: &MemoryState, _: &Input) -> bool {
        state.admits()
    }

    fn advance(state: &MemoryState) -> Vec<MemoryEvent> {
        let events = decided(state, points_limit::most());
        if begins_to_refuse(state, &events) {
            let memory = &state.key;
            warn!(
                memory,
                "the memory is full, and people said all that it has: nothing more is learned"
            );
        }
        events
    }

    fn decide(state: &MemoryState) -> Vec<MemoryEffect> {
        let (daily, purge) = (state.due(), state.purge_due());
        let timers = daily.into_iter().chain(purge.filter(|purge| daily != Some(*purge)));
        timers.map(MemoryEffect::Timer).chain(state.listed().map(MemoryEffect::List)).collect()
    }

    fn class(_: &MemoryEffect) -> EffectKind {
        EffectKind::Publish
    }

    fn want(
        _: &MemoryState,
        _: &MemoryEffect,
        _: Option<&()>,
        _: &mut Option<Infallible>,
    ) -> Option<Infallible> {
        None
    }

    fn begin(
        _: &MemoryState,
        _: &MemoryEffect,
        (): &(),
        _: Option<Infallible>,
    ) -> Option<Begun<MemoryEvent, MemoryJob>> {
        None
    }

    fn prepare(state: &MemoryState, effect: &MemoryEffect, _: bool) -> Option<MemoryJob> {
        match *effect {
            MemoryEffect::List(_) => state.listing().map(MemoryJob::List),
            MemoryEffect::Timer(due) => {
                let memory: MemoryKey = state.key.parse().ok()?;
                let id = TimerId::of_memory(state.entity(), due);
                let fired = MemoryInput::TimerFired { due };
                let input = Self::input(&memory, IdempotencyKey::of_timer(id), due, &fired).ok()?;
                Some(MemoryJob::Timer(Timer { id, due, input }))
            }
        }
    }

    fn refuse(_: &MemoryState, _: &MemoryEffect, outcome: Infallible) -> Vec<MemoryEvent> {
        match outcome {}
    }

    fn conclude(_: &MemoryState, _: &MemoryEffect, outcome: Infallible) -> Vec<MemoryEvent> {
        match outcome {}
    }

    fn view(input: &Input) -> Value {
        let input: Option<MemoryInput> = codec::decode(&input.body).ok();
        serde_json::to_value(input).unwrap_or_default()
    }
}

/// What follows from a state where live points take at most this much.
pub(super) fn decided(state: &MemoryState, most: PointsSize) -> Vec<MemoryEvent> {
    let Some(first) = state.next(most) else { return Vec::new() };
    if !state.wants_more() && matches!(first, MemoryEvent::Added(_)) {
        return vec![first];
    }
    let mut next = state.clone();
    let (mut bytes, mut events) = (0, vec![first]);
    while let Some(event) = events.last().filter(|_| events.len() < DECIDED_MOST.0) {
        bytes += bytes_of(event);
        if next.fold(state.now, event).is_err() || bytes > DECIDED_MOST.1 {
            break;
        }
        let Some(event) = next.next(most) else { break };
        events.push(event);
    }
    events
}

/// Whether these events refuse a point for want of room, and none was refused since a point found room: it is said once.
pub(super) fn begins_to_refuse(state: &MemoryState, events: &[MemoryEvent]) -> bool {
    let is_full = |event: &MemoryEvent| {
        let MemoryEvent::Refused(refused) = event else { return false };
        refused.reason == PointRefusal::Full
    };
    let Some(first) = events.iter().position(is_full) else { return false };
    let had_room = |event: &MemoryEvent| matches!(event, MemoryEvent::Added(added) if added.supersedes.is_empty());
    events.iter().take(first).any(had_room) || !state.has_refused()
}

/// Bytes of the texts and ids in an event.
fn bytes_of(event: &MemoryEvent) -> usize {
    match event {
        MemoryEvent::Added(added) => added.point.content.bytes(),
        MemoryEvent::Consolidated(change) => {
            (change.joined.len() * 2 + change.archived.len()) * ID_BYTES
        }
        MemoryEvent::Refused(_) | MemoryEvent::Masked(_) | MemoryEvent::Rated(_) => 0,
    }
}

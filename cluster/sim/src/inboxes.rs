//! Inboxes as a work queue: what waits, who was given it, and until when.

use std::collections::{BTreeMap, VecDeque};

use clawnode_proto::{EntityId, Input, InputId, Partition, Position};

use super::STALE_MOST;

/// Names one delivered input to the process that answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub Position);

#[derive(Debug)]
pub(super) struct SimWaitingInput {
    pub(super) input: Input,
    pub(super) put_at: u64,
    pub(super) removed_at: Option<u64>,
    /// Not delivered again before.
    pub(super) due: u64,
    pub(super) deliveries: u32,
    /// Nothing of its entity waited when it was stored.
    pub(super) foremost: bool,
}

/// All inboxes, in stream order.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    all: BTreeMap<Position, SimWaitingInput>,
    by_entity: BTreeMap<EntityId, Vec<Position>>,
    /// How many wait for an entity, if any do.
    waiting: BTreeMap<EntityId, usize>,
    /// Removed inputs that a stale read may still show, by when they were removed.
    removed: VecDeque<(u64, Position)>,
    last: u64,
}

impl Inboxes {
    pub(super) fn put(&mut self, at: u64, input: Input) -> Position {
        self.last += 1;
        let position = Position(self.last);
        self.by_entity.entry(input.entity).or_default().push(position);
        let count = self.waiting.entry(input.entity).or_insert(0);
        *count += 1;
        let foremost = *count == 1;
        let waiting = SimWaitingInput {
            input,
            put_at: at,
            removed_at: None,
            due: at,
            deliveries: 0,
            foremost,
        };
        self.all.insert(position, waiting);
        position
    }

    /// Forgets an input that was not synced.
    pub(super) fn undo(&mut self, position: Position) {
        if let Some(waiting) = self.forget(position)
            && waiting.removed_at.is_none()
        {
            self.waits_no_more(waiting.input.entity);
        }
    }

    fn forget(&mut self, position: Position) -> Option<SimWaitingInput> {
        let waiting = self.all.remove(&position)?;
        let entity = waiting.input.entity;
        if let Some(positions) = self.by_entity.get_mut(&entity) {
            positions.retain(|one| *one != position);
            if positions.is_empty() {
                self.by_entity.remove(&entity);
            }
        }
        Some(waiting)
    }

    fn waits_no_more(&mut self, entity: EntityId) {
        if let Some(count) = self.waiting.get_mut(&entity) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&entity);
            }
        }
    }

    /// The input, if it still waits.
    pub(super) fn get_mut(&mut self, position: Position) -> Option<&mut SimWaitingInput> {
        self.all.get_mut(&position).filter(|waiting| waiting.removed_at.is_none())
    }

    /// Removes an input; says which one it was if it still waited.
    pub(super) fn remove(&mut self, at: u64, position: Position) -> Option<(EntityId, InputId)> {
        let waiting = self.get_mut(position)?;
        waiting.removed_at = Some(at);
        let (entity, input) = (waiting.input.entity, waiting.input.id);
        self.waits_no_more(entity);
        // What no read can show any more need not be kept: there may be millions.
        self.removed.push_back((at, position));
        while let Some((_, past)) = self.removed.pop_front_if(|(when, _)| *when + STALE_MOST < at) {
            self.forget(past);
        }
        Some((entity, input))
    }

    /// What waited for an entity at a time.
    pub(super) fn read(
        &self,
        entity: EntityId,
        after: Position,
        as_of: u64,
    ) -> Vec<(Position, Input)> {
        let positions = self.by_entity.get(&entity).map(Vec::as_slice).unwrap_or_default();
        positions
            .iter()
            .filter(|position| **position > after)
            .filter_map(|position| Some((*position, self.all.get(position)?)))
            .filter(|(_, one)| one.put_at <= as_of && one.removed_at.is_none_or(|at| at > as_of))
            .map(|(position, one)| (position, one.input.clone()))
            .collect()
    }

    /// Entities of a partition for which something waits.
    pub(super) fn scan(&self, partition: Partition, partitions: u16) -> Vec<EntityId> {
        let entities = self.waiting.keys();
        entities.filter(|entity| entity.partition(partitions) == partition).copied().collect()
    }

    /// Whether anything waits for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

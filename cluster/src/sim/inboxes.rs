//! Inboxes as a work queue: what waits, who was given it, and until when.

use std::collections::BTreeMap;

use clawnode_proto::{EntityId, Input, InputId, Partition, Position};

/// Names one delivered input to whoever answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub Position);

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) input: Input,
    pub(super) put_at: u64,
    pub(super) removed_at: Option<u64>,
    /// Not delivered again before.
    pub(super) due: u64,
    pub(super) deliveries: u32,
}

/// All inboxes, in stream order.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    all: BTreeMap<Position, Waiting>,
    by_entity: BTreeMap<EntityId, Vec<Position>>,
    last: u64,
}

impl Inboxes {
    pub(super) fn put(&mut self, at: u64, input: Input) -> Position {
        self.last += 1;
        let position = Position(self.last);
        self.by_entity.entry(input.entity).or_default().push(position);
        let waiting = Waiting { input, put_at: at, removed_at: None, due: at, deliveries: 0 };
        self.all.insert(position, waiting);
        position
    }

    /// Forgets an input that was not synced.
    pub(super) fn undo(&mut self, position: Position) {
        if let Some(waiting) = self.all.remove(&position)
            && let Some(positions) = self.by_entity.get_mut(&waiting.input.entity)
        {
            positions.retain(|one| *one != position);
        }
    }

    /// The input, if it still waits.
    pub(super) fn get_mut(&mut self, position: Position) -> Option<&mut Waiting> {
        self.all.get_mut(&position).filter(|waiting| waiting.removed_at.is_none())
    }

    /// Removes an input; says which one it was if it still waited.
    pub(super) fn remove(&mut self, at: u64, position: Position) -> Option<(EntityId, InputId)> {
        let waiting = self.get_mut(position)?;
        waiting.removed_at = Some(at);
        Some((waiting.input.entity, waiting.input.id))
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
        let waits = |position: &Position| {
            self.all.get(position).is_some_and(|waiting| waiting.removed_at.is_none())
        };
        self.by_entity
            .iter()
            .filter(|(entity, _)| entity.partition(partitions) == partition)
            .filter(|(_, positions)| positions.iter().any(waits))
            .map(|(entity, _)| *entity)
            .collect()
    }

    /// Whether anything waits for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.all.values().all(|waiting| waiting.removed_at.is_some())
    }
}

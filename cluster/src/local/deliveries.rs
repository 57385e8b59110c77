//! The waiting inputs of all partitions: who has one in hand, and until when.
//!
//! In memory, because it is as large as what is unfinished, not as what exists; made anew from the
//! index at open, when everything counts as delivered before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use clawnode_proto::{EntityId, Partition, Position};

use super::index::Loc;

/// One waiting input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) entity: EntityId,
    pub(super) loc: Loc,
    /// Whether anybody ever had it.
    pub(super) seen: bool,
    partition: u16,
    state: State,
}

/// An input that is handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Popped {
    pub(super) position: Position,
    pub(super) item: Item,
    /// No other input of its entity is before it.
    pub(super) foremost: bool,
    /// The engine must be woken to see its deadline.
    pub(super) wake: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Can be delivered.
    Ready,
    /// In somebody's hand, or put back, until then.
    Until(Instant),
    /// Its bytes are damaged; not delivered again by this process.
    Damaged,
}

/// All waiting inputs.
#[derive(Debug)]
pub(super) struct Deliveries {
    partitions: u16,
    items: BTreeMap<Position, Item>,
    by_entity: BTreeSet<(u16, EntityId, Position)>,
    ready: Vec<BTreeSet<Position>>,
    deadlines: BTreeSet<(Instant, Position)>,
    /// The moment at which the engine will look at `deadlines` by itself.
    armed: Option<Instant>,
}

impl Deliveries {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            partitions,
            items: BTreeMap::new(),
            by_entity: BTreeSet::new(),
            ready: vec![BTreeSet::new(); usize::from(partitions)],
            deadlines: BTreeSet::new(),
            armed: None,
        }
    }

    /// A new input; says whose partition has something to deliver.
    pub(super) fn add(
        &mut self,
        entity: EntityId,
        position: Position,
        loc: Loc,
        seen: bool,
    ) -> Partition {
        let partition = entity.partition(self.partitions);
        let item = Item { entity, loc, seen, partition: partition.0, state: State::Ready };
        self.items.insert(position, item);
        self.by_entity.insert((partition.0, entity, position));
        self.set_ready(partition.0, position);
        partition
    }

    /// Its bytes are elsewhere now.
    pub(super) fn relocate(&mut self, position: Position, loc: Loc) {
        if let Some(item) = self.items.get_mut(&position) {
            item.loc = loc;
        }
    }

    /// Removes an input; `None` if it is gone already.
    pub(super) fn remove(&mut self, position: Position) -> Option<Item> {
        let item = self.items.remove(&position)?;
        self.by_entity.remove(&(item.partition, item.entity, position));
        self.unset(position, item);
        Some(item)
    }

    /// Hands out the first input of the partition.
    pub(super) fn pop(
        &mut self,
        partition: Partition,
        now: Instant,
        ack_wait: Duration,
    ) -> Option<Popped> {
        let position = self.ready.get_mut(usize::from(partition.0))?.pop_first()?;
        let item = self.items.get_mut(&position)?;
        let found = *item;
        item.seen = true;
        let wake = self.set_until(position, now + ack_wait);
        let foremost = self.first_of(found.entity) == Some(position);
        Some(Popped { position, item: found, foremost, wake })
    }

    /// Whether the partition has something to deliver.
    pub(super) fn has_ready(&self, partition: u16) -> bool {
        self.ready.get(usize::from(partition)).is_some_and(|ready| !ready.is_empty())
    }

    /// Puts off the next delivery of an input, if it is in a hand (or `always`).
    pub(super) fn put_off(&mut self, position: Position, until: Instant, always: bool) -> bool {
        match self.items.get(&position).map(|item| item.state) {
            Some(State::Until(_)) => self.set_until(position, until),
            Some(State::Ready) if always => self.set_until(position, until),
            _ => false,
        }
    }

    /// Never again in this process.
    pub(super) fn set_damaged(&mut self, position: Position) {
        if let Some(item) = self.items.get(&position).copied() {
            self.unset(position, item);
        }
        if let Some(item) = self.items.get_mut(&position) {
            item.state = State::Damaged;
        }
    }

    /// Makes deliverable what was in hand for too long; says in which partitions.
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<u16> {
        let mut partitions = BTreeSet::new();
        while let Some(&(at, position)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some(item) = self.items.get_mut(&position) {
                item.state = State::Ready;
                let partition = item.partition;
                self.set_ready(partition, position);
                partitions.insert(partition);
            }
        }
        partitions
    }

    /// When to call [`Self::expire`] next. An earlier answer that is still to come stands, so that
    /// the engine is not woken for every delivery.
    pub(super) fn arm(&mut self, now: Instant) -> Option<Instant> {
        let first = self.deadlines.first().map(|(at, _)| *at);
        let standing = self.armed.filter(|at| *at > now);
        self.armed = first.into_iter().chain(standing).min();
        self.armed
    }

    /// The inputs of one entity after `after`, in order.
    pub(super) fn of(&self, entity: EntityId, after: Position) -> Vec<(Position, Loc)> {
        let partition = entity.partition(self.partitions).0;
        self.by_entity
            .range((partition, entity, after.next())..=(partition, entity, Position(u64::MAX)))
            .filter_map(|(_, _, position)| Some((*position, self.items.get(position)?.loc)))
            .collect()
    }

    /// The first input of one entity.
    fn first_of(&self, entity: EntityId) -> Option<Position> {
        let partition = entity.partition(self.partitions).0;
        let (from, to) = (Position(0), Position(u64::MAX));
        let mut all = self.by_entity.range((partition, entity, from)..=(partition, entity, to));
        all.next().map(|(_, _, position)| *position)
    }

    /// How many inputs of one entity wait.
    pub(super) fn count(&self, entity: EntityId) -> usize {
        let partition = entity.partition(self.partitions).0;
        let (from, to) = (Position(0), Position(u64::MAX));
        self.by_entity.range((partition, entity, from)..=(partition, entity, to)).count()
    }

    /// The entities of a partition that have inputs waiting.
    pub(super) fn entities(&self, partition: Partition) -> Vec<EntityId> {
        let from = (partition.0, EntityId::from_u128(0), Position(0));
        let to = (partition.0, EntityId::from_u128(u128::MAX), Position(u64::MAX));
        let mut entities: Vec<_> =
            self.by_entity.range(from..=to).map(|(_, entity, _)| *entity).collect();
        entities.dedup();
        entities
    }

    fn set_ready(&mut self, partition: u16, position: Position) {
        if let Some(ready) = self.ready.get_mut(usize::from(partition)) {
            ready.insert(position);
        }
    }

    fn set_until(&mut self, position: Position, until: Instant) -> bool {
        if let Some(item) = self.items.get(&position).copied() {
            self.unset(position, item);
        }
        let Some(item) = self.items.get_mut(&position) else { return false };
        item.state = State::Until(until);
        self.deadlines.insert((until, position));
        let wake = self.armed.is_none_or(|armed| until < armed);
        if wake {
            self.armed = Some(until);
        }
        wake
    }

    fn unset(&mut self, position: Position, item: Item) {
        match item.state {
            State::Ready => {
                if let Some(ready) = self.ready.get_mut(usize::from(item.partition)) {
                    ready.remove(&position);
                }
            }
            State::Until(at) => {
                self.deadlines.remove(&(at, position));
            }
            State::Damaged => {}
        }
    }
}

//! The waiting inputs of all partitions, and the waiting jobs of all capabilities.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clawnode_proto::{Capability, EntityId, JobId, Partition, Position, Timestamp};
use tokio::sync::Notify;

use super::{
    in_flight::{InFlightItem, InFlightItems, Popped},
    index::Loc,
};

/// Jobs whose age is checked together.
const OLD_AT_ONCE: usize = 64;

/// All waiting inputs; lanes are partitions.
#[derive(Debug)]
pub(super) struct Deliveries {
    partitions: u16,
    hands: InFlightItems<u16, EntityId>,
    by_entity: BTreeSet<(u16, EntityId, Position)>,
    /// The bytes of inputs that are not in the log yet.
    early: HashMap<Position, Bytes>,
}

/// All waiting jobs; lanes are capabilities.
#[derive(Debug, Default)]
pub(super) struct LocalJobQueue {
    pub(super) hands: InFlightItems<Capability, JobId>,
    /// A notifier for each capability that a runner has taken jobs of: a job can be delivered.
    bells: BTreeMap<Capability, Arc<Notify>>,
    /// The oldest job that is known to be young enough, and until when it is.
    fresh: Option<(Position, Timestamp)>,
}

// === impl Deliveries ===

impl Deliveries {
    pub(super) fn new(partitions: u16) -> Self {
        let (hands, by_entity, early) = Default::default();
        Self { partitions, hands, by_entity, early }
    }

    /// As [`add`](Self::add), of an input that will be stored.
    pub(super) fn add_early(
        &mut self,
        entity: EntityId,
        position: Position,
        loc: Loc,
        bytes: Bytes,
    ) -> Partition {
        self.early.insert(position, bytes);
        self.add(entity, position, loc, false)
    }

    /// The bytes of an input, unless they are in the log.
    pub(super) fn early(&self, position: Position) -> Option<Bytes> {
        self.early.get(&position).cloned()
    }

    /// Inputs that were delivered early are in the log now.
    pub(super) fn are_stored(&mut self, positions: &[Position]) {
        for position in positions {
            self.early.remove(position);
        }
    }

    /// Adds an input; says which partition has something to deliver, if any.
    pub(super) fn add(
        &mut self,
        entity: EntityId,
        position: Position,
        loc: Loc,
        seen: bool,
    ) -> Partition {
        let partition = entity.partition(self.partitions);
        self.hands.add(partition.0, entity, position, loc, seen);
        self.by_entity.insert((partition.0, entity, position));
        partition
    }

    /// Its bytes were moved.
    pub(super) fn relocate(&mut self, position: Position, loc: Loc) {
        self.hands.relocate(position, loc);
    }

    /// Removes an input; `None` if it is gone already.
    pub(super) fn remove(&mut self, position: Position) -> Option<InFlightItem<u16, EntityId>> {
        let item = self.hands.remove(position)?;
        self.early.remove(&position);
        self.by_entity.remove(&(item.lane, item.of, position));
        Some(item)
    }

    /// Delivers the first input of the partition; says whether no other of its entity is before it.
    pub(super) fn pop(
        &mut self,
        partition: Partition,
        now: Instant,
        ack_wait: Duration,
    ) -> Option<(Popped<u16, EntityId>, bool)> {
        let popped = self.hands.pop(&partition.0, now, ack_wait)?;
        let foremost = self.first_of(popped.item.of) == Some(popped.position);
        Some((popped, foremost))
    }

    /// Whether the partition has something to deliver.
    pub(super) fn has_ready(&self, partition: u16) -> bool {
        self.hands.has_ready(&partition)
    }

    /// As [`Hands::put_off`].
    pub(super) fn put_off(&mut self, position: Position, until: Instant, always: bool) -> bool {
        self.hands.put_off(position, until, always)
    }

    /// It is not delivered again by this process.
    pub(super) fn set_damaged(&mut self, position: Position) {
        self.hands.set_damaged(position);
    }

    /// As [`Hands::expire`].
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<u16> {
        self.hands.expire(now)
    }

    /// As [`Hands::arm`].
    pub(super) fn arm(&mut self, now: Instant) -> Option<Instant> {
        self.hands.arm(now)
    }

    /// The inputs of one entity after `after`, in order.
    pub(super) fn of(&self, entity: EntityId, after: Position) -> Vec<(Position, Loc)> {
        let partition = entity.partition(self.partitions).0;
        self.by_entity
            .range((partition, entity, after.next())..=(partition, entity, Position(u64::MAX)))
            .filter_map(|(_, _, position)| Some((*position, self.hands.get(*position)?.loc)))
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
}

// === impl LocalJobQueue ===

impl LocalJobQueue {
    /// The bell of one capability; rung if something can be delivered already.
    pub(super) fn bell(&mut self, capability: &Capability) -> Arc<Notify> {
        if let Some(bell) = self.bells.get(capability) {
            return Arc::clone(bell);
        }
        let bell = Arc::new(Notify::new());
        self.bells.insert(capability.clone(), Arc::clone(&bell));
        self.ring_if_ready(capability);
        bell
    }

    /// Rings for one delivery, if there is one.
    pub(super) fn ring_if_ready(&self, capability: &Capability) {
        if self.hands.has_ready(capability)
            && let Some(bell) = self.bells.get(capability)
        {
            bell.notify_one();
        }
    }

    /// Makes jobs deliverable whose time in hand is over.
    pub(super) fn expire(&mut self, now: Instant) {
        for capability in self.hands.expire(now) {
            self.ring_if_ready(&capability);
        }
    }

    /// The oldest jobs, in order, if one of them may be too old by now.
    pub(super) fn maybe_old(&self, now: Timestamp) -> Vec<(Position, JobId, Loc)> {
        let is_fresh = |first| self.fresh.is_some_and(|(at, until)| at == first && now <= until);
        match self.hands.iter().next() {
            Some((first, _)) if !is_fresh(first) => {
                let all = self.hands.iter().take(OLD_AT_ONCE);
                all.map(|(at, item)| (at, item.of, item.loc)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The oldest job is not too old until then.
    pub(super) fn set_fresh(&mut self, position: Position, until: Timestamp) {
        self.fresh = Some((position, until));
    }

    /// Wakes all waiting runners: the store is closed.
    pub(super) fn ring_all(&self) {
        for bell in self.bells.values() {
            bell.notify_waiters();
            bell.notify_one();
        }
    }
}

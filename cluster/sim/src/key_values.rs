//! What the world keeps beside journals and inboxes: the bucket, the timers, and who pulls.
//!
//! Reads of these are never stale, and a power cut takes nothing of them; the faults of requests
//! and answers apply to them as to all.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{BucketEntry, Timer};
use clawnode_proto::{EntityId, Partition, Position, TimerId, Timestamp};

use super::{
    request::{StoreReply, StoreRequest},
    world::{World, WorldEvent},
};

/// Something whose time has come, if it is still what it was when that was planned.
#[derive(Debug)]
pub(super) enum Expiry {
    Value(String, Position),
    /// A timer, and which setting of it.
    Timer(EntityId, TimerId, u64),
}

/// The bucket, the timers, and who pulls.
#[derive(Debug, Default)]
pub(super) struct SimKeyValues {
    values: BTreeMap<String, BucketEntry>,
    /// Changes of values since the last question; kept only if the test asks.
    changes: Option<Vec<(String, Option<BucketEntry>)>>,
    timers: BTreeMap<(EntityId, TimerId), (u64, Timer)>,
    /// The last position of a value, and the last setting of a timer.
    last: u64,
    /// How many deliveries are asked for, if they are only made when asked for.
    wanted: Option<BTreeMap<Partition, usize>>,
    /// Deliverable inputs that no process asked for.
    parked: BTreeMap<Partition, BTreeSet<Position>>,
}

// === impl SimKeyValues ===

impl SimKeyValues {
    /// Whether to deliver now; parks the input if not.
    pub(super) fn is_wanted(&mut self, partition: Partition, position: Position) -> bool {
        let Some(wanted) = &mut self.wanted else { return true };
        if let Some(count) = wanted.get_mut(&partition).filter(|count| **count > 0) {
            *count -= 1;
            return true;
        }
        self.parked.entry(partition).or_default().insert(position);
        false
    }

    /// What was asked for got lost.
    pub(super) fn want_again(&mut self, partition: Partition) {
        if let Some(wanted) = &mut self.wanted {
            *wanted.entry(partition).or_default() += 1;
        }
    }

    fn tell(&mut self, key: &str, entry: Option<BucketEntry>) {
        if let Some(changes) = &mut self.changes {
            changes.push((key.to_owned(), entry));
        }
    }

    fn values(&self, prefix: &str) -> Vec<(String, BucketEntry)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.values
            .range::<str, _>(from)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    /// Whether the value is at `expected`; 0 is absent.
    fn fits(&self, key: &str, expected: Position) -> bool {
        self.values.get(key).map_or(Position(0), |entry| entry.position) == expected
    }
}

// === impl World ===

impl<D> World<D> {
    /// From here on inputs are delivered only as [`Self::pull`] asks, and changes of values are
    /// kept for [`Self::value_changes`].
    pub fn on_demand(&mut self) {
        self.shelf.wanted.get_or_insert_default();
        self.shelf.changes.get_or_insert_default();
    }

    /// Asks for one more delivery of a partition.
    pub fn pull(&mut self, partition: Partition) {
        self.shelf.want_again(partition);
        for position in self.shelf.parked.remove(&partition).unwrap_or_default() {
            self.schedule.plan(0, WorldEvent::Wake(position));
        }
    }

    /// Asks for no more than so many deliveries of a partition.
    pub fn pull_at_most(&mut self, partition: Partition, most: usize) {
        if let Some(count) = self.shelf.wanted.as_mut().and_then(|all| all.get_mut(&partition)) {
            *count = most.min(*count);
        }
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.schedule.next_at()
    }

    /// The values whose keys begin so, as they really are.
    pub fn values(&self, prefix: &str) -> Vec<(String, BucketEntry)> {
        self.shelf.values(prefix)
    }

    /// How the values changed since this was asked last, in order.
    pub fn value_changes(&mut self) -> Vec<(String, Option<BucketEntry>)> {
        self.shelf.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn serve_shelf(&mut self, request: StoreRequest) -> StoreReply {
        match request {
            StoreRequest::RemoveBlob(digest) => {
                self.blobs.remove(&digest);
                StoreReply::Done
            }
            StoreRequest::Blobs => StoreReply::Digests(self.blobs.keys().copied().collect()),
            StoreRequest::Entities(after, limit) => {
                StoreReply::Entities(self.journals.entities(after, limit))
            }
            StoreRequest::End => StoreReply::End(self.journals.end()),
            StoreRequest::Follow(after, limit) => {
                StoreReply::Page(self.journals.follow(after, limit))
            }
            StoreRequest::Value(key) => StoreReply::Value(self.shelf.values.get(&key).cloned()),
            StoreRequest::Values(prefix) => StoreReply::Values(self.shelf.values(&prefix)),
            StoreRequest::SetValue { key, expected, value, ttl } => {
                StoreReply::Changed(self.set_value(key, expected, value, ttl))
            }
            StoreRequest::RemoveValue(key, expected) => {
                let fits = self.shelf.fits(&key, expected);
                if fits && self.shelf.values.remove(&key).is_some() {
                    self.shelf.tell(&key, None);
                }
                StoreReply::Changed(fits.then_some(Position(0)))
            }
            StoreRequest::SetTimer(timer) => {
                self.shelf.last += 1;
                let (entity, id, setting) = (timer.input.entity, timer.id, self.shelf.last);
                let expiry = WorldEvent::Expire(Expiry::Timer(entity, id, setting));
                self.schedule.plan_at(timer.due.0, expiry);
                self.shelf.timers.insert((entity, id), (setting, timer));
                StoreReply::Done
            }
            StoreRequest::CancelTimer(entity, timer) => {
                self.shelf.timers.remove(&(entity, timer));
                StoreReply::Done
            }
            StoreRequest::Timers(partition) => StoreReply::Timers(self.timers_of(partition)),
            // What is left is about jobs; the others are served where journals and inboxes are.
            other => self.serve_jobs(other),
        }
    }

    fn timers_of(&self, partition: Partition) -> Vec<Timer> {
        let of_partition =
            |(entity, _): &(EntityId, TimerId)| entity.partition(self.partitions) == partition;
        let timers = self.shelf.timers.iter().filter(|(key, _)| of_partition(key));
        timers.map(|(_, (_, timer))| timer.clone()).collect()
    }

    fn set_value(
        &mut self,
        key: String,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Option<Position> {
        if !self.shelf.fits(&key, expected) && !self.bugs.no_fencing {
            return None;
        }
        self.shelf.last += 1;
        let entry = BucketEntry { position: Position(self.shelf.last), value };
        self.shelf.tell(&key, Some(entry.clone()));
        let position = entry.position;
        if let Some(ttl) = ttl {
            let at = self.now().plus(ttl).0;
            self.schedule.plan_at(at, WorldEvent::Expire(Expiry::Value(key.clone(), position)));
        }
        self.shelf.values.insert(key, entry);
        Some(position)
    }

    pub(super) fn expire(&mut self, expiry: Expiry) {
        match expiry {
            Expiry::Value(key, position) => {
                if self.shelf.fits(&key, position) {
                    self.shelf.values.remove(&key);
                    self.shelf.tell(&key, None);
                }
            }
            Expiry::Timer(entity, id, setting) => {
                let is_it = |(standing, _): &(u64, Timer)| *standing == setting;
                if self.shelf.timers.get(&(entity, id)).is_some_and(is_it)
                    && let Some((_, timer)) = self.shelf.timers.remove(&(entity, id))
                {
                    self.put(timer.input);
                }
            }
        }
    }
}

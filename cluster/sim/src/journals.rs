//! Journals with as much of their history as stale reads can show.

use std::{collections::BTreeMap, ops::Bound};

use clawnode_cluster::{FeedPage, Record, Write};
use clawnode_proto::{EntityId, Position};

use super::STALE_MOST;

#[derive(Debug)]
struct JournalVersion {
    at: u64,
    record: Record,
    rollup: bool,
}

/// All journals.
#[derive(Debug, Default)]
pub(super) struct Journals {
    versions: BTreeMap<EntityId, Vec<JournalVersion>>,
    last: u64,
}

impl Journals {
    /// The position of the last record.
    pub(super) fn tail(&self, entity: EntityId) -> Position {
        let last = self.versions.get(&entity).and_then(|all| all.last());
        last.map_or(Position(0), |version| version.record.position)
    }

    /// Stores a record; the caller has checked the fence.
    pub(super) fn append(&mut self, at: u64, entity: EntityId, write: Write) -> Record {
        self.last += 1;
        let record = Record { position: Position(self.last), bytes: write.bytes };
        let version = JournalVersion { at, record: record.clone(), rollup: write.rollup };
        let all = self.versions.entry(entity).or_default();
        if write.rollup {
            // Old reads begin at the last rollup that they know.
            let old = |one: &JournalVersion| one.rollup && one.at + STALE_MOST < at;
            let from = all.iter().rposition(old).unwrap_or(0);
            all.drain(..from);
        }
        all.push(version);
        record
    }

    /// Forgets a record that was not synced, and all after it.
    pub(super) fn undo(&mut self, entity: EntityId, position: Position) {
        if let Some(all) = self.versions.get_mut(&entity) {
            all.retain(|version| version.record.position < position);
        }
    }

    /// Flips one bit of a record that can be read; says whether there is one.
    pub(super) fn damage(&mut self, entity: EntityId, record: usize, byte: usize) -> bool {
        let Some(all) = self.versions.get_mut(&entity) else { return false };
        let from = all.iter().rposition(|version| version.rollup).unwrap_or(0);
        let live = all.get_mut(from..).unwrap_or_default();
        let count = live.len().max(1);
        let Some(version) = live.get_mut(record % count) else { return false };
        let mut bytes = version.record.bytes.to_vec();
        let at = byte % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        version.record.bytes = bytes.into();
        true
    }

    /// At most `limit` entities that have a journal, in order, after `after`.
    pub(super) fn entities(&self, after: Option<EntityId>, limit: usize) -> Vec<EntityId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.versions.range((from, Bound::Unbounded));
        all.filter(|(_, versions)| !versions.is_empty()).map(|(id, _)| *id).take(limit).collect()
    }

    /// The position of the last record that was stored.
    pub(super) const fn end(&self) -> Position {
        Position(self.last)
    }

    /// The first `limit` records of all journals after `after`.
    pub(super) fn follow(&self, after: Position, limit: usize) -> FeedPage {
        let live = |versions: &Vec<JournalVersion>| {
            versions.iter().rposition(|version| version.rollup).unwrap_or(0)
        };
        let mut records: Vec<(EntityId, Record)> = self
            .versions
            .iter()
            .flat_map(|(entity, all)| {
                all.iter().skip(live(all)).map(|version| (*entity, version.record.clone()))
            })
            .filter(|(_, record)| record.position > after)
            .collect();
        records.sort_unstable_by_key(|(_, record)| record.position);
        records.truncate(limit.max(1));
        let upto = records.last().map_or(after, |(_, record)| record.position);
        FeedPage { records, upto }
    }

    /// The records after `after`, as they were at a time.
    pub(super) fn read(&self, entity: EntityId, after: Position, as_of: u64) -> Vec<Record> {
        let Some(all) = self.versions.get(&entity) else { return Vec::new() };
        let known = all.partition_point(|version| version.at <= as_of);
        let known = all.get(..known).unwrap_or_default();
        let from = known.iter().rposition(|version| version.rollup).unwrap_or(0);
        let live = known.get(from..).unwrap_or_default();
        live.iter()
            .map(|version| &version.record)
            .filter(|record| record.position > after)
            .cloned()
            .collect()
    }
}

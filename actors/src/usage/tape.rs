//! Tests: a journal of one session that is read while snapshots replace its records.

use std::{
    mem,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use clawnode_cluster::{AppendAnswer, FeedPage, Journal, Record, StoreError, Write};
use clawnode_proto::{EntityId, Kind, Position};

use crate::session::played::key;

/// The journal of a session, with the positions that its machine got, and between its records those of another journal,
/// which cannot be read.
#[derive(Debug, Default)]
pub(super) struct Tape {
    pub(super) records: Mutex<Vec<Record>>,
    pub(super) others: Mutex<Vec<Record>>,
    /// What the newest snapshot replaced, if it is stored while the next page is read.
    pub(super) replaced: Mutex<Vec<Record>>,
    /// So many records of the next page are read before that snapshot is stored.
    pub(super) stale: AtomicUsize,
    /// So many pages are without records from now on, and how much the feed grows with each of them: a leader that was
    /// deposed answers.
    pub(super) empty: AtomicUsize,
    pub(super) grows: AtomicU64,
    grown: AtomicU64,
    /// How many pages were read.
    pub(super) pages: AtomicUsize,
    /// How often the journal of the session was read.
    pub(super) reads: AtomicUsize,
}

/// Whose records are between those of the session.
pub(super) fn other() -> EntityId {
    EntityId::derive(Kind::SESSION, "another")
}

fn behind(
    records: &Mutex<Vec<Record>>,
    id: EntityId,
    after: Position,
) -> impl Iterator<Item = (EntityId, Record)> {
    let mut records = records.lock().unwrap().clone();
    records.retain(|record| record.position > after);
    records.into_iter().map(move |record| (id, record))
}

// === impl Tape ===

impl Tape {
    /// The last record of the session.
    pub(super) fn end_of_session(&self) -> Option<Position> {
        self.records.lock().unwrap().last().map(|last| last.position)
    }

    /// A snapshot is stored: it replaces all records.
    pub(super) fn rolls_up(&self) {
        *self.replaced.lock().unwrap() = mem::take(&mut *self.records.lock().unwrap());
    }

    /// The first records of a page, as they were before the newest snapshot: a page is not read at one moment.
    fn read_before_snapshot(&self, after: Position) -> Vec<(EntityId, Record)> {
        let stale = self.stale.swap(0, Ordering::SeqCst);
        let replaced = Mutex::new(mem::take(&mut *self.replaced.lock().unwrap()));
        let snapshot = self.records.lock().unwrap().first().map(|first| first.position);
        let mut read: Vec<_> = behind(&replaced, key().entity(), after).collect();
        if read.is_empty() {
            return read;
        }
        read.extend(behind(&self.others, other(), after));
        read.retain(|(_, record)| snapshot.is_none_or(|snapshot| record.position < snapshot));
        read.sort_by_key(|(_, record)| record.position);
        read.truncate(stale);
        read
    }
}

#[async_trait]
impl Journal for Tape {
    async fn append(&self, _: EntityId, _: Position, _: Write) -> AppendAnswer {
        AppendAnswer::Refused
    }

    async fn read(&self, id: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        let is_other = id == other();
        self.reads.fetch_add(usize::from(!is_other), Ordering::SeqCst);
        let records = if is_other { &self.others } else { &self.records };
        Ok(behind(records, id, after).map(|(_, record)| record).collect())
    }

    async fn tail(&self, _: EntityId) -> Result<Option<Record>, StoreError> {
        Ok(self.records.lock().unwrap().last().cloned())
    }

    async fn end(&self) -> Result<Position, StoreError> {
        let last = |records: &Mutex<Vec<Record>>| {
            records.lock().unwrap().last().map_or(Position(0), |last| last.position)
        };
        let end = last(&self.records).max(last(&self.others));
        Ok(Position(end.0 + self.grown.load(Ordering::SeqCst)))
    }

    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
        self.pages.fetch_add(1, Ordering::SeqCst);
        let empty = self.empty.load(Ordering::SeqCst);
        if let Some(fewer) = empty.checked_sub(1) {
            self.empty.store(fewer, Ordering::SeqCst);
            self.grown.fetch_add(self.grows.load(Ordering::SeqCst), Ordering::SeqCst);
            return Ok(FeedPage { records: Vec::new(), upto: after });
        }
        let mut records = self.read_before_snapshot(after);
        let next = records.last().map_or(after, |(_, record)| record.position);
        let mut rest: Vec<_> = behind(&self.records, key().entity(), next).collect();
        rest.extend(behind(&self.others, other(), next));
        rest.sort_by_key(|(_, record)| record.position);
        records.extend(rest);
        records.truncate(limit);
        let upto = records.last().map_or(after, |(_, record)| record.position);
        Ok(FeedPage { records, upto })
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        _: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        Ok(Some(key().entity())
            .filter(|id| after.is_none_or(|after| after < *id))
            .into_iter()
            .collect())
    }
}

//! For code that reads a world through a [`Storage`], in a driver without a runtime.
//!
//! A driver of a [`World`](crate::World) computes one step after the other, and production code that searches is async. So
//! journals and blobs are shown as they are at one moment, and what reads them ends within that moment. Inboxes are shown empty.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, Blobs, Clock, Consumer, FeedPage, Inbox, Journal, Record, Storage, StoreError,
    WaitingInput, Write,
};
use clawnode_proto::{Digest, EntityId, Input, Partition, Position};
use tokio::runtime::{Builder, Runtime};

use crate::storage::{SimClock, SimStorageOptions, SimStores};

const JOURNAL: &str = "shown journal";
const BLOBS: &str = "shown blobs";
const INBOX: &str = "shown inbox";

/// Journals and blobs as they are shown, and the runtime that reads them.
pub struct WorldReads {
    shown: ShownRecords,
    storage: Storage,
    clock: SimClock,
    runtime: Runtime,
}

/// What is shown now.
#[derive(Clone, Debug, Default)]
struct ShownRecords(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    journals: BTreeMap<EntityId, Vec<Record>>,
    blobs: BTreeMap<Digest, Bytes>,
}

impl fmt::Debug for WorldReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldReads").finish_non_exhaustive()
    }
}

// === impl WorldReads ===

impl WorldReads {
    /// Shows nothing yet. Fails if the machine gives no runtime.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let shown = ShownRecords::default();
        let stores = runtime.block_on(async { SimStores::new(&SimStorageOptions::default()) });
        let clock = stores.clock();
        let storage = runtime.block_on(async { stores.open() });
        let storage = Storage {
            journal: Arc::new(shown.clone()),
            blobs: Arc::new(shown.clone()),
            inbox: Arc::new(shown.clone()),
            ..storage
        };
        Ok(Self { shown, storage, clock, runtime })
    }

    /// From now on this journal has these records, and these blobs are there.
    pub fn shows(
        &self,
        entity: EntityId,
        records: Vec<Record>,
        blobs: impl IntoIterator<Item = Bytes>,
    ) {
        let mut shown = self.shown.lock();
        shown.blobs.extend(blobs.into_iter().map(|blob| (Digest::of(&blob), blob)));
        shown.journals.insert(entity, records);
    }

    /// What reads it. Nothing can be written: appends are refused.
    pub fn storage(&self) -> Storage {
        self.storage.clone()
    }

    /// A clock for what reads it.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock)
    }

    /// Runs it to its end. It must wait for nothing else than what is shown here.
    pub fn run<F: Future>(&self, reading: F) -> F::Output {
        self.runtime.block_on(reading)
    }
}

// === impl ShownRecords ===

impl ShownRecords {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn only_read(store: &'static str) -> StoreError {
    StoreError::Refused { store, detail: "it can only be read".to_owned() }
}

#[async_trait]
impl Journal for ShownRecords {
    async fn append(&self, _: EntityId, _: Position, _: Write) -> AppendAnswer {
        AppendAnswer::Defect(only_read(JOURNAL))
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        let shown = self.lock();
        let records = shown.journals.get(&entity).map(Vec::as_slice).unwrap_or_default();
        Ok(records.iter().filter(|record| record.position > after).cloned().collect())
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        Ok(self.lock().journals.get(&entity).and_then(|records| records.last().cloned()))
    }

    async fn follow(&self, _: Position, _: usize) -> Result<FeedPage, StoreError> {
        Err(only_read(JOURNAL))
    }

    async fn end(&self) -> Result<Position, StoreError> {
        Err(only_read(JOURNAL))
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        let shown = self.lock();
        let known =
            shown.journals.keys().filter(|entity| after.is_none_or(|after| **entity > after));
        Ok(known.take(limit).copied().collect())
    }
}

#[async_trait]
impl Blobs for ShownRecords {
    async fn put(&self, _: Bytes) -> Result<Digest, StoreError> {
        Err(only_read(BLOBS))
    }

    async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        Ok(self.lock().blobs.get(&digest).cloned())
    }

    async fn delete(&self, _: Digest) -> Result<(), StoreError> {
        Err(only_read(BLOBS))
    }

    async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        Ok(self.lock().blobs.keys().copied().collect())
    }
}

/// Nothing waits: what is shown is all there is at that moment.
#[async_trait]
impl Inbox for ShownRecords {
    async fn put(&self, _: &Input) -> Result<Position, StoreError> {
        Err(only_read(INBOX))
    }

    async fn read(&self, _: EntityId, _: Position) -> Result<Vec<WaitingInput>, StoreError> {
        Ok(Vec::new())
    }

    async fn pending(&self, _: EntityId) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn scan(&self, _: Partition) -> Result<Vec<EntityId>, StoreError> {
        Ok(Vec::new())
    }

    async fn consume(&self, _: Partition, _: u8) -> Result<Box<dyn Consumer>, StoreError> {
        Err(only_read(INBOX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_last_is_read_and_nothing_can_be_written() {
        let reads = WorldReads::new().unwrap();
        let (entity, storage) = (EntityId::from_u128(1), reads.storage());
        let record = |at| Record { position: Position(at), bytes: Bytes::from_static(b"x") };
        let blob = Bytes::from_static(b"state");
        reads.shows(entity, vec![record(1)], [blob.clone()]);
        reads.shows(entity, vec![record(4), record(7)], None);
        reads.run(async {
            let (journal, blobs) = (&storage.journal, &storage.blobs);
            assert_eq!(journal.position(entity).await.unwrap(), Position(7));
            assert_eq!(journal.read(entity, Position(4)).await.unwrap(), [record(7)]);
            assert_eq!(blobs.get(Digest::of(&blob)).await.unwrap(), Some(blob.clone()));
            let write = Write { bytes: Bytes::new(), rollup: false };
            let refused = journal.append(entity, Position(7), write).await;
            assert!(matches!(refused, AppendAnswer::Defect(_)), "{refused:?}");
            assert!(blobs.put(blob).await.is_err());
            assert_eq!(journal.position(entity).await.unwrap(), Position(7));
        });
    }
}

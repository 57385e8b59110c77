//! The journal trait: per-entity append under compare-and-set of the last position.
//!
//! Contract: an append is stored only if the entity's last record is at `expected`
//! ([`Position(0)`](Position) for none). The answer may be lost while the record is stored, and a
//! record may be stored after its writer gave up: [`crate::outcome`] is the only place that says
//! what an answer means. Positions of one entity strictly increase; nothing else is promised of
//! them.

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{EntityId, Position};

use crate::StoreError;

/// One stored append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position in the store.
    pub position: Position,
    /// The appended bytes (see `clawnode_proto::event::decode_record`).
    pub bytes: Bytes,
}

/// One append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// At most `limits::APPEND_BYTES`.
    pub bytes: Bytes,
    /// Whether it replaces all records before it (a snapshot), in the same atomic step.
    pub rollup: bool,
}

/// Bytes of a page of the feed (8 MiB).
pub const PAGE_BYTES: usize = 8 << 20;

/// A page of the records of all journals; see [`Journal::follow`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPage {
    /// Records with their entities, by position.
    pub records: Vec<(EntityId, Record)>,
    /// Up to here the reader has seen every record that is still stored. The next page follows it.
    pub upto: Position,
}

/// The store's answer to one try at an append; only [`crate::outcome`] interprets it.
#[derive(Debug)]
pub enum AppendAnswer {
    /// Stored at this position, durably.
    Stored(Position),
    /// The last record is not at `expected`, as far as the store knows.
    Refused,
    /// No answer, or one that proves nothing.
    Unknown(StoreError),
    /// Over a limit, or not allowed: trying again cannot help.
    Defect(StoreError),
}

/// Per-entity append-only records.
#[async_trait]
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// One try at an append; never retries by itself.
    async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer;

    /// All records after `after`, oldest first, as the store's leader has them.
    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError>;

    /// The last record.
    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError>;

    /// Where the last record is, also where its bytes are damaged; 0 if there is none.
    async fn position(&self, entity: EntityId) -> Result<Position, StoreError> {
        Ok(self.tail(entity).await?.map_or(Position(0), |record| record.position))
    }

    /// The records of all journals after `after`, in the order in which they were stored, at most
    /// `limit` (and at least one, if there is one).
    ///
    /// Positions become visible in their order: a record that is stored later is behind `upto`. A
    /// record that a snapshot replaced before it was read here is not seen: the snapshot is, and its
    /// archive has the record. A page has [`PAGE_BYTES`] at most, or one record. One that ends at
    /// `after` says that there are no more for now; one without records may end behind it.
    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError>;

    /// A position after which [`follow`](Self::follow) has every record that is stored from now on.
    async fn end(&self) -> Result<Position, StoreError>;

    /// At most `limit` entities that have a journal, after `after`, each once, in an order of the
    /// store's own that does not change.
    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError>;

    /// Asks the store to free the bytes of removed data soon: replaced records, acknowledged
    /// inputs. This is for permanent deletion; a store that keeps no removed data does nothing.
    async fn scrub(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How many entities have a journal, for people; some stores know it without reading them all.
    async fn count(&self) -> Result<u64, StoreError> {
        Ok(self.entities(None, usize::MAX).await?.len() as u64)
    }
}

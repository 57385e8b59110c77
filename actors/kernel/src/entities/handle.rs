//! The entry: lists entities, and reads the kernel's part of their journals.

use std::{
    ops::{ControlFlow, RangeInclusive},
    sync::Arc,
};

use clawnode_cluster::{Clock, Storage, StoreError};
use clawnode_proto::{
    EntityId, Kind, Sealed, Seq, Timestamp,
    event::decode_record,
    kernel::{PARKED, QUARANTINED},
};
use futures_util::{StreamExt, future::BoxFuture, stream};
use tracing::debug;

use super::{EntityError, KnownKinds};
use crate::{Core, LoadedJournal, journal_reader};

/// Journals that are read at the same time for one list.
pub(super) const READS_MAX: usize = 16;
/// Ids that are read at once.
const PAGE: usize = 1_000;

/// All entities, of every kind.
#[derive(Clone, Debug)]
pub struct Entities {
    pub(super) storage: Storage,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) kinds: KnownKinds,
}

/// Entities that were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// How many.
    pub entities: usize,
    /// The last of them; none if there was none.
    pub last: Option<EntityId>,
    /// Those of them that are out of service.
    pub quarantined: Vec<EntityId>,
}

impl Entities {
    /// The entities in these stores; the journals of `kinds` can be folded.
    pub const fn new(storage: Storage, clock: Arc<dyn Clock>, kinds: KnownKinds) -> Self {
        Self { storage, clock, kinds }
    }

    /// Where they are.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How many have a journal, deleted ones included.
    pub async fn count(&self) -> Result<u64, StoreError> {
        self.storage.journal.count().await
    }

    /// All that have a journal.
    pub async fn all(&self) -> Result<Vec<EntityId>, StoreError> {
        let mut all = Vec::new();
        loop {
            let page = self.storage.journal.entities(all.last().copied(), PAGE).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// A journal, unfolded.
    pub fn load(&self, id: EntityId) -> BoxFuture<'_, Result<LoadedJournal, StoreError>> {
        Box::pin(async move { journal_reader::journal(&self.storage, id).await })
    }

    /// The kernel's part of a journal, whatever its kind is; empty if there is no journal.
    pub fn core(&self, id: EntityId) -> BoxFuture<'_, Result<Core, EntityError>> {
        Box::pin(async move { Ok(Core::of(id, &self.load(id).await?, &|_| true)?) })
    }

    /// The times of the first event of an entity since its last deletion, and of its last one. None if its beginning is not
    /// known any more.
    pub async fn lifetime(
        &self,
        id: EntityId,
    ) -> Result<Option<RangeInclusive<Timestamp>>, EntityError> {
        let core = self.core(id).await?;
        let deletion = core.deleted_at.unwrap_or(Seq(0));
        let mut first = None;
        let visit = |sealed: Sealed| {
            first = Some(sealed.head);
            ControlFlow::Break(())
        };
        self.each_event(id, deletion, visit).await?;
        // A snapshot whose archives are gone is later than what it replaced.
        let first = first.filter(|head| head.n == deletion.next());
        Ok(first.map(|head| head.ts..=core.tail.ts))
    }

    /// The kind of an entity, as far as its journal still tells it.
    pub async fn kind(&self, id: EntityId) -> Result<Option<Kind>, StoreError> {
        Ok(Core::salvaged(id, &self.load(id).await?).kind)
    }

    /// Which of at most `limit` entities after `after` are out of service. Reads last records only,
    /// and folds none.
    pub async fn look(&self, after: Option<EntityId>, limit: usize) -> Result<Looked, StoreError> {
        let ids = self.storage.journal.entities(after, limit).await?;
        let (entities, last) = (ids.len(), ids.last().copied());
        let quarantined = stream::iter(ids)
            .map(|id| async move { self.is_quarantined(id).await.then_some(id) })
            .buffered(READS_MAX)
            .filter_map(std::future::ready)
            .collect()
            .await;
        Ok(Looked { entities, last, quarantined })
    }

    /// Out of service, an entity's journal gets nothing but parked inputs.
    async fn is_quarantined(&self, id: EntityId) -> bool {
        let record = match self.storage.journal.tail(id).await {
            Ok(Some(record)) => record,
            Ok(None) => return false,
            Err(failure) => {
                debug!(entity = %id, %failure, "cannot read a journal");
                return false;
            }
        };
        let events = decode_record(&record.bytes).unwrap_or_default();
        events.last().is_some_and(|last| [QUARANTINED, PARKED].contains(&last.head.kind.as_str()))
    }
}

//! An entity's whole past: the segments that snapshots replaced, and the records in its journal now.
//!
//! A journal names the archive with the records that its snapshot replaced, and that archive begins
//! with the snapshot before it. A reader of the whole past has one segment in memory at a time, oldest first. It skips the
//! state of earlier snapshots, because the events before them add up to it.

use std::ops::ControlFlow;

use clawnode_cluster::{Record, Storage, StoreError};
use clawnode_proto::{
    Digest, EntityId, Kind, Position, Sealed, Seq, Tail,
    event::decode_record,
    kernel::{PURGE_BEGUN, SNAPSHOT},
};

use super::{Entities, EntityError, known_kinds::Fold};
use crate::{
    Core, Entity, EntityKind, FoldError, LoadedJournal, Violation,
    archive::{self, ARCHIVES_MAX, snapshot_of},
    core::{may_begin, snapshot_blob},
    journal_reader::readable,
};

/// Where the segments of a journal are.
#[derive(Debug)]
struct Chain {
    /// Archived segments, oldest first, and the last event of each.
    archived: Vec<(Digest, Seq)>,
    /// What is in the journal.
    newest: Vec<Record>,
}

/// A past that is played again.
struct Played<F> {
    id: EntityId,
    fold: F,
    /// Nothing is played yet.
    is_new: bool,
}

/// A past that is folded for its state alone: nothing is compared.
struct PastFold<K: EntityKind> {
    entity: Entity<K>,
    begin: fn(&mut K::State),
}

// === impl Entities ===

impl Entities {
    async fn chain(&self, id: EntityId) -> Result<Chain, EntityError> {
        let newest = self.storage.journal.read(id, Position(0)).await?;
        let mut archived = Vec::new();
        if is_purging(&newest) {
            // Archives are being removed. What is left of them says less than the state that the journal begins with.
            return Ok(Chain { archived, newest });
        }
        let mut next = archive_of(&newest);
        while let Some((digest, last)) = next.filter(|_| archived.len() < ARCHIVES_MAX) {
            archived.push((digest, last));
            next = archive_of(&self.segment(digest).await?);
        }
        archived.reverse();
        Ok(Chain { archived, newest })
    }

    pub(super) async fn segment(&self, digest: Digest) -> Result<Vec<Record>, EntityError> {
        let found = self.storage.blobs.get(digest).await?;
        let bytes = found.ok_or_else(|| StoreError::Refused {
            store: "blobs",
            detail: format!("`{digest}` is missing"),
        })?;
        Ok(archive::unpack(&bytes)?)
    }

    /// Visits an entity's events after `after`, archived ones included, until the visitor breaks off.
    pub async fn each_event(
        &self,
        id: EntityId,
        after: Seq,
        mut visit: impl FnMut(Sealed) -> ControlFlow<()> + Send,
    ) -> Result<(), EntityError> {
        let Chain { archived, newest } = self.chain(id).await?;
        for (digest, _) in archived.into_iter().filter(|(_, last)| *last > after) {
            if visit_all(id, &self.segment(digest).await?, after, &mut visit)?.is_break() {
                return Ok(());
            }
        }
        visit_all(id, &newest, after, &mut visit).map(drop)
    }

    /// Folds a past from its beginning, comparing what its kind can compare; `compared` counts that.
    /// Says the entity's key and its end.
    pub(super) async fn play(
        &self,
        id: EntityId,
        kind: Option<Kind>,
        compared: &mut u64,
    ) -> Result<(Option<String>, Tail), EntityError> {
        let Chain { archived, newest } = self.chain(id).await?;
        let mut played = Played { id, fold: self.kinds.begin(kind, id), is_new: true };
        let mut key = None;
        for (digest, _) in archived {
            let segment = self.segment(digest).await?;
            played.take(segment, &self.storage, compared).await?;
            key = played.fold.core().key.clone().or(key);
        }
        played.take(newest, &self.storage, compared).await?;
        let core = played.fold.core();
        Ok((core.key.clone().or(key), core.tail))
    }

    /// Folds a past of this kind from its beginning, for readers who want what a state gives up. `begin` prepares the
    /// state before the first event; `visit` sees the entity after each segment, until it breaks off.
    pub async fn fold_past<K: EntityKind>(
        &self,
        id: EntityId,
        begin: fn(&mut K::State),
        mut visit: impl FnMut(&mut Entity<K>) -> ControlFlow<()> + Send,
    ) -> Result<Entity<K>, EntityError> {
        let Chain { archived, newest } = self.chain(id).await?;
        let mut played = Played { id, fold: PastFold::of(id, begin), is_new: true };
        for (digest, _) in archived {
            let segment = self.segment(digest).await?;
            played.take(segment, &self.storage, &mut 0).await?;
            if visit(&mut played.fold.entity).is_break() {
                return Ok(played.fold.entity);
            }
        }
        played.take(newest, &self.storage, &mut 0).await?;
        // Nothing follows that could be broken off.
        let _last = visit(&mut played.fold.entity);
        Ok(played.fold.entity)
    }
}

// === impl Played ===

impl<F: Fold> Played<F> {
    /// Plays one segment: the next one, or the first that there is.
    async fn take(
        &mut self,
        records: Vec<Record>,
        stores: &Storage,
        compared: &mut u64,
    ) -> Result<(), EntityError> {
        let mut begun = false;
        if let Some(snapshot) = snapshot_of(&records) {
            if self.is_new {
                // A tombstone or a purge: nothing is left of the records that it replaced.
                let blob = match snapshot_blob(&records) {
                    Some(digest) => readable(stores.blobs.get(digest).await)?,
                    None => None,
                };
                let loaded = LoadedJournal { records: records[..1].to_vec(), snapshot: blob };
                if snapshot.archive.is_none() {
                    may_begin(self.id, &loaded)?;
                }
                self.fold.load(&loaded)?;
                begun = true;
            } else if self.fold.core().tail != snapshot.tail {
                let text = "a snapshot does not match the events before it".to_owned();
                let (entity, n) = (self.id, snapshot.tail.n.next());
                let (kind, source) = (SNAPSHOT.to_owned(), Violation(text));
                return Err(FoldError::Violation { entity, n, kind, source }.into());
            }
        }
        self.is_new = false;
        for record in records.into_iter().skip(usize::from(begun)) {
            for sealed in decoded(self.id, &record, self.fold.core().tail.n)? {
                self.fold.play(&sealed, compared)?;
            }
        }
        Ok(())
    }
}

// === impl PastFold ===

impl<K: EntityKind> PastFold<K> {
    fn of(id: EntityId, begin: fn(&mut K::State)) -> Self {
        let mut entity = Entity::unborn(id);
        begin(&mut entity.state);
        Self { entity, begin }
    }
}

impl<K: EntityKind> Fold for PastFold<K> {
    fn load(&mut self, loaded: &LoadedJournal) -> Result<(), FoldError> {
        self.entity = Entity::of(self.entity.id, loaded)?;
        (self.begin)(&mut self.entity.state);
        Ok(())
    }

    fn play(&mut self, sealed: &Sealed, _: &mut u64) -> Result<(), FoldError> {
        self.entity.apply(sealed)
    }

    fn core(&self) -> &Core {
        &self.entity.core
    }
}

fn decoded(entity: EntityId, record: &Record, at: Seq) -> Result<Vec<Sealed>, FoldError> {
    decode_record(&record.bytes).map_err(|source| FoldError::Record { entity, at, source })
}

fn visit_all(
    id: EntityId,
    records: &[Record],
    after: Seq,
    visit: &mut impl FnMut(Sealed) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, EntityError> {
    let mut at = after;
    for record in records {
        for sealed in decoded(id, record, at)? {
            at = sealed.head.n;
            if at > after && visit(sealed).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Whether a purge has begun that has not ended: its end replaces these records.
fn is_purging(records: &[Record]) -> bool {
    let begins = |sealed: &Sealed| sealed.head.kind == PURGE_BEGUN;
    let has_begin = |record: &Record| {
        decode_record(&record.bytes).is_ok_and(|events| events.iter().any(begins))
    };
    records.iter().any(has_begin)
}

/// The segment that the snapshot replaced that these records begin with, and its last event.
pub(super) fn archive_of(records: &[Record]) -> Option<(Digest, Seq)> {
    let snapshot = snapshot_of(records)?;
    Some((snapshot.archive?, snapshot.tail.n))
}

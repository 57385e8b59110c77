//! A session's whole past: the segments that snapshots replaced, and what is in its journal now.
//!
//! A journal names the archive of what its snapshot replaced, and that begins with the snapshot
//! before it. Whoever reads all of it has one segment in memory at a time, oldest first; of earlier
//! snapshots no state is read, because what is before them adds up to it.

use std::ops::ControlFlow;

use bytes::Bytes;
use clawnode_cluster::{Record, StoreError, Substrate};
use clawnode_kernel::{
    Entity, FoldError, Loaded, Violation,
    archive::{self, leftovers, snapshot_of},
    core::snapshot_blob,
    load::readable,
};
use clawnode_proto::{
    Digest, EntityId, Position, Sealed, Seq, Tail, event::decode_record, kernel::SNAPSHOT,
    session::SessionEvent,
};

use super::{
    client::Sessions,
    inspect::{is_damage, texts_of},
    send_error::SendError,
};
use crate::session::turn::{hooks::shown, kind::Session};

/// Archives that one journal may chain; more is a loop.
const ARCHIVES_MAX: usize = 100_000;

/// Where the segments of a journal are.
#[derive(Debug)]
struct Chain {
    /// Archived segments, oldest first, and the last event of each.
    archived: Vec<(Digest, Seq)>,
    /// What is in the journal.
    newest: Vec<Record>,
}

/// A past that is played again.
struct Played {
    entity: Entity<Session>,
    /// Nothing is played yet.
    is_new: bool,
    /// Model requests that were compared.
    compared: u64,
}

// === impl Sessions ===

impl Sessions {
    async fn chain(&self, id: EntityId) -> Result<Chain, SendError> {
        let newest = self.substrate.journal.read(id, Position(0)).await?;
        let mut archived = Vec::new();
        let mut next = archive_of(&newest);
        while let Some((digest, last)) = next.filter(|_| archived.len() < ARCHIVES_MAX) {
            archived.push((digest, last));
            next = archive_of(&self.segment(digest).await?);
        }
        archived.reverse();
        Ok(Chain { archived, newest })
    }

    async fn segment(&self, digest: Digest) -> Result<Vec<Record>, SendError> {
        Ok(archive::unpack(&self.blob(digest).await?)?)
    }

    async fn blob(&self, digest: Digest) -> Result<Bytes, SendError> {
        let found = self.substrate.blobs.get(digest).await?;
        found.ok_or_else(|| {
            SendError::Store(StoreError::Refused {
                store: "blobs",
                detail: format!("`{digest}` is missing"),
            })
        })
    }

    /// Visits a session's events after `after`, archived ones included, until the visitor breaks
    /// off.
    pub(in crate::session) async fn each_event(
        &self,
        id: EntityId,
        after: Seq,
        mut visit: impl FnMut(Sealed) -> ControlFlow<()> + Send,
    ) -> Result<(), SendError> {
        let Chain { archived, newest } = self.chain(id).await?;
        for (digest, _) in archived.into_iter().filter(|(_, last)| *last > after) {
            if visit_all(id, &self.segment(digest).await?, after, &mut visit)?.is_break() {
                return Ok(());
            }
        }
        visit_all(id, &newest, after, &mut visit).map(drop)
    }

    /// Folds a session's past from its beginning, comparing what each call was shown with what the
    /// fold says it should have been shown; `compared` counts those. Says its key and its end.
    pub(in crate::session) async fn play(
        &self,
        id: EntityId,
        compared: &mut u64,
    ) -> Result<(Option<String>, Tail), SendError> {
        let Chain { archived, newest } = self.chain(id).await?;
        let mut played = Played { entity: Entity::unborn(id), is_new: true, compared: 0 };
        let mut key = None;
        for (digest, _) in archived {
            let segment = self.segment(digest).await?;
            let end = played.take(segment, &self.substrate).await;
            *compared = played.compared;
            end?;
            key = played.entity.core.key.clone().or(key);
        }
        let end = played.take(newest, &self.substrate).await;
        *compared = played.compared;
        end?;
        Ok((played.entity.core.key.clone().or(key), played.entity.core.tail))
    }

    /// The blobs of a session but for the state that it loads from: texts, archives, states of
    /// earlier snapshots, and what was left of snapshots that were never stored. Of a damaged
    /// journal, those that it still tells of.
    pub async fn blobs_of(&self, id: EntityId) -> Result<Vec<Digest>, SendError> {
        let loaded = match self.load(id).await {
            Ok(loaded) => loaded,
            Err(failure) if is_damage(&failure) => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        let mut blobs = leftovers::<Session>(id, &loaded);
        let mut segment = loaded.records;
        for _ in 0..ARCHIVES_MAX {
            let events = segment.iter().filter_map(|one| decode_record(&one.bytes).ok());
            blobs.extend(events.flatten().flat_map(|sealed| texts_of(&sealed)));
            let earlier = snapshot_of(&segment).and_then(|snapshot| snapshot.superseded);
            blobs.extend(earlier.unwrap_or_default());
            let Some((archive, _)) = archive_of(&segment) else { break };
            segment = match self.segment(archive).await {
                Ok(segment) => segment,
                Err(failure) if is_damage(&failure) => {
                    blobs.push(archive);
                    break;
                }
                Err(failure) => return Err(failure),
            };
            blobs.push(archive);
            blobs.extend(snapshot_blob(&segment));
        }
        Ok(blobs)
    }
}

// === impl Played ===

impl Played {
    /// Plays one segment: the next one, or the first that there is.
    async fn take(&mut self, records: Vec<Record>, stores: &Substrate) -> Result<(), SendError> {
        let mut begun = false;
        if let Some(snapshot) = snapshot_of(&records) {
            if self.is_new {
                // A tombstone: nothing is left of what it stands for.
                let snapshot = match snapshot_blob(&records) {
                    Some(digest) => readable(stores.blobs.get(digest).await)?,
                    None => None,
                };
                let first = Loaded { records: records[..1].to_vec(), snapshot };
                self.entity = Entity::of(self.entity.id, &first)?;
                begun = true;
            } else if self.entity.core.tail != snapshot.tail {
                let text = "a snapshot does not match the events before it".to_owned();
                let (entity, n) = (self.entity.id, snapshot.tail.n.next());
                let (kind, source) = (SNAPSHOT.to_owned(), Violation(text));
                return Err(FoldError::Violation { entity, n, kind, source }.into());
            }
        }
        self.is_new = false;
        for record in records.into_iter().skip(usize::from(begun)) {
            for sealed in decoded(&self.entity, &record)? {
                self.compare(&sealed)?;
                self.entity.apply(&sealed)?;
            }
        }
        Ok(())
    }

    /// Compares what a call was shown with what the fold says it should have been shown.
    fn compare(&mut self, sealed: &Sealed) -> Result<(), SendError> {
        let Ok(Some(SessionEvent::ModelBegun(begun))) = sealed.event::<SessionEvent>() else {
            return Ok(());
        };
        self.compared += 1;
        let state = &self.entity.state;
        let expected = state.profile.as_ref().and_then(|profile| {
            let turn = state.turn(begun.turn)?;
            Some(shown(state, profile, turn, begun.call).digest())
        });
        if expected == Some(begun.request) {
            return Ok(());
        }
        let text = format!("the request of `{}` differs from what the journal gives", begun.call);
        Err(SendError::Corrupt(FoldError::Violation {
            entity: self.entity.id,
            n: sealed.head.n,
            kind: sealed.head.kind.clone(),
            source: Violation(text),
        }))
    }
}

fn decoded(entity: &Entity<Session>, record: &Record) -> Result<Vec<Sealed>, FoldError> {
    let (entity, at) = (entity.id, entity.core.tail.n);
    decode_record(&record.bytes).map_err(|source| FoldError::Record { entity, at, source })
}

fn visit_all(
    id: EntityId,
    records: &[Record],
    after: Seq,
    visit: &mut impl FnMut(Sealed) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, SendError> {
    let mut at = after;
    for record in records {
        let events = decode_record(&record.bytes).map_err(|source| FoldError::Record {
            entity: id,
            at,
            source,
        })?;
        for sealed in events {
            at = sealed.head.n;
            if at > after && visit(sealed).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The segment that the snapshot replaced that these records begin with, and its last event.
fn archive_of(records: &[Record]) -> Option<(Digest, Seq)> {
    let snapshot = snapshot_of(records)?;
    Some((snapshot.archive?, snapshot.tail.n))
}

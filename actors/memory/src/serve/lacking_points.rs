//! What a store lacks of a memory. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use clawnode_cluster::Record;
use clawnode_kernel::{Entity, EntityError, FoldError, Service};
use clawnode_proto::{
    EntityId, MemoryPointId, Sealed, Seq,
    event::decode_record,
    kernel::DELETED,
    limits::RECALL_STANDING,
    memory::is_standing,
    memory_point::{MemoryEvent, MemoryPoint},
};

use super::error::FillError;
use crate::{
    points::{KeptPoint, Memory},
    store::{
        Document, DocumentBatch, DocumentId, DocumentKind, FoundDocument, StoreScope,
        score::ScoreParts,
    },
};

/// What a store lacks of a memory.
#[derive(Debug, PartialEq)]
pub(super) enum MissingPoints {
    /// Nothing.
    None,
    /// The memory is not there any more: the scope goes.
    Gone,
    /// What the events after those that it has changed.
    Further {
        /// What is not live any more. It goes first: with the batch alone, a crash between would leave it.
        masked: Vec<DocumentId>,
        batch: DocumentBatch,
        /// Whether some of the batch are there, and differ in how much they matter.
        replaces: bool,
    },
    /// All live points, in the place of those that it has.
    Whole(DocumentBatch),
}

/// What a document says, how much it is trusted and when that was said, as a digest: a store may say something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DocumentMark(blake3::Hash);

/// What events changed.
struct ChangedDocuments {
    /// Those that they took away.
    masked: Vec<DocumentId>,
    /// Those that they added, and those whose importance they moved.
    documents: Vec<Document>,
    /// Whether there are some of the latter.
    replaces: bool,
}

/// What a store lacks that is filled up to the event `upto`.
pub(super) fn missing(
    upto: u64,
    memory: &Entity<Memory>,
    records: &[Record],
) -> Result<MissingPoints, FillError> {
    let end = memory.core.tail.n.0;
    if records.is_empty() || memory.core.service == Service::Deleted {
        return Ok(MissingPoints::Gone);
    }
    if upto == end {
        return Ok(MissingPoints::None);
    }
    let whole = || MissingPoints::Whole(whole(memory));
    if upto == 0 || upto > end {
        return Ok(whole());
    }
    let events = events(memory.id, records)?;
    // A snapshot may have taken the place of events that the store lacks.
    let begins = events.first().is_some_and(|first| first.head.n.0 <= upto.saturating_add(1));
    let new = events.iter().filter(|event| event.head.n.0 > upto);
    let changes = if begins { changed(memory, new)? } else { None };
    Ok(changes.map_or_else(whole, |ChangedDocuments { masked, documents, replaces }| {
        let batch = DocumentBatch { after: upto, upto: end, documents };
        MissingPoints::Further { masked, batch, replaces }
    }))
}

/// All live points of a memory, for a scope that has nothing.
pub(super) fn whole(memory: &Entity<Memory>) -> DocumentBatch {
    let documents = memory.state.live().map(|kept| document(&kept.point)).collect();
    DocumentBatch { after: 0, upto: memory.core.tail.n.0, documents }
}

/// The documents of points that may be found, and what they are.
pub(super) fn live(memory: &Entity<Memory>) -> BTreeMap<DocumentId, DocumentMark> {
    if memory.core.service == Service::Deleted {
        return BTreeMap::new();
    }
    let documents = memory.state.live().map(|kept| document(&kept.point));
    documents.map(|document| (document.id, DocumentMark::of(&document))).collect()
}

/// The newest standing instructions of a memory, as many as a turn may be shown.
pub(super) fn standing(scope: &StoreScope, memory: &Entity<Memory>) -> Vec<FoundDocument> {
    if memory.core.service == Service::Deleted {
        return Vec::new();
    }
    let is_one = |kept: &&KeptPoint| {
        let content = &kept.point.content;
        is_standing(content.layer, content.trust, &content.text)
    };
    let mut found: Vec<&KeptPoint> = memory.state.live().filter(is_one).collect();
    found.sort_by_key(|kept| Reverse((kept.point.source.at, kept.id)));
    let found = found.into_iter().take(RECALL_STANDING).map(|kept| FoundDocument {
        scope: scope.clone(),
        document: document(&kept.point),
        score: ScoreParts::default(),
    });
    found.collect()
}

/// The events in records of one journal.
pub(super) fn events(id: EntityId, records: &[Record]) -> Result<Vec<Sealed>, FillError> {
    let mut events: Vec<Sealed> = Vec::new();
    for record in records {
        let at = events.last().map_or(Seq(0), |last| last.head.n);
        let decoded = decode_record(&record.bytes);
        let damaged = |source| EntityError::from(FoldError::Record { entity: id, at, source });
        events.extend(decoded.map_err(damaged)?);
    }
    Ok(events)
}

/// What these events took away and added, if that can be said from them. A point that is forgotten is in no state any
/// more, so which document it was cannot.
fn changed<'a>(
    memory: &Entity<Memory>,
    events: impl Iterator<Item = &'a Sealed>,
) -> Result<Option<ChangedDocuments>, FillError> {
    let past = memory.state.past().map(|past| (past.id, DocumentId::from(&past.point.source)));
    let past: BTreeMap<MemoryPointId, DocumentId> = past.collect();
    let (mut left, mut added, mut rated) = (Vec::new(), Vec::new(), BTreeSet::new());
    for sealed in events {
        if sealed.head.kind == DELETED {
            return Ok(None);
        }
        match sealed.event::<MemoryEvent>()? {
            Some(MemoryEvent::Added(point_added)) => {
                left.extend(point_added.supersedes);
                // What an import brought too late was never live.
                if point_added.superseded_by.is_none() {
                    added.push(point_added.point);
                }
            }
            Some(MemoryEvent::Consolidated(consolidated)) => {
                left.extend(consolidated.joined.iter().map(|joined| joined.point));
                left.extend(consolidated.archived);
            }
            Some(MemoryEvent::Masked(_)) => return Ok(None),
            Some(MemoryEvent::Rated(points_rated)) => {
                rated.extend(points_rated.points.iter().map(|rated| rated.point));
            }
            Some(MemoryEvent::Refused(_)) | None => {}
        }
    }
    let masked: Option<Vec<DocumentId>> = left.iter().map(|id| past.get(id).copied()).collect();
    // As they are now, in the place of those that were added or are there.
    let live = memory.state.live().filter(|kept| rated.contains(&kept.id));
    added.retain(|point| !rated.contains(&point.id()));
    added.extend(live.map(|kept| kept.point.clone()));
    Ok(masked.map(|masked| ChangedDocuments {
        masked,
        documents: added.iter().map(document).collect(),
        replaces: !rated.is_empty(),
    }))
}

// === impl DocumentMark ===

impl DocumentMark {
    pub(super) fn of(document: &Document) -> Self {
        let Document { kind, trust, at, text, .. } = document;
        // It is compared in this process alone.
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{kind:?} {trust:?} {} ", at.0).as_bytes());
        hasher.update(text.as_bytes());
        Self(hasher.finalize())
    }
}

fn document(point: &MemoryPoint) -> Document {
    let content = &point.content;
    Document {
        id: DocumentId::from(&point.source),
        kind: DocumentKind::Point(content.layer),
        text: content.text.clone(),
        speaker: None,
        position: None,
        at: point.source.at,
        importance: content.importance,
        trust: content.trust,
        embedding: None,
    }
}

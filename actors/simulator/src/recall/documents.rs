//! What stores have of points and messages.

use clawnode_memory::store::{Document, DocumentId, DocumentKind};
use clawnode_proto::{
    EntityId, Timestamp,
    memory::{MemorySource, MemoryTrust},
    memory_point::MemoryPoint,
};

pub(super) fn point_document(point: &MemoryPoint) -> Document {
    let MemoryPoint { content, source } = point;
    let MemorySource { entity, event, part, at } = *source;
    Document {
        id: DocumentId { entity, event, part },
        kind: DocumentKind::Point(content.layer),
        text: content.text.clone(),
        speaker: None,
        position: None,
        at,
        importance: content.importance,
        trust: content.trust,
        embedding: None,
    }
}

/// Of a message that an event of its session has.
pub(super) fn passage_document(
    session: EntityId,
    event: u64,
    at: Timestamp,
    text: &str,
) -> Document {
    Document {
        id: DocumentId { entity: session, event, part: 0 },
        kind: DocumentKind::Passage,
        text: text.to_owned(),
        speaker: None,
        position: Some(event),
        at,
        importance: 5,
        trust: MemoryTrust::Person,
        embedding: None,
    }
}

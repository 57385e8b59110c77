//! What a store holds, and what it is asked for.

use std::{collections::BTreeSet, fmt, time::Duration};

use clawnode_proto::{
    EntityId, Kind, SessionKey, Timestamp,
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
};
use serde::{Deserialize, Serialize};

use super::score::ScoreParts;

/// Characters of a document's text. A point has as many at most, and so has a passage.
pub const DOCUMENT_CHARS: usize = 1_000;
/// Characters of a speaker's name.
pub const SPEAKER_CHARS: usize = 128;
/// Documents of one scope. Above it, a search takes too long for a turn; consolidation keeps memories far below.
pub const SCOPE_DOCUMENTS: usize = 131_072;
/// Scopes of one search: the memories and the conversations of one peer.
pub const QUERY_SCOPES: usize = 256;
/// Characters of a query that count. What follows them in a person's message is not looked at.
pub const QUERY_CHARS: usize = 2_000;
/// How long a search waits for the vector of its query, unless it says otherwise: a part of the time that a turn has.
pub const MEANING_WITHIN: Duration = Duration::from_millis(100);
/// Documents that one search gives at most.
pub const QUERY_FOUND: usize = 200;

/// The documents of one entity: the points of a memory, or the passages of a session. Its text names the entity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreScope(String);

/// Which document: the event that it comes from. The same event gives the same document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DocumentId {
    /// The entity whose journal has the event.
    pub entity: EntityId,
    /// The number of the event there.
    pub event: u64,
    /// Which of the documents of this event.
    pub part: u32,
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DocumentKind {
    /// A point of a memory, of this layer.
    Point(MemoryLayer),
    /// A part of a message in a conversation.
    Passage,
}

/// One thing that a search can find.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Which document it is, in its scope.
    pub id: DocumentId,
    /// What it is.
    pub kind: DocumentKind,
    /// What it says: 1 to [`DOCUMENT_CHARS`] characters.
    pub text: String,
    /// Who said it; a search also finds this name.
    pub speaker: Option<String>,
    /// Its position in its conversation. Documents with positions next to each other are neighbours, so a gap in the
    /// numbers divides conversations. Points have none.
    pub position: Option<u64>,
    /// When it was said or learned.
    pub at: Timestamp,
    /// From 1 to 10; other numbers count as the nearest of these.
    pub importance: u8,
    /// Who said it, as far as trust goes.
    pub trust: MemoryTrust,
    /// Its vector by the store's model, if it has one.
    pub embedding: Option<Vec<f32>>,
}

/// Documents of one scope, and how much of the entity's journal they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocumentBatch {
    /// The event up to which the store has to be already; 0 is an empty store.
    pub after: u64,
    /// The event up to which the store is after this batch.
    pub upto: u64,
    /// The documents of the events between. One that is there already is replaced.
    pub documents: Vec<Document>,
}

/// What is searched for.
#[derive(Clone, Debug)]
pub struct RecallQuery {
    /// The text; the first [`QUERY_CHARS`] characters count.
    pub text: String,
    /// Its vector by the store's model. Without one, the store's own model makes it, if there is one and it is in time;
    /// otherwise words alone decide.
    pub embedding: Option<Vec<f32>>,
    /// How long to wait for that vector.
    pub meaning_within: Duration,
    /// Which layers of points may be found.
    pub layers: BTreeSet<MemoryLayer>,
    /// Whether passages of conversations may be found.
    pub passages: bool,
    /// The least trust that is found.
    pub least_trust: MemoryTrust,
}

/// A document that fits, and how well.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// Where it is.
    pub scope: StoreScope,
    /// What was found, without its embedding.
    pub document: Document,
    /// How well it fits, part by part.
    pub score: ScoreParts,
}

// === impl StoreScope ===

impl StoreScope {
    /// The points of this memory.
    pub fn of_memory(memory: &MemoryKey) -> Self {
        Self(format!("memory/{memory}"))
    }

    /// The passages of this session.
    pub fn of_session(session: &SessionKey) -> Self {
        Self(format!("session/{session}"))
    }

    /// Reads its text; none if that is no scope's.
    pub fn read(text: &str) -> Option<Self> {
        let scope = Self(text.to_owned());
        (scope.memory().is_some() || scope.session().is_some()).then_some(scope)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The memory whose points it has, if it has some of a memory.
    pub fn memory(&self) -> Option<MemoryKey> {
        self.0.strip_prefix("memory/")?.parse().ok()
    }

    /// The session whose passages it has, if it has some of a session.
    pub fn session(&self) -> Option<SessionKey> {
        self.0.strip_prefix("session/")?.parse().ok()
    }

    /// The entity whose journal it is filled from.
    pub fn entity(&self) -> EntityId {
        let (kind, key) = match self.0.split_once('/') {
            Some(("session", key)) => (Kind::SESSION, key),
            Some((_, key)) => (Kind::MEMORY, key),
            None => (Kind::MEMORY, self.as_str()),
        };
        EntityId::derive(kind, key)
    }
}

impl fmt::Display for StoreScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StoreScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

// === impl DocumentId ===

impl From<&MemorySource> for DocumentId {
    fn from(source: &MemorySource) -> Self {
        Self { entity: source.entity, event: source.event, part: source.part }
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.entity, self.event, self.part)
    }
}

// === impl RecallQuery ===

impl RecallQuery {
    /// Looks for this text in everything that a person, an agent or an operator said, by its words alone.
    pub fn new(text: impl Into<String>) -> Self {
        let layers = [
            MemoryLayer::Semantic,
            MemoryLayer::Procedural,
            MemoryLayer::Social,
            MemoryLayer::Episode,
        ];
        Self {
            text: text.into(),
            embedding: None,
            meaning_within: MEANING_WITHIN,
            layers: layers.into(),
            passages: true,
            least_trust: MemoryTrust::Agent,
        }
    }

    /// Whether a document of this kind and trust may be found.
    pub fn admits(&self, kind: DocumentKind, trust: MemoryTrust) -> bool {
        let is_asked = match kind {
            DocumentKind::Point(layer) => self.layers.contains(&layer),
            DocumentKind::Passage => self.passages,
        };
        is_asked && trust >= self.least_trust
    }
}

//! Memories as people see and change them: parameters and answers of the methods `memory.…`.

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    feedback::PointFeedback,
    id::{EntityId, MemoryPointId, Position},
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{CONFIDENCE_MOST, IMPORTANCE_DEFAULT, LearnedPoint, PointContent, PointRefused},
    timestamp::Timestamp,
};

// === Parameters ===

/// Parameters of `memory.stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryParams {
    /// The memory: `AGENT/all`, `AGENT/peer/CHANNEL:ACCOUNT:PEER` or `shared/NAME`.
    pub memory: MemoryKey,
}

/// Parameters of `memory.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryShowParams {
    /// The memory: `AGENT/all`, `AGENT/peer/CHANNEL:ACCOUNT:PEER` or `shared/NAME`.
    pub memory: MemoryKey,
    /// Whether points that were superseded, joined or archived are shown, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Continues after the page with this `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How many points at most, 1 to 1,000. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `memory.search`. Either a memory or a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemorySearchParams {
    /// Searches this memory: `AGENT/all`, `AGENT/peer/CHANNEL:ACCOUNT:PEER` or `shared/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryKey>,
    /// Searches what was said in this session, what its agent knows of its peer, and what its agent knows in general: a
    /// session's key, `agent:channel:account:peer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What to look for: 1 to 2,000 characters.
    pub query: String,
    /// How many at most, 1 to 100. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `memory.reindex`: a memory, a session, or `all`. Without them, nothing is filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct MemoryReindexParams {
    /// Fills this memory. The answer comes when it is filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryKey>,
    /// Fills the conversation of this session: its key. The answer comes when it is filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Fills everything. The answer comes at once; ask again without it to see how far it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// Parameters of `memory.put`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryPutParams {
    /// The memory: `AGENT/all`, `AGENT/peer/CHANNEL:ACCOUNT:PEER` or `shared/NAME`.
    pub memory: MemoryKey,
    /// 1 to 64 points.
    pub points: Vec<WantedPoint>,
    /// The client's name for this request. A repeat under the same name adds nothing, and has the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A point as a person wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedPoint {
    /// The sentence that a model is shown: at most 1,000 characters.
    pub text: String,
    /// What kind of thing it says. Default: `semantic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<MemoryLayer>,
    /// What it is about. It supersedes points with the same subject and predicate that are trusted no more than it
    /// is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it says of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// The value that it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// How certain it is, in percent. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// How much it matters, 1 to 10. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<u8>,
    /// Who said it. Default: `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<MemoryTrust>,
    /// The event that it was learned from, of a point that was exported. A source that the memory knows adds
    /// nothing. Default: this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MemorySource>,
}

/// Parameters of `memory.forget`: one point, or the whole memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryForgetParams {
    /// The memory: `AGENT/all`, `AGENT/peer/CHANNEL:ACCOUNT:PEER` or `shared/NAME`.
    pub memory: MemoryKey,
    /// The point to mask. Its text stays in the journal of the memory until the journal is purged, within an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<MemoryPointId>,
    /// Deletes the memory with its journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Purges the journal at once, of this and of all points that were forgotten before. Without a point, of those
    /// alone. The answer comes when it is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// Deletes the sessions that the points were learned from, at most 64.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sources: bool,
}

// === Answers ===

/// Answer of `memory.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryList {
    /// The memories, in the order of their keys.
    pub memories: Vec<MemoryStats>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `memory.stats`: how much a memory has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryStats {
    /// Its key, such as `default/all`.
    pub memory: MemoryKey,
    /// Its entity, as `journal.show` takes it.
    pub entity: EntityId,
    /// Live points.
    pub points: u32,
    /// How many it may have.
    pub points_most: u32,
    /// Bytes of text of the live points.
    pub bytes: u64,
    /// How many it may have.
    pub bytes_most: u64,
    /// Live points that consolidation does not remove: persons and operators said them.
    pub kept: u32,
    /// Live points of each layer.
    pub layers: MemoryLayers,
    /// Points that were superseded, joined or archived and that `memory.show` still shows with `all`.
    pub past: u32,
    /// Points that were masked since the memory began.
    pub masked: u64,
    /// When it is consolidated next. Absent if nothing was added since the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidates: Option<Timestamp>,
    /// When the texts of forgotten points leave its journal. Absent if nothing was forgotten since the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purges: Option<Timestamp>,
    /// How much of it the store of the node that answers has. Absent in lists, and if another node has the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredMemory>,
}

/// How much of a memory a store has. It lacks nothing where both numbers are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoredMemory {
    /// The node's own index is `local`.
    pub store: String,
    /// The event up to which it has the memory.
    pub upto: u64,
    /// The last event of the memory.
    pub end: u64,
    /// How many of its documents can be found by their meaning. Absent without a model of embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<MeaningFill>,
}

/// How many documents of a store have a vector. They are made in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeaningFill {
    /// The model of embeddings.
    pub model: String,
    /// Numbers of a vector; 0 before the model was asked for the first time.
    pub dimensions: u32,
    /// Documents that have a vector.
    pub vectors: u64,
    /// All documents.
    pub documents: u64,
    /// Why the last try to make vectors failed, if it did. It is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How far the index of this model is. Absent unless it is built beside the one that answers meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub building: Option<IndexBuild>,
}

/// How far an index is that is built beside the one of another model. Memories and conversations are its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IndexBuild {
    /// Parts that it has.
    pub done: u64,
    /// Parts that the index has that answers.
    pub parts: u64,
}

/// How many points are in each layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryLayers {
    /// Facts.
    pub semantic: u32,
    /// How something is to be done.
    pub procedural: u32,
    /// How people and things relate to each other.
    pub social: u32,
    /// What has happened.
    pub episode: u32,
}

/// Answer of `memory.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryPoints {
    /// Its key, such as `default/all`.
    pub memory: MemoryKey,
    /// Its points, in the order in which they were added. With `all`, those that left come first.
    pub points: Vec<MemoryPointView>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `memory.search`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemorySearchView {
    /// What fits, best first.
    pub found: Vec<FoundInMemory>,
    /// Which store was searched.
    pub store: String,
    /// What was not searched whole: keys of memories and sessions. The store is being filled, was damaged, or a journal
    /// could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
}

/// A point, or a part of a message in a conversation, that fits a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundInMemory {
    /// The memory or the session that has it, by its key.
    pub scope: String,
    /// The point. Absent for a part of a conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<MemoryPointId>,
    /// What kind of thing the point says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<MemoryLayer>,
    /// What it says.
    pub text: String,
    /// Who said it.
    pub trust: MemoryTrust,
    /// The event that it comes from, and when.
    pub source: MemorySource,
    /// How well it fits.
    pub score: RecallScore,
}

/// The parts of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecallScore {
    /// The score: what was found is in its order.
    pub total: f64,
    /// How much the words fit, from 0 to 1: 1 is the best of this search.
    pub words: f64,
    /// The same as BM25 counts it, not scaled.
    pub bm25: f64,
    /// How near the meaning is, from 0 to 1. Absent without a model of embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<f64>,
    /// What the messages before and after it add.
    pub neighbours: f64,
    /// What trust and importance multiply it by: 0.9 to 1.1.
    pub factor: f64,
}

/// Answer of `memory.reindex`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryStoreView {
    /// The node's own index is `local`.
    pub store: String,
    /// Up to which position the feed of journals was followed.
    pub upto: Position,
    /// Where the feed ended when it was last looked at.
    pub end: Position,
    /// How long ago the store had all of the feed, in milliseconds. Absent if it never had since the node began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    /// Whether it is filled from the beginning of the feed.
    pub rebuilding: bool,
}

/// A point, as people see it. A line of an export is one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryPointView {
    /// Its id.
    pub id: MemoryPointId,
    /// What kind of thing it says.
    pub layer: MemoryLayer,
    /// The sentence that a model is shown.
    pub text: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it says of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// The value that it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// How certain it is, in percent.
    pub confidence: u8,
    /// How much it matters, 1 to 10: as it was given, and moved by feedback.
    pub importance: u8,
    /// How feedback has moved it. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<PointFeedback>,
    /// How much it matters now, in thousandths of an importance. It halves in 30 days, unless a person or an operator
    /// said it.
    #[serde(default)]
    pub weight: u32,
    /// Who said it.
    pub trust: MemoryTrust,
    /// The event that it was learned from, and when.
    pub source: MemorySource,
    /// Whether it is recalled.
    #[serde(default)]
    pub state: PointState,
    /// The point that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<MemoryPointId>,
}

/// Whether a point is recalled, and if not, why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PointState {
    /// It is recalled.
    #[default]
    Live,
    /// A later point says something else of the same subject and predicate.
    Superseded,
    /// Another point says the same.
    Joined,
    /// It mattered least when the memory was full.
    Archived,
}

/// Answer of `memory.put`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryPutView {
    /// The points that were added.
    pub added: Vec<MemoryPointId>,
    /// Those whose sources the memory knew already. They added nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<MemoryPointId>,
    /// Those that were not added, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<PointRefused>,
}

/// Answer of `memory.forget`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryForgetView {
    /// Its key, such as `default/all`.
    pub memory: MemoryKey,
    /// How many points are not recalled any more.
    pub forgotten: u32,
    /// Whether the memory was deleted with its journal.
    pub deleted: bool,
    /// Whether the journal of the memory was purged, so that it does not have the text any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purged: bool,
    /// When the journal is purged at the latest. Absent if it was purged or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purges: Option<Timestamp>,
    /// The sessions whose journals still have what the points were learned from: their keys, or ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The sessions that were deleted because the points were learned from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted_sources: Vec<String>,
    /// How many other points of this memory were forgotten because those sessions had taught them.
    #[serde(default)]
    pub forgotten_with_sources: u32,
    /// What the points say that they were learned from, and no session here has: it was deleted, or it is of another cluster.
    /// A session here with such a key is another one, and is not deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources_elsewhere: Vec<String>,
}

/// A memory as the bucket lists it. The memory writes it under [`crate::subject::memory_key`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedMemory {
    /// Its key, from which the id of its entity follows.
    pub memory: MemoryKey,
}

// === impl MemoryLayers ===

impl MemoryLayers {
    /// Counts a point of this layer.
    pub const fn count(&mut self, layer: MemoryLayer) {
        let counted = match layer {
            MemoryLayer::Semantic => &mut self.semantic,
            MemoryLayer::Procedural => &mut self.procedural,
            MemoryLayer::Social => &mut self.social,
            MemoryLayer::Episode => &mut self.episode,
        };
        *counted = counted.saturating_add(1);
    }
}

// === impl WantedPoint ===

impl WantedPoint {
    /// The point that is learned, if it is within the limits; otherwise what breaks one, in words.
    pub fn learned(self) -> Result<LearnedPoint, String> {
        let Self { text, subject, predicate, object, source, .. } = self;
        let layer = self.layer.unwrap_or(MemoryLayer::Semantic);
        let confidence = self.confidence.unwrap_or(CONFIDENCE_MOST);
        let importance = self.importance.unwrap_or(IMPORTANCE_DEFAULT);
        let trust = self.trust.unwrap_or(MemoryTrust::Operator);
        let content =
            PointContent { layer, text, subject, predicate, object, confidence, importance, trust };
        content.check()?;
        Ok(LearnedPoint { content, source })
    }
}

// === impl MemoryPointView ===

impl MemoryPointView {
    /// The same point, to be added to a memory: it adds nothing where it is known.
    pub fn wanted(self) -> WantedPoint {
        WantedPoint {
            text: self.text,
            layer: Some(self.layer),
            subject: self.subject,
            predicate: self.predicate,
            object: self.object,
            confidence: Some(self.confidence),
            importance: Some(self.importance),
            trust: Some(self.trust),
            source: Some(self.source),
        }
    }
}

//! What a turn was reminded of before its first model call, and how one process searches in the store of another one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    id::{EntityId, MemoryPointId, TurnId},
    memory::{MemoryKey, MemoryLayer, MemoryTrust, is_standing},
    name::SessionKey,
    timestamp::Timestamp,
};

/// What a search found for the message that begins a turn. It is in the append of the turn's first call, before that call,
/// so that each attempt at each call of the turn is shown the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recalled {
    /// The turn that is shown this.
    pub turn: TurnId,
    /// Standing instructions, the newest first: shown in every turn, and not searched for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<RecalledPoint>,
    /// Points of memories, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<RecalledPoint>,
    /// Passages of conversations, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<RecalledPassage>,
    /// Which store was searched.
    pub store: String,
    /// How far the store was: the event of the journal up to which it had each memory and conversation that was searched, as
    /// `memory/KEY` or `session/KEY`. Those of which it had nothing are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub upto: BTreeMap<String, u64>,
    /// Why something may be missing. Absent: the store answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<RecallFault>,
}

/// A point of a memory that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecalledPoint {
    /// The memory that has it.
    pub memory: MemoryKey,
    /// As `memory.forget` takes it.
    pub point: MemoryPointId,
    /// What kind of thing it says.
    pub layer: MemoryLayer,
    /// Who said it.
    pub trust: MemoryTrust,
    /// When it was learned.
    pub at: Timestamp,
    /// Its sentence, at most 1,000 characters.
    pub text: String,
}

/// A part of a message that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecalledPassage {
    /// The conversation.
    pub session: SessionKey,
    /// The number of the message's event in the journal of the session.
    pub event: u64,
    /// Which part of the message.
    pub part: u32,
    /// Who said it.
    pub trust: MemoryTrust,
    /// When it was said.
    pub at: Timestamp,
    /// What was said, at most 1,000 characters.
    pub text: String,
}

/// Why a recall may lack something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecallFault {
    /// The store did not answer in time.
    Late,
    /// The search failed.
    Failed,
    /// The store does not have all of it now: it is being filled, a journal cannot be read, or a memory has not recorded yet
    /// what it was sent.
    Damaged,
}

/// A search in the store of another process, which holds the index of these scopes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreSearch {
    /// Where to look, as stores name it: `memory/KEY` or `session/KEY`. At most 256.
    pub scopes: Vec<String>,
    /// What to look for, at most 2,000 characters.
    pub text: String,
    /// How long to wait for the vector of the text, in milliseconds. A conversation that is being filled gets half of it.
    pub within_ms: u32,
    /// Which layers of points may be found.
    pub layers: BTreeSet<MemoryLayer>,
    /// Whether passages of conversations may be found.
    pub passages: bool,
    /// The least trust that is found.
    pub least_trust: MemoryTrust,
    /// How many are wanted, at most 200.
    pub most: u32,
}

/// The answer to a [`StoreSearch`]. It is no more than a store says: the process that asked compares it with journals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreFound {
    /// The best first; [`crate::limits::STORE_FOUND_BYTES`] of text at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<StoreFind>,
    /// Scopes that were not searched whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// The event of its journal up to which the store had each scope. An older build does not say it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub upto: BTreeMap<String, u64>,
}

/// A document that a store has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreFind {
    /// Where it is.
    pub scope: String,
    /// The entity whose journal has the event that it comes from.
    pub entity: EntityId,
    /// The number of that event.
    pub event: u64,
    /// Which of the documents of this event.
    pub part: u32,
    /// The layer of a point. Absent: it is a passage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<MemoryLayer>,
    /// What it says, at most 1,000 characters.
    pub text: String,
    /// Who said it.
    pub trust: MemoryTrust,
    /// When it was said or learned.
    pub at: Timestamp,
    /// From 1 to 10.
    pub importance: u8,
    /// How well it fits.
    pub score: StoreScore,
}

/// How the score of a document came about. Each part is the bits of a 64-bit floating-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreScore {
    /// BM25 as it was counted.
    pub bm25: u64,
    /// The same, scaled to 0..1 in this search.
    pub words: u64,
    /// How near the vectors are, scaled to 0..1 in this search. Absent: there are no vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<u64>,
    /// What the documents before and after it add.
    pub neighbours: u64,
    /// What trust and importance multiply it by.
    pub factor: u64,
    /// The score.
    pub total: u64,
}

// === impl Recalled ===

impl Recalled {
    /// Nothing was found, and nothing went wrong.
    pub fn is_empty(&self) -> bool {
        !self.has_found() && self.degraded.is_none()
    }

    /// Whether there is something to show.
    pub fn has_found(&self) -> bool {
        !self.points.is_empty() || !self.passages.is_empty() || !self.standing.is_empty()
    }
}

// === impl RecalledPoint ===

impl RecalledPoint {
    /// Whether it is a standing instruction.
    pub fn is_standing(&self) -> bool {
        is_standing(self.layer, self.trust, &self.text)
    }
}

// === impl RecallFault ===

impl RecallFault {
    /// What it is, for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Late => "the store did not answer in time",
            Self::Failed => "the search failed",
            Self::Damaged => "the store does not have all of it now",
        }
    }
}

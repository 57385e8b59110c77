//! What a turn was reminded of before its first model call.

use serde::{Deserialize, Serialize};

use crate::{
    id::{MemoryPointId, TurnId},
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
    /// The store does not have all of it now: it is being filled, or a journal cannot be read.
    Damaged,
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

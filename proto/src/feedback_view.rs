//! Feedback as people give and see it, and what models think of turns: parameters and answers of the methods `feedback.…`
//! and `memory.reflect`.

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    feedback::{RatedPoints, Thumb},
    id::TurnId,
    llm::{ModelRef, Usage},
    timestamp::Timestamp,
};

/// Parameters of `feedback.give`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FeedbackGive {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// The turn, which has ended: its id, or its number in the session, from 1.
    pub turn: String,
    /// Good or bad.
    pub thumb: Thumb,
    /// What you say about it, at most 1,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// A key of your own. For seven days, feedback with the same key is stored only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Parameters of `feedback.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FeedbackList {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// Continues after the page with this `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How many rows at most, 1 to 1,000. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Answer of `feedback.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedbackView {
    /// Its readable key.
    pub session: String,
    /// All feedback, oldest first. The last one of a turn counts.
    pub feedback: Vec<FeedbackRow>,
    /// What models think of turns that they looked back at, oldest first. No person has said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reflections: Vec<ReflectionRow>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Parameters of `memory.reflect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryReflectParams {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// The turn, which has ended: its id, or its number in the session, from 1. Default: the last one that has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// A key of your own. For seven days, a request with the same key is stored only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What a model thinks of a turn, as the API shows it, or why it has not said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReflectionRow {
    /// The turn that it is about.
    pub turn: TurnId,
    /// How good the turn was, 1 to 5. Absent if there is no rating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rating: Option<u8>,
    /// What the memory of the person was sent, as points of the layer `procedural` with the trust `agent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<String>,
    /// The model that said so. Absent if there is no rating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ModelRef>,
    /// Why there is no rating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What the call used.
    pub usage: Usage,
    /// When it was recorded.
    pub at: Timestamp,
    /// The number of its event in the journal: the source of the points.
    pub event: u64,
}

/// One feedback, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedbackRow {
    /// The turn that it is about.
    pub turn: TurnId,
    /// Good or bad.
    pub thumb: Thumb,
    /// What the person says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// When it was recorded.
    pub at: Timestamp,
    /// The number of its event in the journal.
    pub event: u64,
    /// By how much it moves the importance of points, within 1 to 10: the difference to the feedback before.
    pub step: i8,
    /// The points that it moves: those that the turn was shown, by their memories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<RatedPoints>,
}

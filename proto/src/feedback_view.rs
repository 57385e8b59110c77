//! Feedback as people give and see it: parameters and answers of the methods `feedback.…`.

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    feedback::{RatedPoints, Thumb},
    id::TurnId,
    timestamp::Timestamp,
};

/// Parameters of `feedback.give`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FeedbackGive {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// The turn, which has ended.
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
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
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

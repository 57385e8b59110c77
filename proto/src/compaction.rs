//! Compaction of a conversation: a model's summary in the place of its older turns.
//!
//! The turns stay in the journal and its archives. Only requests show the summary instead.

use serde::{Deserialize, Serialize};

use crate::{
    id::{Attempt, CallId, Digest, TurnId},
    llm::{ModelFailure, ModelRef, Usage},
};

/// A model is asked for a summary. From here on, the call may cost something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactionBegun {
    /// The running turn. Its first model call waits for the summary.
    pub turn: TurnId,
    /// The call that makes the summary.
    pub call: CallId,
    /// Which attempt at the call.
    pub attempt: Attempt,
    /// The last turn that the summary is about. It is about all turns before it, too.
    pub upto: TurnId,
    /// The model that is asked.
    pub model: ModelRef,
    /// The digest of the request.
    pub request: Digest,
    /// The limit of the reply, in tokens.
    pub max_tokens: u32,
}

/// A summary takes the place of the older turns in all later requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compacted {
    /// The running turn.
    pub turn: TurnId,
    /// The call that made the summary.
    pub call: CallId,
    /// Which attempt at the call.
    pub attempt: Attempt,
    /// The last turn that the summary is about.
    pub upto: TurnId,
    /// The summary, at most 8,000 characters.
    pub text: String,
    /// The model that made it.
    pub by: ModelRef,
    /// What the attempt used.
    pub usage: Usage,
}

/// There is no summary. Requests are assembled as if none was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactionFailed {
    /// The running turn.
    pub turn: TurnId,
    /// The call that was to make the summary.
    pub call: CallId,
    /// Which attempt at the call; 0 if none was made.
    pub attempt: Attempt,
    /// Why there is none.
    pub failure: ModelFailure,
    /// What the attempt used.
    pub usage: Usage,
}

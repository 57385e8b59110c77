//! What a session records of its model calls.

use serde::{Deserialize, Serialize};

use crate::{
    block::Blocks,
    id::{Attempt, CallId, Digest, TurnId},
    llm::{ModelFailure, StopReason, Text, Usage},
    model_route::RouteTaken,
    tool::ToolUse,
};

/// A model call is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelBegun {
    /// The turn that needs a reply.
    pub turn: TurnId,
    /// Its id, the same for each attempt at it.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: Attempt,
    /// The digest of the request to the model, so that a replay can compare it.
    pub request: Digest,
    /// How many turns the request leaves out, because the window is full.
    #[serde(default)]
    pub dropped_turns: u32,
    /// The number of an entry of the work ledger. The turn's calls up to it are shown as entries of any type, because
    /// the window is nearly full. Absent: only entries of type `step` take the place of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_upto: Option<u64>,
    /// The size of the request in tokens, estimated from its text. With the size that the provider reports,
    /// it tells how large the next request is. An attempt without it did not use what providers reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<u64>,
    /// What the agent's routes decided. Absent if it has none, or if the turn chose its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteTaken>,
}

/// A model call ended well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelDone {
    /// The call that `model_begun` began.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: Attempt,
    /// The text of the reply.
    pub content: Text,
    /// Why the model stopped.
    pub stop: StopReason,
    /// The tokens that the call used.
    pub usage: Usage,
    /// The name of the model, as the provider reports it.
    pub model: String,
    /// The tool calls that the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_uses: Vec<ToolUse>,
    /// What the model said beside text and tool calls, and the order of everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Blocks>,
}

/// A model call ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelFailed {
    /// The call that failed, begun or not.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: Attempt,
    /// How the call failed.
    pub failure: ModelFailure,
    /// The text that arrived before the failure.
    pub partial: Text,
    /// The tokens that the call used, as far as the provider reported them.
    pub usage: Usage,
}

/// An attempt at a model call has ended, and the call has not: it is no outcome. The next attempt may ask
/// another model. Text that arrived before is void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelGaveWay {
    /// The call that goes on with another attempt.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: Attempt,
    /// Why the attempt ended.
    pub why: ModelFailure,
    /// The tokens that the attempt used, as far as the provider reported them.
    pub usage: Usage,
    /// How long the turn waits before the next attempt, in milliseconds. 0: the attempt follows at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_ms: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

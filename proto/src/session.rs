//! A session's inputs and events.

use serde::{Deserialize, Serialize};

use crate::{
    grammar,
    id::{AgentName, Attempt, CallId, Digest, TurnId},
    llm::{Message, ModelFailure, ModelRef, Sampling, StopReason, Text, Usage},
};

/// What may be sent to a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionInput {
    /// Begins a turn, after those that wait.
    UserMessage(UserMessage),
    /// Joins the next model request of the running turn, or begins a turn if none runs.
    Steer(UserMessage),
    /// Ends a turn; no effect on a finished one.
    Cancel {
        /// Which.
        turn: TurnId,
    },
    /// Deletes the session and what is personal in it, after ending what runs.
    Delete,
}

/// A user's message and how it wants to be answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// What is said.
    pub content: Text,
    /// An earlier conversation that the session begins with; only its first turn may bring one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// Follows the agent's system prompt, for this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// For this turn.
    #[serde(default)]
    pub sampling: Sampling,
}

impl UserMessage {
    /// A message with nothing special about it.
    pub fn text(content: impl Into<Text>) -> Self {
        Self {
            content: content.into(),
            history: Vec::new(),
            system: None,
            sampling: Sampling::default(),
        }
    }
}

grammar! {
    /// A session's own events.
    pub enum SessionEvent {
        /// The agent's configuration as the turns from here on see it.
        Configured(Profile) = "configured", required;
        /// A model call is about to be sent.
        ModelBegun(ModelBegun) = "model_begun", required;
        /// A model call ended well; it is never made again.
        ModelDone(ModelDone) = "model_done", required, progress;
        /// A model call ended badly; it is never made again.
        ModelFailed(ModelFailed) = "model_failed", required, progress;
        /// What the user is shown.
        Reply(Reply) = "reply", required;
        /// A turn has ended.
        TurnDone(TurnDone) = "turn_done", required, progress;
        /// What a turn used: the billing truth.
        Settled(Settled) = "settled", required;
    }
}

/// An agent's configuration, as far as what the model sees depends on it.
///
/// Journaled when it differs from the last one, so that what the model saw is a function of the
/// journal alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The agent.
    pub agent: AgentName,
    /// Which model.
    pub model: ModelRef,
    /// The system prompt (the soul).
    #[serde(default)]
    pub system: String,
    /// The agent's settings; a turn's own go before them.
    #[serde(default)]
    pub sampling: Sampling,
    /// Tokens that the model reads at most; older turns are dropped beyond it.
    pub window_tokens: u32,
    /// Model calls of one turn.
    pub step_limit: u32,
}

/// A model call is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelBegun {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// Which try at it, from 1.
    pub attempt: Attempt,
    /// The digest of what the model is shown, so that a replay can compare.
    pub request: Digest,
    /// Whole turns left out because the window is full.
    #[serde(default)]
    pub dropped_turns: u32,
}

/// A model call ended well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDone {
    /// The call.
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// What the model said.
    pub content: Text,
    /// Why it stopped.
    pub stop: StopReason,
    /// What it used.
    pub usage: Usage,
    /// The model's name as the provider reports it.
    pub model: String,
}

/// A model call ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// What happened.
    pub failure: ModelFailure,
    /// What was said so far.
    pub partial: Text,
    /// What it used, as far as the provider said.
    pub usage: Usage,
}

/// What the user is shown: the content of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Of which turn.
    pub turn: TurnId,
    /// The call whose content it is.
    pub call: CallId,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnOutcome {
    /// With a reply.
    Completed {
        /// Why the model stopped.
        stop: StopReason,
    },
    /// The model call failed.
    Failed {
        /// How.
        failure: ModelFailure,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// It used up its steps.
    StepLimit {
        /// How many there were.
        limit: u32,
    },
}

impl TurnOutcome {
    /// Its name for people and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
            Self::StepLimit { .. } => "step_limit",
        }
    }
}

/// A turn has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnDone {
    /// Which.
    pub turn: TurnId,
    /// How.
    pub outcome: TurnOutcome,
}

/// What a turn used, all calls together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Which turn.
    pub turn: TurnId,
    /// Reported usage of all calls that have an outcome.
    pub usage: Usage,
    /// Calls begun whose outcome nobody knows, because a process died: paid for, perhaps.
    pub lost_attempts: u32,
}

//! A session's inputs and events.

use serde::{Deserialize, Serialize};

pub use crate::outcome::TurnOutcome;
use crate::{
    grammar,
    hook::{HookSpec, HookTrail},
    id::{AgentName, Attempt, CallId, Digest, EventId, TimerId, TurnId},
    llm::{Message, ModelFailure, ModelRef, Sampling, StopReason, Text, Usage},
    name::ToolName,
    policy::{Decided, Policy},
    timeout::TurnTime,
    tool::{LoopGuard, ToolOutcome, ToolSpec, ToolUse},
};

pub use crate::{
    execute::{Plan, StepPlanned},
    hook::{ModelHooked, ToolHooked},
};

/// What may be sent to a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What came of a tool call that ran elsewhere.
    ToolResult(ToolResult),
    /// What a person decided about a tool call.
    ApprovalDecided(ApprovalDecided),
    /// Begins a turn whose tool calls are planned: no model is asked.
    Execute(Plan),
    /// More steps for a turn that has used up its own; no effect on one that has not.
    Continue {
        /// Which.
        turn: TurnId,
    },
    /// A timer's time has come. That of a tool call has the call's bits.
    TimerFired {
        /// Which.
        timer: TimerId,
    },
    /// Deletes the session and what is personal in it, after ending what runs.
    Delete,
}

/// What came of a tool call that ran elsewhere. One for a call that has an outcome is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolResult {
    /// The call.
    pub call: CallId,
    /// The event that asked for it; another asking's result is ignored.
    pub nonce: EventId,
    /// What came of it.
    pub end: ToolEnd,
}

/// What a person decided about a tool call. The first for a call counts, if it is about the action
/// that was asked about and comes before the time is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalDecided {
    /// The call.
    pub call: CallId,
    /// The digest of the action that the person was shown.
    pub action: Digest,
    /// What was decided.
    pub decided: Decided,
}

/// How a tool call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolEnd {
    /// Known.
    Known {
        /// How.
        outcome: ToolOutcome,
    },
    /// It may or may not have happened, and is not done again.
    Uncertain {
        /// What is known.
        detail: String,
    },
}

/// A user's message and how it wants to be answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        /// Hooks have judged a model call.
        ModelHooked(ModelHooked) = "model_hooked", required;
        /// A model call is about to be sent.
        ModelBegun(ModelBegun) = "model_begun", required;
        /// A model call ended well; it is never made again.
        ModelDone(ModelDone) = "model_done", required, progress;
        /// A model call ended badly; it is never made again.
        ModelFailed(ModelFailed) = "model_failed", required, progress;
        /// Hooks have judged a tool call.
        ToolHooked(ToolHooked) = "tool_hooked", required;
        /// A person is asked about a tool call.
        ApprovalAsked(ApprovalAsked) = "approval_asked", required;
        /// A person has decided about a tool call.
        ApprovalGiven(ApprovalGiven) = "approval_given", required;
        /// A turn has used up its steps, and a person may give it more.
        StepLimitReached(StepLimitReached) = "step_limit_reached", required;
        /// A step of a turn's plan is next.
        StepPlanned(StepPlanned) = "step_planned", required;
        /// A tool call is about to run: from here on it may have happened.
        ToolAsked(ToolAsked) = "tool_asked", required;
        /// A tool call has ended, or was never run; it is never run again.
        ToolDone(ToolDone) = "tool_done", required, progress;
        /// A tool call may or may not have happened; it is never run again.
        ToolUncertain(ToolUncertain) = "tool_uncertain", required, progress;
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The tools it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Tool calls of one reply that run at a time.
    #[serde(default = "Profile::parallel_tools", skip_serializing_if = "is_usual_parallel")]
    pub max_parallel_tools: u32,
    /// What is done about a call that is made over and over.
    #[serde(default, skip_serializing_if = "is_usual_guard")]
    pub loop_guard: LoopGuard,
    /// What it does by itself, and what a person is asked about.
    #[serde(default, skip_serializing_if = "Policy::is_usual")]
    pub policy: Policy,
    /// How long a turn that has used up its steps waits for more, in milliseconds; 0: it ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step_wait_ms: u32,
    /// How long a turn and a step of it may take.
    #[serde(default, skip_serializing_if = "TurnTime::is_none")]
    pub time: TurnTime,
    /// The hooks that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookSpec>,
}

impl Profile {
    /// Tool calls of one reply that run at a time, unless it is configured.
    pub const fn parallel_tools() -> u32 {
        8
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name.as_str() == name)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_usual_parallel(tools: &u32) -> bool {
    *tools == Profile::parallel_tools()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_usual_guard(guard: &LoopGuard) -> bool {
    *guard == LoopGuard::default()
}

/// A model call is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The tools that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_uses: Vec<ToolUse>,
}

/// A model call ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// A person is asked about a tool call; from here on the wait for them counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalAsked {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// The digest of the action that they are asked about.
    pub action: Digest,
    /// Why they are asked, if a rule says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A person has decided about a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalGiven {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// The digest of the action that they decided about.
    pub action: Digest,
    /// What, and who.
    pub decided: Decided,
}

/// A turn has used up its steps; it waits for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepLimitReached {
    /// Which turn.
    pub turn: TurnId,
    /// How many steps it had.
    pub limit: u32,
}

/// A tool call is about to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolAsked {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// The tool, as it is now; its arguments are the model's.
    pub tool: ToolName,
}

/// A tool call has ended, or was never run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolDone {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// What came of it; absent if an input brought it, which has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ToolOutcome>,
    /// What hooks did to it.
    #[serde(default, skip_serializing_if = "HookTrail::is_empty")]
    pub hooks: HookTrail,
}

/// A tool call may or may not have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolUncertain {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// What is known; absent if an input brought it, which has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What the user is shown: the content of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reply {
    /// Of which turn.
    pub turn: TurnId,
    /// The call whose content it is.
    pub call: CallId,
}

/// A turn has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnDone {
    /// Which.
    pub turn: TurnId,
    /// How.
    pub outcome: TurnOutcome,
}

/// What a turn used, all calls together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settled {
    /// Which turn.
    pub turn: TurnId,
    /// Reported usage of all calls that have an outcome.
    pub usage: Usage,
    /// Calls begun whose outcome nobody knows, because a process died: paid for, perhaps.
    pub lost_attempts: u32,
}

//! Hooks: programs of the operator that judge a model call, a tool call or its result.
//!
//! clawnode journals the decision of a hook before it takes effect (HOOK-1). So the journal alone
//! determines what the model sees and what runs, and a replay asks no hook.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, Digest, TurnId},
    llm::Sampling,
    name::{HookName, ToolName},
};

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before a model call.
    BeforeLlmCall,
    /// Before rules and people decide about a tool call, and before it runs.
    BeforeToolCall,
    /// After a tool call, before the model gets its result.
    AfterToolCall,
}

impl HookPoint {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::BeforeLlmCall, Self::BeforeToolCall, Self::AfterToolCall];

    /// Its name, also that of the folder with its hooks.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeLlmCall => "before_llm_call",
            Self::BeforeToolCall => "before_tool_call",
            Self::AfterToolCall => "after_tool_call",
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A hook as an agent has it. Journaled with the agent's configuration: a turn that goes on elsewhere
/// still asks the hooks that it began with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookSpec {
    /// When it runs.
    pub point: HookPoint,
    /// The name. Hooks of one point run in the order of their names.
    pub name: HookName,
    /// Whether the call needs its answer. Without this, a hook that fails is skipped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u32,
    /// Whether it may change the call. Hooks that only judge run together.
    #[serde(default, skip_serializing_if = "is_false")]
    pub modifies: bool,
    /// Patterns of tool names. Default: all tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Why a hook gave no answer that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookFault {
    /// The node that asks has no such hook.
    Missing,
    /// clawnode does not run its file: another user can write it, or it is not executable.
    Unsafe,
    /// It could not be started.
    NotStarted,
    /// It took too long.
    TimedOut,
    /// It ended with an error.
    Failed,
    /// Its output is not an answer.
    Garbage,
    /// Its output is too long.
    TooMuch,
    /// Its patch cannot be applied.
    Unfit,
    /// Its input would be too large.
    TooLarge,
    /// An operator stopped it.
    Stopped,
}

impl HookFault {
    /// For people: what happened.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "is not on the node that asks it",
            Self::Unsafe => "may not be run: its file is not executable, or others can write it",
            Self::NotStarted => "could not be started",
            Self::TimedOut => "took too long",
            Self::Failed => "ended with an error",
            Self::Garbage => "did not write an answer, such as `{\"decision\":\"allow\"}`",
            Self::TooMuch => "wrote more than it may",
            Self::Unfit => "wants a change that cannot be made",
            Self::TooLarge => "cannot take so much input",
            Self::Stopped => "was stopped by an operator",
        }
    }
}

/// What hooks of one point did, beside what they changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookTrail {
    /// Hooks that changed something, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_by: Vec<HookName>,
    /// The hook that refused the call, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<HookBlock>,
    /// Hooks that failed and are not required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
}

impl HookTrail {
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.changed_by.is_empty() && self.blocked.is_none() && self.passed_over.is_empty()
    }
}

/// A hook blocked the call, or a required hook gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookBlock {
    /// The first that blocked; those after it were not asked.
    pub hook: HookName,
    /// Why, for people and for the model.
    pub reason: String,
}

/// A hook that gave no answer and is not required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PassedOver {
    /// The hook that hung, died or wrote invalid output.
    pub hook: HookName,
    /// The reason.
    pub fault: HookFault,
}

/// A hook's changes to a model request. Absent parts stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ModelPatch {
    /// The whole system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Texts of messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessagePatch>,
    /// A last message of the user, after all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append: Option<String>,
    /// Settings that override the others.
    #[serde(skip_serializing_if = "is_no_setting")]
    pub sampling: Sampling,
}

fn is_no_setting(sampling: &Sampling) -> bool {
    *sampling == Sampling::default()
}

/// The new text of one message of a model request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessagePatch {
    /// The number of the message, from 0.
    pub index: u32,
    /// Its text.
    pub content: String,
}

impl HookSpec {
    /// Whether it is asked about calls of this tool; `fits` judges a pattern and a whole text.
    pub fn concerns(&self, tool: &ToolName, fits: impl Fn(&str, &str) -> bool) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| fits(pattern, tool.as_str()))
    }
}

/// Hooks have judged a model call: what they decided takes effect from here on (HOOK-1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelHooked {
    /// The turn that makes the model call.
    pub turn: TurnId,
    /// The model call that is not sent before this event.
    pub call: CallId,
    /// The digest of the request that the hooks judged.
    pub request: Digest,
    /// What the hooks changed in the request, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<ModelPatch>,
    /// What the hooks did.
    #[serde(default, skip_serializing_if = "HookTrail::is_empty")]
    pub trail: HookTrail,
}

/// Hooks have judged a tool call: what they decided takes effect from here on (HOOK-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolHooked {
    /// The turn whose model asked for the tool.
    pub turn: TurnId,
    /// The tool call that does not begin before this event.
    pub call: CallId,
    /// The arguments, if a hook changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// What the hooks did.
    #[serde(default, skip_serializing_if = "HookTrail::is_empty")]
    pub trail: HookTrail,
}

//! Agents, as the API shows them.

use serde::{Deserialize, Serialize};

use crate::{
    hook::HookSpec,
    id::{AgentName, Capability},
    latch::Latch,
    llm::{ModelRef, Sampling},
    name::ToolName,
    policy::Policy,
    provider::ProviderStatus,
    timeout::TurnTime,
    tool::{EffectClass, Risk},
};

/// One agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentView {
    /// Its name.
    pub agent: AgentName,
    /// Its model.
    pub model: ModelRef,
    /// The first line of its system prompt.
    pub system: String,
    /// Model calls of one turn.
    pub step_limit: u32,
    /// Turns at once on one node.
    pub max_turns: u32,
    /// Turns that run on the answering node now.
    pub running: u32,
    /// Turns that wait on the answering node.
    pub waiting: u32,
    /// Whether it is paused, in the whole cluster.
    pub paused: bool,
    /// The latch that stops it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Latch>,
}

/// Answer of `agents.show`: one agent with all that decides how it answers, except its whole system
/// prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentDetail {
    /// What `agents.list` says of it.
    #[serde(flatten)]
    pub view: AgentView,
    /// Settings of its model calls.
    pub sampling: Sampling,
    /// Tokens that its model reads at most.
    pub window_tokens: u32,
    /// How long a turn and a step of it may take.
    pub time: TurnTime,
    /// Tool calls of one reply that run at a time.
    pub max_parallel_tools: u32,
    /// What it does by itself, and what a person is asked about.
    pub policy: Policy,
    /// The hooks that judge its calls, by point and name.
    pub hooks: Vec<HookSpec>,
    /// Its tools, as its model is given them.
    pub tools: Vec<AgentToolView>,
    /// What its configuration names beside them, and its model is not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingToolView>,
}

/// Tools that an agent's configuration names and that its model is not given: those of an MCP server
/// that does not work, does not have them, or whose tools nobody has approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingToolView {
    /// As the configuration has it: `SERVER__TOOL`, or `SERVER__*` for all of a server.
    pub name: String,
    /// Why.
    pub error: String,
}

/// A tool of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentToolView {
    /// What a model calls it.
    pub name: ToolName,
    /// What a model is told of it.
    pub description: String,
    /// What running it twice does.
    pub class: EffectClass,
    /// How much harm it can do.
    pub risk: Risk,
    /// What a node needs to run it; absent if every worker can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// The longest that a call may take, in milliseconds.
    pub timeout_ms: u32,
    /// Whether a node takes its calls now: `healthy` or `unhealthy`.
    pub status: ProviderStatus,
    /// Why none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer of `agents.list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentList {
    /// In name order.
    pub agents: Vec<AgentView>,
}

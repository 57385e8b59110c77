//! Agents, as the API shows them.

use serde::{Deserialize, Serialize};

use crate::{
    hook::HookSpec,
    id::{AgentName, Capability},
    kill_switch::KillSwitch,
    lane::Lane,
    llm::{ModelRef, Sampling},
    name::ToolName,
    policy::Policy,
    provider::ProviderStatus,
    response::ResponseSchema,
    timeout::TurnTime,
    tool::{EffectClass, Risk},
};

/// One agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentView {
    /// The name of the agent.
    pub agent: AgentName,
    /// The model, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// The first line of the system prompt.
    pub system: String,
    /// How many model calls a turn may make.
    pub step_limit: u32,
    /// How many turns may run on one node.
    pub max_turns: u32,
    /// Turns that run on this node now.
    pub running: u32,
    /// Turns that wait on this node.
    pub waiting: u32,
    /// The lane of turns whose message names none.
    #[serde(default, skip_serializing_if = "Lane::is_usual")]
    pub lane: Lane,
    /// Its share of a provider's slots, beside the weights of other agents that wait in the same lane.
    #[serde(default = "AgentView::usual_weight")]
    pub weight: u32,
    /// Whether the agent is paused, in the whole cluster.
    pub paused: bool,
    /// The kill switch that stops the agent, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<KillSwitch>,
}

impl AgentView {
    /// The weight of an agent that names none.
    pub const fn usual_weight() -> u32 {
        1
    }
}

/// Answer of `agents.show`: one agent with all that decides how it answers, except its whole system
/// prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentDetail {
    /// The row of `agents.list`.
    #[serde(flatten)]
    pub view: AgentView,
    /// Patterns of models that a message may choose instead, as `PROVIDER/MODEL`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// What replies have to fit, if the message does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// The sampling settings of model calls.
    pub sampling: Sampling,
    /// How many tokens the model reads.
    pub window_tokens: u32,
    /// How long a turn, and each step of it, may take.
    pub time: TurnTime,
    /// How many tool calls of one reply run at a time.
    pub max_parallel_tools: u32,
    /// Which tool calls run, ask a person, or are denied.
    pub policy: Policy,
    /// The hooks that judge the agent's calls, by point and name.
    pub hooks: Vec<HookSpec>,
    /// The tools that the model gets.
    pub tools: Vec<AgentToolView>,
    /// Tools in the configuration that the model does not get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingToolView>,
}

/// Tools that an agent's configuration names and that its model is not given: those of an MCP server
/// that does not work, does not have them, or whose tools are not approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingToolView {
    /// The name in the configuration: `SERVER__TOOL`, or `SERVER__*` for all tools of a server.
    pub name: String,
    /// Why the model does not get it.
    pub error: String,
}

/// A tool of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentToolView {
    /// The name of the tool.
    pub name: ToolName,
    /// The description that the model gets.
    pub description: String,
    /// Whether a call may run twice.
    pub class: EffectClass,
    /// How much harm the tool can do.
    pub risk: Risk,
    /// The capability that a node needs to run it. Absent if every worker can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// How long a call may take, in milliseconds.
    pub timeout_ms: u32,
    /// Whether a node can run the tool now. `standby`: not needed now. `unknown`: not checked yet.
    pub status: ProviderStatus,
    /// Why no node can run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer of `agents.list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentList {
    /// The agents, by name.
    pub agents: Vec<AgentView>,
}

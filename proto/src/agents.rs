//! Agents, as the API shows them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    context::ContextSettings,
    hook::HookSpec,
    id::{AgentName, Capability},
    kill_switch::KillSwitch,
    lane::Lane,
    llm::{ModelRef, Sampling},
    memory::MemoryLayer,
    name::ToolName,
    policy::Policy,
    provider::ProviderStatus,
    response::ResponseSchema,
    timeout::TurnTime,
    timestamp::Timestamp,
    tool::{EffectClass, Risk},
};

/// What an agent may do in a given time. Absent: without a limit. An agent that exceeds a limit is paused in
/// the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentLimits {
    /// Tool calls that begin in a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls_per_minute: Option<u64>,
    /// Bytes that its tools send and receive through clawnode in 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_bytes_per_day: Option<u64>,
    /// Turns that begin in an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_per_hour: Option<u64>,
}

/// What such a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentLimit {
    /// Tool calls that begin in a minute.
    ToolCallsPerMinute,
    /// Bytes that tools send and receive through clawnode in 24 hours.
    EgressBytesPerDay,
    /// Turns that begin in an hour.
    TurnsPerHour,
    /// A limit of a newer build.
    #[serde(other)]
    Unknown,
}

/// A limit that an agent exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExceededLimit {
    /// What the limit counts.
    pub limit: AgentLimit,
    /// How much is allowed, in calls, bytes or turns.
    pub allowed: u64,
}

/// What a process has counted for an agent since the process started. Counts never fall, so a lost
/// heartbeat loses nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentCounts {
    /// The agent whose calls are counted, by its name in the configuration.
    pub agent: AgentName,
    /// Tool calls that began.
    #[serde(default)]
    pub tool_calls: u64,
    /// Bytes that tools sent and received.
    #[serde(default)]
    pub egress_bytes: u64,
    /// Turns that began.
    #[serde(default)]
    pub turns: u64,
    /// How often the process found the agent over a limit, and stopped it.
    #[serde(default)]
    pub stops: u64,
    /// The limit of the last stop, until the process sees the pause that a gateway stores because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<ExceededLimit>,
}

/// Why an agent is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentPause {
    /// Who paused it: an operator at a node, or a node that found it over a limit.
    pub by: String,
    /// The reason, for people. Empty if an operator gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When it was paused, by the clock of the node that did it.
    pub at: Timestamp,
    /// The limit that the agent exceeded. Absent if an operator paused it. A pause by a limit also ends
    /// running turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<AgentLimit>,
}

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
    /// Who paused it, and why. Absent if it is not paused, or if an older build paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<AgentPause>,
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
    /// How requests are assembled. Absent: the newest turns that fit into the model's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSettings>,
    /// What turns are reminded of. Absent: they recall nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<AgentMemoryView>,
    /// The names of its skills.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// How long a turn, and each step of it, may take.
    pub time: TurnTime,
    /// The limits that pause the agent.
    #[serde(default)]
    pub limits: AgentLimits,
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
    /// What is probably not meant, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Which memories an agent reads, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentMemoryView {
    /// The kinds of points that it is shown; `episode` also means passages of conversations.
    pub layers: Vec<MemoryLayer>,
    /// Points of one turn at most; 0: passages only.
    pub top_facts: u32,
    /// The shared memories that it reads, by the NAME of `shared/NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
    /// Whether it is also shown what tools brought.
    #[serde(default)]
    pub recall_untrusted: bool,
    /// How facts are found in what persons say: `patterns`, `model` or `off`. Absent: an older node does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extract: String,
    /// Whether a model looks back at turns with many tool calls: `model` or `off`. Absent: an older node does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reflect: String,
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

/// A tool as the model of an agent gets it, and whether a node can run it.
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

// === impl AgentLimits ===

impl AgentLimits {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of this kind, in calls, bytes or turns.
    pub const fn of(&self, limit: AgentLimit) -> Option<u64> {
        match limit {
            AgentLimit::ToolCallsPerMinute => self.tool_calls_per_minute,
            AgentLimit::EgressBytesPerDay => self.egress_bytes_per_day,
            AgentLimit::TurnsPerHour => self.turns_per_hour,
            AgentLimit::Unknown => None,
        }
    }
}

// === impl AgentLimit ===

impl AgentLimit {
    /// Every limit that this build knows.
    pub const ALL: [Self; 3] =
        [Self::ToolCallsPerMinute, Self::EgressBytesPerDay, Self::TurnsPerHour];

    /// The name of its setting, which is also its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolCallsPerMinute => "tool_calls_per_minute",
            Self::EgressBytesPerDay => "egress_bytes_per_day",
            Self::TurnsPerHour => "turns_per_hour",
            Self::Unknown => "unknown",
        }
    }

    /// What people read after a number: `tool calls in a minute`.
    pub const fn counted(self) -> &'static str {
        match self {
            Self::ToolCallsPerMinute => "tool calls in a minute",
            Self::EgressBytesPerDay => "bytes of egress in 24 hours",
            Self::TurnsPerHour => "turns in an hour",
            Self::Unknown => "of a kind that a newer build counts",
        }
    }
}

impl fmt::Display for AgentLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ExceededLimit ===

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} {}", self.allowed, self.limit.counted())
    }
}

// === impl AgentCounts ===

impl AgentCounts {
    /// Those of a process that has counted nothing yet.
    pub const fn new(agent: AgentName) -> Self {
        let (tool_calls, egress_bytes, turns, stops) = (0, 0, 0, 0);
        Self { agent, tool_calls, egress_bytes, turns, stops, exceeded: None }
    }
}

// === impl AgentPause ===

impl AgentPause {
    /// The name of the cause, for metrics: a limit's setting, or `operator`.
    pub const fn cause(&self) -> &'static str {
        match self.limit {
            Some(limit) => limit.as_str(),
            None => "operator",
        }
    }
}

impl fmt::Display for AgentPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "paused by {}", self.by)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_by_a_limit_of_a_newer_build_is_still_a_pause_by_a_limit() {
        let pause = serde_json::json!({ "by": "node n", "at": 1, "limit": "calls_per_week" });
        // As the bucket has it.
        let pause: AgentPause =
            crate::codec::decode(&crate::codec::encode(&pause).unwrap()).unwrap();
        assert_eq!(pause.limit, Some(AgentLimit::Unknown));
        assert_eq!(pause.to_string(), "paused by node n");
    }

    #[test]
    fn each_limit_is_named_as_on_the_wire_and_reads_its_own_setting() {
        let limits = AgentLimits {
            tool_calls_per_minute: Some(1),
            egress_bytes_per_day: Some(2),
            turns_per_hour: Some(3),
        };
        let written = serde_json::to_value(limits).unwrap();
        for limit in AgentLimit::ALL {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.as_str());
            assert_eq!(written[limit.as_str()], limits.of(limit).unwrap());
        }
    }
}

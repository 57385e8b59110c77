//! Who does the work: what runs tools on each node, and who serves models; how they fare, and which
//! node would be chosen for some work.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    circuit::{CircuitReport, CircuitState},
    id::{Capability, NodeName, ProcessId},
    timestamp::Timestamp,
};

/// What the names of MCP servers begin with among providers; the rest is the server's name.
pub const MCP_PREFIX: &str = "mcp.";
/// What the names of plugins begin with among providers; the rest is the plugin's name.
pub const PLUGIN_PREFIX: &str = "plugin.";
/// What the names of hooks begin with among providers; the rest is `POINT.NAME`.
pub const HOOK_PREFIX: &str = "hook.";

/// The problem of an MCP server on a node that does not run it, which is none.
pub const STANDING_BY: &str = "it does not run on this node";

/// The problem of one that is just starting, which is none yet.
pub const STARTING: &str = "it is starting";

/// What a provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// Runs tools: a capability of a node.
    Execution,
    /// Serves models.
    Model,
}

/// Of a node's last work with a provider: at most [`crate::limits::PROVIDER_RUNS`] pieces. What
/// could not be asked of it, or was called off, is no piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecentRuns {
    /// How many there were.
    pub runs: u16,
    /// How many of them it came to an end with, whatever the work itself said.
    pub ok: u16,
    /// Half took no longer than this, in milliseconds.
    pub p50_ms: u32,
    /// 95 of 100 took no longer than this, in milliseconds.
    pub p95_ms: u32,
}

impl RecentRuns {
    /// The share of work that went well, 0 to 1; nothing if there was none.
    pub fn success(&self) -> Option<f64> {
        (self.runs > 0).then(|| f64::from(self.ok) / f64::from(self.runs))
    }
}

/// How a provider fares, as a node sees it; told in its heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderReport {
    /// What it does.
    pub kind: ProviderKind,
    /// A capability; `local` for what runs beside a session; a provider of models.
    pub name: String,
    /// Why it cannot work now, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How long ago that was found out, in milliseconds: by a probe, or by a model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_ago_ms: Option<u64>,
    /// How many looks or model calls in a row have failed.
    #[serde(default)]
    pub failures: u32,
    /// Calls that it has in hand now.
    #[serde(default)]
    pub in_hand: u32,
    /// Model calls that wait until it has fewer in hand.
    #[serde(default, skip_serializing_if = "is_none_waiting")]
    pub waiting: u32,
    /// Its last work.
    #[serde(default)]
    pub recent: RecentRuns,
    /// Whether this process calls it, if it serves models. A hint for people: each process decides by
    /// its own calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<Box<CircuitReport>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none_waiting(calls: &u32) -> bool {
    *calls == 0
}

/// The state of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProviderStatus {
    /// It does not work.
    Unhealthy,
    /// It does not work on this node, and need not: another node runs the MCP server, or no agent uses
    /// it.
    Standby,
    /// Not tried yet.
    Unknown,
    /// It worked at the last check.
    Healthy,
}

impl ProviderStatus {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Standby => "standby",
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
        }
    }
}

impl ProviderReport {
    /// Whether it can work, as its own node sees it.
    pub fn status(&self) -> ProviderStatus {
        if self.circuit.as_ref().is_some_and(|circuit| circuit.state != CircuitState::Closed) {
            return ProviderStatus::Unhealthy;
        }
        match (self.problem.as_deref(), self.checked_ago_ms) {
            (Some(STANDING_BY), _) => ProviderStatus::Standby,
            (Some(STARTING), _) | (None, None) => ProviderStatus::Unknown,
            (Some(_), _) => ProviderStatus::Unhealthy,
            (None, Some(_)) => ProviderStatus::Healthy,
        }
    }
}

/// How long work took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyView {
    /// The median.
    pub p50: u32,
    /// The 95th percentile.
    pub p95: u32,
}

/// One provider on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderView {
    /// The name of the provider.
    pub provider: String,
    /// What the provider does.
    pub kind: ProviderKind,
    /// The name of the node.
    pub node: NodeName,
    /// The node's present one: a restarted node has another one.
    pub process: ProcessId,
    /// Whether the provider works.
    pub status: ProviderStatus,
    /// Why it does not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was last checked, by the clock of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<Timestamp>,
    /// How many checks or model calls in a row have failed.
    pub consecutive_failures: u32,
    /// Calls that it runs now.
    pub in_hand: u32,
    /// Model calls that wait on this node until it runs fewer (`max_calls` of the provider).
    #[serde(default, skip_serializing_if = "is_none_waiting")]
    pub waiting: u32,
    /// How many recent calls `success_rate` and `latency_ms` are computed from.
    pub runs: u16,
    /// The share of recent calls that succeeded, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// How long recent calls took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<LatencyView>,
    /// Whether the process calls a provider of models, and what the provider allows; absent until a
    /// call has failed or the provider has reported a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<Box<CircuitReport>>,
}

/// Answer of `providers.health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProvidersView {
    /// How many work.
    pub healthy: u32,
    /// How many do not work and are needed now.
    pub unhealthy: u32,
    /// How many do not work and are not needed now.
    #[serde(default)]
    pub standby: u32,
    /// How many were not tried yet.
    pub unknown: u32,
    /// The providers, by kind, name and node.
    pub providers: Vec<ProviderView>,
}

/// One step of a plan. Other fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepSpec {
    /// The name of a tool.
    #[serde(alias = "tool")]
    pub action: String,
    /// The arguments of the tool.
    #[serde(default, alias = "arguments", skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Whether the plan continues if this step fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_failure: bool,
    /// Whether `{{steps.N.output}}` in the texts of `params` is replaced by the output of step N, which comes
    /// before this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpolate: bool,
}

/// A plan. Other fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionSpec {
    /// The steps, in order.
    #[serde(alias = "actions")]
    pub steps: Vec<StepSpec>,
}

/// Parameters of `scheduler.diagnose`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiagnoseParams {
    /// The steps.
    pub execution_spec: ExecutionSpec,
    /// The node to name if none can run all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The agent whose tools are used. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The most points for each criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScoreWeights {
    /// The executors that it needs work.
    pub health: u8,
    /// The node is idle.
    pub load: u8,
    /// The node has the capabilities.
    pub capability: u8,
    /// Recent calls succeeded.
    pub success: u8,
    /// Recent calls were fast.
    pub latency: u8,
}

impl ScoreWeights {
    /// Those that hold: 100 points in all.
    pub const ALL: Self = Self { health: 30, load: 25, capability: 25, success: 15, latency: 5 };
}

/// The points of one node, each at most its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScoreView {
    /// The executors that it needs work.
    pub health: f64,
    /// The node is idle.
    pub load: f64,
    /// The node has the capabilities.
    pub capability: f64,
    /// Recent calls succeeded.
    pub success: f64,
    /// Recent calls were fast.
    pub latency: f64,
}

impl ScoreView {
    /// All points.
    pub fn total(&self) -> f64 {
        self.health + self.load + self.capability + self.success + self.latency
    }
}

/// One node that might do it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CandidateView {
    /// The name of the node.
    pub node: NodeName,
    /// The node's present one: a restarted node has another one.
    pub process: ProcessId,
    /// Whether it can run all steps now.
    pub eligible: bool,
    /// Why it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The capabilities that it lacks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing: BTreeSet<Capability>,
    /// The sum of its points, at most 100.
    pub score: f64,
    /// The points for each criterion.
    pub breakdown: ScoreView,
}

/// Answer of `scheduler.diagnose`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiagnoseView {
    /// The capabilities that the steps need.
    pub capabilities: BTreeSet<Capability>,
    /// The most points for each criterion.
    pub weights: ScoreWeights,
    /// The nodes, best first.
    pub candidates: Vec<CandidateView>,
    /// The best node that can run all steps, else the fallback if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<NodeName>,
    /// Whether the selected node is only the fallback.
    pub fallback_used: bool,
}

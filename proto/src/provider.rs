//! Who does the work: what runs tools on each node, and who serves models; how they fare, and which
//! node would be chosen for some work.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
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
    /// It runs tools: a capability of a node.
    Execution,
    /// It serves models.
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
    /// Its last work.
    #[serde(default)]
    pub recent: RecentRuns,
}

/// Whether a provider can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProviderStatus {
    /// It cannot.
    Unhealthy,
    /// It does not work here, and need not: another node runs the MCP server, or no agent has a tool
    /// that it would run.
    Standby,
    /// It was not tried yet.
    Unknown,
    /// It could when it was last looked at.
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
    /// Half of it took no longer.
    pub p50: u32,
    /// 95 of 100 took no longer.
    pub p95: u32,
}

/// One provider on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderView {
    /// Its name.
    pub provider: String,
    /// What it does.
    pub kind: ProviderKind,
    /// On which node.
    pub node: NodeName,
    /// In which process.
    pub process: ProcessId,
    /// Whether it can work.
    pub status: ProviderStatus,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When that was found out, by the clock of who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<Timestamp>,
    /// How many looks or model calls in a row have failed.
    pub consecutive_failures: u32,
    /// Calls that it has in hand now.
    pub in_hand: u32,
    /// Pieces of work that the rest is about, the last ones.
    pub runs: u16,
    /// The share of them that went well, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// How long they took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<LatencyView>,
}

/// Answer of `providers.health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProvidersView {
    /// How many can work.
    pub healthy: u32,
    /// How many cannot, and should.
    pub unhealthy: u32,
    /// How many need not.
    #[serde(default)]
    pub standby: u32,
    /// How many nobody has tried yet.
    pub unknown: u32,
    /// By kind, name and node.
    pub providers: Vec<ProviderView>,
}

/// One step of what is to be done. What else it says is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepSpec {
    /// The name of a tool.
    #[serde(alias = "tool")]
    pub action: String,
    /// Its arguments.
    #[serde(default, alias = "arguments", skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Whether what follows is done also if this does not end well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_failure: bool,
}

/// What is to be done, as a planner writes it. What else it says is not looked at.
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
    /// What would be done.
    pub execution_spec: ExecutionSpec,
    /// The node to name if none can do all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Whose tools; the default agent's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// How many points each thing is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScoreWeights {
    /// That what is needed is well there.
    pub health: u8,
    /// That the node is idle.
    pub load: u8,
    /// That it has what is needed.
    pub capability: u8,
    /// That work went well lately.
    pub success: u8,
    /// That it was quick.
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
    /// What is needed is well there.
    pub health: f64,
    /// The node is idle.
    pub load: f64,
    /// It has what is needed.
    pub capability: f64,
    /// Work went well lately.
    pub success: f64,
    /// It was quick.
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
    /// Which.
    pub node: NodeName,
    /// Its process.
    pub process: ProcessId,
    /// Whether it can do all of it now.
    pub eligible: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it does not have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing: BTreeSet<Capability>,
    /// All its points, of 100.
    pub score: f64,
    /// What they are for.
    pub breakdown: ScoreView,
}

/// Answer of `scheduler.diagnose`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiagnoseView {
    /// What is needed beside a worker.
    pub capabilities: BTreeSet<Capability>,
    /// The points that there are.
    pub weights: ScoreWeights,
    /// The best first.
    pub candidates: Vec<CandidateView>,
    /// The best of those that can; else the fallback, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<NodeName>,
    /// Whether that is only the fallback.
    pub fallback_used: bool,
}

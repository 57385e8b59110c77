//! What the API shows of a cluster: the documents behind `nodes`, `partitions`, `tree`, `events` and
//! `top`, and parts of `status`.
//!
//! Fields are only ever added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    feed::ClusterEvent,
    id::{NodeName, Partition, ProcessId},
    tree::ProcessTree,
    view::NodeView,
};

/// Answer of `nodes.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeList {
    /// The processes that the answering one hears of, itself included; in name order.
    pub nodes: Vec<NodeView>,
    /// Processes whose heartbeats stopped recently; the cluster takes them for dead.
    #[serde(default)]
    pub dead: Vec<DeadView>,
}

/// A process whose heartbeats stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadView {
    /// Which.
    pub process: ProcessId,
    /// What people called it, if that is still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// How long ago it was held dead, in milliseconds, if that was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ago_ms: Option<u64>,
    /// Whether another process has its name now, or had it later.
    #[serde(default)]
    pub replaced: bool,
}

impl std::fmt::Display for DeadView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node} ({})", self.process),
            None => write!(f, "{}", self.process),
        }
    }
}

/// One store of the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreView {
    /// Its name there.
    pub name: String,
    /// How many servers keep it.
    pub replicas: u8,
    /// The server that leads it; absent if none does, or if there is only one server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Servers that should keep it and are behind or gone.
    #[serde(default)]
    pub behind: u8,
    /// How many operations the one furthest behind lacks.
    #[serde(default)]
    pub lag: u64,
    /// Records in it.
    pub records: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Why nothing is known of it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How the bus is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BusView {
    /// The server that the answering process is connected to.
    pub server: String,
    /// The cluster of servers that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Servers that it says there are, itself included.
    pub servers: Vec<String>,
    /// How long its answers took, in microseconds.
    pub answers_us: u64,
    /// For how long it has not answered, in milliseconds; absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// What is stored.
    pub stores: Vec<StoreView>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartitionView {
    /// Which.
    pub partition: Partition,
    /// Who serves it: the first, and who follows if it does not.
    pub serve: Vec<ProcessId>,
    /// Inputs that nobody has taken yet; absent where the store does not tell cheaply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Inputs that somebody has and has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_hand: Option<u64>,
}

/// Answer of `partitions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartitionList {
    /// In order.
    pub partitions: Vec<PartitionView>,
    /// What people call those who serve.
    pub nodes: BTreeMap<ProcessId, NodeName>,
}

/// Answer of `cluster.tree`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeView {
    /// One tree a process, in name order.
    pub processes: Vec<ProcessTree>,
    /// Processes that did not answer in time.
    #[serde(default)]
    pub silent: Vec<NodeName>,
}

/// One cluster event, numbered by the process that remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedRow {
    /// Its number there.
    pub n: u64,
    /// What happened.
    pub event: ClusterEvent,
}

/// Turns that a gateway heard of since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnCounts {
    /// Begun.
    pub started: u64,
    /// Ended, well or not.
    pub ended: u64,
    /// Ended otherwise than completed.
    pub unsuccessful: u64,
}

/// Answer of `events.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedView {
    /// In the order in which they were heard.
    pub events: Vec<FeedRow>,
    /// Pass as `cursor` for what follows; always there, because more will happen.
    pub next: Cursor,
    /// Events after the request's `cursor` that are not remembered any more, or were not heard.
    #[serde(default)]
    pub missed: u64,
    /// Turns in the whole cluster, as far as they were heard of.
    #[serde(default)]
    pub turns: TurnCounts,
}

/// How long something took lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// How many are looked at: the last ones.
    pub samples: u32,
    /// Half of them took at most so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 99 of a hundred took at most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
}

/// Answer of `stats.show`: what the answering gateway measures of turns that it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatsView {
    /// Messages that it stored.
    pub accepted: u64,
    /// Turns that it carried to their end.
    pub turns: u64,
    /// Open connections.
    pub connections: u64,
    /// Open `WebSocket`s.
    pub sockets: u64,
    /// From a message to the first text of its reply.
    pub first_text: Latency,
    /// From a message to the end of its turn.
    pub turn: Latency,
}

/// How `status` knows which sessions are out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LookedView {
    /// How many sessions were looked at.
    pub sessions: u64,
    /// How long ago, in milliseconds.
    pub age_ms: u64,
}

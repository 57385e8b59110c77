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
    /// The living processes that this node knows, by name.
    pub nodes: Vec<NodeView>,
    /// Processes whose heartbeats stopped recently; the cluster takes them for dead.
    #[serde(default)]
    pub dead: Vec<DeadView>,
}

/// A process whose heartbeats stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadView {
    /// The process that is held dead. A restarted node has another one.
    pub process: ProcessId,
    /// The name of its node, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// How long ago the cluster took it for dead, in milliseconds.
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
    /// The name of the stream or store.
    pub name: String,
    /// How many servers keep it.
    pub replicas: u8,
    /// The server that leads it. Absent without a leader, or with a single server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The servers that should keep it and are behind or gone.
    #[serde(default)]
    pub behind: u8,
    /// How many operations the last of them lacks.
    #[serde(default)]
    pub lag: u64,
    /// How many records it has.
    pub records: u64,
    /// The size of these records.
    pub bytes: u64,
    /// Why its state is unknown now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The state of the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BusView {
    /// The NATS server that this node is connected to.
    pub server: String,
    /// The name of the NATS cluster that the server belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The servers of that cluster.
    pub servers: Vec<String>,
    /// How long an answer took, in microseconds.
    pub answers_us: u64,
    /// How long it has not answered, in milliseconds. Absent while it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// The streams and stores.
    pub stores: Vec<StoreView>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartitionView {
    /// The number of the partition.
    pub partition: Partition,
    /// The workers that can serve it, in order of rank.
    pub serve: Vec<ProcessId>,
    /// Inputs that no worker has taken. Absent if the store cannot count them cheaply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Inputs that a worker has and has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_hand: Option<u64>,
}

/// Answer of `partitions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartitionList {
    /// The partitions, in order.
    pub partitions: Vec<PartitionView>,
    /// The names of the workers.
    pub nodes: BTreeMap<ProcessId, NodeName>,
}

/// Answer of `cluster.tree`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeView {
    /// One tree for each process, by name.
    pub processes: Vec<ProcessTree>,
    /// Processes that did not answer in time.
    #[serde(default)]
    pub silent: Vec<NodeName>,
}

/// One cluster event, numbered by the process that remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedRow {
    /// The number of the event at this node.
    pub n: u64,
    /// With the node and the time, and no text of a conversation.
    pub event: ClusterEvent,
}

/// Turns since the start of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnCounts {
    /// Turns that began.
    pub started: u64,
    /// Turns that ended.
    pub ended: u64,
    /// Turns that ended, but did not complete.
    pub unsuccessful: u64,
}

/// Answer of `events.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedView {
    /// The events, in the order in which they arrived.
    pub events: Vec<FeedRow>,
    /// Pass this as `cursor` for the events that follow. Always there, because more will happen.
    pub next: Cursor,
    /// How many events after `cursor` this node does not have.
    #[serde(default)]
    pub missed: u64,
    /// Turns in the whole cluster, as far as this node knows.
    #[serde(default)]
    pub turns: TurnCounts,
}

/// How long recent turns took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// How many turns these are.
    pub samples: u32,
    /// The median, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The 99th percentile, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
}

/// Answer of `stats.show`: what the answering gateway measures of turns that it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatsView {
    /// Messages that this gateway stored.
    pub accepted: u64,
    /// Turns that it streamed to their end.
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
    /// How many entities were checked.
    pub sessions: u64,
    /// How long ago, in milliseconds.
    pub age_ms: u64,
}

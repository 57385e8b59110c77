//! What a process runs, as a tree: for people who look at a cluster.
//!
//! Bounded: a process names at most [`crate::limits::TREE_ENTITIES`] entities and counts the rest.

use serde::{Deserialize, Serialize};

use crate::{
    id::{NodeName, ProcessId},
    role::NodeRole,
};

/// The tree of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessTree {
    /// The process whose actors these are.
    pub process: ProcessId,
    /// The name of the node.
    pub node: NodeName,
    /// The roles of the node.
    pub roles: Vec<NodeRole>,
    /// What it runs.
    pub branches: Vec<Branch>,
}

/// One thing that runs, and what it looks after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Branch {
    /// Its name: `membership`, `agent.default`, an entity's id.
    pub name: String,
    /// `gateway`, `task`, `agent`, `dispatcher`, `entity`, or `group` of such.
    pub kind: String,
    /// `up`, `restarting` or `silent`; of an entity what its dispatcher does with it: `ringing`,
    /// `admitting`, `asking`, `active`, `waiting`.
    pub state: String,
    /// How often it was started again lately.
    #[serde(default)]
    pub restarts: u32,
    /// More about it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What it looks after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Branch>,
    /// How many more it looks after than are named.
    #[serde(default)]
    pub more: u64,
}

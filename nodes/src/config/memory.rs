//! Settings of the store that finds what memories and conversations say.

use std::collections::BTreeSet;

use clawnode_proto::AgentName;
use serde::{Deserialize, Serialize};

use super::qdrant::QdrantSection;

/// `[memory]`: the store that finds what memories and conversations say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Which store: `local` is in each node, with its files in `memory` of the data folder; `qdrant` is a server that all
    /// nodes share.
    pub store: MemoryStoreChoice,
    /// The agents whose conversations can be found, beside those that are reminded of theirs by `[agents.NAME.memory]`
    /// (none). They take disk in each node, about as much as their texts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub conversations: BTreeSet<AgentName>,
    /// `[memory.qdrant]`: the server of the store `qdrant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdrant: Option<QdrantSection>,
}

/// Which store finds things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStoreChoice {
    /// In the process of each node.
    #[default]
    Local,
    /// On a Qdrant server.
    Qdrant,
}

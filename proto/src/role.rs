//! What a process does in its cluster.

use serde::{Deserialize, Serialize};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Holds client connections, owns nothing.
    Gateway,
    /// Owns entities.
    Worker,
}

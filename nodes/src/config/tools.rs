//! Settings of tools.

use std::time::Duration;

use clawnode_proto::tool::LoopGuard;
use serde::{Deserialize, Serialize};

use super::units;

/// `[tools]`: how this node runs tool calls that any node may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsOptions {
    /// Calls at once for each capability (8): more uses the node better, and makes each slower.
    /// What is beyond waits, or goes to another node.
    pub max_jobs: u32,
    /// How long a call waits for a node that can run it (1 min), before its turn goes on without.
    /// More bridges longer outages of such nodes, less tells the model sooner.
    #[serde(with = "units::duration")]
    pub job_wait: Duration,
}

impl Default for ToolsOptions {
    fn default() -> Self {
        Self { max_jobs: 8, job_wait: Duration::from_mins(1) }
    }
}

/// `[agents.NAME.loop_guard]`: what is done about a tool call that a turn makes over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardOptions {
    /// From this one on the model is warned (3).
    pub warn: u32,
    /// From this one on it is refused (5).
    pub refuse: u32,
    /// This one ends the turn (30).
    pub end: u32,
}

impl Default for LoopGuardOptions {
    fn default() -> Self {
        let LoopGuard { warn, refuse, end } = LoopGuard::default();
        Self { warn, refuse, end }
    }
}

impl From<LoopGuardOptions> for LoopGuard {
    fn from(it: LoopGuardOptions) -> Self {
        Self { warn: it.warn, refuse: it.refuse, end: it.end }
    }
}

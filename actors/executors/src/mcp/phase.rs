//! What an MCP server is doing on one node.

use std::{collections::BTreeMap, sync::Arc};

use clawnode_proto::tool::ToolSpec;
use tokio_util::sync::CancellationToken;

use super::session::McpCaller;

/// What a server is doing here.
#[derive(Clone, Debug)]
pub(super) enum ServerPhase {
    /// It is not this node's to run, as far as is known.
    StandsBy,
    /// It is being started.
    Starts,
    /// It can be called.
    Up(Up),
    /// Another node runs it from now on; what was taken here before is still served.
    Leaves(Up),
    /// It ended, or could not be started.
    Down(String),
    /// This node ends.
    Stopped,
}

/// A server that can be called.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub(super) calls: McpCaller,
    /// Its tools, by its own names for them.
    pub(super) listed: Arc<BTreeMap<String, ToolSpec>>,
    pub(super) life: ProgramLife,
}

/// One run of a program, as those see it who have to end it.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramLife {
    /// It is killed without being asked.
    pub(super) cut: CancellationToken,
    /// Nothing of it is left.
    pub(super) over: CancellationToken,
}

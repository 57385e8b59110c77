//! The door to whatever runs tools.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use clawnode_proto::{
    AgentName, CallId, ToolName,
    tool::{ToolOutcome, ToolSpec},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::durable::jobs::Probe;

/// One way of running tools.
#[async_trait]
pub trait Executor: Send + Sync + fmt::Debug {
    /// The tools that it has now, as an agent may be given them.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Runs one call to its end. Cancelling the token is how a call is cancelled: it asks for an
    /// end soon, and leaves time to clean up. Dropping the future stops the call for good.
    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome;

    /// Whether an earlier run of this call has happened, for tools of class `check`. Others are not
    /// asked.
    async fn probe(&self, run: ToolRun) -> Probe {
        Probe::Unclear(format!("`{}` has no way to tell whether it has happened", run.tool))
    }

    /// Whether it can run anything now; if not, why not, for people.
    async fn health_check(&self) -> Result<(), String>;
}

/// One run of a tool call.
#[derive(Clone, PartialEq)]
pub struct ToolRun {
    /// Which call.
    pub call: CallId,
    /// On behalf of which agent: its files, its hosts.
    pub agent: AgentName,
    /// Which tool.
    pub tool: ToolName,
    /// Its arguments; they fit the tool's schema.
    pub arguments: Map<String, Value>,
    /// The job id's text: the same for each run of one call.
    pub idempotency_key: String,
    /// The longest that it may take.
    pub timeout: Duration,
}

impl fmt::Debug for ToolRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments are content of a conversation, which is in no log.
        f.debug_struct("ToolRun")
            .field("call", &self.call)
            .field("agent", &self.agent)
            .field("tool", &self.tool)
            .field("idempotency_key", &self.idempotency_key)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

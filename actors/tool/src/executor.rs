//! The trait for executors of tools.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    AgentName, CallId, Capability, ToolName,
    session::ToolEnd,
    timeout::TimeLimit,
    tool::{ToolOutcome, ToolSpec},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{CallBack, RunSink, ShownMedia};

/// One way of running tools.
#[async_trait]
pub trait Executor: Send + Sync + fmt::Debug {
    /// The tools that it has now, as an agent may be given them.
    fn tools(&self) -> Vec<ToolSpec>;

    /// The provider of its tools, if that has a health of its own and may have no tools yet, as an MCP
    /// server.
    fn provider(&self) -> Option<Capability> {
        None
    }

    /// Runs one call to its end. Cancelling the token is how a call is cancelled: it asks for an
    /// end soon, and leaves time to clean up. Dropping the future stops the call for good.
    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome;

    /// The same for an executor that has more to say than an outcome: one whose calls may call
    /// other tools while they run, or may be lost with an unknown result.
    async fn end(&self, run: ToolRun, _back: CallBack, cancelled: CancellationToken) -> ToolEnd {
        ToolEnd::Known { outcome: self.execute(run, cancelled).await }
    }

    /// Whether an earlier run of this call has happened, for tools of class `check`. Others are not
    /// asked.
    async fn probe(&self, run: ToolRun) -> Probe {
        Probe::Unclear(format!("`{}` has no way to tell whether it has happened", run.tool))
    }

    /// Whether this tool reaches for other machines: it is stopped when an operator lets nothing
    /// out of the cluster.
    fn reaches_out(&self, _tool: &ToolName) -> bool {
        false
    }

    /// Whether it can run anything now; if not, why not, for people. Asked again and again.
    async fn health_check(&self) -> Result<(), String>;

    /// Returns once its tools or its health may have changed since the last look at them. One that
    /// never notices is looked at from time to time all the same.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }
}

/// One run of a tool call.
#[derive(Clone, PartialEq)]
pub struct ToolRun {
    pub call: CallId,
    /// On behalf of which agent: its files, its hosts.
    pub agent: AgentName,
    pub tool: ToolName,
    /// Its arguments; they fit the tool's schema.
    pub arguments: Map<String, Value>,
    /// The job id's text: the same for each run of one call.
    pub idempotency_key: String,
    /// The longest that it may take.
    pub timeout: Duration,
    /// Takes what it says, for people.
    pub sink: RunSink,
    /// Takes what it shows to the model besides its text.
    pub shown: ShownMedia,
    /// The limit that this is, if it is known.
    pub limit: Option<TimeLimit>,
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

//! The tools of one MCP server, as an executor of its node.

use std::{io, time::Duration};

use async_trait::async_trait;
use clawnode_cluster::Peek;
use clawnode_guard::kill_switch::{StoppableWork, WorkStopped};
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    AgentName, Capability, ToolName,
    agents::AgentLimit,
    kill_switch::KillSwitch,
    mcp::{McpPins, McpToolState},
    provider::{STANDING_BY, STARTING},
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Executor, ToolRun};
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    handle::McpServer,
    options::McpTransport,
    phase::{ServerPhase, Up},
    session::McpCallEnd,
    tool_result,
};

/// How long a call waits for a server that is just starting (10 s).
const START_WAIT: Duration = Duration::from_secs(10);

/// Runs the approved tools of a server, where the server is up.
#[derive(Clone, Debug)]
pub struct McpTools(McpServer);

/// Counts what is written to it.
struct ByteCount(u64);

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl McpTools {
    /// Of this server.
    pub const fn new(server: McpServer) -> Self {
        Self(server)
    }

    fn pins(&self) -> Option<McpPins> {
        self.0.0.context.pins.peek(|pins| pins.of(self.0.name()).cloned())
    }

    /// The server, once it is up.
    async fn up(&self, within: Duration) -> Result<Up, ToolOutcome> {
        let mut phase = self.0.0.phase();
        let settled =
            phase.wait_for(|phase| matches!(phase, ServerPhase::Up(_) | ServerPhase::Leaves(_)));
        match timeout(within.min(START_WAIT), settled).await {
            Ok(Ok(phase)) => match &*phase {
                ServerPhase::Up(up) | ServerPhase::Leaves(up) => Ok(up.clone()),
                _ => Err(self.unavailable("it is not up")),
            },
            Ok(Err(_)) | Err(_) => Err(self.unavailable(&self.why_not())),
        }
    }

    fn why_not(&self) -> String {
        self.0.0.phase().peek(why_not)
    }

    fn unavailable(&self, why: &str) -> ToolOutcome {
        let why = format!("the MCP server `{}` cannot be called: {why}", self.0.name());
        ToolOutcome::failed(ToolFailure::Unavailable, why)
    }

    /// The tool that knows whether a call of this one has happened, if it may run.
    fn probe_of(&self, run: &ToolRun, up: &Up) -> Result<String, ToolOutcome> {
        let tool = self.allowed(&run.tool, up)?;
        let known = self.0.0.options.tools.get(&tool).and_then(|known| known.probe.clone());
        let probe = known.ok_or_else(|| self.unavailable(&format!("`{tool}` has no probe")))?;
        let unnamed = |_| self.unavailable("the name of the probe is not that of a tool");
        self.allowed(&ToolName::of_mcp(self.0.name(), &probe).map_err(unnamed)?, up)
    }

    /// Asks the tool that knows whether an earlier run of a call has happened.
    async fn ask_probe(&self, mut run: ToolRun) -> Result<Probe, ToolOutcome> {
        let up = self.up(run.timeout).await?;
        let probe = self.probe_of(&run, &up)?;
        let _under_way = self.0.0.begin();
        let never = CancellationToken::new();
        Ok(match self.call(&up, &probe, &mut run, &never).await? {
            McpCallEnd::Answered(result) => tool_result::probe(&result),
            McpCallEnd::Refused(why) | McpCallEnd::Gone(why) => {
                Probe::Unclear(format!("its probe `{probe}` did not answer: {why}"))
            }
            McpCallEnd::Cancelled => Probe::Unclear(format!("its probe `{probe}` was cancelled")),
        })
    }

    /// The server's own name for a tool that may run, if the server still describes it as approved.
    fn allowed(&self, name: &ToolName, up: &Up) -> Result<String, ToolOutcome> {
        let server = self.0.name();
        let refused = |why: String| Err(ToolOutcome::failed(ToolFailure::Refused, why));
        let pins = self.pins();
        let approved = pins.as_ref().and_then(|pins| {
            let mut offered = pins.offered(server);
            offered.find(|(_, spec)| spec.name == *name).map(|(tool, _)| tool.clone())
        });
        let (Some(pins), Some(tool)) = (pins, approved) else {
            return refused(format!("`{name}` is not approved"));
        };
        // What this node has heard itself counts, however old the record is.
        let now = McpPins { listed: (*up.listed).clone(), ..pins };
        match now.state(&tool) {
            Some(McpToolState::Approved) => Ok(tool),
            _ if self.is_unpinned() => Ok(tool),
            Some(McpToolState::Gone) | None => {
                Err(self.unavailable(&format!("it has no tool `{tool}` any more")))
            }
            Some(McpToolState::Changed | McpToolState::New) => refused(format!(
                "the MCP server `{server}` changed its description of `{tool}` after the approval, \
                 so clawnode does not run it; an operator can review it with `clawnode mcp show \
                 {server}` and approve it with `clawnode mcp approve {server} --tool {tool}`"
            )),
        }
    }

    async fn run(
        &self,
        mut run: ToolRun,
        cancelled: &CancellationToken,
    ) -> Result<ToolOutcome, ToolOutcome> {
        let up = self.up(run.timeout).await?;
        let tool = self.allowed(&run.tool, &up)?;
        let work = StoppableWork::Tool {
            agent: run.agent.clone(),
            tool: run.tool.clone(),
            reaches_out: self.reaches_out(&run.tool),
        };
        let _under_way = self.0.0.begin();
        let server = self.0.name();
        Ok(match self.call(&up, &tool, &mut run, cancelled).await? {
            McpCallEnd::Answered(result) => tool_result::outcome(&result, &run.shown),
            McpCallEnd::Refused(why) => {
                let why = format!("the MCP server `{server}` refused the call: {why}");
                ToolOutcome::failed(ToolFailure::Failed, why)
            }
            McpCallEnd::Gone(why) => {
                // A service may be gone without its connection's end.
                self.0.0.suspected.notify_one();
                let why = format!(
                    "the MCP server `{server}` was lost during the call ({why}); it is unknown \
                     whether the call did anything"
                );
                ToolOutcome::failed(ToolFailure::Crashed, why)
            }
            // A cancellation alone ends nothing, and an operator's stop must end the call.
            McpCallEnd::Cancelled if self.is_program() && self.is_stopped(&work) => {
                up.life.cut.cancel();
                up.life.over.cancelled().await;
                ToolOutcome::failed(ToolFailure::Cancelled, "")
            }
            McpCallEnd::Cancelled => {
                // The server got the cancellation. Another task checks whether it still answers.
                self.0.0.suspected.notify_one();
                ToolOutcome::failed(ToolFailure::Cancelled, "")
            }
        })
    }

    /// Makes one call. Its arguments and its answer count as egress of the agent if the server is a service.
    async fn call(
        &self,
        up: &Up,
        tool: &str,
        run: &mut ToolRun,
        cancelled: &CancellationToken,
    ) -> Result<McpCallEnd, ToolOutcome> {
        let arguments = std::mem::take(&mut run.arguments);
        let refused = |stop| {
            let why = WorkStopped::KillSwitch(stop).to_string();
            ToolOutcome::failed(ToolFailure::Refused, why)
        };
        self.count_egress(&run.agent, &arguments).map_err(refused)?;
        let end = up.calls.call(tool, arguments, &run.idempotency_key, cancelled).await;
        if let McpCallEnd::Answered(result) = &end
            && let Err(stop) = self.count_egress(&run.agent, result)
        {
            // The agent is stopped by it, and its model still learns what the tool has done.
            debug!(agent = %run.agent, why = %stop.why, "an answer of an MCP server is over a limit");
        }
        Ok(end)
    }

    /// What a program of this host sends and receives is not seen.
    fn count_egress(&self, agent: &AgentName, what: &impl Serialize) -> Result<(), KillSwitch> {
        if self.is_program() {
            return Ok(());
        }
        let mut bytes = ByteCount(0);
        if let Err(failure) = serde_json::to_writer(&mut bytes, what) {
            debug!(%failure, "the size of the traffic with an MCP server is not wholly known");
        }
        self.0.0.context.switch_gate.count(agent, AgentLimit::EgressBytesPerDay, bytes.0)
    }

    /// Whether it runs here, and not on a machine that is reached by a URL.
    fn is_program(&self) -> bool {
        matches!(self.0.0.options.transport, McpTransport::Stdio(_))
    }

    fn is_stopped(&self, work: &StoppableWork) -> bool {
        self.0.0.context.switch_gate.stops(work).is_some()
    }

    #[cfg(feature = "test-util")]
    fn is_unpinned(&self) -> bool {
        self.0.0.planted == super::McpBug::Unpinned
    }

    #[cfg(not(feature = "test-util"))]
    #[expect(clippy::unused_self, reason = "planted bugs read it")]
    const fn is_unpinned(&self) -> bool {
        false
    }
}

#[async_trait]
impl Executor for McpTools {
    fn tools(&self) -> Vec<ToolSpec> {
        let pins = self.pins();
        let offered = pins.iter().flat_map(|pins| pins.offered(self.0.name()));
        offered.map(|(_, spec)| spec.clone()).collect()
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        tokio::select! {
            biased;
            outcome = self.run(run, &cancelled) => outcome.unwrap_or_else(|failed| failed),
            // It does not wait for a server that starts.
            () = waited(&cancelled) => ToolOutcome::failed(ToolFailure::Cancelled, ""),
        }
    }

    async fn probe(&self, run: ToolRun) -> Probe {
        let unclear = |failed: ToolOutcome| {
            let why = failed.content.inline().unwrap_or_default();
            Probe::Unclear(format!("its probe could not be asked: {why}"))
        };
        self.ask_probe(run).await.unwrap_or_else(unclear)
    }

    /// What a server's program does is not seen, so it is held to reach out.
    fn reaches_out(&self, _tool: &ToolName) -> bool {
        true
    }

    fn provider(&self) -> Option<Capability> {
        Some(Capability::of_mcp(self.0.name()))
    }

    async fn health_check(&self) -> Result<(), String> {
        self.0.0.phase().peek(|phase| match phase {
            ServerPhase::Up(_) => Ok(()),
            down => Err(why_not(down)),
        })
    }

    async fn changed(&self) {
        self.0.0.changed.notified().await;
    }
}

/// Why a server in this phase takes no calls.
fn why_not(phase: &ServerPhase) -> String {
    match phase {
        ServerPhase::Up(_) => "it is just starting".to_owned(),
        ServerPhase::Starts => STARTING.to_owned(),
        ServerPhase::StandsBy | ServerPhase::Leaves(_) => STANDING_BY.to_owned(),
        ServerPhase::Down(why) => format!("it is down: {why}"),
        ServerPhase::Stopped => "this node is stopping".to_owned(),
    }
}

/// A while after a call was cancelled: longer than telling the server takes.
async fn waited(cancelled: &CancellationToken) {
    cancelled.cancelled().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
}

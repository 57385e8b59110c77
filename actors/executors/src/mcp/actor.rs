//! The life of one MCP server on one node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clawnode_cluster::Peek;
use clawnode_proto::{
    Capability, Digest, ErrorChain, ToolName,
    mcp::mcp_digest,
    timeout::{TimeBound, ToolTime},
    tool::{EffectClass, Risk, ToolSpec},
};
use clawnode_tool::schema;
use rmcp::{RoleClient, model::Tool, transport::Transport};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use super::{
    http::HttpConnection,
    options::{McpTransport, PinPolicy},
    phase::{ProgramLife, ServerPhase, Up},
    pins::{self, HeardTools},
    placement::hosts_it,
    restarts::Restarts,
    secrets::Secrets,
    session::{McpSession, TOOLS, bounded},
    state::Inner,
    stdio::ServerProcess,
    wire::{ConnectionEnd, StdioConnection},
};

/// How often a server that says nothing is asked for its tools again (1 min): how long it may
/// describe a tool otherwise unseen.
const RELIST: Duration = Duration::from_mins(1);
/// How soon after a list the next one may be requested, however often the server reports a change.
const RELIST_PAUSE: Duration = Duration::from_secs(1);
/// How long calls may take to end when the server moves to another node (30 s).
const MOVE_GRACE: Duration = Duration::from_secs(30);
/// How long calls are still served after the server moved (2 s): what this node takes until it no
/// longer announces the server.
const LEAVE: Duration = Duration::from_secs(2);
/// Bytes of the descriptions and schemas of one server's tools (256 KiB): they are one value of the
/// bucket, twice.
const LISTING_BYTES: usize = 256 << 10;

/// Why a server is not run on.
enum ServerEnd {
    /// Another node runs it from now on.
    Moved,
    /// This node ends.
    Stopped,
    /// An operator stopped a call that it ran.
    Cut,
    /// It is started again.
    Broken(String),
}

// === impl Inner ===

impl Inner {
    /// Runs it whenever it is this node's to run, until it is stopped.
    pub(super) async fn run(&self) {
        let server = &self.options.name;
        let mut restarts = Restarts::new(&self.options);
        loop {
            if self.context.shared && !self.is_down() {
                self.enter(ServerPhase::StandsBy);
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.turn(true) => {}
            }
            let began = Instant::now();
            match Box::pin(self.serve()).await {
                ServerEnd::Moved => {
                    info!(%server, "another node runs an MCP server from now on");
                    self.enter(ServerPhase::StandsBy);
                }
                ServerEnd::Stopped => break,
                ServerEnd::Cut => {
                    warn!(%server, "an MCP server was killed, because a call that it ran is stopped");
                    let mut view = self.context.switch_gate.view();
                    tokio::select! {
                        // The context holds the sender.
                        _ = view.wait_for(|switches| switches.all().is_none()) => {}
                        () = self.stop.cancelled() => break,
                    }
                }
                ServerEnd::Broken(why) => {
                    let wait = restarts.wait(&why, began.elapsed());
                    self.enter(ServerPhase::Down(why));
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.stop.cancelled() => break,
                    }
                }
            }
        }
        self.enter(ServerPhase::Stopped);
    }

    /// Waits until it is this node's turn to run it, or no longer.
    async fn turn(&self, mine: bool) {
        if !self.context.shared {
            if !mine {
                std::future::pending::<()>().await;
            }
            return;
        }
        let (server, me) = (&self.options.name, self.context.process);
        let mut peers = self.context.peers.clone();
        let turned = peers.wait_for(|members| hosts_it(server, me, members) == mine).await.is_ok();
        if !turned {
            // Membership has ended: what it said last stays true.
            std::future::pending::<()>().await;
        }
    }

    /// Starts it and keeps it up, until it ends or is no longer wanted here.
    async fn serve(&self) -> ServerEnd {
        // Until it is up again, why it went down is what people ask for.
        if !self.is_down() {
            self.enter(ServerPhase::Starts);
        }
        let secrets = Arc::new(Secrets::of(&self.options.transport));
        let ending = Arc::new(ConnectionEnd::new(Arc::clone(&secrets)));
        let relist = Arc::new(Notify::new());
        match &self.options.transport {
            McpTransport::Stdio(stdio) => {
                match ServerProcess::start(&self.options.name, stdio, secrets) {
                    Ok((process, (read, write))) => {
                        let wire = StdioConnection::new(
                            read,
                            write,
                            Arc::clone(&relist),
                            Arc::clone(&ending),
                        );
                        self.serve_on(wire, ending, &relist, Some(process)).await
                    }
                    Err(error) => {
                        ServerEnd::Broken(ending.shown(&format!("it cannot be started: {error}")))
                    }
                }
            }
            McpTransport::Http(http) => {
                let service = HttpConnection::new(http, Arc::clone(&relist), Arc::clone(&ending));
                let service = tokio::select! {
                    service = service => service,
                    () = self.stop.cancelled() => return ServerEnd::Stopped,
                };
                match service {
                    Ok(service) => self.serve_on(service, ending, &relist, None).await,
                    Err(why) => ServerEnd::Broken(why),
                }
            }
        }
    }

    async fn serve_on<T>(
        &self,
        transport: T,
        ending: Arc<ConnectionEnd>,
        relist: &Notify,
        process: Option<ServerProcess>,
    ) -> ServerEnd
    where
        T: Transport<RoleClient> + 'static,
    {
        let greeting = McpSession::greet(transport, ending, self.options.start_timeout);
        let greeted = tokio::select! {
            greeted = greeting => greeted,
            () = self.stop.cancelled() => {
                drop(stop(process).await);
                return ServerEnd::Stopped;
            }
        };
        let session = match greeted {
            Ok(session) => session,
            Err(error) => {
                let said = stop(process).await;
                let said = if said.is_empty() { said } else { format!("; it said: {said}") };
                return ServerEnd::Broken(format!("{}{said}", ErrorChain(&error)));
            }
        };
        let life = ProgramLife::default();
        let mut end = tokio::select! {
            end = Box::pin(self.keep_up(&session, relist, &life)) => end,
            () = life.cut.cancelled() => ServerEnd::Cut,
            // Whatever is waited for meanwhile: the server, or a store that does not answer.
            () = self.stop.cancelled() => ServerEnd::Stopped,
        };
        let is_cut = tokio::select! {
            biased;
            () = life.cut.cancelled() => true,
            () = self.leave(&end) => false,
            () = self.stop.cancelled() => {
                end = ServerEnd::Stopped;
                false
            }
        };
        match process {
            Some(process) if is_cut => {
                self.enter(ServerPhase::Down("an operator stopped a call that it ran".to_owned()));
                process.kill().await;
                end = ServerEnd::Cut;
            }
            process => {
                session.close().await;
                // What it said may be content of a conversation by now.
                drop(stop(process).await);
            }
        }
        life.over.cancel();
        end
    }

    /// Calls that run may end, if the server is only wanted elsewhere.
    async fn leave(&self, end: &ServerEnd) {
        match end {
            ServerEnd::Moved => {
                let up = self.phase.peek(|phase| match phase {
                    ServerPhase::Up(up) => Some(up.clone()),
                    _ => None,
                });
                if let Some(up) = up {
                    self.enter(ServerPhase::Leaves(up));
                    sleep(LEAVE).await;
                }
                let mut calls = self.calls.subscribe();
                let ended = calls.wait_for(|calls| *calls == 0);
                if tokio::time::timeout(MOVE_GRACE, ended).await.is_err() {
                    warn!(server = %self.options.name, "calls are cut off: the server has moved");
                }
            }
            ServerEnd::Broken(why) => self.enter(ServerPhase::Down(why.clone())),
            ServerEnd::Stopped | ServerEnd::Cut => self.enter(ServerPhase::Starts),
        }
    }

    async fn keep_up(
        &self,
        session: &McpSession,
        relist: &Notify,
        life: &ProgramLife,
    ) -> ServerEnd {
        let server = &self.options.name;
        let calls = session.calls();
        let mut pins = self.context.pins.clone();
        let mut known: Option<Arc<BTreeMap<String, ToolSpec>>> = None;
        let mut due = true;
        loop {
            if due {
                let listed = tokio::select! {
                    listed = calls.list(self.options.start_timeout) => listed,
                    () = self.stop.cancelled() => return ServerEnd::Stopped,
                };
                let tools = match listed {
                    Ok(tools) => tools,
                    Err(error) => return ServerEnd::Broken(ErrorChain(&error).to_string()),
                };
                let listed = Arc::new(self.specs(&tools, known.is_none()));
                if !self.note(&listed).await {
                    return ServerEnd::Broken("cannot store the list of its tools".to_owned());
                }
                if known.as_ref() != Some(&listed) {
                    info!(%server, tools = listed.len(), "an MCP server is up");
                    known = Some(Arc::clone(&listed));
                    let (calls, life) = (calls.clone(), life.clone());
                    self.enter(ServerPhase::Up(Up { calls, listed, life }));
                }
            }
            due = false;
            tokio::select! {
                why = session.over() => return ServerEnd::Broken(why),
                () = self.stop.cancelled() => return ServerEnd::Stopped,
                () = self.turn(false) => return ServerEnd::Moved,
                () = sleep(RELIST) => due = true,
                () = relist.notified() => {
                    due = true;
                    sleep(RELIST_PAUSE).await;
                }
                () = self.suspected.notified() => if !calls.answers().await {
                    return ServerEnd::Broken("it does not answer".to_owned());
                },
                changed = pins.changed() => {
                    self.changed.notify_one();
                    if changed.is_err() {
                        return ServerEnd::Stopped;
                    }
                }
            }
        }
    }

    /// Writes down what it offers; whether that was possible.
    async fn note(&self, listed: &BTreeMap<String, ToolSpec>) -> bool {
        let (server, context) = (&self.options.name, &self.context);
        let (policy, node, at): (PinPolicy, _, _) =
            (self.options.pin, &context.node, context.clock.now());
        let heard = HeardTools { server, listed, policy, node, at };
        match pins::heard(&*context.bucket, heard).await {
            Ok(_) => true,
            Err(error) => {
                let error = ErrorChain(&error);
                warn!(%server, %error, "cannot store the list of an MCP server's tools");
                false
            }
        }
    }

    /// Its tools, as agents may be given them. Tools that do not fit are left out.
    fn specs(&self, tools: &BTreeMap<String, Tool>, tell: bool) -> BTreeMap<String, ToolSpec> {
        let server = &self.options.name;
        let (mut specs, mut bytes) = (BTreeMap::new(), 0);
        for (name, tool) in tools {
            let made = self.spec(name, tool).and_then(|spec| {
                bytes += spec.description.len() + spec.input_schema.len();
                match (specs.len() < TOOLS, bytes <= LISTING_BYTES) {
                    (true, true) => Ok(spec),
                    (false, _) => Err(format!("it has more than {TOOLS} tools")),
                    (_, false) => Err(format!("its tools take more than {LISTING_BYTES} bytes")),
                }
            });
            match made {
                Ok(spec) => drop(specs.insert(name.clone(), spec)),
                Err(why) if tell => {
                    warn!(%server, tool = bounded(name), why, "a tool of an MCP server is left out");
                }
                Err(why) => debug!(%server, tool = bounded(name), why, "a tool is left out"),
            }
        }
        specs
    }

    fn spec(&self, name: &str, tool: &Tool) -> Result<ToolSpec, String> {
        let server = &self.options.name;
        let known = self.options.tools.get(name).cloned().unwrap_or_default();
        let timeout = known.timeout.unwrap_or(self.options.call_timeout);
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let mut spec = ToolSpec {
            name: ToolName::of_mcp(server, name).map_err(|error| error.to_string())?,
            description: description.to_owned(),
            input_schema: tool.schema_as_json_value().to_string(),
            class: known.class.unwrap_or(EffectClass::Once),
            risk: known.risk.unwrap_or(Risk::Write),
            capability: Some(Capability::of_mcp(server)),
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            pin: None,
            time: None,
        };
        let set_in = match known.timeout {
            Some(_) => format!("mcp_servers.{server}.tools.{name}.timeout"),
            None => format!("mcp_servers.{server}.call_timeout"),
        };
        spec.time = Some(ToolTime {
            command: TimeBound { ms: spec.timeout_ms, set_in },
            ..ToolTime::of_tool(name, spec.timeout_ms)
        });
        // What a person allows is a call of the tool as it was described then.
        let described = mcp_digest(&spec);
        spec.pin = Some(match &known.probe {
            Some(probe) => Digest::of(format!("{described} probe {probe}").as_bytes()),
            None => described,
        });
        schema::check(&spec).map_err(|error| ErrorChain(&error).to_string())?;
        Ok(spec)
    }
}

/// Ends the program, if it is one; its last words.
async fn stop(process: Option<ServerProcess>) -> String {
    match process {
        Some(process) => process.stop().await,
        None => String::new(),
    }
}

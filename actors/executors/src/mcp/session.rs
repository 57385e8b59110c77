//! One connection to an MCP server: from its greeting to its end, and the calls on it.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use clawnode_proto::ErrorChain;
use rmcp::{
    ClientHandler, Peer, RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
        ClientRequest, Implementation, JsonObject, ListToolsRequest, PaginatedRequestParams,
        PingRequest, RequestMetaObject, ServerResult, Tool,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, PeerRequestOptions, RunningService,
        ServiceError, serve_client_with_lifecycle,
    },
    transport::Transport,
};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::wire::ConnectionEnd;

/// Tools of one server (128, as many as one agent may have); what is beyond is left out.
pub(super) const TOOLS: usize = 128;
/// Pages of a list of tools: a server that never ends it is not asked for ever.
const PAGES: usize = 32;
/// Tools that a server may list at most, those included that are left out.
const LISTED: usize = 1_000;
/// How long a server may take to show that it lives (3 s).
const PONG: Duration = Duration::from_secs(3);
/// How long saying that a call is cancelled may take (1 s).
const CANCEL: Duration = Duration::from_secs(1);
/// Where a call's idempotency key is.
const KEY: &str = "clawnode/idempotencyKey";

/// Why a server cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// It did not answer in time.
    #[error("it did not {what} within {} s", after.as_secs_f64())]
    Late {
        /// What it should have done.
        what: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// It ended, or its connection was ended.
    #[error("{0}")]
    Ended(String),
    /// It answered with an error, or with something else than was asked for.
    #[error("{0}")]
    Refused(String),
}

/// How a call ended.
pub(super) enum McpCallEnd {
    /// The tool has answered.
    Answered(CallToolResult),
    /// The server refused the call.
    Refused(String),
    /// The server is gone, and with it the answer.
    Gone(String),
    /// It was cancelled, and the server was notified.
    Cancelled,
}

/// A connection that has been greeted.
#[derive(Debug)]
pub(super) struct McpSession {
    service: RunningService<RoleClient, Quiet>,
    ending: Arc<ConnectionEnd>,
}

/// A client that serves nothing: what a server asks for is refused before it comes here.
#[derive(Debug)]
struct Quiet;

impl ClientHandler for Quiet {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("clawnode", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }
}

// === impl McpSession ===

impl McpSession {
    /// Greets the server at the other end.
    pub(super) async fn greet<T>(
        transport: T,
        ending: Arc<ConnectionEnd>,
        within: Duration,
    ) -> Result<Self, SessionError>
    where
        T: Transport<RoleClient> + 'static,
    {
        let greeting =
            serve_client_with_lifecycle(Quiet, transport, ClientLifecycleMode::Initialize);
        match timeout(within, Box::pin(greeting)).await {
            Ok(Ok(service)) => Ok(Self { service, ending }),
            Ok(Err(ClientInitializeError::ConnectionClosed(_))) => {
                Err(SessionError::Ended(ending.why()))
            }
            Ok(Err(ClientInitializeError::TransportError { .. })) if ending.has_come() => {
                Err(SessionError::Ended(ending.why()))
            }
            Ok(Err(error)) => {
                Err(SessionError::Refused(ending.shown(&ErrorChain(&error).to_string())))
            }
            Err(_elapsed) => Err(SessionError::Late { what: "answer `initialize`", after: within }),
        }
    }

    /// What calls are made on.
    pub(super) fn calls(&self) -> McpCaller {
        McpCaller { peer: self.service.peer().clone(), ending: Arc::clone(&self.ending) }
    }

    /// Waits for its end, and says why it came.
    pub(super) async fn over(&self) -> String {
        self.ending.over().await;
        self.ending.why()
    }

    /// Ends it.
    pub(super) async fn close(mut self) {
        if let Err(failure) = self.service.close_with_timeout(PONG).await {
            tracing::debug!(%failure, "a connection to an MCP server failed while it was closed");
        }
    }
}

/// Makes calls on a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct McpCaller {
    peer: Peer<RoleClient>,
    ending: Arc<ConnectionEnd>,
}

// === impl McpCaller ===

impl McpCaller {
    /// All its tools, by its own names for them.
    pub(super) async fn list(
        &self,
        within: Duration,
    ) -> Result<BTreeMap<String, Tool>, SessionError> {
        match timeout(within, self.pages()).await {
            Ok(tools) => tools,
            Err(_elapsed) => Err(SessionError::Late { what: "list its tools", after: within }),
        }
    }

    async fn pages(&self) -> Result<BTreeMap<String, Tool>, SessionError> {
        let mut tools = BTreeMap::new();
        let mut cursor = None;
        for _ in 0..PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = ListToolsRequest {
                method: rmcp::model::ListToolsRequestMethod,
                params: Some(params),
                extensions: rmcp::model::Extensions::default(),
            };
            // Not by the client's own method: that keeps answers for as long as the server says.
            let asked = self.ask(ClientRequest::ListToolsRequest(request)).await;
            let ServerResult::ListToolsResult(page) = asked.map_err(|error| self.failed(&error))?
            else {
                let what = "it answered `tools/list` with a different kind of result".to_owned();
                return Err(SessionError::Refused(what));
            };
            for tool in page.tools {
                let name = tool.name.to_string();
                if tools.insert(name.clone(), tool).is_some() {
                    let name = bounded(&name);
                    return Err(SessionError::Refused(format!("it has two tools `{name}`")));
                }
            }
            if tools.len() > LISTED {
                return Err(SessionError::Refused(format!("it has more than {LISTED} tools")));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(SessionError::Refused(format!("its list of tools has more than {PAGES} pages")))
    }

    /// Makes one call to its end, or until it is cancelled.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        key: &str,
        cancelled: &CancellationToken,
    ) -> McpCallEnd {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = CallToolRequest::new(params);
        let meta = JsonObject::from_iter([(KEY.to_owned(), Value::from(key))]);
        let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject::from(meta));
        let request = ClientRequest::CallToolRequest(request);
        let mut handle = match self.peer.send_cancellable_request(request, options).await {
            Ok(handle) => handle,
            Err(error) => return self.ended(error),
        };
        let answer = tokio::select! {
            biased;
            answer = &mut handle.rx => answer,
            () = cancelled.cancelled() => {
                let told = handle.cancel(Some("cancelled by the agent".to_owned()));
                if !matches!(timeout(CANCEL, told).await, Ok(Ok(()))) {
                    tracing::debug!("cannot tell an MCP server that a call is cancelled");
                }
                return McpCallEnd::Cancelled;
            }
        };
        match answer {
            Ok(Ok(ServerResult::CallToolResult(result))) => McpCallEnd::Answered(result),
            Ok(Ok(_)) => McpCallEnd::Refused("its answer is not a tool result".to_owned()),
            Ok(Err(error)) => self.ended(error),
            Err(_dropped) => McpCallEnd::Gone(self.ending.why()),
        }
    }

    /// Whether the server answers at all.
    pub(super) async fn answers(&self) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        matches!(timeout(PONG, self.ask(ping)).await, Ok(Ok(_) | Err(ServiceError::McpError(_))))
    }

    async fn ask(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        self.peer.send_request(request).await
    }

    fn ended(&self, error: ServiceError) -> McpCallEnd {
        match error {
            ServiceError::McpError(error) => {
                let message: Cow<'static, str> = error.message;
                McpCallEnd::Refused(format!(
                    "error {}: {}",
                    error.code.0,
                    self.ending.shown(&message)
                ))
            }
            ServiceError::Cancelled { .. } => McpCallEnd::Cancelled,
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                McpCallEnd::Gone(self.ending.why())
            }
            other => McpCallEnd::Refused(self.ending.shown(&ErrorChain(&other).to_string())),
        }
    }

    fn failed(&self, error: &ServiceError) -> SessionError {
        match error {
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                SessionError::Ended(self.ending.why())
            }
            other => SessionError::Refused(self.ending.shown(&ErrorChain(other).to_string())),
        }
    }
}

/// What a server says, as it may stand in a line.
pub(super) fn bounded(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(500).collect()
}

//! Streams: one WebSocket on `/ws`, with JSON-RPC requests out and frames in.

use std::time::Duration;

use clawnode_proto::{
    CallId, Digest, ErrorBody, FrameKey, Timestamp, api::Method, limits, llm::Usage,
    session::TurnOutcome, tool::Risk, view::AcceptedView,
};
use futures_util::{SinkExt, StreamExt};
use reqwest::{StatusCode, Upgraded, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    ClientError,
    rpc::{Client, RpcError},
};

/// How long the upgrade may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a frame may take to be written; more means that the node has stopped reading.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the other side may be silent before it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(15);

/// An open WebSocket.
#[derive(Debug)]
pub struct Socket {
    client: Client,
    stream: WebSocketStream<Upgraded>,
    last_id: u64,
}

/// What came in.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A frame of the stream that request `id` began.
    Frame {
        /// Of which request.
        id: u64,
        /// What it says.
        event: Event,
        /// Where to resume after it, if the gateway says.
        cursor: Option<FrameKey>,
        /// Its data as it came, for output as JSON.
        data: Value,
    },
    /// The answer to request `id`.
    Answer {
        /// Of which request.
        id: u64,
        /// What it says.
        result: Result<Value, ErrorBody>,
    },
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The message is stored.
    Accepted(AcceptedView),
    /// More of the reply.
    Text(String),
    /// What the call used.
    Usage(Usage),
    /// Something to know while the turn goes on.
    Notice(String),
    /// The model asks for a tool call.
    ToolUse {
        /// The call, if the gateway says.
        id: Option<CallId>,
        /// The tool.
        name: String,
        /// Its arguments.
        arguments: String,
    },
    /// A tool call waits for a person.
    ApprovalRequest(ApprovalRequest),
    /// A tool call has ended.
    ToolResult {
        /// The call, if the gateway says.
        id: Option<CallId>,
        /// The tool.
        name: String,
        /// What came of it.
        content: String,
        /// How it failed, if it did.
        failure: Option<String>,
    },
    /// The turn failed, or the request did; `done` follows.
    Error(ErrorBody),
    /// Forget the text so far; this is what there is instead.
    Reset(String),
    /// Frames were left out, because we read too slowly.
    Lagged,
    /// The end of the stream; absent outcome: it ended without a turn having ended.
    Done(Option<TurnOutcome>),
    /// From a newer gateway.
    Unknown(String),
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ApprovalRequest {
    /// The call.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// Its arguments; cut beyond a length.
    pub arguments: String,
    /// The digest of the action: what is approved.
    pub action: Digest,
    /// How much harm it can do.
    pub risk: Risk,
    /// Why a person is asked, if a rule says so.
    #[serde(default)]
    pub reason: Option<String>,
    /// Until when.
    pub expires: Timestamp,
    /// The arguments are cut.
    #[serde(default)]
    pub truncated: bool,
    /// Characters of the arguments in all; 0 from gateways that do not say.
    #[serde(default)]
    pub chars: u64,
}

/// Either kind of message, as it comes.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    cursor: Option<FrameKey>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<RpcError>,
}

impl Socket {
    /// Opens a WebSocket to `client`'s node.
    pub async fn open(client: &Client) -> Result<Self, ClientError> {
        let late = || ClientError::Unreachable {
            url: client.url().to_owned(),
            detail: format!("the WebSocket did not open within {} s", OPEN_TIMEOUT.as_secs()),
        };
        let stream = timeout(OPEN_TIMEOUT, upgrade(client)).await.map_err(|_elapsed| late())??;
        Ok(Self { client: client.clone(), stream, last_id: 0 })
    }

    /// Sends a request; its frames and answer come with the id that is returned.
    pub async fn send(&mut self, method: Method, params: Value) -> Result<u64, ClientError> {
        self.last_id += 1;
        let id = self.last_id;
        let text = json!({ "id": id, "method": method.as_str(), "params": params }).to_string();
        self.write(Message::text(text)).await?;
        Ok(id)
    }

    /// The next message. Safe to drop in the middle.
    pub async fn next(&mut self) -> Result<Incoming, ClientError> {
        let mut asked = false;
        loop {
            match timeout(SILENCE, self.stream.next()).await {
                Ok(Some(Ok(Message::Text(text)))) => return self.read(text.as_str()),
                Ok(Some(Ok(Message::Close(_))) | None) => {
                    return Err(self.lost("the connection was closed"));
                }
                Ok(Some(Ok(_))) => asked = false,
                Ok(Some(Err(error))) => return Err(self.lost(&error.to_string())),
                Err(_elapsed) if asked => return Err(self.lost("the node sends nothing")),
                Err(_elapsed) => {
                    asked = true;
                    self.write(Message::Ping(Vec::new().into())).await?;
                }
            }
        }
    }

    /// Says goodbye; whatever goes wrong now does not matter.
    pub async fn close(mut self) {
        if timeout(WRITE_TIMEOUT, self.stream.close(None)).await.is_err() {
            tracing::debug!("the node did not confirm the close of the WebSocket");
        }
    }

    async fn write(&mut self, message: Message) -> Result<(), ClientError> {
        match timeout(WRITE_TIMEOUT, self.stream.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.lost(&error.to_string())),
            Err(_elapsed) => Err(self.lost("the node accepts no data")),
        }
    }

    fn read(&self, text: &str) -> Result<Incoming, ClientError> {
        let malformed = |error: serde_json::Error| self.client.protocol(error.to_string());
        let raw: Raw = serde_json::from_str(text).map_err(malformed)?;
        let id = raw.id.as_u64().unwrap_or(0);
        if let Some(name) = raw.event {
            let event = Event::parse(&name, &raw.data).map_err(malformed)?;
            return Ok(Incoming::Frame { id, event, cursor: raw.cursor, data: raw.data });
        }
        match (raw.error, raw.result) {
            (Some(error), _) => Ok(Incoming::Answer { id, result: Err(error.into_body()) }),
            (None, Some(result)) => Ok(Incoming::Answer { id, result: Ok(result) }),
            (None, None) => Err(self.client.protocol("the message is not a frame or an answer")),
        }
    }

    fn lost(&self, detail: &str) -> ClientError {
        ClientError::Unreachable { url: self.client.url().to_owned(), detail: detail.to_owned() }
    }
}

impl Event {
    /// Its name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::Accepted(_) => "accepted",
            Self::Text(_) => "text",
            Self::Usage(_) => "usage",
            Self::Notice(_) => "notice",
            Self::ToolUse { .. } => "tool_use",
            Self::ApprovalRequest(_) => "approval_request",
            Self::ToolResult { .. } => "tool_result",
            Self::Error(_) => "error",
            Self::Reset(_) => "reset",
            Self::Lagged => "lagged",
            Self::Done(_) => "done",
            Self::Unknown(name) => name,
        }
    }

    /// Reads a frame's data by its name.
    fn parse(name: &str, data: &Value) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Done {
            #[serde(default)]
            outcome: Option<TurnOutcome>,
        }
        #[derive(Deserialize)]
        struct Notice {
            message: String,
        }
        #[derive(Deserialize)]
        struct ToolUse {
            #[serde(default)]
            id: Option<CallId>,
            name: String,
            arguments: String,
        }
        #[derive(Deserialize)]
        struct ToolResult {
            #[serde(default)]
            id: Option<CallId>,
            name: String,
            content: String,
            #[serde(default)]
            failure: Option<String>,
        }
        #[derive(Deserialize)]
        struct Reset {
            #[serde(default)]
            text: String,
        }
        // `done` without a turn, and `reset` to nothing, may have no data at all.
        let or_empty = || if data.is_null() { json!({}) } else { data.clone() };
        Ok(match name {
            "accepted" => Self::Accepted(AcceptedView::deserialize(data)?),
            "text" => Self::Text(String::deserialize(data)?),
            "usage" => Self::Usage(Usage::deserialize(data)?),
            "notice" => Self::Notice(Notice::deserialize(data)?.message),
            "tool_use" => {
                let ToolUse { id, name, arguments } = ToolUse::deserialize(data)?;
                Self::ToolUse { id, name, arguments }
            }
            "approval_request" => Self::ApprovalRequest(ApprovalRequest::deserialize(data)?),
            "tool_result" => {
                let ToolResult { id, name, content, failure } = ToolResult::deserialize(data)?;
                Self::ToolResult { id, name, content, failure }
            }
            "error" => Self::Error(ErrorBody::deserialize(data)?),
            "reset" => Self::Reset(Reset::deserialize(or_empty())?.text),
            "lagged" => Self::Lagged,
            "done" => Self::Done(Done::deserialize(or_empty())?.outcome),
            other => Self::Unknown(other.to_owned()),
        })
    }
}

/// The upgrade goes through the same HTTP client as calls: the same TLS, proxy and certificates.
async fn upgrade(client: &Client) -> Result<WebSocketStream<Upgraded>, ClientError> {
    let key = generate_key();
    let request = client
        .upgrade
        .get(format!("{}/ws", client.url))
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, &key);
    let response =
        client.authorize(request).send().await.map_err(|error| client.unreachable(&error))?;
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let body = response.bytes().await.map_err(|error| client.unreachable(&error))?;
        return Err(client.refused(status, &body));
    }
    let accept = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
    if accept.is_none_or(|accept| accept.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
    {
        return Err(client.protocol("the WebSocket answer does not match the request"));
    }
    let upgraded = response.upgrade().await.map_err(|error| client.unreachable(&error))?;
    let config = WebSocketConfig::default()
        .max_frame_size(Some(limits::WS_FRAME_BYTES))
        .max_message_size(Some(limits::WS_FRAME_BYTES));
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
}

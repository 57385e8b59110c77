//! Streams: one WebSocket on `/ws`, with JSON-RPC requests out and frames in.

use std::time::Duration;

use clawnode_proto::{ErrorBody, api::Method, limits, turn::TurnEvent};
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
    rpc::{NodeClient, RpcError},
};

/// How long the upgrade may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a frame may take to be written; more means that the node has stopped reading.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the other side may be silent before it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(15);

/// An open WebSocket.
#[derive(Debug)]
pub struct ClientSocket {
    client: NodeClient,
    stream: WebSocketStream<Upgraded>,
    last_id: u64,
}

/// What came in.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A frame of the stream that request `id` began.
    Frame {
        id: u64,
        event: TurnEvent,
        /// Its data as it came, for output as JSON.
        data: Value,
    },
    /// The answer to request `id`.
    Answer { id: u64, result: Result<Value, ErrorBody> },
}

/// An answer, as it comes.
#[derive(Deserialize)]
struct SocketAnswer {
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<RpcError>,
}

impl ClientSocket {
    /// Opens a WebSocket to `client`'s node.
    pub async fn open(client: &NodeClient) -> Result<Self, ClientError> {
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
        match Incoming::read(text) {
            Ok(Some(incoming)) => Ok(incoming),
            Ok(None) => Err(self.client.protocol("the message is not a frame or an answer")),
            Err(error) => Err(self.client.protocol(error.to_string())),
        }
    }

    fn lost(&self, detail: &str) -> ClientError {
        ClientError::Unreachable { url: self.client.url().to_owned(), detail: detail.to_owned() }
    }
}

// === impl Incoming ===

impl Incoming {
    /// Reads a message; `None` if it is neither a frame nor an answer.
    fn read(text: &str) -> Result<Option<Self>, serde_json::Error> {
        let mut message: Value = serde_json::from_str(text)?;
        let id = message["id"].as_u64().unwrap_or(0);
        if message["event"].is_string() {
            let event = TurnEvent::deserialize(&message)?;
            return Ok(Some(Self::Frame { id, event, data: message["data"].take() }));
        }
        let SocketAnswer { result, error } = SocketAnswer::deserialize(message)?;
        let result = match (error, result) {
            (Some(error), _) => Err(error.into_body()),
            (None, Some(result)) => Ok(result),
            (None, None) => return Ok(None),
        };
        Ok(Some(Self::Answer { id, result }))
    }
}

/// The upgrade goes through the same HTTP client as calls: the same TLS, proxy and certificates.
async fn upgrade(client: &NodeClient) -> Result<WebSocketStream<Upgraded>, ClientError> {
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

#[cfg(test)]
mod tests {
    use clawnode_proto::turn::TurnBody;

    use super::*;

    #[test]
    fn a_frame_is_its_event_and_a_newer_one_is_kept() {
        let text = r#"{"id":7,"event":"text","data":"hé","added":1}"#;
        let event = TurnBody::Text("hé".to_owned()).into();
        let frame = Incoming::Frame { id: 7, event, data: json!("hé") };
        assert_eq!(Incoming::read(text).unwrap(), Some(frame));
        let text = r#"{"id":7,"event":"later","data":{"text":"hm"}}"#;
        let data = json!({ "text": "hm" });
        let event = TurnBody::Unknown { name: "later".to_owned(), data: data.clone() }.into();
        assert_eq!(Incoming::read(text).unwrap(), Some(Incoming::Frame { id: 7, event, data }));
        Incoming::read(r#"{"id":7,"event":"usage","data":"none"}"#).unwrap_err();
    }

    #[test]
    fn an_answer_says_what_came_of_a_request() {
        let answered = Incoming::Answer { id: 1, result: Ok(json!("pong")) };
        assert_eq!(Incoming::read(r#"{"id":1,"result":"pong"}"#).unwrap(), Some(answered));
        let refused = r#"{"id":"x","error":{"code":-32601,"message":"no","data":{"code":"unknown_method","message":"no"}}}"#;
        let Some(Incoming::Answer { id: 0, result: Err(error) }) = Incoming::read(refused).unwrap()
        else {
            panic!("an answer without a number is for no request");
        };
        assert_eq!(error.message, "no");
        assert_eq!(Incoming::read(r#"{"id":1}"#).unwrap(), None);
    }
}

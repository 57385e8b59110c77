//! A gateway on a free port, and clients for it.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::clock::Clock;
use clawnode_gateway::{GatewayOptions, Serving, serve};
use clawnode_proto::Timestamp;
use futures_util::{SinkExt as _, StreamExt as _};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{self, Message, client::IntoClientRequest as _, http::HeaderValue},
};
use tokio_util::sync::CancellationToken;

use super::node::Node;

/// Long enough that reaching it means a bug, not a slow machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const TOKEN: &str = "s3cret-token";

/// A clock that does not move.
#[derive(Debug)]
pub(super) struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_123)
    }
}

/// A gateway that serves, and the node behind it.
pub(super) struct Gateway {
    pub(super) node: Arc<Node>,
    pub(super) serving: Serving,
    pub(super) shutdown: CancellationToken,
}

impl Gateway {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(super) async fn start_with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        let mut options = GatewayOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: Some(SecretString::from(TOKEN)),
            clock: Arc::new(Noon),
            ..GatewayOptions::default()
        };
        change(&mut options);
        let (node, shutdown) = (Arc::new(Node::default()), CancellationToken::new());
        let serving = serve(options, Arc::clone(&node) as _, shutdown.clone()).await.unwrap();
        Self { node, serving, shutdown }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.serving.url)
    }

    pub(super) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        http_client().get(self.url(path))
    }

    pub(super) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        http_client().post(self.url(path)).bearer_auth(TOKEN)
    }

    pub(super) async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({"id": 1, "method": method, "params": params});
        self.post("/v1/rpc").json(&body).send().await.unwrap().json().await.unwrap()
    }

    /// A WebSocket that showed the token in its upgrade.
    pub(super) async fn connect(&self) -> Client {
        self.connect_with(&[("authorization", &format!("Bearer {TOKEN}"))]).await.unwrap()
    }

    pub(super) async fn connect_with(
        &self,
        headers: &[(&str, &str)],
    ) -> Result<Client, tungstenite::Error> {
        let url = format!("ws://{}/ws", self.serving.addr);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            let name = tungstenite::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        let (socket, response) = tokio_tungstenite::connect_async(request).await?;
        let protocol = response.headers().get("sec-websocket-protocol").cloned();
        Ok(Client { socket, protocol })
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        patiently("the gateway ends", self.serving.ended()).await;
    }
}

/// One WebSocket, from its client's side.
pub(super) struct Client {
    pub(super) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(super) protocol: Option<HeaderValue>,
}

impl Client {
    pub(super) async fn say(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    pub(super) async fn call(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let request = json!({"id": id.into(), "method": method, "params": params});
        self.say(request.to_string()).await;
    }

    /// Sends a message as `peer` of the default agent.
    pub(super) async fn send(&mut self, id: impl Into<Value>, peer: &str, content: &str) {
        self.call(id, "chat.send", message(peer, content)).await;
    }

    pub(super) async fn message(&mut self) -> Message {
        loop {
            let next = patiently("a message comes", self.socket.next()).await;
            match next.expect("the socket is open").expect("the socket is whole") {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    pub(super) async fn frame(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("a frame was expected, not {other:?}"),
        }
    }

    /// All frames up to and with `done`.
    pub(super) async fn stream(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            frames.push(self.frame().await);
            if frames.last().unwrap()["event"] == "done" {
                return frames;
            }
        }
    }

    /// The code with which the gateway closes.
    pub(super) async fn close_code(&mut self) -> u16 {
        match self.message().await {
            Message::Close(Some(close)) => close.code.into(),
            other => panic!("a goodbye was expected, not {other:?}"),
        }
    }
}

pub(super) fn message(peer: &str, content: &str) -> Value {
    json!({"channel": "test", "account": "bot", "peer": peer, "content": content})
}

/// The events of frames, in order.
pub(super) fn events(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["event"].as_str().unwrap()).collect()
}

/// All text of a stream, as a client shows it: a reset begins it again.
pub(super) fn text(frames: &[Value]) -> String {
    let mut shown = String::new();
    for frame in frames {
        match frame["event"].as_str() {
            Some("text") => shown.push_str(frame["data"].as_str().unwrap()),
            Some("reset") => frame["data"]["text"].as_str().unwrap().clone_into(&mut shown),
            _ => {}
        }
    }
    shown
}

pub(super) async fn patiently<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

pub(super) fn http_client() -> reqwest::Client {
    // The first one wins; which one does not matter.
    rustls::crypto::ring::default_provider().install_default().ok();
    // Else each client reads all certificates of the machine. It speaks to gateways without TLS.
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

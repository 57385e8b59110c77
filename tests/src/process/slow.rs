//! Clients that, for as long as the test likes, read nothing at all: one that follows many turns on
//! one WebSocket, and many of which each follows one.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message as Packet, client::IntoClientRequest},
};

use super::{Client, Message, ProcessError, home::PATIENCE};

/// Bytes that the system may take in for us meanwhile, nearly.
const RECEIVE_BYTES: u32 = 4 << 10;
/// Bytes of one segment to such a socket. The segments of loopback are larger than its window: the
/// system then takes in megabytes before the writer notices, or sends a window five times a second.
const SEGMENT_BYTES: u32 = 1_000;

/// A socket that is not read.
#[derive(Debug)]
pub struct Slow {
    socket: WebSocketStream<TcpStream>,
    turns: usize,
}

/// What it received in the end.
#[derive(Debug, Default)]
pub struct Told {
    /// Each turn's text, in the order of the messages.
    pub texts: Vec<String>,
    /// How often the server said that it reads too slowly.
    pub lags: u32,
}

impl Client {
    /// Sends all of `messages`, and reads nothing.
    pub async fn send_all(&self, messages: &[Message]) -> Result<Slow, ProcessError> {
        let mut socket = self.slow_socket().await?;
        for (id, message) in messages.iter().enumerate() {
            let body = json!({ "id": id, "method": "chat.send", "params": message.params() });
            socket.send(Packet::text(body.to_string())).await.map_err(lost)?;
        }
        Ok(Slow { socket, turns: messages.len() })
    }

    /// Follows a turn; from the word on that it is followed nothing is read.
    pub async fn tap(&self, session: &str, turn: &str) -> Result<Slow, ProcessError> {
        let mut socket = self.slow_socket().await?;
        let params = json!({ "session": session, "turn": turn });
        let body = json!({ "id": 0, "method": "sessions.resume", "params": params });
        socket.send(Packet::text(body.to_string())).await.map_err(lost)?;
        let late = |_elapsed| ProcessError::Late("a tap's `accepted`".to_owned());
        let first = timeout_at(Instant::now() + PATIENCE, socket.next()).await.map_err(late)?;
        match first {
            Some(Ok(Packet::Text(text))) if text.contains("accepted") => {
                Ok(Slow { socket, turns: 1 })
            }
            other => Err(ProcessError::Protocol(format!("{other:?} instead of `accepted`"))),
        }
    }

    async fn slow_socket(&self) -> Result<WebSocketStream<TcpStream>, ProcessError> {
        let bad = |what: &str| ProcessError::Protocol(what.to_owned());
        let authority = self.url().trim_start_matches("http://");
        let addr: SocketAddr = authority.parse().map_err(|_invalid| bad("no address"))?;
        let socket = TcpSocket::new_v4().map_err(ProcessError::io("make a socket"))?;
        socket
            .set_recv_buffer_size(RECEIVE_BYTES)
            .map_err(ProcessError::io("make a socket's buffer small"))?;
        SockRef::from(&socket)
            .set_tcp_mss(SEGMENT_BYTES)
            .map_err(ProcessError::io("make a socket's segments small"))?;
        let stream = socket.connect(addr).await.map_err(ProcessError::io("connect to the node"))?;
        let mut request = format!("ws://{authority}/ws").into_client_request().map_err(lost)?;
        let bearer = format!("Bearer {}", self.token()).parse();
        request.headers_mut().insert("authorization", bearer.map_err(|_invalid| bad("no token"))?);
        let (socket, _) = client_async(request, stream).await.map_err(lost)?;
        Ok(socket)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn lost(error: tungstenite::Error) -> ProcessError {
    ProcessError::Lost(error.to_string())
}

impl Slow {
    /// Reads at last, until all turns have ended.
    pub async fn read_all(&mut self) -> Result<Told, ProcessError> {
        let mut told = Told { texts: vec![String::new(); self.turns], lags: 0 };
        let mut left = self.turns;
        // Pings and lags come for ever from a node that does not get on.
        let deadline = Instant::now() + PATIENCE;
        while left > 0 {
            let packet = timeout_at(deadline, self.socket.next()).await.map_err(|_elapsed| {
                let lags = told.lags;
                ProcessError::Late(format!("the ends of {left} turns, after {lags} lags"))
            })?;
            let text = match packet {
                Some(Ok(Packet::Text(text))) => text,
                Some(Ok(Packet::Close(_))) | None => {
                    return Err(ProcessError::Lost("the connection was closed".to_owned()));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(ProcessError::Lost(error.to_string())),
            };
            let frame: Value = serde_json::from_str(&text)
                .map_err(|error| ProcessError::Protocol(error.to_string()))?;
            let turn = frame["id"].as_u64().and_then(|id| usize::try_from(id).ok());
            let Some(shown) = turn.and_then(|turn| told.texts.get_mut(turn)) else { continue };
            match frame["event"].as_str().unwrap_or_default() {
                "text" => shown.push_str(frame["data"].as_str().unwrap_or_default()),
                "reset" => {
                    frame["data"]["text"].as_str().unwrap_or_default().clone_into(shown);
                }
                "lagged" => told.lags += 1,
                "done" => left -= 1,
                _ => {}
            }
        }
        Ok(told)
    }
}

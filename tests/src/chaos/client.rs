//! A client as a user would have it: one WebSocket, any gateway, and a cursor to resume from.
//!
//! It sends a message under its key until that is accepted, then follows the turn to its end, over
//! as many connections as it takes, and writes down all that it sees. It never sends again what was
//! accepted: the judge would not see the loss.

use std::{sync::Arc, time::Duration};

use clawnode_proto::{ErrorBody, ErrorCode, FrameKey, session::TurnOutcome, view::AcceptedView};
use futures_util::{SinkExt, StreamExt};
use rand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message as Packet, client::IntoClientRequest},
};

use super::{
    transcript::{Seen, Sight, Transcript},
    wait::pass,
};

/// How long a connection may take.
const CONNECTS_IN: Duration = Duration::from_secs(3);
/// How long a turn may be silent before another gateway is asked for it, at first.
const SILENCE: Duration = Duration::from_secs(4);
/// The same at last: it doubles with each try that heard nothing, so that clients that wait for a
/// busy gateway do not keep it busy.
const SILENCE_MOST: Duration = Duration::from_secs(32);
/// The longest wait before the next try.
const BACKOFF: Duration = Duration::from_millis(800);

/// What all clients of a stage know.
#[derive(Debug)]
pub struct Entrance {
    pub gateways: Vec<String>,
    /// What they ask for.
    pub token: String,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    entrance: Arc<Entrance>,
    /// The gateway that is tried next, or used.
    gateway: usize,
    socket: Option<WebSocketStream<MaybeTlsStream<TcpStream>>>,
    connections: u32,
    requests: u64,
    /// How long it hears nothing before it tries elsewhere.
    silence: Duration,
}

/// One frame, or the refusal of a request.
#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    event: String,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    cursor: Option<FrameKey>,
    #[serde(default)]
    error: Option<Value>,
}

/// Why a connection is not used any longer.
enum Broken {
    /// It broke, or nothing was heard for too long.
    Connection(String),
    /// The gateway refuses, and says why.
    Refused(ErrorBody),
}

// === impl Client ===

impl Client {
    /// One that begins at this gateway.
    pub fn new(entrance: Arc<Entrance>, gateway: usize) -> Self {
        Self { entrance, gateway, socket: None, connections: 0, requests: 0, silence: SILENCE }
    }

    /// Sends the message and follows its turn to the end, or until `deadline`; `told` keeps all
    /// that was seen by then.
    pub async fn turn(&mut self, told: &Told<'_>, deadline: Instant) -> bool {
        let mut tries = 0;
        while Instant::now() < deadline {
            match self.attempt(told).await {
                Ok(()) => return true,
                Err(Broken::Refused(body)) => {
                    told.with(|transcript| {
                        transcript.refusals.push(format!("{}: {}", body.code, body.message));
                    });
                    // No other gateway knows better.
                    if body.code == ErrorCode::Quarantined {
                        return false;
                    }
                }
                Err(Broken::Connection(why)) => tracing::debug!(why, "a connection is given up"),
            }
            self.socket = None;
            self.gateway = (self.gateway + 1) % self.entrance.gateways.len().max(1);
            let most = BACKOFF.min(Duration::from_millis(50 << tries.min(6)));
            tries += 1;
            let wait = rand::rng().random_range(Duration::ZERO..most);
            pass(wait).await;
        }
        false
    }

    async fn attempt(&mut self, told: &Told<'_>) -> Result<(), Broken> {
        self.connect().await?;
        self.requests += 1;
        let id = self.requests;
        let (method, params) = told.with(|transcript| transcript.request());
        let request = json!({ "id": id, "method": method, "params": params }).to_string();
        let connection = self.connections;
        let socket = self.socket()?;
        let sent = timeout(CONNECTS_IN, socket.send(Packet::text(request))).await;
        sent.map_err(|_elapsed| lost("a request could not be written"))?.map_err(lost)?;
        loop {
            let frame = self.next(id).await?;
            if let Some(error) = frame.error {
                return Err(refusal(&error["data"]));
            }
            if frame.event == "error" && frame.cursor.is_none() {
                return Err(refusal(&frame.data));
            }
            let sight = sight(&frame).map_err(|why| lost(format!("a frame: {why}")))?;
            let ended = matches!(sight, Sight::Done(_));
            if ended || matches!(sight, Sight::Text(_)) {
                self.silence = SILENCE;
            }
            let seen = Seen { at: Instant::now(), connection, cursor: frame.cursor, sight };
            told.with(|transcript| transcript.see(seen));
            if ended {
                return Ok(());
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Broken> {
        if self.socket.is_some() {
            return Ok(());
        }
        let url = self.entrance.gateways.get(self.gateway).map(String::as_str).unwrap_or_default();
        let url = format!("{}/ws", url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().map_err(lost)?;
        let bearer = format!("Bearer {}", self.entrance.token).parse();
        request.headers_mut().insert("authorization", bearer.map_err(lost)?);
        let connected = timeout(CONNECTS_IN, connect_async(request)).await;
        let (socket, _) =
            connected.map_err(|_elapsed| lost("no connection in time"))?.map_err(lost)?;
        self.socket = Some(socket);
        self.connections += 1;
        Ok(())
    }

    fn socket(&mut self) -> Result<&mut WebSocketStream<MaybeTlsStream<TcpStream>>, Broken> {
        self.socket.as_mut().ok_or_else(|| lost("no connection"))
    }

    /// The next frame of this request. Pings are no news: they come for ever from a gateway that
    /// is cut off from its bus.
    async fn next(&mut self, id: u64) -> Result<Frame, Broken> {
        let deadline = Instant::now() + self.silence;
        let longer = (self.silence * 2).min(SILENCE_MOST);
        let socket = self.socket()?;
        loop {
            let Ok(packet) = timeout_at(deadline, socket.next()).await else {
                self.silence = longer;
                return Err(lost("silence"));
            };
            match packet {
                Some(Ok(Packet::Text(text))) => {
                    let frame: Frame = serde_json::from_str(&text).map_err(lost)?;
                    // Those of an earlier request are over or were given up.
                    if frame.id == id {
                        return Ok(frame);
                    }
                }
                Some(Ok(Packet::Close(_))) | None => return Err(lost("closed")),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(lost(error)),
            }
        }
    }
}

/// A client's notes about the events that it sees.
#[derive(Debug)]
pub struct Told<'a> {
    board: &'a super::load::Board,
    index: usize,
}

impl<'a> Told<'a> {
    pub(super) const fn new(board: &'a super::load::Board, index: usize) -> Self {
        Self { board, index }
    }

    fn with<T: Default>(&self, act: impl FnOnce(&mut Transcript) -> T) -> T {
        self.board.with(self.index, act)
    }
}

fn sight(frame: &Frame) -> Result<Sight, String> {
    let text = || frame.data.as_str().unwrap_or_default().to_owned();
    Ok(match frame.event.as_str() {
        "accepted" => {
            let accepted = AcceptedView::deserialize(&frame.data);
            Sight::Accepted(accepted.map_err(|error| error.to_string())?.turn)
        }
        "text" => Sight::Text(text()),
        "reset" => Sight::Reset(frame.data["text"].as_str().unwrap_or_default().to_owned()),
        "lagged" => Sight::Lagged,
        // Without an outcome the gateway gave the turn up, which continues.
        "done" => match TurnOutcome::deserialize(&frame.data["outcome"]) {
            Ok(outcome) => Sight::Done(outcome),
            Err(_) => return Err("the gateway let go of the turn".to_owned()),
        },
        _ => Sight::Other,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn lost(why: impl ToString) -> Broken {
    Broken::Connection(why.to_string())
}

fn refusal(body: &Value) -> Broken {
    match ErrorBody::deserialize(body) {
        Ok(body) => Broken::Refused(body),
        Err(error) => lost(format!("an error without its body: {error}: {body}")),
    }
}

impl Transcript {
    /// What is asked for next: the message to be taken, or its turn to be followed.
    fn request(&self) -> (&'static str, Value) {
        let Some(turn) = self.turns.first() else {
            let params = json!({
                "channel": "chaos",
                "account": "a",
                "peer": self.peer,
                "content": self.content,
                "idempotency_key": self.key,
            });
            return ("chat.send", params);
        };
        let session = self.session();
        ("sessions.resume", json!({ "session": session, "turn": turn, "cursor": self.cursor() }))
    }

    fn cursor(&self) -> Option<FrameKey> {
        self.seen.iter().rev().find_map(|one| one.cursor)
    }
}

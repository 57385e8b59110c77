//! Clients that send turns as fast as they are answered, over `WebSocket`s.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt, future::try_join_all};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config, tungstenite::Message,
};

use crate::Error;

/// What is sent.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where to: `127.0.0.1:PORT`.
    pub addr: String,
    /// Connections, each with one turn at a time.
    pub concurrency: usize,
    /// Turns of a session before the next session begins.
    pub turns_per_session: usize,
    /// Whether sessions of a connection are conversations of one user. If not, each is of another one.
    pub one_user: bool,
    /// How long, unless `turns` come first.
    pub time: Duration,
    /// How many turns on each connection at most.
    pub turns: usize,
    /// Tells sessions of different runs apart.
    pub run: String,
    /// How the last frame of text must end, so that no part of a reply was left out.
    pub ends_with: String,
}

/// The result of a load.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// From sending to `done`, of each turn.
    pub latencies: Vec<Duration>,
    /// How long all of it took.
    pub took: Duration,
    /// Text frames of all turns.
    pub texts: usize,
}

/// A connection that has one turn at a time.
#[derive(Debug)]
pub struct TurnSocket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Turns so far, which number the requests.
    turns: u64,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    event: &'a str,
    data: Value,
}

/// Sends turns on all connections.
pub async fn run(load: &Load) -> Result<Report, Error> {
    let sockets =
        try_join_all((0..load.concurrency).map(|_| TurnSocket::connect(&load.addr))).await?;
    let began = Instant::now();
    let all = sockets.into_iter().enumerate().map(|(at, socket)| drive(load, at, socket));
    let mut report = Report::default();
    for one in try_join_all(all).await? {
        report.latencies.extend(one.latencies);
        report.texts += one.texts;
    }
    report.took = began.elapsed();
    Ok(report)
}

async fn drive(load: &Load, at: usize, mut socket: TurnSocket) -> Result<Report, Error> {
    let mut report = Report::default();
    let began = Instant::now();
    let mut turn = 0;
    while turn < load.turns && began.elapsed() < load.time {
        let session = turn / load.turns_per_session;
        let conversation = load.one_user.then(|| session.to_string());
        let peer = if load.one_user { at.to_string() } else { format!("{at}-{session}") };
        let params = json!({
            "channel": "bench",
            "account": load.run,
            "peer": peer,
            "conversation": conversation,
            "content": format!("message {turn} of connection {at}: what is new?"),
        });
        let (took, texts) = socket.turn(&params, &load.ends_with).await?;
        report.texts += texts;
        report.latencies.push(took);
        turn += 1;
    }
    socket.close().await?;
    Ok(report)
}

// === impl TurnSocket ===

impl TurnSocket {
    /// Connects to `127.0.0.1:PORT`.
    pub async fn connect(addr: &str) -> Result<Self, Error> {
        let (socket, _) = connect_async_with_config(format!("ws://{addr}/ws"), None, true).await?;
        Ok(Self { socket, turns: 0 })
    }

    /// One turn, by the parameters of `chat.send`: how long it took from sending to `done`, and its frames of text, the
    /// last of which has to end so.
    pub async fn turn(
        &mut self,
        params: &Value,
        ends_with: &str,
    ) -> Result<(Duration, usize), Error> {
        let request = json!({ "id": self.turns, "method": "chat.send", "params": params });
        self.turns += 1;
        let sent = Instant::now();
        self.socket.send(Message::text(request.to_string())).await?;
        let texts = self.answer(ends_with).await?;
        Ok((sent.elapsed(), texts))
    }

    /// Sends the frame that closes the connection.
    pub async fn close(mut self) -> Result<(), Error> {
        Ok(self.socket.close(None).await?)
    }

    /// Reads one turn's frames to its end; a turn that did not complete ends the bench.
    async fn answer(&mut self, ends_with: &str) -> Result<usize, Error> {
        let (mut texts, mut whole) = (0, false);
        loop {
            let message = self.socket.next().await.ok_or("the connection closed in a turn")??;
            let Message::Text(text) = message else { continue };
            let frame: Frame<'_> = serde_json::from_str(&text)?;
            match frame.event {
                "text" => {
                    texts += 1;
                    whole = frame.data.as_str().is_some_and(|data| data.ends_with(ends_with));
                }
                "done" => {
                    let how = frame.data["outcome"]["type"].as_str().unwrap_or("no outcome");
                    if how != "completed" || !whole {
                        return Err(format!("a turn ended badly: {text}").into());
                    }
                    return Ok(texts);
                }
                "error" => return Err(format!("a turn failed: {text}").into()),
                _ => {}
            }
        }
    }
}

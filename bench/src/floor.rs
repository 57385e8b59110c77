//! The floor: the same work with no runtime.
//!
//! A WebSocket in; three awaited writes by group-commit `fdatasync`, or by acknowledged publish;
//! one streaming model call with the same history; tokens out in the same frames. No actors, no
//! journal, no recovery, no de-duplication: what it takes is what the machine asks of anybody.

use std::{
    collections::HashMap,
    fs::File,
    io::Write as _,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
    routing::get,
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream::SplitSink};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{net::TcpListener, sync::oneshot, time::Instant};

use crate::{Error, process::say};

/// Bytes of the three records of a turn, as a node writes them (header and body).
const RECORDS: [usize; 3] = [512, 640, 896];
/// How close two frames of text may follow each other.
const FRAME_GAP: Duration = Duration::from_millis(10);
/// Where records go on NATS.
const SUBJECT: &str = "floor";

/// Makes records durable.
#[derive(Clone)]
enum Store {
    Disk(Arc<GroupCommit>),
    Nats(Box<async_nats::jetstream::Context>),
}

/// One file, one thread; all records that wait go with one `fdatasync`.
struct GroupCommit {
    waiting: Mutex<Waiting>,
    bell: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    replies: Vec<oneshot::Sender<()>>,
}

struct Floor {
    store: Store,
    http: reqwest::Client,
    url: String,
}

#[derive(Deserialize)]
struct Request {
    id: u64,
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    peer: String,
    content: String,
}

#[derive(Clone, Serialize)]
struct Said {
    role: &'static str,
    content: String,
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

/// The role `floor`: serves until it is killed.
pub async fn serve(dir: &Path, model: &str, nats: Option<&str>) -> Result<(), Error> {
    let store = match nats {
        None => Store::Disk(GroupCommit::start(&dir.join("floor.log"))?),
        Some(url) => Store::Nats(Box::new(stream(url).await?)),
    };
    let floor = Arc::new(Floor {
        store,
        http: reqwest::Client::builder().build()?,
        url: format!("http://{model}/v1/chat/completions"),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&listener.local_addr()?.to_string()).await?;
    let router = Router::new().route("/ws", get(upgrade)).with_state(floor);
    Ok(axum::serve(NoDelay(listener), router).await?)
}

/// Accepts without Nagle's delay, as the node does.
struct NoDelay(TcpListener);

impl axum::serve::Listener for NoDelay {
    type Io = tokio::net::TcpStream;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, peer) = axum::serve::Listener::accept(&mut self.0).await;
        stream.set_nodelay(true).ok();
        (stream, peer)
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

async fn stream(url: &str) -> Result<async_nats::jetstream::Context, Error> {
    let context = async_nats::jetstream::new(async_nats::connect(url).await?);
    let config = async_nats::jetstream::stream::Config {
        name: SUBJECT.to_owned(),
        subjects: vec![format!("{SUBJECT}.>")],
        ..Default::default()
    };
    context.get_or_create_stream(config).await?;
    Ok(context)
}

async fn upgrade(State(floor): State<Arc<Floor>>, socket: WebSocketUpgrade) -> Response {
    socket.on_upgrade(move |socket| async move {
        // The client went away, or the bench ends here and says so.
        floor.converse(socket).await.ok();
    })
}

// === impl Floor ===

impl Floor {
    async fn converse(&self, socket: WebSocket) -> Result<(), Error> {
        let (mut out, mut input) = socket.split();
        let mut sessions: HashMap<String, Vec<Said>> = HashMap::new();
        while let Some(message) = input.next().await {
            let Message::Text(text) = message? else { continue };
            let Request { id, params } = serde_json::from_str(&text)?;
            if !sessions.contains_key(&params.peer) {
                sessions.clear();
            }
            let history = sessions.entry(params.peer).or_default();
            self.turn(id, params.content, history, &mut out).await?;
        }
        Ok(())
    }

    async fn turn(
        &self,
        id: u64,
        content: String,
        history: &mut Vec<Said>,
        out: &mut SplitSink<WebSocket, Message>,
    ) -> Result<(), Error> {
        history.push(Said { role: "user", content });
        self.store.write(RECORDS[0]).await?;
        let accepted = json!({"id": id, "event": "accepted", "data": {"turn": id}});
        out.send(Message::text(accepted.to_string())).await?;
        self.store.write(RECORDS[1]).await?;
        let reply = self.call(id, history, out).await?;
        history.push(Said { role: "assistant", content: reply });
        self.store.write(RECORDS[2]).await?;
        let outcome = json!({"type": "completed"});
        let done = json!({"id": id, "event": "done", "data": {"turn": id, "outcome": outcome}});
        Ok(out.send(Message::text(done.to_string())).await?)
    }

    /// One streaming call; a frame leaves at most every [`FRAME_GAP`], as from a node.
    async fn call(
        &self,
        id: u64,
        history: &[Said],
        out: &mut SplitSink<WebSocket, Message>,
    ) -> Result<String, Error> {
        let body = serde_json::to_vec(&json!({
            "model": "scripted",
            "messages": history,
            "stream": true,
            "stream_options": {"include_usage": true},
        }))?;
        let request = self.http.post(&self.url).header("content-type", "application/json");
        let mut pieces = request.body(body).send().await?.error_for_status()?.bytes_stream();
        let (mut reply, mut rest, mut waiting) = (String::new(), Vec::new(), String::new());
        let mut due = Instant::now();
        loop {
            let piece = tokio::select! {
                biased;
                piece = pieces.next() => piece,
                () = tokio::time::sleep_until(due), if !waiting.is_empty() => Some(Ok(Bytes::new())),
            };
            let Some(piece) = piece else { break };
            rest.extend_from_slice(&piece?);
            waiting.push_str(&take_events(&mut rest)?);
            if Instant::now() >= due {
                say_text(id, &mut waiting, &mut reply, out).await?;
                due = Instant::now() + FRAME_GAP;
            }
        }
        say_text(id, &mut waiting, &mut reply, out).await?;
        Ok(reply)
    }
}

async fn say_text(
    id: u64,
    waiting: &mut String,
    reply: &mut String,
    out: &mut SplitSink<WebSocket, Message>,
) -> Result<(), Error> {
    if !waiting.is_empty() {
        let frame = json!({"id": id, "event": "text", "data": waiting});
        out.send(Message::text(frame.to_string())).await?;
        reply.push_str(waiting);
        waiting.clear();
    }
    Ok(())
}

/// The text of the whole events in `buffer`, which keeps what is not whole.
fn take_events(buffer: &mut Vec<u8>) -> Result<String, Error> {
    let Some(end) = buffer.windows(2).rposition(|pair| pair == b"\n\n") else {
        return Ok(String::new());
    };
    let events: Vec<u8> = buffer.drain(..end + 2).collect();
    let mut text = String::new();
    for line in std::str::from_utf8(&events)?.lines() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
            continue;
        };
        let chunk: Chunk = serde_json::from_str(data)?;
        text.extend(chunk.choices.into_iter().filter_map(|choice| choice.delta.content));
    }
    Ok(text)
}

// === impl Store ===

impl Store {
    async fn write(&self, bytes: usize) -> Result<(), Error> {
        match self {
            Self::Disk(commit) => commit.write(bytes).await,
            Self::Nats(context) => {
                let payload = Bytes::from(vec![b'x'; bytes]);
                context.publish(format!("{SUBJECT}.records"), payload).await?.await?;
                Ok(())
            }
        }
    }
}

// === impl GroupCommit ===

impl GroupCommit {
    fn start(path: &Path) -> Result<Arc<Self>, Error> {
        let file = File::create(path)?;
        let commit = Arc::new(Self { waiting: Mutex::default(), bell: Condvar::new() });
        let worker = Arc::clone(&commit);
        std::thread::Builder::new().name("floor-log".to_owned()).spawn(move || {
            // An error drops the waiting replies, and so ends the bench.
            worker.run(file).ok();
        })?;
        Ok(commit)
    }

    async fn write(&self, bytes: usize) -> Result<(), Error> {
        let (reply, stored) = oneshot::channel();
        {
            let mut waiting = self.lock();
            let len = waiting.bytes.len() + bytes;
            waiting.bytes.resize(len, b'x');
            waiting.replies.push(reply);
        }
        self.bell.notify_one();
        Ok(stored.await?)
    }

    fn run(&self, mut file: File) -> std::io::Result<()> {
        loop {
            let Waiting { bytes, replies } = {
                let mut waiting = self.lock();
                while waiting.replies.is_empty() {
                    waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                }
                std::mem::take(&mut *waiting)
            };
            file.write_all(&bytes)?;
            file.sync_data()?;
            for reply in replies {
                // Who asked may have left.
                reply.send(()).ok();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

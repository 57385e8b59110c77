//! Runs the binary, and plays the node that it speaks to.

use std::{
    collections::VecDeque,
    path::Path,
    process::{Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use clawnode::{api_token::TOKEN_FILE, node_file::NodeFile};
use clawnode_proto::ProcessId;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    process::{Child, Command},
    time::timeout,
};

/// Reaching it means a bug, not a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// The token that the node takes.
pub(crate) const TOKEN: &str = "token-5309";

/// A home of its own for each test.
pub(crate) struct Home(TempDir);

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The data directory that commands use here.
    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.path().join(".local/share/clawnode")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// The command, not yet started.
    pub(crate) fn command(&self, args: &[&str], vars: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clawnode"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .env("USER", "ada")
            .envs(vars.iter().copied())
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// The same on a terminal of its own, where a person would type.
    pub(crate) fn on_a_terminal(&self, args: &str) -> Command {
        let mut command = Command::new("/usr/bin/script");
        let run = format!("{} {args}", env!("CARGO_BIN_EXE_clawnode"));
        command
            .args(["--quiet", "--return", "--flush", "--command", &run, "/dev/null"])
            .env_clear()
            .env("HOME", self.path())
            .env("USER", "ada")
            .current_dir(self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, &[], "").await
    }

    /// Runs a command with variables and a text on standard input.
    pub(crate) async fn run_with(
        &self,
        args: &[&str],
        vars: &[(&str, &str)],
        input: &str,
    ) -> Ended {
        let mut command = self.command(args, vars);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads nothing may be gone already.
        drop(stdin.write_all(input.as_bytes()).await);
        drop(stdin);
        self.end(child).await
    }

    /// Waits for the end of a command.
    pub(crate) async fn end(&self, child: Child) -> Ended {
        let Output { status, stdout, stderr } =
            timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
        // Paths differ from run to run.
        let text = |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            text.replace(&*self.path().to_string_lossy(), "[home]")
        };
        Ended { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    /// Says, as a node does, that `node` runs on the data directory.
    pub(crate) fn announce(&self, node: &Node) {
        let data = self.data();
        std::fs::create_dir_all(&data).unwrap();
        let process = ProcessId::from_u128(7);
        NodeFile { url: node.url.clone(), socket: None, pid: 1, process }.write(&data).unwrap();
        std::fs::write(data.join(TOKEN_FILE), TOKEN).unwrap();
    }
}

/// What the node does on one WebSocket, in order.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Waits for a request of this method; frames from here on answer it.
    Expect(&'static str),
    /// Waits for a request that does not change whom frames answer, and answers it.
    Aside(&'static str),
    /// The same with this answer.
    Answer(&'static str, Value),
    /// Sends a frame: event, data, index of the cursor.
    Frame(&'static str, Value, Option<u32>),
    /// Ends the connection without a word.
    Cut,
}

/// What a node answers to a method and its parameters; `Err` is an error's body.
type Answers = dyn Fn(&str, &Value) -> Result<Value, Value> + Send + Sync;

/// A node that answers calls from a table and streams from a script.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Value>>>,
    answers: Arc<Answers>,
    sockets: Arc<Mutex<VecDeque<Vec<Act>>>>,
}

impl Node {
    /// A node whose `WebSocket`s are played in this order.
    pub(crate) async fn start(
        answers: impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync + 'static,
        sockets: Vec<Vec<Act>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            seen: Arc::default(),
            answers: Arc::new(answers),
            sockets: Arc::new(Mutex::new(sockets.into())),
        };
        let router = Router::new()
            .route("/v1/rpc", post(rpc))
            .route("/ws", get(ws))
            .with_state(node.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        node
    }

    /// A node that only streams.
    pub(crate) async fn streaming(sockets: Vec<Vec<Act>>) -> Self {
        let pong = |_: &str, _: &Value| Ok(json!("pong"));
        Self::start(pong, sockets).await
    }

    /// The parameters of all requests of this method so far.
    pub(crate) fn seen(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|request| request["method"] == method)
            .map(|request| request["params"].clone())
            .collect()
    }

    /// Connections that were never made.
    pub(crate) fn unused(&self) -> usize {
        self.sockets.lock().unwrap().len()
    }
}

fn may(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|header| header == &format!("Bearer {TOKEN}"))
}

fn refusal() -> Response {
    let data = json!({ "code": "unauthorized", "message": "wrong token" });
    let error = json!({ "code": -32011, "message": "wrong token", "data": data });
    (StatusCode::UNAUTHORIZED, Json(json!({ "id": null, "error": error }))).into_response()
}

async fn rpc(State(node): State<Node>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    if !may(&headers) {
        return refusal();
    }
    node.seen.lock().unwrap().push(request.clone());
    match (node.answers)(request["method"].as_str().unwrap(), &request["params"]) {
        Ok(result) => Json(json!({ "id": request["id"], "result": result })).into_response(),
        Err(data) => {
            let error = json!({ "code": -32000, "message": data["message"], "data": data });
            Json(json!({ "id": request["id"], "error": error })).into_response()
        }
    }
}

async fn ws(State(node): State<Node>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    if !may(&headers) {
        return refusal();
    }
    let acts = node.sockets.lock().unwrap().pop_front();
    match acts {
        Some(acts) => upgrade.on_upgrade(move |socket| play(node, socket, acts)),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn play(node: Node, mut socket: WebSocket, acts: Vec<Act>) {
    let mut id = Value::Null;
    for act in acts {
        match act {
            Act::Expect(method) => id = request(&node, &mut socket, method).await["id"].clone(),
            Act::Aside(method) => {
                let call = request(&node, &mut socket, method).await;
                let answer = json!({ "id": call["id"], "result": {} }).to_string();
                socket.send(Message::text(answer)).await.unwrap();
            }
            Act::Answer(method, result) => {
                let call = request(&node, &mut socket, method).await;
                let answer = json!({ "id": call["id"], "result": result }).to_string();
                socket.send(Message::text(answer)).await.unwrap();
            }
            Act::Frame(event, data, index) => {
                let mut frame = json!({ "id": id, "event": event, "data": data });
                if let Some(index) = index {
                    frame["cursor"] = json!(cursor(index));
                }
                socket.send(Message::text(frame.to_string())).await.unwrap();
            }
            Act::Cut => return,
        }
    }
    // Until the client has gone.
    while socket.recv().await.is_some_and(|message| message.is_ok()) {}
}

async fn request(node: &Node, socket: &mut WebSocket, method: &str) -> Value {
    loop {
        let message = socket.recv().await.expect("the client is there").unwrap();
        if let Message::Text(text) = message {
            let message: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(message["method"], method);
            node.seen.lock().unwrap().push(message.clone());
            return message;
        }
    }
}

/// The turn of every script.
pub(crate) const TURN: &str = "turn_00000000000000000000000001";

/// A place in that turn.
pub(crate) fn cursor(index: u32) -> String {
    format!("{TURN}.call_00000000000000000000000002.1.{index}")
}

/// `accepted` of that turn.
pub(crate) fn accepted() -> Act {
    let view = json!({ "session": "default:cli:local:ada", "turn": TURN, "cursor": cursor(0) });
    Act::Frame("accepted", view, None)
}

/// More of the reply.
pub(crate) fn text(delta: &str, index: u32) -> Act {
    Act::Frame("text", json!(delta), Some(index))
}

/// The end of the turn.
pub(crate) fn done(outcome: &Value) -> Act {
    Act::Frame("done", json!({ "turn": TURN, "outcome": outcome }), Some(99))
}

/// A good end.
pub(crate) fn completed() -> Act {
    done(&json!({ "type": "completed", "stop": { "type": "end_turn" } }))
}

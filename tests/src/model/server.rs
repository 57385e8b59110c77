//! The server: routes, and bodies that play their parts.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{ConnectInfo, DefaultBodyLimit, Path, RawQuery, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use bytes::Bytes;
use clawnode_cluster::Peek;
use clawnode_proto::Digest;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::Instant};

use super::{
    book::{Book, Call, Violations, WireName},
    cache::PromptCache,
    check::{Asked, check},
    listen::{Breakable, Breaker},
    play::{Ending, Playing, play},
    render::{Part, error, error_kind, stream as streamed},
    script::{Act, Script, Status},
    sigv4::{self, AwsAccount, Unsigned},
    vectors,
    whole::whole,
};

/// Bytes of one request (32 MiB), as the vendors have it.
const REQUEST_BYTES: usize = 32 << 20;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// What it answers.
    pub script: Script,
    /// The key that requests must carry; without it they may carry any or none.
    pub api_key: Option<String>,
    /// The account whose signature requests of Bedrock's wire must have.
    pub aws: Option<AwsAccount>,
    /// Where to write down what was asked.
    pub log: Option<PathBuf>,
    /// Whether calls stay in memory to be listed.
    pub keep_calls: bool,
    /// The models that it lists.
    pub models: Vec<String>,
    /// Whether it caches prompts. Then it counts tokens of whole prompts, and not the words that are said.
    pub caches: bool,
}

/// A running server. Fails its test when it stops or is dropped after a malformed request.
#[derive(Debug)]
pub struct ModelServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepted: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

pub(super) struct Shared {
    script: Mutex<Script>,
    pub(super) book: Book,
    api_key: Option<String>,
    aws: Option<AwsAccount>,
    models: Vec<String>,
    cache: Option<Mutex<PromptCache>>,
    pub(super) gates: watch::Sender<BTreeSet<String>>,
}

// === impl Setup ===

impl Default for Setup {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            script: Script::default(),
            api_key: None,
            aws: None,
            log: None,
            keep_calls: true,
            models: vec!["scripted".to_owned()],
            caches: false,
        }
    }
}

impl From<Script> for Setup {
    fn from(script: Script) -> Self {
        Self { script, ..Self::default() }
    }
}

// === impl ModelServer ===

impl ModelServer {
    /// Starts one.
    pub async fn start(setup: impl Into<Setup>) -> io::Result<Self> {
        let setup = setup.into();
        let shared = Arc::new(Shared {
            book: Book::open(setup.log.as_deref(), setup.keep_calls)?,
            script: Mutex::new(setup.script),
            api_key: setup.api_key,
            aws: setup.aws,
            models: setup.models,
            cache: setup.caches.then(Mutex::default),
            gates: watch::Sender::new(BTreeSet::new()),
        });
        let listener = TcpListener::bind(setup.listen).await?;
        let addr = listener.local_addr()?;
        let routes = Router::new()
            .route("/v1/messages", of(WireName::Anthropic))
            .route("/v1/chat/completions", of(WireName::Openai))
            .route("/v1/responses", of(WireName::OpenaiResponses))
            .route("/v1/models", get(models))
            .route("/v1beta/models/{call}", post(gemini))
            .route("/api/chat", of(WireName::Ollama))
            .route("/model/{model}/{operation}", post(bedrock))
            .route("/api/tags", get(tags))
            .route("/v1/embeddings", vectors::route(WireName::Openai))
            .route("/api/embed", vectors::route(WireName::Ollama))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES))
            .with_state(shared.clone())
            .into_make_service_with_connect_info::<Breaker>();
        let accepted = Arc::new(AtomicU64::new(0));
        let listener = Breakable { listener, accepted: accepted.clone() };
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the model server ended");
            }
        });
        Ok(Self { addr, shared, accepted, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL for Anthropic's wire, of Ollama and of Bedrock.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The base URL for `OpenAI`'s wires.
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// The base URL for Gemini's wire.
    pub fn gemini_url(&self) -> String {
        format!("http://{}/v1beta", self.addr)
    }

    /// Adds an act to the end of the queue.
    pub fn push(&self, act: impl Into<Act>) {
        self.shared.script().queue.push_back(act.into());
    }

    /// Adds the acts of a turn, as [`Script::turn`] does.
    pub fn turn(&self, text: &str, acts: impl IntoIterator<Item = Act>) {
        self.shared.script().turns.insert(text.to_owned(), acts.into_iter().collect());
    }

    /// Opens a gate that replies wait at, now and later.
    pub fn open(&self, gate: &str) {
        self.shared.gates.send_modify(|open| {
            open.insert(gate.to_owned());
        });
    }

    /// Everything asked so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.book.calls()
    }

    /// How many requests there were.
    pub fn count(&self) -> u64 {
        self.shared.book.counts.peek(|counts| counts.0)
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Waits until there were `n` requests, and returns all of them.
    pub async fn asked(&self, n: u64) -> Vec<Call> {
        self.wait(|(asked, _)| asked >= n).await
    }

    /// Waits until `n` answers have ended, well or not, and returns all requests.
    pub async fn answered(&self, n: u64) -> Vec<Call> {
        self.wait(|(_, answered)| answered >= n).await
    }

    async fn wait(&self, enough: impl Fn((u64, u64)) -> bool) -> Vec<Call> {
        let mut counts = self.shared.book.counts.subscribe();
        // The sender lives in `self`, so this cannot fail while we wait.
        if counts.wait_for(|counts| enough(*counts)).await.is_err() {
            tracing::debug!("the book was closed");
        }
        self.calls()
    }

    /// The malformed requests so far; a test that provokes them takes them so as not to fail.
    pub fn take_violations(&self) -> Vec<String> {
        self.shared.book.take_violations()
    }

    /// Stops, and fails if a request was malformed.
    pub async fn stop(mut self) -> Result<Vec<Call>, Violations> {
        self.task.abort();
        let ended = (&mut self.task).await;
        tracing::debug!(?ended, "the model server stopped");
        let violations = self.take_violations();
        if violations.is_empty() { Ok(self.calls()) } else { Err(Violations(violations)) }
    }

    /// Serves until its listener fails.
    pub async fn run(mut self) {
        let ended = (&mut self.task).await;
        tracing::debug!(?ended, "the model server ended");
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
        let violations = self.take_violations();
        // The point: a test with a malformed request fails, unless it is failing already.
        assert!(violations.is_empty() || std::thread::panicking(), "{}", Violations(violations));
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// 401 for a wrong key; none at all is malformed.
    pub(super) fn authorize(
        &self,
        wire: WireName,
        path: Option<&InPath>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), Refusal> {
        if let (Some(account), Some(path), WireName::Bedrock) = (&self.aws, path, wire) {
            return match sigv4::check(account, &path.sent, headers, body) {
                Ok(()) => Ok(()),
                Err(Unsigned::Wrong) => Err(Refusal::WrongKey),
                Err(Unsigned::Malformed(what)) => Err(Refusal::Malformed(what)),
            };
        }
        let Some(key) = &self.api_key else { return Ok(()) };
        let sent = match wire {
            WireName::Anthropic => headers.get("x-api-key").map(HeaderValue::as_bytes),
            WireName::Gemini => headers.get("x-goog-api-key").map(HeaderValue::as_bytes),
            WireName::Openai | WireName::OpenaiResponses | WireName::Ollama | WireName::Bedrock => {
                headers
                    .get("authorization")
                    .map(|value| value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default())
            }
        };
        match sent {
            Some(sent) if sent == key.as_bytes() => Ok(()),
            Some(_) => Err(Refusal::WrongKey),
            None => Err(Refusal::Malformed("no key".to_owned())),
        }
    }

    /// Refuses a request; a malformed one is a violation.
    pub(super) fn refuse(&self, wire: WireName, refusal: Refusal, body: &[u8]) -> Response {
        let Refusal::Malformed(what) = refusal else {
            return match wire {
                WireName::Bedrock => {
                    refuse(wire, 403, "The security token included in the request is invalid.")
                }
                _ => refuse(wire, 401, "invalid x-api-key"),
            };
        };
        let what = format!("{wire:?}: {what}: {}", String::from_utf8_lossy(body));
        tracing::error!(%what, "a malformed request");
        match self.book.violation(what.clone()) {
            Ok(()) => refuse(wire, 400, &what),
            Err(error) => log_failed(wire, &error),
        }
    }

    /// Writes a request down; its number.
    pub(super) fn enter(
        &self,
        wire: WireName,
        headers: &HeaderMap,
        last_user: String,
        results: Vec<String>,
        body: Bytes,
    ) -> io::Result<u64> {
        let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
        let (key, digest) = (key.map(str::to_owned), Digest::of(&body));
        let call = Call { seq: 0, wire, key, digest, last_user, results, body, full: false };
        self.book.asked(call)
    }

    fn read(
        &self,
        wire: WireName,
        path: Option<InPath>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Asked, Refusal> {
        self.authorize(wire, path.as_ref(), headers, body)?;
        let mut asked = check(wire, headers, body).map_err(Refusal::Malformed)?;
        if let Some(InPath { model, stream, .. }) = path {
            (asked.model, asked.stream) = (model, stream);
        }
        self.script().check(wire, &asked).map_err(Refusal::Malformed)?;
        if let Some(cache) = &self.cache {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            asked.cached = cache.take(Instant::now(), wire, body);
            asked.words = asked.cached.all;
        }
        Ok(asked)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("book", &self.book).finish_non_exhaustive()
    }
}

/// What the wires of Gemini and Bedrock say in the path.
pub(super) struct InPath {
    pub(super) model: String,
    stream: bool,
    /// As it was sent.
    sent: String,
}

pub(super) enum Refusal {
    WrongKey,
    Malformed(String),
}

// === routes ===

/// The route of a wire that has everything in the body.
fn of(wire: WireName) -> MethodRouter<Arc<Shared>> {
    let route = move |State(shared): State<Arc<Shared>>,
                      ConnectInfo(breaker): ConnectInfo<Breaker>,
                      headers: HeaderMap,
                      body: Bytes| async move {
        answer(wire, None, shared, breaker, &headers, body).await
    };
    post(route)
}

async fn gemini(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(breaker): ConnectInfo<Breaker>,
    Path(call): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let (Some((model, "batchEmbedContents")), None) = (call.rsplit_once(':'), query.as_deref()) {
        let path = InPath { model: model.to_owned(), stream: false, sent: String::new() };
        return vectors::answer(WireName::Gemini, Some(path), shared, breaker, &headers, body)
            .await;
    }
    let stream = match (call.rsplit_once(':'), query.as_deref()) {
        (Some((model, "streamGenerateContent")), Some("alt=sse")) => Some((model, true)),
        (Some((model, "generateContent")), None) => Some((model, false)),
        _ => None,
    };
    let Some((model, stream)) = stream else {
        return refuse(WireName::Gemini, 404, "no such method");
    };
    let path = Some(InPath { model: model.to_owned(), stream, sent: String::new() });
    answer(WireName::Gemini, path, shared, breaker, &headers, body).await
}

async fn bedrock(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(breaker): ConnectInfo<Breaker>,
    Path((model, operation)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let stream = match operation.as_str() {
        "converse-stream" => true,
        "converse" => false,
        "invoke" => {
            let path = Some(InPath { model, stream: false, sent: uri.path().to_owned() });
            return vectors::answer(WireName::Bedrock, path, shared, breaker, &headers, body).await;
        }
        _ => return refuse(WireName::Bedrock, 404, "no such operation"),
    };
    let path = Some(InPath { model, stream, sent: uri.path().to_owned() });
    answer(WireName::Bedrock, path, shared, breaker, &headers, body).await
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Json<Value> {
    let all = &shared.models;
    if headers.contains_key("anthropic-version") {
        let created_at = "2026-01-01T00:00:00Z";
        let listed = all.iter().map(
            |id| json!({"type": "model", "id": id, "display_name": id, "created_at": created_at}),
        );
        let (first, last, listed) = (all.first(), all.last(), listed.collect::<Vec<_>>());
        Json(json!({"data": listed, "has_more": false, "first_id": first, "last_id": last}))
    } else {
        let list = all.iter().map(|id| {
            json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "tests"})
        });
        Json(json!({"object": "list", "data": list.collect::<Vec<_>>()}))
    }
}

async fn tags(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let modified_at = "2026-01-01T00:00:00Z";
    let list = shared.models.iter().map(|name| {
        json!({
            "name": name, "model": name, "modified_at": modified_at, "size": 1, "digest": "0",
            "details": {"format": "gguf", "family": "scripted"},
        })
    });
    Json(json!({"models": list.collect::<Vec<_>>()}))
}

async fn answer(
    wire: WireName,
    path: Option<InPath>,
    shared: Arc<Shared>,
    breaker: Breaker,
    headers: &HeaderMap,
    body: Bytes,
) -> Response {
    let asked = match shared.read(wire, path, headers, &body) {
        Ok(asked) => asked,
        Err(refusal) => return shared.refuse(wire, refusal, &body),
    };
    let (text, results) = (asked.last_user.clone(), asked.results.clone());
    let seq = match shared.enter(wire, headers, text, results, body) {
        Ok(seq) => seq,
        Err(error) => return log_failed(wire, &error),
    };
    let act = shared.script().next(&asked);
    let ending = Ending { shared, seq, full: false };
    match act {
        Act::Reply(reply) if asked.stream => {
            let proper = reply.end;
            let parts = streamed(wire, seq, &asked, &reply).into();
            let kind = match wire {
                WireName::Ollama => "application/x-ndjson",
                WireName::Bedrock => "application/vnd.amazon.eventstream",
                _ => "text/event-stream",
            };
            play(kind, Playing { parts, breaker, ending, proper })
        }
        Act::Reply(reply) => {
            let parts = VecDeque::from([Part::Bytes(whole(wire, seq, &asked, &reply).into())]);
            play("application/json", Playing { parts, breaker, ending, proper: true })
        }
        Act::Raw { content_type, body } => {
            let parts = VecDeque::from([Part::Bytes(body.into_bytes())]);
            play(&content_type, Playing { parts, breaker, ending, proper: false })
        }
        Act::Bytes { content_type, body } => {
            let parts = VecDeque::from([Part::Bytes(body)]);
            play(&content_type, Playing { parts, breaker, ending, proper: false })
        }
        Act::Status(status) => refuse_as(wire, &status),
        Act::Hangup => {
            breaker.trip();
            StatusCode::NO_CONTENT.into_response()
        }
        Act::Stall => std::future::pending().await,
    }
}

pub(super) fn log_failed(wire: WireName, error: &io::Error) -> Response {
    tracing::error!(%error, "cannot write the log");
    refuse(wire, 500, "the model server cannot write its log")
}

fn refuse(wire: WireName, status: u16, message: &str) -> Response {
    refuse_as(wire, &Status { status, message: message.to_owned(), ..Status::default() })
}

pub(super) fn refuse_as(wire: WireName, status: &Status) -> Response {
    let kind = error_kind(wire, status.status);
    let body =
        status.body.clone().unwrap_or_else(|| error(wire, kind, &status.message).to_string());
    let code = StatusCode::from_u16(status.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (code, [(CONTENT_TYPE, "application/json")], body).into_response();
    if wire == WireName::Bedrock {
        let name = HeaderName::from_static("x-amzn-errortype");
        response.headers_mut().insert(name, HeaderValue::from_static(kind));
    }
    for (name, value) in &status.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

//! A client of a node, made from nothing but its address, its token file and the protocol.

use std::{path::Path, time::Duration};

use clawnode_proto::{Cursor, ErrorBody, lane::Lane, session::TurnOutcome, view::HistoryView};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message as Packet, client::IntoClientRequest},
};

use super::{ProcessError, home::PATIENCE};

/// How often a state is looked at that nothing announces.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bytes of the last state seen that an error shows when what was awaited did not come.
const SAW_SHOWN: usize = 2_000;

/// A node within reach. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// Where it comes from.
    pub channel: String,
    /// Our side of the channel.
    pub account: String,
    /// Who sends it, as the session's key has it: also `PEER~CONVERSATION`.
    pub peer: String,
    pub content: String,
    /// Makes sending again harmless.
    pub key: String,
    /// Whether it joins the running turn.
    pub steers: bool,
    /// Its lane, if not the agent's.
    pub lane: Option<Lane>,
    /// Its agent, if not `default`.
    pub agent: Option<String>,
}

/// A turn's stream.
#[derive(Debug)]
pub struct Turn {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub session: String,
    pub turn: String,
    /// What it has said so far.
    pub text: String,
    /// Where to resume from.
    pub cursor: Option<String>,
    /// How often its text began again.
    pub resets: u32,
    /// How often the server said that it reads too slowly.
    pub lags: u32,
}

/// A turn's stream of server-sent events.
#[derive(Debug)]
pub struct Events {
    response: reqwest::Response,
    /// The answer's status.
    pub status: u16,
    waiting: Vec<u8>,
}

/// One frame.
#[derive(Debug, Deserialize)]
pub struct Frame {
    pub event: String,
    #[serde(default)]
    pub data: Value,
    /// Where to resume from after it.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl Message {
    /// A message under a key that is its own text, to the session `default:test:a:PEER`.
    pub fn new(peer: &str, content: &str) -> Self {
        Self {
            channel: "test".to_owned(),
            account: "a".to_owned(),
            peer: peer.to_owned(),
            content: content.to_owned(),
            key: format!("k-{content}"),
            steers: false,
            lane: None,
            agent: None,
        }
    }

    /// A message as the terminal chat of a [`Home`](super::Home) sends it.
    pub fn typed(content: &str) -> Self {
        let (channel, account) = ("cli".to_owned(), "local".to_owned());
        Self { channel, account, ..Self::new("ada", content) }
    }

    /// The same, joining the turn that runs.
    #[must_use]
    pub fn steering(self) -> Self {
        Self { steers: true, ..self }
    }

    /// The same, as work that can wait.
    #[must_use]
    pub fn in_background(self) -> Self {
        Self { lane: Some(Lane::Background), ..self }
    }

    /// The same, to another agent.
    #[must_use]
    pub fn to_agent(self, agent: &str) -> Self {
        Self { agent: Some(agent.to_owned()), ..self }
    }

    /// What `chat.send` is given.
    pub(super) fn params(&self) -> Value {
        let conversation = self.peer.split_once('~').map(|(_, conversation)| conversation);
        json!({
            "channel": self.channel,
            "account": self.account,
            "peer": self.peer.split('~').next(),
            "conversation": conversation,
            "content": self.content,
            "idempotency_key": self.key,
            "mode": if self.steers { "steer" } else { "turn" },
            "lane": self.lane,
            "agent": self.agent,
        })
    }

    /// The session that it goes to.
    pub fn session(&self) -> String {
        let agent = self.agent.as_deref().unwrap_or("default");
        format!("{agent}:{}:{}:{}", self.channel, self.account, self.peer)
    }
}

impl Client {
    /// The node at `url`, whose token lies in the data directory `data`.
    pub fn new(url: &str, data: &Path) -> Result<Self, ProcessError> {
        let token = std::fs::read_to_string(data.join("token"))
            .map_err(ProcessError::io("read the node's token"))?;
        Self::with_token(url, &token)
    }

    /// The node at `url`, which asks for this token.
    pub fn with_token(url: &str, token: &str) -> Result<Self, ProcessError> {
        // Installing fails only if it was installed before, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
        let http = http.map_err(|error| ProcessError::Protocol(error.to_string()))?;
        Ok(Self { http, url: url.to_owned(), token: token.trim().to_owned() })
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls a method.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, ProcessError> {
        let lost = |error: reqwest::Error| ProcessError::Lost(error.to_string());
        let body = json!({ "id": 1, "method": method, "params": params });
        let post = self.http.post(format!("{}/v1/rpc", self.url)).bearer_auth(&self.token);
        let response = post.json(&body).timeout(PATIENCE).send().await.map_err(lost)?;
        let mut answer: Value = response.json().await.map_err(lost)?;
        if answer.get("error").is_some() {
            return Err(refusal(answer["error"]["data"].take()));
        }
        answer_of(method, answer["result"].take())
    }

    /// The answer of a method without parameters, once this is so; until then the node may be out
    /// of reach.
    pub async fn until<T: DeserializeOwned>(
        &self,
        method: &str,
        enough: impl Fn(&T) -> bool,
    ) -> Result<T, ProcessError> {
        let wait = |error: &ProcessError| error.is_lost() || error.refusal().is_some();
        self.answer_when(method, json!({}), enough, wait).await
    }

    /// A session's transcript.
    pub async fn history(&self, session: &str) -> Result<HistoryView, ProcessError> {
        let mut all: HistoryView = self.call("sessions.history", page(session, None)).await?;
        while let Some(cursor) = all.next.take() {
            let next: HistoryView =
                self.call("sessions.history", page(session, Some(&cursor))).await?;
            all.turns.extend(next.turns);
            (all.state, all.next) = (next.state, next.next);
        }
        Ok(all)
    }

    /// All events of a session's journal, as [`EventView`](clawnode_proto::view::EventView)s or as JSON.
    pub async fn journal<T: DeserializeOwned>(
        &self,
        session: &str,
    ) -> Result<Vec<T>, ProcessError> {
        #[derive(Deserialize)]
        struct Page<T> {
            events: Vec<T>,
            next: Option<Cursor>,
        }
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let Page { events, next } =
                self.call("journal.show", page(session, cursor.as_ref())).await?;
            all.extend(events);
            cursor = next;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// A session's transcript, once this is so.
    pub async fn history_when(
        &self,
        session: &str,
        enough: impl Fn(&HistoryView) -> bool,
    ) -> Result<HistoryView, ProcessError> {
        self.call_when("sessions.history", page(session, None), enough).await
    }

    /// A method's answer, once this is so of it.
    pub async fn call_when<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
        enough: impl Fn(&T) -> bool,
    ) -> Result<T, ProcessError> {
        self.answer_when(method, params, enough, |error| error.refusal().is_some()).await
    }

    /// A method's answer, once this is so of it; errors of this kind are waited over.
    async fn answer_when<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
        enough: impl Fn(&T) -> bool,
        wait: impl Fn(&ProcessError) -> bool,
    ) -> Result<T, ProcessError> {
        let mut last = String::new();
        let look = async {
            loop {
                match self.call::<Value>(method, params.clone()).await {
                    Ok(answer) => {
                        last = answer.to_string();
                        let answer = answer_of(method, answer)?;
                        if enough(&answer) {
                            return Ok(answer);
                        }
                    }
                    Err(error) if wait(&error) => last = error.to_string(),
                    Err(error) => return Err(error),
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if let Ok(answer) = timeout(PATIENCE, look).await {
            return answer;
        }
        last.truncate(last.floor_char_boundary(SAW_SHOWN));
        Err(ProcessError::Late(format!("what is expected of `{method}` {params} (saw {last})")))
    }

    /// A session's transcript, once none of its turns is open and there are `turns` of them.
    pub async fn finished(&self, session: &str, turns: usize) -> Result<HistoryView, ProcessError> {
        self.history_when(session, |history| {
            history.turns.len() >= turns && history.turns.iter().all(|turn| turn.outcome.is_some())
        })
        .await
    }

    /// Sends a message; answers once it is accepted.
    pub async fn send(&self, message: &Message) -> Result<Turn, ProcessError> {
        self.begin("chat.send", message.params()).await
    }

    /// Follows a turn from its beginning.
    pub async fn resume(&self, session: &str, turn: &str) -> Result<Turn, ProcessError> {
        self.begin("sessions.resume", json!({ "session": session, "turn": turn })).await
    }

    /// Goes on with a turn that was followed elsewhere, from where it was lost.
    pub async fn resume_from(&self, lost: &Turn) -> Result<Turn, ProcessError> {
        let cursor = lost.cursor.as_deref();
        let params = json!({ "session": lost.session, "turn": lost.turn, "cursor": cursor });
        let turn = self.begin("sessions.resume", params).await?;
        Ok(Turn { text: lost.text.clone(), ..turn })
    }

    /// The same over HTTP, as server-sent events, from after `last`.
    pub async fn events(&self, turn: &Turn, last: Option<&str>) -> Result<Events, ProcessError> {
        let broken = |error: reqwest::Error| ProcessError::Lost(error.to_string());
        let url = format!("{}/v1/sessions/{}/events?turn={}", self.url, turn.session, turn.turn);
        let mut get = self.http.get(url).bearer_auth(&self.token);
        if let Some(last) = last {
            get = get.header("last-event-id", last);
        }
        let response = get.send().await.map_err(broken)?;
        let status = response.status().as_u16();
        Ok(Events { response, status, waiting: Vec::new() })
    }

    /// Sends a message, and waits for the end of its turn.
    pub async fn chat(&self, message: &Message) -> Result<String, ProcessError> {
        let mut turn = self.send(message).await?;
        turn.completed().await
    }

    async fn begin(&self, method: &str, params: Value) -> Result<Turn, ProcessError> {
        let lost = |error: tungstenite::Error| ProcessError::Lost(error.to_string());
        let url = format!("{}/ws", self.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().map_err(lost)?;
        let bearer = format!("Bearer {}", self.token).parse();
        let bearer = bearer.map_err(|_invalid| ProcessError::Protocol("no token".to_owned()))?;
        request.headers_mut().insert("authorization", bearer);
        let (mut socket, _) = connect_async(request).await.map_err(lost)?;
        let body = json!({ "id": 1, "method": method, "params": params }).to_string();
        socket.send(Packet::text(body)).await.map_err(lost)?;
        let (session, turn, text) = Default::default();
        let (cursor, resets, lags) = Default::default();
        let mut turn = Turn { socket, session, turn, text, cursor, resets, lags };
        let accepted = turn.next().await?;
        if accepted.event == "error" {
            return Err(refusal(accepted.data));
        }
        if accepted.event != "accepted" {
            return Err(ProcessError::Protocol(format!("{accepted:?} instead of `accepted`")));
        }
        let name = |field: &str| accepted.data[field].as_str().unwrap_or_default().to_owned();
        (turn.session, turn.turn) = (name("session"), name("turn"));
        turn.cursor = Some(name("cursor"));
        Ok(turn)
    }
}

impl Turn {
    /// The next frame; the text so far is kept.
    pub async fn next(&mut self) -> Result<Frame, ProcessError> {
        // Pings come for ever from a node that has nothing to say.
        let deadline = Instant::now() + PATIENCE;
        let packet = loop {
            let next = timeout_at(deadline, self.socket.next()).await;
            match next.map_err(|_elapsed| ProcessError::Late("a frame".to_owned()))? {
                Some(Ok(Packet::Text(text))) => break text,
                Some(Ok(Packet::Close(_))) | None => {
                    return Err(ProcessError::Lost("the connection was closed".to_owned()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ProcessError::Lost(error.to_string())),
            }
        };
        let value: Value = serde_json::from_str(&packet)
            .map_err(|error| ProcessError::Protocol(format!("{error}: {packet}")))?;
        if value.get("event").is_none() {
            return Err(refusal(value["error"]["data"].clone()));
        }
        let frame: Frame = serde_json::from_value(value)
            .map_err(|error| ProcessError::Protocol(format!("{error}: {packet}")))?;
        match frame.event.as_str() {
            "text" => self.text.push_str(frame.data.as_str().unwrap_or_default()),
            "reset" => {
                frame.data["text"].as_str().unwrap_or_default().clone_into(&mut self.text);
                self.resets += 1;
            }
            "lagged" => self.lags += 1,
            _ => {}
        }
        if frame.cursor.is_some() {
            self.cursor.clone_from(&frame.cursor);
        }
        Ok(frame)
    }

    /// Waits until it has said something.
    pub async fn begun(&mut self) -> Result<(), ProcessError> {
        while self.text.is_empty() {
            let frame = self.next().await?;
            if frame.event == "done" {
                return Err(ProcessError::Broken("a turn ended without a word".to_owned()));
            }
        }
        Ok(())
    }

    /// Waits for its end, and returns the reply; any end but a good one is an error.
    pub async fn completed(&mut self) -> Result<String, ProcessError> {
        loop {
            let frame = self.next().await?;
            match frame.event.as_str() {
                "error" => return Err(refusal(frame.data)),
                "done" => {
                    let outcome = serde_json::from_value(frame.data["outcome"].clone());
                    return match outcome {
                        Ok(TurnOutcome::Completed { .. }) => Ok(std::mem::take(&mut self.text)),
                        // Without an outcome the node has given this client up, for example because
                        // it stops.
                        Err(_) => Err(ProcessError::Lost(format!("{:?}", frame.data))),
                        Ok(other) => Err(ProcessError::Broken(format!("the turn ends {other:?}"))),
                    };
                }
                _ => {}
            }
        }
    }
}

// === impl Events ===

impl Events {
    /// The next event; none at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Frame>, ProcessError> {
        loop {
            if let Some(end) = self.waiting.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.waiting.drain(..end + 2).collect();
                let block = String::from_utf8_lossy(&block);
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name));
                    line.and_then(|rest| rest.strip_prefix(": ")).map(str::to_owned)
                };
                let Some(event) = field("event") else { continue };
                let data = serde_json::from_str(&field("data").unwrap_or_default())
                    .map_err(|error| ProcessError::Protocol(format!("{error}: {block}")))?;
                return Ok(Some(Frame { event, data, cursor: field("id") }));
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await;
            match chunk.map_err(|_elapsed| ProcessError::Late("an event".to_owned()))? {
                Ok(Some(more)) => self.waiting.extend_from_slice(&more),
                Ok(None) => return Ok(None),
                Err(error) => return Err(ProcessError::Lost(error.to_string())),
            }
        }
    }
}

/// A method's result, read as what is expected of it.
fn answer_of<T: DeserializeOwned>(method: &str, result: Value) -> Result<T, ProcessError> {
    serde_json::from_value(result)
        .map_err(|error| ProcessError::Protocol(format!("{method}: {error}")))
}

fn refusal(body: Value) -> ProcessError {
    match serde_json::from_value::<ErrorBody>(body) {
        Ok(body) => ProcessError::Refused(Box::new(body)),
        Err(error) => ProcessError::Protocol(format!("an error without its body: {error}")),
    }
}

/// What a page of a session's turns or events is asked for with.
fn page(session: &str, cursor: Option<&Cursor>) -> Value {
    json!({ "session": session, "cursor": cursor, "limit": 1_000 })
}

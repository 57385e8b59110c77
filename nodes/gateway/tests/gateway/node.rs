//! A scripted node: turns live in memory and say what the message asks for.
//!
//! A message `hold` waits for the test to speak; `refuse CODE` is not accepted; `fail CLASS` fails
//! before the first word, `break` after it; all else is echoed. A method that no test looks at
//! is answered with an example of its answer.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::Peek as _;
use clawnode_gateway::{
    Answers, AttachmentSource, Backend, CallDecision, Checked, CleanFilter, ContinuedTurn,
    ExecuteRequest, ExecutionWait, Following, HandlerResult, JobFilter, LogFilter, McpApproval,
    NewAttachment, RequestCaller, ResultsRequest, SendRequest, SessionPage, SessionRef,
    SessionTurn, TurnRecord, TurnState, given,
};
use clawnode_proto::{
    AgentName, Attempt, CallId, Cursor, Digest, EntityId, ErrorBody, ErrorCode, EventId,
    ExecutionId, FileId, FrameKey, IdempotencyKey, Incarnation, InputId, JobId, McpServerName,
    NodeName, ProcessId, SessionKey, SwitchId, Timestamp, TurnId,
    agents::{AgentDetail, AgentLimits, AgentView},
    api::{Method, NodeParams, NodesDrain, PanicParams, PolicyCheck, SessionsList, TreeParams},
    archive::{CleanView, JobRecord, JobStatus},
    client_tool::{ClientCall, ClientCalls},
    cursor::Pair,
    embed::{EmbedTexts, Embedded, Vector},
    execute::ExecutionStatus,
    kill_switch::{KillSwitch, SwitchScope},
    lane::Lane,
    llm::{FailureClass, ModelFailure, Sampling, StopReason, Usage},
    mcp::McpServerView,
    media::{FileView, MediaType},
    methods::types,
    policy::{Action, Approval, Decided, Decision, Policy, Verdict},
    provider::{DiagnoseParams, ScoreWeights},
    route::Inbound,
    session::{TurnOutcome, UserMessage},
    timeout::TurnTime,
    tool::{EffectClass, Risk},
    turn::{ReplyReset, StreamEnd, TurnBody, TurnEvent},
    usage::{UsageParams, UsageView},
    view::AcceptedView,
};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::example;

pub(super) const USAGE: Usage = Usage {
    input_tokens: 3,
    output_tokens: 2,
    cache_read_tokens: 1,
    cache_write_tokens: 0,
    cache_write_hour_tokens: 0,
    reasoning_tokens: 0,
    estimated: false,
};

type Log = watch::Sender<Vec<TurnEvent>>;

#[derive(Debug)]
pub(super) struct Node {
    turns: Mutex<HashMap<TurnId, (SessionRef, Arc<Log>)>>,
    last: Mutex<HashMap<EntityId, TurnId>>,
    /// What was stored, in order.
    pub(super) sent: watch::Sender<Vec<SendRequest>>,
    pub(super) cancelled: Mutex<Vec<TurnId>>,
    pub(super) paused: Mutex<Vec<AgentName>>,
    pub(super) switch: Mutex<Option<KillSwitch>>,
    pub(super) not_ready: AtomicBool,
    /// Streams that have a reader.
    pub(super) followed: watch::Sender<usize>,
    pub(super) resumed: AtomicUsize,
    /// The next streams end in mid-turn, each after so many events.
    pub(super) cuts: Mutex<VecDeque<usize>>,
    /// Whether a later send takes less time than an earlier one.
    pub(super) uneven: AtomicBool,
    sends: AtomicUsize,
    /// Each send takes one before it stores.
    pub(super) gate: Semaphore,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            turns: Mutex::default(),
            last: Mutex::default(),
            sent: watch::Sender::default(),
            cancelled: Mutex::default(),
            paused: Mutex::default(),
            switch: Mutex::default(),
            not_ready: AtomicBool::new(false),
            followed: watch::Sender::default(),
            resumed: AtomicUsize::new(0),
            cuts: Mutex::default(),
            uneven: AtomicBool::new(false),
            sends: AtomicUsize::new(0),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        }
    }
}

impl Node {
    /// Adds an event to a turn.
    pub(super) fn speak(&self, turn: TurnId, body: TurnBody) {
        self.speak_all(turn, [body]);
    }

    /// Says all of these in one breath.
    pub(super) fn speak_all(&self, turn: TurnId, bodies: impl IntoIterator<Item = TurnBody>) {
        let log = Arc::clone(&self.turns.lock().unwrap()[&turn].1);
        log.send_modify(|events| {
            for mut body in bodies {
                if let TurnBody::Done(end) = &mut body {
                    end.turn = Some(turn);
                }
                let index = u32::try_from(events.len()).unwrap();
                let cursor =
                    FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index };
                events.push(TurnEvent::at(cursor, body));
            }
        });
    }

    /// The usual end of a turn.
    pub(super) fn end() -> TurnBody {
        completed(StopReason::EndTurn)
    }

    pub(super) fn text(&self, turn: TurnId, text: &str) {
        self.speak(turn, TurnBody::Text(text.to_owned()));
    }

    pub(super) fn done(&self, turn: TurnId) {
        self.speak(turn, completed(StopReason::EndTurn));
    }

    /// The turns of messages with this content, in the order they were stored.
    pub(super) fn turns_of(&self, content: &str) -> Vec<TurnId> {
        let fits = |request: &&SendRequest| request.message.content.inline() == Some(content);
        self.sent.peek(|sent| sent.iter().filter(fits).map(turn_of).collect())
    }

    pub(super) async fn stored(&self, count: usize) {
        super::harness::patiently("messages are stored", async {
            self.sent.subscribe().wait_for(|sent| sent.len() >= count).await.unwrap();
        })
        .await;
    }

    pub(super) async fn followed_by(&self, count: usize) {
        super::harness::patiently("streams are let go", async {
            self.followed.subscribe().wait_for(|open| *open == count).await.unwrap();
        })
        .await;
    }

    fn script(&self, turn: TurnId, content: &str) {
        match content.split_once(' ').unwrap_or((content, "")) {
            ("hold", _) => {}
            ("fail", class) => self.fail(turn, class),
            ("break", class) => {
                self.text(turn, "half a ");
                self.fail(turn, class);
            }
            ("filter", _) => self.speak(turn, completed(StopReason::Refusal)),
            ("length", _) => self.speak(turn, completed(StopReason::MaxTokens)),
            ("call", names) => {
                let call = |(nth, name): (usize, &str)| ClientCall {
                    id: CallId::derive_tool(CallId::derive(turn, 0), u32::try_from(nth).unwrap()),
                    name: name.to_owned(),
                    arguments: r#"{"at":1}"#.to_owned(),
                };
                let calls = names.split(' ').enumerate().map(call).collect();
                self.speak(turn, TurnBody::Usage(USAGE));
                let expires = Timestamp(2);
                self.speak(turn, TurnBody::ClientCalls(ClientCalls { calls, expires }));
            }
            ("restart", again) => {
                self.text(turn, "one two");
                self.speak(turn, TurnBody::Reset(ReplyReset::default()));
                self.text(turn, again);
                self.done(turn);
            }
            _ => {
                self.text(turn, "echo: ");
                self.text(turn, content);
                self.speak(turn, TurnBody::Usage(USAGE));
                self.done(turn);
            }
        }
    }

    /// The pairs that came with a turn's message.
    fn metadata(&self, turn: TurnId) -> BTreeMap<String, String> {
        self.sent.peek(|sent| {
            let message = sent.iter().find(|request| turn_of(request) == turn);
            message.map(|request| request.message.metadata.clone()).unwrap_or_default()
        })
    }

    /// Where the client was last asked to run tools.
    fn called(&self, turn: TurnId) -> Option<FrameKey> {
        let log = Arc::clone(&self.turns.lock().unwrap()[&turn].1);
        log.peek(|events| {
            let calls = |event: &TurnEvent| matches!(event.body, TurnBody::ClientCalls(_));
            events.iter().rev().find(|event| calls(event)).and_then(|event| event.cursor)
        })
    }

    fn fail(&self, turn: TurnId, class: &str) {
        let class: FailureClass = serde_json::from_value(class.into()).unwrap();
        let message = "the provider said no".to_owned();
        let retry_after_ms = (class == FailureClass::RateLimited).then_some(90_500);
        let failure = ModelFailure { retry_after_ms, ..ModelFailure::new(class, message) };
        let outcome = TurnOutcome::Failed { failure };
        self.speak(turn, TurnBody::Error(outcome.error().unwrap()));
        self.speak(turn, ended(outcome));
    }

    fn events(&self, turn: TurnId, after: Option<FrameKey>) -> Following {
        let (session, log) = self.turns.lock().unwrap()[&turn].clone();
        let next = after.map_or(0, |cursor| cursor.index as usize + 1);
        self.followed.send_modify(|open| *open += 1);
        let guard = Followed(self.followed.clone());
        let events =
            stream::unfold((next, log.subscribe(), guard), |(next, mut log, guard)| async move {
                let event = log.wait_for(|events| events.len() > next).await.ok()?[next].clone();
                Some((event, (next + 1, log, guard)))
            });
        // The stream ends after `Done`.
        let events = events.scan(false, |over, event| {
            let was_over = std::mem::replace(over, matches!(event.body, TurnBody::Done(_)));
            std::future::ready((!was_over).then_some(event))
        });
        let events = events.take(self.cuts.lock().unwrap().pop_front().unwrap_or(usize::MAX));
        let cursor =
            FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(0), index: 0 };
        let session = session.key.unwrap().to_string();
        Following { accepted: AcceptedView { session, turn, cursor }, events: events.boxed() }
    }
}

/// Counts one stream while it is held.
struct Followed(watch::Sender<usize>);

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

pub(super) fn turn_of(request: &SendRequest) -> TurnId {
    InputId::derive(request.session.entity(), &request.key).into()
}

pub(super) fn completed(stop: StopReason) -> TurnBody {
    ended(TurnOutcome::Completed { stop })
}

/// The usual end of a turn whose reply had to fit a schema.
pub(super) fn structured(reply: Value) -> TurnBody {
    let outcome = Some(TurnOutcome::Completed { stop: StopReason::EndTurn });
    TurnBody::Done(StreamEnd { outcome, structured: Some(reply), ..StreamEnd::default() })
}

/// The end of the turn that says it.
fn ended(outcome: TurnOutcome) -> TurnBody {
    TurnBody::Done(StreamEnd { outcome: Some(outcome), ..StreamEnd::default() })
}

/// The one call that waits for a person.
pub(super) const CALL: CallId = CallId::from_u128(9);

pub(super) fn approval() -> Approval {
    let action = Action {
        session: "default:test:bot:ada".parse().unwrap(),
        turn: TurnId::from_u128(8),
        call: CALL,
        tool: "tool".parse().unwrap(),
        pin: None,
        capability: None,
        class: EffectClass::Once,
        timeout_ms: 1,
        arguments: "{}".to_owned(),
    };
    Approval {
        digest: action.digest().unwrap(),
        action,
        risk: Risk::Write,
        reason: None,
        about: None,
        asked: Timestamp(1),
        expires: Timestamp(2),
        decided: None,
    }
}

#[async_trait]
impl Backend for Node {
    fn route(&self, inbound: &Inbound<'_>) -> AgentName {
        let agent = if inbound.guild == Some("clan") { "clan" } else { "default" };
        agent.parse().unwrap()
    }

    fn agents_like(&self, name: &str) -> Vec<AgentName> {
        let first = if name == "clan" { ["clan", "default"] } else { ["default", "clan"] };
        first.map(|name| name.parse().unwrap()).to_vec()
    }

    async fn ready(&self) -> bool {
        !self.not_ready.load(Ordering::Relaxed)
    }

    async fn send(&self, request: SendRequest) -> Result<Following, ErrorBody> {
        self.gate.acquire().await.unwrap().forget();
        if self.uneven.load(Ordering::Relaxed) {
            let count = self.sends.fetch_add(1, Ordering::Relaxed);
            for _ in 0..100 - count.min(100) {
                tokio::task::yield_now().await;
            }
        }
        if request.session.agent.as_str() == "absent" {
            return Err(not_found("agent `absent`"));
        }
        if request.attachments.iter().any(|name| matches!(name.source, AttachmentSource::File(_))) {
            return Err(not_found("file"));
        }
        let content = request.message.content.inline().unwrap().to_owned();
        if let Some(code) = content.strip_prefix("refuse ") {
            let code: ErrorCode = serde_json::from_value(code.into()).unwrap();
            return Err(ErrorBody::new(code, "refused as told").hint("do not ask"));
        }
        let turn = turn_of(&request);
        let session = SessionRef::from(request.session.clone());
        self.last.lock().unwrap().insert(session.id, turn);
        let known = {
            let mut turns = self.turns.lock().unwrap();
            let known = turns.contains_key(&turn);
            turns.entry(turn).or_insert_with(|| (session, Arc::default()));
            known
        };
        if !known {
            self.script(turn, &content);
            self.sent.send_modify(|sent| sent.push(request));
        }
        Ok(self.events(turn, None))
    }

    async fn results(&self, request: ResultsRequest) -> Result<Following, ErrorBody> {
        let turn = self.last.lock().unwrap().get(&request.session).copied();
        let turn = turn.ok_or_else(|| not_found("turn"))?;
        let called = self.called(turn);
        let said: Vec<String> = request.results.into_iter().map(|(_, content)| content).collect();
        self.text(turn, &format!("got: {}", said.join(", ")));
        self.speak(turn, TurnBody::Usage(USAGE));
        self.done(turn);
        Ok(self.events(turn, called))
    }

    async fn follow(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
        after: Option<FrameKey>,
    ) -> Result<Following, ErrorBody> {
        self.resumed.fetch_add(1, Ordering::Relaxed);
        let last = self.last.lock().unwrap().get(&session.id).copied();
        let turn = turn.or(last).ok_or_else(|| not_found("turn"))?;
        if !self.turns.lock().unwrap().contains_key(&turn) {
            return Err(not_found("turn"));
        }
        Ok(self.events(turn, after))
    }

    async fn follow_results(&self, session: EntityId, _: CallId) -> Result<Following, ErrorBody> {
        let turn = self.last.lock().unwrap().get(&session).copied();
        let turn = turn.ok_or_else(|| not_found("turn"))?;
        Ok(self.events(turn, self.called(turn)))
    }

    async fn turn_record(
        &self,
        session: EntityId,
        turn: TurnId,
        after: Option<CallId>,
    ) -> Result<TurnRecord, ErrorBody> {
        let turns = self.turns.lock().unwrap();
        let (key, log) = turns.get(&turn).ok_or_else(|| not_found("turn"))?;
        let is_end = |event: &TurnEvent| match event.body {
            TurnBody::Done(_) => true,
            TurnBody::ClientCalls(_) => after.is_none(),
            _ => false,
        };
        let is_over = log.peek(|events| events.iter().any(is_end));
        let state = if is_over { TurnState::Over } else { TurnState::Running };
        let last = self.last.lock().unwrap().get(&session).copied();
        let next = last.filter(|last| *last != turn);
        let (is_only, metadata) = (next.is_none() && after.is_none(), self.metadata(turn));
        let (session, begun) = (key.key.clone(), Some(Timestamp(7_000)));
        Ok(TurnRecord { session, begun, state, next, is_only, metadata })
    }

    /// As many as its text has bytes.
    async fn count_tokens(
        &self,
        agent: &AgentName,
        message: UserMessage,
        attachments: Vec<NewAttachment>,
    ) -> Result<u64, ErrorBody> {
        if agent.as_str() != "default" {
            return Err(not_found("agent"));
        }
        let texts = message.history.iter().map(|message| message.content.bytes());
        let files = attachments.len() as u64 * 1_000;
        Ok(texts.sum::<u64>() + message.content.bytes() + files)
    }

    /// Remembers only how much came.
    async fn store_file(
        &self,
        session: EntityId,
        name: Option<String>,
        mut content: BoxStream<'static, Result<Bytes, ErrorBody>>,
    ) -> Result<FileView, ErrorBody> {
        let mut bytes = 0;
        while let Some(piece) = content.next().await {
            bytes += piece?.len() as u64;
        }
        let file = FileId::from_u128(session.as_u128());
        let (at, expires_at) = (Timestamp(2_500), Some(Timestamp(9_000)));
        Ok(FileView { file, media_type: MediaType::Png, bytes, name, at, expires_at })
    }

    async fn files(&self, session: EntityId) -> Result<Vec<FileView>, ErrorBody> {
        let old = self.file(session, FileId::from_u128(session.as_u128())).await?.0;
        let new = FileView { file: FileId::from_u128(7), at: Timestamp(1_000), ..old.clone() };
        Ok(vec![old, new])
    }

    async fn delete_file(&self, session: EntityId, file: FileId) -> Result<(), ErrorBody> {
        self.file(session, file).await.map(drop)
    }

    async fn file(
        &self,
        session: EntityId,
        file: FileId,
    ) -> Result<(FileView, BoxStream<'static, Result<Bytes, ErrorBody>>), ErrorBody> {
        if file.as_u128() != session.as_u128() {
            return Err(ErrorBody::new(ErrorCode::NotFound, format!("no file `{file}`")));
        }
        let (media_type, at) = (MediaType::Pdf, Timestamp(0));
        let view = FileView { file, media_type, bytes: 4, name: None, at, expires_at: None };
        let parts = [Ok(Bytes::from_static(b"%P")), Ok(Bytes::from_static(b"DF"))];
        Ok((view, stream::iter(parts).boxed()))
    }

    /// The vectors of one number each: the length of the text.
    async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        let EmbedTexts { model, texts, dimensions } = request;
        let model = model.parse().map_err(|_unknown| not_found("model"))?;
        let count = usize::try_from(dimensions.unwrap_or(1)).unwrap();
        let lengths = texts.iter().map(|text| u16::try_from(text.len()).unwrap().into());
        let vectors = lengths.map(|length: f32| Vector::new(&vec![length; count])).collect();
        Ok(Embedded { model, vectors, input_tokens: 3 })
    }

    async fn artifact(&self, _: JobId, _: Option<u32>, name: &str) -> Result<Bytes, ErrorBody> {
        match name {
            "out/page.html" => Ok(Bytes::from_static(b"<script>1</script>")),
            _ => Err(not_found("file")),
        }
    }

    fn metrics(&self, out: &mut String) {
        out.push_str("node_speaks 1\n");
    }
}

macro_rules! answers {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$($routes:tt)*])?;
    )*) => {
        /// All handlers are one here, `Node::answer`.
        #[async_trait]
        impl Answers for Node {
            $( $(
                async fn $handler(
                    &self,
                    caller: &RequestCaller,
                    params: given::$takes,
                ) -> HandlerResult<types::$answers> {
                    let answer = self.answer(Method::$variant, caller, Box::new(params))?;
                    Ok(serde_json::from_value(answer).expect("the answer that the table names"))
                }
            )? )*
        }
    };
}

clawnode_proto::methods!(answers);

/// What a method's handler is given.
fn taken<T: 'static>(params: Box<dyn Any>) -> T {
    *params.downcast().expect("the parameters that the table names")
}

impl Node {
    #[expect(clippy::too_many_lines, reason = "one flat match over the methods")]
    fn answer(
        &self,
        method: Method,
        caller: &RequestCaller,
        params: Box<dyn Any>,
    ) -> Result<Value, ErrorBody> {
        Ok(match method {
            Method::ClusterTree => match taken::<TreeParams>(params).node {
                None => json!({"processes": []}),
                Some(_) => return Err(not_found("node")),
            },
            Method::EventsList => {
                let limit = taken::<given::EventsParams>(params).0.limit.unwrap();
                json!({"events": [], "next": limit.to_string()})
            }
            Method::UsageShow => {
                json!(UsageView { by: taken::<UsageParams>(params).by, ..UsageView::default() })
            }
            Method::ChatCancel => {
                let turn = taken::<SessionTurn>(params).turn;
                self.cancelled.lock().unwrap().push(turn);
                self.speak(turn, ended(TurnOutcome::Cancelled));
                json!({"ok": true})
            }
            Method::ChatContinue => {
                let ContinuedTurn { session, turn } = taken(params);
                let last = self.last.lock().unwrap().get(&session.id).copied();
                json!({"turn": turn.or(last).ok_or_else(|| not_found("turn"))?, "steps": 25})
            }
            Method::SessionsList => self.sessions(&taken::<given::SessionsList>(params).0),
            Method::SessionsHistory => {
                let SessionRef { id, key } = taken::<SessionPage>(params).session;
                if !self.last.lock().unwrap().contains_key(&id) {
                    return Err(not_found("session"));
                }
                let key = key.as_ref().map(ToString::to_string).unwrap_or_default();
                json!({"id": id, "key": key, "state": "idle", "turns": []})
            }
            Method::SessionsExport => json!({"exported": taken::<SessionRef>(params).id}),
            Method::SessionsDelete => {
                let known = self.last.lock().unwrap().remove(&taken::<SessionRef>(params).id);
                known.ok_or_else(|| not_found("session"))?;
                json!({"ok": true})
            }
            Method::JournalShow => journal(taken(params)),
            Method::JournalVerify => {
                let row = |session: SessionRef| json!({"id": session.id, "key": null, "events": 1});
                let rows = taken::<Option<SessionRef>>(params).map(row);
                json!({"journals": rows.into_iter().collect::<Vec<_>>()})
            }
            Method::QuarantineShow => {
                let SessionRef { id, key } = taken(params);
                let key = key.as_ref().map(ToString::to_string);
                json!({
                    "session": {
                        "id": id,
                        "key": key,
                        "state": "quarantined",
                        "reason": "as told",
                        "events": 0,
                        "parked": 0,
                        "waiting": 0,
                    },
                    "inputs": [],
                })
            }
            Method::QuarantineReplay | Method::QuarantineDrop => {
                json!({"id": taken::<SessionRef>(params).id, "inputs": 0})
            }
            Method::AgentsList => {
                let agents = ["clan", "default"].map(|name| self.agent(&name.parse().unwrap()));
                json!({"agents": agents})
            }
            Method::AgentsShow => self.detail(&taken(params))?,
            Method::AgentsPause => json!(self.pause(&taken(params), true)),
            Method::AgentsResume => json!(self.pause(&taken(params), false)),
            Method::ApprovalsList => json!({"approvals": [approval()]}),
            Method::ApprovalsShow => json!(waiting(taken(params))?),
            Method::ApprovalsApprove => decide(Decision::Approve, taken(params))?,
            Method::ApprovalsDeny => decide(Decision::Deny, taken(params))?,
            Method::JobsList => json!({"jobs": [], "more": taken::<JobFilter>(params).limit}),
            Method::JobsShow => job(taken(params)),
            Method::JobsLogs => {
                let LogFilter { job, after: next, search, .. } = taken(params);
                json!({
                    "job": job,
                    "run": 1,
                    "runs": 1,
                    "status": JobStatus::Done,
                    "lines": [],
                    "next": Cursor::new(Method::JobsLogs, Pair(job, Pair(1, next))),
                    "over": true,
                    "lost": search.into_iter().collect::<Vec<_>>(),
                })
            }
            Method::JobsClean => {
                let jobs = taken::<CleanFilter>(params).older_than_ms;
                json!(CleanView { jobs, ..CleanView::default() })
            }
            Method::PolicyCheck => json!({
                "allowed": true,
                "requires_approval": true,
                "risk_level": Risk::Write,
                "verdict": Verdict::Ask,
                "agent": "default",
                "action": taken::<PolicyCheck>(params).action,
            }),
            Method::SchedulerDiagnose => {
                let fallback = taken::<DiagnoseParams>(params).fallback;
                json!({
                    "capabilities": [],
                    "weights": ScoreWeights::ALL,
                    "candidates": [],
                    "selected": fallback.as_ref().and_then(|name| name.parse::<NodeName>().ok()),
                    "fallback_used": fallback.is_some(),
                })
            }
            Method::Execute => execute(taken(params))?,
            Method::ExecuteShow | Method::ExecuteCancel => {
                let ExecutionWait { execution, wait } = taken(params);
                if execution.as_u128() == 0 {
                    return Err(not_found("execution"));
                }
                executed(&"shown".parse().unwrap(), None, !wait.is_zero())
            }
            Method::McpList => json!({"servers": [clock()]}),
            Method::McpShow => mcp(&taken(params))?,
            Method::McpApprove => mcp(&taken::<McpApproval>(params).server)?,
            Method::NodesDrain => node(&taken::<NodesDrain>(params).node, true, false)?,
            Method::NodesCordon => node(&taken::<NodeParams>(params).node, false, true)?,
            Method::NodesUncordon => node(&taken::<NodeParams>(params).node, false, false)?,
            Method::Panic => {
                let Checked(PanicParams { scope, why, wait_ms: _ }) = taken(params);
                let (id, scope) = (SwitchId::from_u128(1), scope.unwrap_or(SwitchScope::All));
                let by = caller.credential.to_owned();
                let switch = KillSwitch { id, scope, by, at: Timestamp(0), why };
                *self.switch.lock().unwrap() = Some(switch.clone());
                json!({"latch": switch, "on": true, "nodes": []})
            }
            Method::PanicList => {
                let switches: Vec<KillSwitch> =
                    self.switch.lock().unwrap().iter().cloned().collect();
                json!({"latches": switches})
            }
            Method::PanicClear => {
                let id = taken::<given::PanicClear>(params).0.switch;
                let switch = self.switch.lock().unwrap().take_if(|switch| switch.id == id);
                json!({"latch": switch.ok_or_else(|| not_found("latch"))?, "on": false, "nodes": []})
            }
            // No test looks at what is in it.
            other => example::answer(other),
        })
    }

    fn sessions(&self, page: &SessionsList) -> Value {
        let mut ids: Vec<_> = self.last.lock().unwrap().keys().copied().collect();
        ids.sort();
        ids.truncate(page.limit.unwrap() as usize);
        let row = |id: EntityId| {
            json!({
                "id": id,
                "key": null,
                "state": "idle",
                "turns": 1,
                "events": 1,
                "updated": 0,
                "usage": Usage::default(),
                "stateless": page.stateless,
                "detail": page.cursor.as_ref().map(Cursor::as_str).or(page.since.as_deref()),
            })
        };
        json!({"sessions": ids.into_iter().map(row).collect::<Vec<_>>()})
    }

    fn agent(&self, agent: &AgentName) -> AgentView {
        AgentView {
            agent: agent.clone(),
            model: "demo/demo".parse().unwrap(),
            system: String::new(),
            step_limit: 1,
            max_turns: 1,
            lane: Lane::default(),
            weight: 1,
            running: 0,
            waiting: 0,
            paused: self.paused.lock().unwrap().contains(agent),
            pause: None,
            stopped: None,
        }
    }

    fn detail(&self, agent: &AgentName) -> Result<Value, ErrorBody> {
        if agent.as_str() == "absent" {
            return Err(not_found("agent"));
        }
        Ok(json!(AgentDetail {
            view: self.agent(agent),
            models: Vec::new(),
            response_schema: None,
            sampling: Sampling::default(),
            window_tokens: 1,
            context: None,
            memory: None,
            skills: Vec::new(),
            time: TurnTime::default(),
            limits: AgentLimits::default(),
            max_parallel_tools: 1,
            policy: Policy::default(),
            hooks: Vec::new(),
            tools: Vec::new(),
            missing: Vec::new(),
            warnings: Vec::new(),
        }))
    }

    fn pause(&self, agent: &AgentName, paused: bool) -> AgentView {
        let mut all = self.paused.lock().unwrap();
        all.retain(|name| name != agent);
        if paused {
            all.push(agent.clone());
        }
        drop(all);
        self.agent(agent)
    }
}

fn journal(page: SessionPage) -> Value {
    let SessionPage { session, after, limit } = page;
    let after =
        after.map(|cursor| cursor.read::<Pair<EntityId, u64>>(Method::JournalShow).unwrap().1);
    let after = after.unwrap_or_default();
    let incarnation = Incarnation { process: ProcessId::from_u128(1), counter: 1 };
    let event = |n: u64| {
        json!({
            "n": n,
            "kind": "claim",
            "eid": EventId::from_u128(n.into()),
            "epoch": 1,
            "incarnation": incarnation,
            "ts": 0,
            "hash": Digest::ZERO,
            "body": null,
        })
    };
    let last = after + limit as u64;
    let next = Cursor::new(Method::JournalShow, Pair(session.id, last));
    json!({"events": (after + 1..=last).map(event).collect::<Vec<_>>(), "next": next})
}

fn waiting(call: CallId) -> Result<Approval, ErrorBody> {
    if call == CALL { Ok(approval()) } else { Err(not_found("call")) }
}

fn decide(decision: Decision, decided: CallDecision) -> Result<Value, ErrorBody> {
    let CallDecision { call, action, reason } = decided;
    let approval = waiting(call)?;
    if approval.digest != action {
        return Err(ErrorBody::new(ErrorCode::Conflict, "another action"));
    }
    let decided = Decided { decision, by: "test".to_owned(), reason };
    Ok(json!(Approval { decided: Some(decided), ..approval }))
}

fn job(job: JobId) -> Value {
    let Action { session, turn, call, tool, arguments, .. } = approval().action;
    let (capability, runs) = ("docker".parse().unwrap(), Vec::new());
    let record = JobRecord { job, session, turn, call, tool, capability, arguments, runs };
    json!(record.view(|_| false))
}

fn execute(request: ExecuteRequest) -> Result<Value, ErrorBody> {
    if request.request.as_str() == "taken" {
        return Err(ErrorBody::new(ErrorCode::Conflict, "another plan has this name"));
    }
    if request.spec.steps.is_empty() {
        return Err(ErrorBody::new(ErrorCode::Unavailable, "no node has `docker`"));
    }
    Ok(executed(&request.request, request.agent, !request.wait.is_zero()))
}

fn executed(request: &IdempotencyKey, agent: Option<AgentName>, is_over: bool) -> Value {
    let agent = agent.unwrap_or_else(|| "default".parse().unwrap());
    let session = SessionKey::of_execution(agent.clone(), request);
    json!({
        "execution_id": ExecutionId::of(session.entity()),
        "request_id": request,
        "status": if is_over { ExecutionStatus::Succeeded } else { ExecutionStatus::Created },
        "session": session,
        "turn": TurnId::from_u128(1),
        "agent": agent,
        "steps": [],
    })
}

fn clock() -> McpServerView {
    McpServerView::new("clock".parse().unwrap(), None)
}

fn mcp(server: &McpServerName) -> Result<Value, ErrorBody> {
    let known = Some(clock()).filter(|clock| clock.server == *server);
    known.map(|clock| json!(clock)).ok_or_else(|| not_found("MCP server"))
}

fn node(name: &str, draining: bool, cordoned: bool) -> Result<Value, ErrorBody> {
    name.parse::<NodeName>().map_err(|_name| not_found(&format!("node `{name}`")))?;
    Ok(json!({
        "node": name,
        "process": ProcessId::from_u128(7),
        "version": "0",
        "roles": [],
        "started": 0,
        "draining": draining,
        "cordoned": cordoned,
        "entities": 0,
        "config": Digest::ZERO,
    }))
}

fn not_found(what: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("there is no {what}"))
}

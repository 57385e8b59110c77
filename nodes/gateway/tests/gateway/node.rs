//! A scripted node: turns live in memory and say what the message asks for.
//!
//! A message `hold` waits for the test to speak; `refuse CODE` is not accepted; `fail CLASS` fails
//! before the first word, `break` after it; all else is echoed.

use std::{
    collections::BTreeSet,
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::Peek as _;
use clawnode_gateway::{
    Backend, CleanFilter, ExecuteRequest, Following, JobArchive, JobFilter, LogFilter, NodeOrder,
    SendRequest, SessionRef,
};
use clawnode_proto::{
    AgentName, Attempt, CallId, Digest, EntityId, ErrorBody, ErrorCode, ExecutionId, FrameKey,
    IdempotencyKey, InputId, JobId, LatchId, McpServerName, ProcessId, Seq, SessionKey, Timestamp,
    Traceparent, TurnId,
    agents::{AgentDetail, AgentList, AgentView},
    api::{EventsParams, ListParams, PanicClear, PanicParams, PolicyCheck, SessionsList},
    archive::{ArchiveStats, CleanView, JobList, JobRecord, JobStatus, JobView, LogView},
    execute::{ExecutionStatus, ExecutionView},
    latch::{Latch, LatchList, LatchScope, PanicView},
    llm::{FailureClass, ModelFailure, Sampling, StopReason, Usage},
    mcp::{McpList, McpServerView},
    node::{Load, VersionRange},
    overview::{FeedView, NodeList, PartitionList, TreeView},
    policy::{Action, Approval, Decided, Decision, Policy, Verdict},
    provider::{DiagnoseParams, DiagnoseView, ProvidersView, ScoreWeights},
    route::Inbound,
    session::TurnOutcome,
    timeout::TurnTime,
    tool::{EffectClass, Risk},
    turn::{TurnBody, TurnEvent},
    usage::{UsageParams, UsageView},
    view::{
        AcceptedView, ApprovalList, ContinuedView, EventView, HistoryView, NodeView, ParkedList,
        PolicyView, QuarantineDone, QuarantineList, QuarantineRow, QuarantineView, SessionList,
        SessionRow, StatusView, VerifyRow, VerifyView,
    },
};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{Semaphore, watch};

pub(super) const USAGE: Usage =
    Usage { input_tokens: 3, output_tokens: 2, cache_read_tokens: 1, cache_write_tokens: 0 };

type Log = watch::Sender<Vec<TurnEvent>>;

#[derive(Debug)]
pub(super) struct Node {
    turns: Mutex<HashMap<TurnId, (SessionRef, Arc<Log>)>>,
    last: Mutex<HashMap<EntityId, TurnId>>,
    /// What was stored, in order.
    pub(super) sent: watch::Sender<Vec<SendRequest>>,
    pub(super) cancelled: Mutex<Vec<TurnId>>,
    pub(super) paused: Mutex<Vec<AgentName>>,
    pub(super) latch: Mutex<Option<Latch>>,
    pub(super) not_ready: AtomicBool,
    /// Streams that somebody follows.
    pub(super) followed: watch::Sender<usize>,
    pub(super) resumed: AtomicUsize,
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
            latch: Mutex::default(),
            not_ready: AtomicBool::new(false),
            followed: watch::Sender::default(),
            resumed: AtomicUsize::new(0),
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
            for body in bodies {
                let index = u32::try_from(events.len()).unwrap();
                let cursor =
                    FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index };
                events.push(TurnEvent { cursor, body });
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
        let fits = |it: &&SendRequest| it.message.content.inline() == Some(content);
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
            ("restart", again) => {
                self.text(turn, "one two");
                self.speak(turn, TurnBody::Reset { text: String::new() });
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

    fn fail(&self, turn: TurnId, class: &str) {
        let class: FailureClass = serde_json::from_value(class.into()).unwrap();
        let message = "the provider said no".to_owned();
        let retry_after_ms = (class == FailureClass::RateLimited).then_some(90_500);
        let failure = ModelFailure { retry_after_ms, ..ModelFailure::new(class, message) };
        let outcome = TurnOutcome::Failed { failure };
        self.speak(turn, TurnBody::Error(outcome.error().unwrap()));
        self.speak(turn, TurnBody::Done(outcome));
    }

    fn view(&self, agent: &AgentName) -> AgentView {
        AgentView {
            agent: agent.clone(),
            model: "demo/demo".parse().unwrap(),
            system: String::new(),
            step_limit: 1,
            max_turns: 1,
            running: 0,
            waiting: 0,
            paused: self.paused.lock().unwrap().contains(agent),
            stopped: None,
        }
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
        let cursor =
            FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(0), index: 0 };
        let session = session.key.unwrap().to_string();
        Following { accepted: AcceptedView { session, turn, cursor }, events: events.boxed() }
    }
}

/// Counts one stream while somebody holds it.
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
    TurnBody::Done(TurnOutcome::Completed { stop })
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
        asked: clawnode_proto::Timestamp(1),
        expires: clawnode_proto::Timestamp(2),
        decided: None,
    }
}

fn clock() -> McpServerView {
    McpServerView::new("clock".parse().unwrap(), None)
}

#[async_trait]
impl JobArchive for Node {
    async fn list(&self, filter: JobFilter) -> Result<JobList, ErrorBody> {
        Ok(JobList { jobs: Vec::new(), more: filter.limit as u64 })
    }

    async fn show(&self, job: JobId) -> Result<JobView, ErrorBody> {
        let Action { session, turn, call, tool, arguments, .. } = approval().action;
        let (capability, runs) = ("docker".parse().unwrap(), Vec::new());
        let record = JobRecord { job, session, turn, call, tool, capability, arguments, runs };
        Ok(record.view(|_| false))
    }

    async fn log(&self, filter: LogFilter) -> Result<LogView, ErrorBody> {
        Ok(LogView {
            job: filter.job,
            run: 1,
            runs: 1,
            status: JobStatus::Done,
            lines: Vec::new(),
            cut: None,
            next: filter.after,
            over: true,
            lost: filter.search.into_iter().collect(),
        })
    }

    async fn artifact(&self, _: JobId, _: Option<u32>, name: &str) -> Result<Bytes, ErrorBody> {
        match name {
            "out/page.html" => Ok(Bytes::from_static(b"<script>1</script>")),
            _ => Err(not_found("file")),
        }
    }

    async fn clean(&self, filter: CleanFilter) -> Result<CleanView, ErrorBody> {
        Ok(CleanView { jobs: filter.older_than_ms, ..CleanView::default() })
    }

    async fn stats(&self) -> Result<ArchiveStats, ErrorBody> {
        Ok(ArchiveStats::default())
    }
}

fn executed(request: IdempotencyKey, agent: Option<AgentName>, is_over: bool) -> ExecutionView {
    let agent = agent.unwrap_or_else(|| "default".parse().unwrap());
    let session = SessionKey::of_execution(agent.clone(), &request);
    ExecutionView {
        execution_id: ExecutionId::of(session.entity()),
        request_id: request,
        status: if is_over { ExecutionStatus::Succeeded } else { ExecutionStatus::Created },
        session,
        turn: TurnId::from_u128(1),
        agent,
        created: None,
        started: None,
        ended: None,
        duration_ms: None,
        error: None,
        steps: Vec::new(),
    }
}

fn not_found(what: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("there is no {what}"))
}

#[async_trait]
impl Backend for Node {
    fn route(&self, inbound: &Inbound<'_>) -> AgentName {
        let agent = if inbound.guild == Some("clan") { "clan" } else { "default" };
        agent.parse().unwrap()
    }

    async fn ready(&self) -> bool {
        !self.not_ready.load(Ordering::Relaxed)
    }

    async fn status(&self) -> Result<StatusView, ErrorBody> {
        Ok(StatusView {
            version: "test".to_owned(),
            process: ProcessId::from_u128(1),
            substrate: "script".to_owned(),
            partitions: 1,
            model: "demo/demo".to_owned(),
            plugins: Vec::new(),
            sessions: self.last.lock().unwrap().len() as u64,
            running: 0,
            approvals: Some(0),
            nodes: Vec::new(),
            dead: Vec::new(),
            bus: None,
            quarantined: Vec::new(),
            looked: None,
            warnings: Vec::new(),
        })
    }

    async fn nodes(&self) -> NodeList {
        NodeList::default()
    }

    async fn partitions(&self) -> PartitionList {
        PartitionList::default()
    }

    async fn usage(&self, wanted: UsageParams) -> Result<UsageView, ErrorBody> {
        Ok(UsageView { by: wanted.by, ..UsageView::default() })
    }

    async fn tree(&self, node: Option<&str>) -> Result<TreeView, ErrorBody> {
        match node {
            None => Ok(TreeView::default()),
            Some(_) => Err(not_found("node")),
        }
    }

    async fn events(&self, page: EventsParams) -> FeedView {
        FeedView { next: page.limit.unwrap().into(), ..FeedView::default() }
    }

    async fn send(&self, request: SendRequest) -> Result<Following, ErrorBody> {
        self.gate.acquire().await.unwrap().forget();
        if self.uneven.load(Ordering::Relaxed) {
            let count = self.sends.fetch_add(1, Ordering::Relaxed);
            for _ in 0..100 - count.min(100) {
                tokio::task::yield_now().await;
            }
        }
        if request.session.agent.as_str() == "nobody" {
            return Err(not_found("agent `nobody`"));
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

    async fn cancel(
        &self,
        _: &SessionRef,
        turn: TurnId,
        _: Option<Traceparent>,
    ) -> Result<(), ErrorBody> {
        self.cancelled.lock().unwrap().push(turn);
        self.speak(turn, TurnBody::Done(TurnOutcome::Cancelled));
        Ok(())
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

    async fn sessions(&self, page: SessionsList) -> Result<SessionList, ErrorBody> {
        let mut ids: Vec<_> = self.last.lock().unwrap().keys().copied().collect();
        ids.sort();
        ids.truncate(page.limit.unwrap() as usize);
        let row = |id| SessionRow {
            id,
            key: None,
            title: None,
            state: "idle".to_owned(),
            turns: 1,
            events: 1,
            updated: clawnode_proto::Timestamp(0),
            usage: Usage::default(),
            owner: None,
            node: None,
            stateless: page.stateless,
            detail: page.after.clone().or(page.since.clone()),
        };
        let sessions = ids.into_iter().map(row).collect();
        Ok(SessionList { sessions, ..SessionList::default() })
    }

    async fn history(&self, session: &SessionRef) -> Result<HistoryView, ErrorBody> {
        if !self.last.lock().unwrap().contains_key(&session.id) {
            return Err(not_found("session"));
        }
        let key = session.key.as_ref().map(ToString::to_string).unwrap_or_default();
        Ok(HistoryView { id: session.id, key, state: "idle".to_owned(), turns: Vec::new() })
    }

    async fn export(&self, session: &SessionRef) -> Result<serde_json::Value, ErrorBody> {
        Ok(serde_json::json!({"exported": session.id}))
    }

    async fn delete(&self, session: &SessionRef) -> Result<(), ErrorBody> {
        let known = self.last.lock().unwrap().remove(&session.id);
        known.map(|_| ()).ok_or_else(|| not_found("session"))
    }

    async fn journal(
        &self,
        _: &SessionRef,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<EventView>, ErrorBody> {
        let event = |n| EventView {
            n: Seq(n),
            kind: "claim".to_owned(),
            eid: clawnode_proto::EventId::from_u128(u128::from(n)),
            epoch: clawnode_proto::Epoch(1),
            incarnation: clawnode_proto::Incarnation {
                process: ProcessId::from_u128(1),
                counter: 1,
            },
            ts: clawnode_proto::Timestamp(0),
            hash: Digest::ZERO,
            body: serde_json::Value::Null,
        };
        Ok((after.0 + 1..=after.0 + u64::from(limit)).map(event).collect())
    }

    async fn verify(&self, session: Option<&SessionRef>) -> Result<VerifyView, ErrorBody> {
        let row =
            |id| VerifyRow { id, key: None, kind: None, events: 1, head: None, problem: None };
        Ok(VerifyView { journals: session.map(|it| row(it.id)).into_iter().collect() })
    }

    async fn quarantined(&self, _: ListParams) -> Result<QuarantineList, ErrorBody> {
        Ok(QuarantineList::default())
    }

    async fn quarantine(&self, session: &SessionRef) -> Result<QuarantineView, ErrorBody> {
        let session = QuarantineRow {
            id: session.id,
            key: session.key.as_ref().map(ToString::to_string),
            state: "quarantined".to_owned(),
            reason: "as told".to_owned(),
            since: None,
            events: 0,
            parked: 0,
            waiting: 0,
        };
        Ok(QuarantineView { session, inputs: Vec::new() })
    }

    async fn replay(&self, session: &SessionRef) -> Result<QuarantineDone, ErrorBody> {
        Ok(QuarantineDone { id: session.id, key: None, inputs: 0 })
    }

    async fn bury(&self, session: &SessionRef) -> Result<QuarantineDone, ErrorBody> {
        Ok(QuarantineDone { id: session.id, key: None, inputs: 0 })
    }

    async fn parked(&self, _: ListParams) -> Result<ParkedList, ErrorBody> {
        Ok(ParkedList::default())
    }

    async fn drop_letter(&self, _: &str) -> Result<(), ErrorBody> {
        Ok(())
    }

    async fn agents(&self) -> Result<AgentList, ErrorBody> {
        let names = ["clan", "default"];
        Ok(AgentList { agents: names.map(|name| self.view(&name.parse().unwrap())).to_vec() })
    }

    async fn agent(&self, agent: &AgentName) -> Result<AgentDetail, ErrorBody> {
        if agent.as_str() == "nobody" {
            return Err(not_found("agent"));
        }
        Ok(AgentDetail {
            view: self.view(agent),
            sampling: Sampling::default(),
            window_tokens: 1,
            time: TurnTime::default(),
            max_parallel_tools: 1,
            policy: Policy::default(),
            hooks: Vec::new(),
            tools: Vec::new(),
            missing: Vec::new(),
        })
    }

    async fn pause(&self, agent: &AgentName, paused: bool) -> Result<AgentView, ErrorBody> {
        let mut all = self.paused.lock().unwrap();
        all.retain(|name| name != agent);
        if paused {
            all.push(agent.clone());
        }
        drop(all);
        Ok(self.view(agent))
    }

    async fn approvals(&self) -> Result<ApprovalList, ErrorBody> {
        Ok(ApprovalList { approvals: vec![approval()] })
    }

    async fn approval(&self, call: CallId) -> Result<Approval, ErrorBody> {
        if call == CALL { Ok(approval()) } else { Err(not_found("call")) }
    }

    async fn decide(
        &self,
        call: CallId,
        action: Digest,
        decision: Decision,
        reason: Option<String>,
    ) -> Result<Approval, ErrorBody> {
        let approval = self.approval(call).await?;
        if approval.digest != action {
            return Err(ErrorBody::new(ErrorCode::Conflict, "another action"));
        }
        let decided = Decided { decision, by: "test".to_owned(), reason };
        Ok(Approval { decided: Some(decided), ..approval })
    }

    async fn providers(&self) -> ProvidersView {
        ProvidersView { healthy: 0, unhealthy: 0, standby: 0, unknown: 0, providers: Vec::new() }
    }

    async fn diagnose(&self, params: &DiagnoseParams) -> Result<DiagnoseView, ErrorBody> {
        Ok(DiagnoseView {
            capabilities: BTreeSet::new(),
            weights: ScoreWeights::ALL,
            candidates: Vec::new(),
            selected: params.fallback.as_ref().and_then(|it| it.parse().ok()),
            fallback_used: params.fallback.is_some(),
        })
    }

    async fn execute(&self, request: ExecuteRequest) -> Result<ExecutionView, ErrorBody> {
        let steps = request.spec.steps.len();
        if request.request.as_str() == "taken" {
            return Err(ErrorBody::new(ErrorCode::Conflict, "another plan has this name"));
        }
        if steps == 0 {
            return Err(ErrorBody::new(ErrorCode::Unavailable, "no node has `docker`"));
        }
        Ok(executed(request.request, request.agent, !request.wait.is_zero()))
    }

    async fn execution(
        &self,
        execution: ExecutionId,
        wait: Duration,
    ) -> Result<ExecutionView, ErrorBody> {
        if execution.as_u128() == 0 {
            return Err(not_found("execution"));
        }
        Ok(executed("shown".parse().unwrap(), None, !wait.is_zero()))
    }

    async fn cancel_execution(
        &self,
        execution: ExecutionId,
        wait: Duration,
        _: Option<Traceparent>,
    ) -> Result<ExecutionView, ErrorBody> {
        self.execution(execution, wait).await
    }

    async fn check(&self, check: PolicyCheck) -> Result<PolicyView, ErrorBody> {
        Ok(PolicyView {
            allowed: true,
            requires_approval: true,
            risk_level: Risk::Write,
            verdict: Verdict::Ask,
            reason: None,
            agent: "default".parse().unwrap(),
            action: check.action,
        })
    }

    async fn go_on(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
    ) -> Result<ContinuedView, ErrorBody> {
        let last = self.last.lock().unwrap().get(&session.id).copied();
        let turn = turn.or(last).ok_or_else(|| not_found("turn"))?;
        Ok(ContinuedView { turn, steps: 25 })
    }

    fn archive(&self) -> &dyn JobArchive {
        self
    }

    async fn mcp_servers(&self) -> McpList {
        McpList { servers: vec![clock()] }
    }

    async fn mcp_server(&self, server: &McpServerName) -> Result<McpServerView, ErrorBody> {
        Some(clock()).filter(|it| it.server == *server).ok_or_else(|| not_found("MCP server"))
    }

    async fn approve_mcp(
        &self,
        server: &McpServerName,
        _: Option<&str>,
        _: Option<&str>,
    ) -> Result<McpServerView, ErrorBody> {
        self.mcp_server(server).await
    }

    async fn order(&self, node: &str, order: NodeOrder) -> Result<NodeView, ErrorBody> {
        Ok(NodeView {
            node: node.parse().map_err(|_name| not_found(&format!("node `{node}`")))?,
            process: ProcessId::from_u128(7),
            version: "0".to_owned(),
            roles: Vec::new(),
            started: clawnode_proto::Timestamp(0),
            draining: matches!(order, NodeOrder::Drain { .. }),
            cordoned: order == NodeOrder::Cordon,
            entities: 0,
            config: Digest::ZERO,
            speaks: VersionRange::default(),
            capabilities: BTreeSet::new(),
            load: Load::default(),
            shed: 0,
            first_of: 0,
            url: None,
        })
    }

    async fn panic(
        &self,
        params: PanicParams,
        credential: &'static str,
    ) -> Result<PanicView, ErrorBody> {
        let latch = Latch {
            id: LatchId::from_u128(1),
            scope: params.scope.unwrap_or(LatchScope::All),
            by: credential.to_owned(),
            at: Timestamp(0),
            why: params.why,
        };
        *self.latch.lock().unwrap() = Some(latch.clone());
        Ok(PanicView { latch, on: true, already: false, nodes: Vec::new() })
    }

    async fn panics(&self) -> LatchList {
        LatchList { latches: self.latch.lock().unwrap().iter().cloned().collect() }
    }

    async fn clear_panic(
        &self,
        params: PanicClear,
        _: &'static str,
    ) -> Result<PanicView, ErrorBody> {
        let mut latch = self.latch.lock().unwrap();
        match latch.take_if(|latch| latch.id == params.latch) {
            Some(latch) => Ok(PanicView { latch, on: false, already: false, nodes: Vec::new() }),
            None => Err(not_found("latch")),
        }
    }

    fn metrics(&self, out: &mut String) {
        out.push_str("node_speaks 1\n");
    }
}

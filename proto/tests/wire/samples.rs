//! One value of every variant, made of fixed ids.

use clawnode_proto::{
    AgentName, Attempt, CallId, Capability, Digest, EntityId, Epoch, ErrorBody, ErrorCode, EventId,
    Frame, FrameBody, FrameKey, IdempotencyKey, Incarnation, Input, JobId, Kind, NodeName, Order,
    ProcessId, Seq, Tail, TimerId, Timestamp, Traceparent, TurnId,
    feed::{ClusterEvent, EventBatch, EventBody},
    frame::FrameBatch,
    job::{Job, JobState},
    kernel::{
        Accepted, Born, Claim, Deleted, Emitted, KernelEvent, Parked, Quarantined, Released,
        Remembered, Restored, Snapshot, SnapshotState,
    },
    llm::{
        FailureClass, Message, ModelFailure, ModelRef, Role, Sampling, StopReason, Text, Usage,
        UsageRecord,
    },
    node::{Hearsay, Heartbeat, Load, NodeReply, NodeRequest, NodeRole, VersionRange},
    session::{
        ModelBegun, ModelDone, ModelFailed, Profile, Reply, SessionEvent, SessionInput, Settled,
        ToolAsked, ToolDone, ToolEnd, ToolResult, ToolUncertain, TurnDone, TurnOutcome,
        UserMessage,
    },
    tool::{EffectClass, LoopGuard, Risk, ToolFailure, ToolOutcome, ToolReply, ToolSpec, ToolUse},
    tree::{Branch, ProcessTree},
};
use serde_bytes::ByteBuf;

pub(crate) const KEY: &str = "default:web:site:ada";

pub(crate) fn entity() -> EntityId {
    EntityId::derive(Kind::Session, KEY)
}

pub(crate) fn turn() -> TurnId {
    TurnId::from_u128(7)
}

pub(crate) fn call() -> CallId {
    CallId::derive(turn(), 0)
}

pub(crate) fn process() -> ProcessId {
    ProcessId::from_u128(5)
}

pub(crate) fn incarnation() -> Incarnation {
    Incarnation { process: process(), counter: 3 }
}

pub(crate) fn name<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().unwrap()
}

fn usage() -> Usage {
    Usage { input_tokens: 12, output_tokens: 300, cache_read_tokens: 4, cache_write_tokens: 1 }
}

fn failure() -> ModelFailure {
    ModelFailure {
        class: FailureClass::RateLimited,
        message: "slow down".to_owned(),
        status: Some(429),
    }
}

fn sampling() -> Sampling {
    Sampling { temperature: Some(0.5), max_tokens: Some(64), stop: vec!["END".to_owned()] }
}

fn model() -> ModelRef {
    name("openai/vendor/model-1")
}

pub(crate) fn user_message() -> UserMessage {
    UserMessage {
        content: "hello".into(),
        history: vec![Message::text(Role::User, "before")],
        system: Some("be brief".to_owned()),
        sampling: sampling(),
    }
}

/// The smallest message: what most of them are.
pub(crate) fn input() -> Input {
    let body = SessionInput::UserMessage(UserMessage::text("hello"));
    let mut input =
        Input::new(Kind::Session, KEY, name::<IdempotencyKey>("key-1"), Timestamp(1_000), &body)
            .unwrap();
    input.traceparent =
        Some(Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()));
    input
}

/// What an operator says about a session, by its id alone.
pub(crate) fn order() -> Input {
    Input::order(Kind::Session, entity(), Digest::of(b"tail"), Timestamp(1_000), Order::Restore)
}

pub(crate) fn session_inputs() -> Vec<SessionInput> {
    vec![
        SessionInput::UserMessage(user_message()),
        SessionInput::UserMessage(UserMessage::text("hello")),
        SessionInput::Steer(UserMessage::text("wait")),
        SessionInput::Cancel { turn: turn() },
        SessionInput::Delete,
        SessionInput::TimerFired { timer: TimerId::from(tool_call()) },
        tool_result(ToolEnd::Known { outcome: ToolOutcome::done("12:00") }),
        tool_result(ToolEnd::Uncertain { detail: "worker-1 died".to_owned() }),
    ]
}

fn tool_result(end: ToolEnd) -> SessionInput {
    SessionInput::ToolResult(ToolResult { call: tool_call(), nonce: EventId::from_u128(3), end })
}

fn tool_call() -> CallId {
    CallId::derive_tool(call(), 0)
}

pub(crate) fn tool_use() -> ToolUse {
    let arguments = r#"{"timezone":"UTC"}"#.to_owned();
    ToolUse { id: "toolu_1".to_owned(), name: "time_now".to_owned(), arguments }
}

fn spec(capability: Option<Capability>, class: EffectClass, risk: Risk) -> ToolSpec {
    ToolSpec {
        name: name("time_now"),
        description: "Tells the time.".to_owned(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        class,
        risk,
        capability,
        timeout_ms: 1_000,
    }
}

/// A message of each kind that tools bring about.
pub(crate) fn tool_messages() -> Vec<Message> {
    let reply = ToolReply { id: "toolu_1".to_owned(), content: "12:00".into(), is_error: true };
    vec![
        Message { tool_uses: vec![tool_use()], ..Message::text(Role::Assistant, "") },
        Message { tool_replies: vec![reply], ..Message::text(Role::User, "and?") },
    ]
}

pub(crate) fn job() -> Job {
    Job {
        id: JobId::from(tool_call()),
        capability: name("docker"),
        session: name(KEY),
        turn: turn(),
        call: tool_call(),
        nonce: EventId::from_u128(3),
        tool: name("shell"),
        arguments: r#"{"command":"true"}"#.to_owned(),
        class: EffectClass::Once,
        timeout_ms: 30_000,
        traceparent: None,
    }
}

pub(crate) fn job_states() -> Vec<JobState> {
    vec![
        JobState::Started { process: process(), run: 4, attempt: 2, at: Timestamp(9) },
        JobState::Done { outcome: ToolOutcome::failed(ToolFailure::TimedOut, "half") },
        JobState::Uncertain { detail: "worker-1 died".to_owned() },
        JobState::Revoked,
        JobState::Closed,
    ]
}

pub(crate) fn kernel_events() -> Vec<KernelEvent> {
    let tail = Tail {
        n: Seq(200),
        hash: Digest::of(b"tail"),
        epoch: Epoch(2),
        ts: Timestamp(1_700_000_000_000),
    };
    let inline = SnapshotState::Inline { bytes: ByteBuf::from(vec![1, 2, 255]) };
    let blob = SnapshotState::Blob { digest: Digest::of(b"state") };
    vec![
        Claim {}.into(),
        Born { kind: Kind::Session, key: KEY.to_owned() }.into(),
        Accepted { input: input() }.into(),
        Emitted { turn: turn() }.into(),
        Snapshot { tail, archive: None, state: inline }.into(),
        Snapshot { tail, archive: Some(Digest::of(b"archive")), state: blob }.into(),
        Parked { input: input() }.into(),
        Quarantined { reason: "5 claims without progress".to_owned() }.into(),
        Released {}.into(),
        Deleted { at: Timestamp(9), dropped: Vec::new() }.into(),
        Deleted { at: Timestamp(9), dropped: vec![input().id] }.into(),
        Restored { input: order() }.into(),
    ]
}

pub(crate) fn remembered() -> Remembered {
    Remembered { input: input().id, ts: Timestamp(4), n: Seq(3) }
}

fn profile() -> Profile {
    Profile {
        agent: name::<AgentName>("default"),
        model: model(),
        system: "be kind".to_owned(),
        sampling: sampling(),
        window_tokens: 100_000,
        step_limit: 25,
        tools: Vec::new(),
        max_parallel_tools: Profile::parallel_tools(),
        loop_guard: LoopGuard::default(),
    }
}

pub(crate) fn session_events() -> Vec<SessionEvent> {
    let attempt = Attempt(2);
    let ended = |outcome| SessionEvent::from(TurnDone { turn: turn(), outcome });
    let done = |content, stop| {
        let model = "model-1".to_owned();
        let tool_uses = Vec::new();
        ModelDone { call: call(), attempt, content, stop, usage: usage(), model, tool_uses }
    };
    let (turn, tool) = (turn(), tool_call());
    let tool_done = |outcome| SessionEvent::from(ToolDone { turn, call: tool, outcome });
    let blob = Text::Blob { digest: Digest::of(b"long"), bytes: 300_000 };
    let profile = profile();
    let docker: Capability = name("docker");
    let tools = vec![
        spec(None, EffectClass::Safe, Risk::ReadOnly),
        spec(Some(docker.clone()), EffectClass::Idempotent, Risk::Write),
        spec(Some(docker.clone()), EffectClass::Check, Risk::Write),
        spec(Some(docker), EffectClass::Once, Risk::Admin),
    ];
    let loop_guard = LoopGuard { warn: 2, refuse: 3, end: 4 };
    vec![
        profile.clone().into(),
        Profile { tools, max_parallel_tools: 2, loop_guard, ..profile }.into(),
        ModelBegun {
            turn,
            call: call(),
            attempt,
            request: Digest::of(b"request"),
            dropped_turns: 1,
        }
        .into(),
        done("hi".into(), StopReason::EndTurn).into(),
        done(blob, StopReason::Other { reason: "novel".to_owned() }).into(),
        done("".into(), StopReason::Refusal).into(),
        done("cut".into(), StopReason::MaxTokens).into(),
        done("END".into(), StopReason::StopSequence).into(),
        ModelDone { tool_uses: vec![tool_use()], ..done("".into(), StopReason::ToolUse) }.into(),
        ModelFailed {
            call: call(),
            attempt,
            failure: failure(),
            partial: "h".into(),
            usage: Usage::default(),
        }
        .into(),
        Reply { turn, call: call() }.into(),
        ended(TurnOutcome::Completed { stop: StopReason::EndTurn }),
        ended(TurnOutcome::Failed { failure: failure() }),
        ended(TurnOutcome::Cancelled),
        ended(TurnOutcome::StepLimit { limit: 25 }),
        ended(TurnOutcome::Looped { tool: "time_now".to_owned(), times: 30 }),
        ended(TurnOutcome::BadCalls { detail: "not an object".to_owned() }),
        Settled { turn, usage: usage(), lost_attempts: 1 }.into(),
        ToolAsked { turn, call: tool, tool: name("time_now") }.into(),
        tool_done(None),
        tool_done(Some(ToolOutcome::done("12:00"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Invalid, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Refused, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Unavailable, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Failed, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::TimedOut, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Cancelled, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Crashed, "no"))),
        ToolUncertain { turn, call: tool, detail: None }.into(),
        ToolUncertain { turn, call: tool, detail: Some("died".to_owned()) }.into(),
    ]
}

pub(crate) fn failure_classes() -> Vec<FailureClass> {
    vec![
        FailureClass::Unreachable,
        FailureClass::Timeout,
        FailureClass::RateLimited,
        FailureClass::Overloaded,
        FailureClass::Unauthorized,
        FailureClass::Rejected,
        FailureClass::BrokenStream,
        FailureClass::Cancelled,
        FailureClass::Lost,
    ]
}

pub(crate) fn frames() -> Vec<Frame> {
    let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
    let error = ErrorBody::new(ErrorCode::ProviderTimeout, "provider timeout").hint("try later");
    let notice = FrameBody::Notice {
        name: "history_dropped".to_owned(),
        message: "2 turns are left out".to_owned(),
    };
    let (id, name) = (tool_call(), "time_now".to_owned());
    let tool_use = FrameBody::ToolUse { id, name: name.clone(), arguments: "{}".to_owned() };
    let result = |failure| {
        let (name, content) = (name.clone(), "12:00".to_owned());
        FrameBody::ToolResult { id, name, content, failure }
    };
    let frame = |index, body| {
        let key = FrameKey { turn: turn(), call: call(), attempt: Attempt(2), index };
        Frame { key, body }
    };
    vec![
        frame(0, FrameBody::Text { delta: "hé".to_owned() }),
        frame(1, FrameBody::Usage { usage: usage() }),
        frame(2, notice),
        frame(3, tool_use),
        frame(4, result(None)),
        frame(5, result(Some("timed_out".to_owned()))),
        frame(FrameKey::ERROR, FrameBody::Error { error }),
        frame(FrameKey::DONE, FrameBody::Done { outcome, text_bytes: 3 }),
    ]
}

pub(crate) fn batch() -> FrameBatch {
    FrameBatch { frames: frames() }
}

pub(crate) fn heartbeat() -> Heartbeat {
    Heartbeat {
        process: process(),
        node: name::<NodeName>("node-1"),
        version: "0.1.0".to_owned(),
        roles: vec![NodeRole::Gateway, NodeRole::Worker],
        started: Timestamp(1_700_000_000_000),
        draining: false,
        entities: 9,
        config: Digest::of(b"agents"),
        cordoned: true,
        speaks: VersionRange { oldest: 1, newest: 2 },
        capabilities: [name::<Capability>("session")].into(),
        load: Load {
            cpu_permille: 250,
            memory_bytes: 1 << 24,
            turns_running: 3,
            turns_done: 1_000,
            clients: 2,
        },
        shed: 1,
        first_of: 86,
        knows: ["claim".to_owned(), "turn_done".to_owned()].into(),
        lacks: ["input v3".to_owned()].into(),
        leaving: true,
        server: "NCX".to_owned(),
        url: Some("https://gateway.example:3100".to_owned()),
    }
}

pub(crate) fn hearsay() -> Vec<Hearsay> {
    vec![Hearsay::Suspected { process: process() }, Hearsay::Gone { process: process() }]
}

pub(crate) fn node_requests() -> Vec<NodeRequest> {
    vec![
        NodeRequest::Ping,
        NodeRequest::Ask { entity: entity(), input: input().id, asker: None },
        NodeRequest::Ask { entity: entity(), input: input().id, asker: Some(process()) },
        NodeRequest::Ring { entity: entity(), input: input().id },
        NodeRequest::Fenced { entity: entity(), epoch: Epoch(4) },
        NodeRequest::Cordon { on: true },
        NodeRequest::Drain,
        NodeRequest::Tree,
        NodeRequest::CancelJob { job: job().id },
        NodeRequest::Frames { entity: entity(), turn: turn() },
    ]
}

pub(crate) fn node_replies() -> Vec<NodeReply> {
    vec![
        NodeReply::Ok,
        NodeReply::Held,
        NodeReply::Completed,
        NodeReply::NotMine,
        NodeReply::Frames { frames: frames(), truncated: true },
        NodeReply::Tree { tree: tree() },
    ]
}

fn tree() -> ProcessTree {
    let leaf = |name: &str, kind: &str, state: &str| Branch {
        name: name.to_owned(),
        kind: kind.to_owned(),
        state: state.to_owned(),
        ..Branch::default()
    };
    let dispatcher = Branch {
        restarts: 1,
        detail: Some("2 entities".to_owned()),
        children: vec![leaf(&entity().to_string(), "entity", "active")],
        more: 1,
        ..leaf("dispatcher.3", "dispatcher", "up")
    };
    ProcessTree {
        process: process(),
        node: name("worker-1"),
        roles: vec![NodeRole::Worker],
        branches: vec![dispatcher],
    }
}

pub(crate) fn cluster_events() -> EventBatch {
    let (session, turn) = (entity(), turn());
    let bodies = vec![
        EventBody::NodeJoined { version: "1.2.3".to_owned(), roles: vec![NodeRole::Gateway] },
        EventBody::NodeCordoned { on: true },
        EventBody::NodeDraining,
        EventBody::NodeLeft,
        EventBody::NodeDead { process: process(), node: Some(name("worker-1")) },
        EventBody::TurnStarted { session, turn },
        EventBody::TurnEnded { session, turn, outcome: "completed".to_owned() },
        EventBody::Claimed { session, from: process(), epoch: Epoch(4) },
        EventBody::Fenced { session },
        EventBody::Quarantined { session, reason: "5 claims without progress".to_owned() },
        EventBody::Warning { name: "bus.replicas".to_owned(), message: "few".to_owned() },
        EventBody::Unknown,
    ];
    let event = |what| ClusterEvent {
        at: Timestamp(1_700_000_000_000),
        node: name("worker-1"),
        process: process(),
        what,
    };
    EventBatch { events: bodies.into_iter().map(event).collect(), dropped: 2 }
}

pub(crate) fn usage_record() -> UsageRecord {
    UsageRecord {
        session: entity(),
        agent: name::<AgentName>("default"),
        model: model(),
        turn: turn(),
        call: call(),
        attempt: Attempt(1),
        usage: usage(),
    }
}

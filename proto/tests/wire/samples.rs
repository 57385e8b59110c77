//! One value of every variant, made of fixed ids.

use std::collections::BTreeMap;

use clawnode_proto::{
    AgentName, Attempt, CallId, Capability, Digest, EntityId, Epoch, ErrorBody, ErrorCode, EventId,
    Frame, FrameBody, FrameKey, HookName, IdempotencyKey, Incarnation, Input, InputId, JobId, Kind,
    MemoryPointId, NodeName, Order, Position, ProcessId, Seq, SwitchId, Tail, TimerId, Timestamp,
    Traceparent, TurnId,
    agents::{AgentCounts, AgentLimit, AgentPause, ExceededLimit},
    archive::{
        Artifact, CleanJobs, CleanView, Ended, JobRecord, JobRun, LogCut, LogLine, LogPart,
        LogStream, RunEnd, StoredLog, StoredResult,
    },
    block::{Block, Blocks},
    budget::{BudgetUnit, LimitKey, SpendLimits, WindowLength},
    circuit::{
        CircuitChange, CircuitFailure, CircuitFailures, CircuitReport, CircuitState,
        LimitedResource, ProviderLimit, ProviderProbe,
    },
    client_tool::{ClientCall, ClientCalls, ClientResult, ClientResults, ClientTool},
    context::{ContextMode, ContextRules, ContextSettings},
    embed::{EmbedTexts, Embedded, Vector},
    execute::PlanStep,
    feed::{ClusterEvent, EventBatch, EventBody},
    feedback::{FeedbackGiven, FeedbackInput, RatedPoints, Thumb},
    frame::{ApprovalRequest, FrameBatch, Notice, ToolFinished, ToolStarted},
    hook::{
        HookBlock, HookFault, HookPoint, HookSpec, HookTrail, MessagePatch, ModelPatch, PassedOver,
    },
    job::{Callbacks, Job, JobState},
    kernel::{
        Accepted, Born, Claim, Deleted, Emitted, KernelEvent, Parked, PurgeBegun, Quarantined,
        Released, Remembered, Restored, Snapshot, SnapshotState,
    },
    kill_switch::{KillSwitch, SwitchRecord, SwitchScope},
    lane::Lane,
    ledger::{EntryType, LedgerEntry},
    llm::{
        FailureClass, Message, ModelFailure, ModelRef, PromptTooLong, Role, Sampling, StopReason,
        Text, Usage, UsageRecord,
    },
    mcp::McpPins,
    media::{ContentNote, FileRecord, Media, MediaKind, MediaType},
    memory::{MemoryLayer, MemoryTrust},
    model_route::{InputKind, ModelRoute, PromptFacts, RouteCost, RouteTaken},
    money::MicroUsd,
    node::{FileState, Hearsay, Heartbeat, Load, NodeReply, NodeRequest, NodeRole, VersionRange},
    plugin::StoreKeys,
    policy::{Approval, Decided, Decision, Policy, Rule, Verdict},
    provider::{ProviderKind, ProviderReport, RecentRuns},
    reasoning::Reasoning,
    recall::{
        RecallFault, Recalled, RecalledPassage, RecalledPoint, StoreFind, StoreFound, StoreScore,
        StoreSearch,
    },
    response::ResponseSchema,
    session::{
        ApprovalAsked, ApprovalDecided, ApprovalGiven, BegunAgain, KeptChoice, ModelBegun,
        ModelDone, ModelFailed, ModelGaveWay, ModelHooked, Plan, Profile, Reply, ReplyRefused,
        SessionEvent, SessionInput, Settled, StepLimitReached, StepPlanned, ToolAsked, ToolDone,
        ToolEnd, ToolHooked, ToolResult, ToolUncertain, TurnDone, TurnOutcome, UserMessage,
    },
    skill::{ActiveSkill, SkillsActivated},
    ssh::SshPin,
    timeout::{TimeBound, TimeLevel, TimeLimit, ToolTime, TurnTime},
    tool::{EffectClass, LoopGuard, Risk, ToolFailure, ToolOutcome, ToolReply, ToolSpec, ToolUse},
    tool_choice::ToolChoice,
    tree::{Branch, ProcessTree},
    turn::{Lagged, ReplyReset, StreamEnd, TurnBody, TurnEvent},
    view::AcceptedView,
};
use serde_bytes::ByteBuf;

pub(crate) const KEY: &str = "default:web:site:ada";

pub(crate) fn entity() -> EntityId {
    EntityId::derive(Kind::SESSION, KEY)
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

pub(crate) fn usage() -> Usage {
    let (input_tokens, output_tokens) = (12, 300);
    let (cache_read_tokens, cache_write_tokens) = (4, 1);
    Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, ..Usage::default() }
}

fn failure() -> ModelFailure {
    ModelFailure {
        class: FailureClass::RateLimited,
        message: "slow down".to_owned(),
        status: Some(429),
        retry_after_ms: None,
        too_long: None,
        keeps_attachments: false,
    }
}

fn sampling() -> Sampling {
    Sampling {
        reasoning: None,
        temperature: Some(0.5),
        top_p: None,
        max_tokens: Some(64),
        stop: vec!["END".to_owned()],
        ..Sampling::default()
    }
}

pub(crate) fn model() -> ModelRef {
    name("openai/vendor/model-1")
}

pub(crate) fn user_message() -> UserMessage {
    UserMessage {
        content: "hello".into(),
        attachments: Vec::new(),
        history: vec![Message::text(Role::User, "before")],
        system: Some("be brief".to_owned()),
        sampling: sampling(),
        model: None,
        tools: Vec::new(),
        response_schema: None,
        keep: Vec::new(),
        metadata: BTreeMap::new(),
        lane: None,
    }
}

/// What a client offers, what it brings, and how the journal says that it was asked.
pub(crate) fn client_tools() -> (UserMessage, ClientResults, SessionEvent) {
    let tools = vec![ClientTool {
        name: name("look"),
        description: "Looks.".to_owned(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
    }];
    let sampling = Sampling {
        presence_penalty: Some(0.5),
        frequency_penalty: Some(-0.5),
        seed: Some(7),
        logit_bias: [("50256".to_owned(), -100.0)].into(),
        tool_choice: Some(ToolChoice::Tool { name: name("look") }),
        parallel_tool_calls: Some(false),
        top_k: Some(40),
        ..Sampling::default()
    };
    let metadata = BTreeMap::from([("order".to_owned(), "7".to_owned())]);
    let message = UserMessage {
        tools: tools.clone(),
        sampling: sampling.clone(),
        metadata: metadata.clone(),
        ..UserMessage::text("hello")
    };
    let results = vec![ClientResult::done(tool_call(), "seen")];
    let (turn, system) = (turn(), Some("be brief".to_owned()));
    let results = ClientResults { turn, results, system, sampling, tools, metadata };
    let asked = ToolAsked { turn, call: tool_call(), tool: name("look"), by_client: true };
    (message, results, asked.into())
}

pub(crate) fn client_calls() -> ClientCalls {
    let (id, name, arguments) = (tool_call(), "look".to_owned(), r#"{"at":1}"#.to_owned());
    ClientCalls { calls: vec![ClientCall { id, name, arguments }], expires: Timestamp(7) }
}

/// The smallest message: what most of them are.
pub(crate) fn input() -> Input {
    let body = SessionInput::UserMessage(UserMessage::text("hello"));
    let mut input =
        Input::new(Kind::SESSION, KEY, name::<IdempotencyKey>("key-1"), Timestamp(1_000), &body)
            .unwrap();
    input.traceparent =
        Some(Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()));
    input
}

/// What an operator says about a session, by its id alone.
pub(crate) fn order() -> Input {
    Input::order(Kind::SESSION, entity(), Digest::of(b"tail"), Timestamp(1_000), Order::Restore)
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
        decision(decided(Decision::Approve, None)),
        decision(decided(Decision::Deny, Some("not on a Friday".to_owned()))),
        SessionInput::Continue { turn: turn() },
        SessionInput::Execute(plan()),
    ]
}

fn plan() -> Plan {
    let step = |arguments: &str, goes_on| PlanStep {
        tool: name("time_now"),
        arguments: arguments.to_owned(),
        goes_on,
        template: None,
    };
    let steps = vec![step("{}", false), step(r#"{"zone":"UTC"}"#, true)];
    Plan { about: "what time it is".to_owned(), steps }
}

fn tool_result(end: ToolEnd) -> SessionInput {
    SessionInput::ToolResult(ToolResult { call: tool_call(), nonce: EventId::from_u128(3), end })
}

fn decision(decided: Decided) -> SessionInput {
    let action = Digest::of(b"action");
    SessionInput::ApprovalDecided(ApprovalDecided { call: tool_call(), action, decided })
}

fn decided(decision: Decision, reason: Option<String>) -> Decided {
    Decided { decision, by: "operator at worker-1".to_owned(), reason }
}

pub(crate) fn approval() -> Approval {
    Approval {
        action: job().action(Some(Digest::of(b"pin"))),
        digest: Digest::of(b"action"),
        risk: Risk::Write,
        reason: Some("it writes".to_owned()),
        about: None,
        asked: Timestamp(1_000),
        expires: Timestamp(2_000),
        decided: Some(decided(Decision::Approve, None)),
    }
}

pub(crate) fn policy() -> Policy {
    let rule = |verdict| Rule {
        tool: None,
        risk: None,
        arguments: BTreeMap::new(),
        exact: false,
        verdict,
        reason: None,
    };
    let all = Rule {
        tool: Some("file_*".to_owned()),
        risk: Some(Risk::Write),
        arguments: [("path".to_owned(), "notes/*".to_owned())].into(),
        reason: Some("notes are its own".to_owned()),
        ..rule(Verdict::Allow)
    };
    let rules = vec![all, rule(Verdict::Ask), rule(Verdict::Deny)];
    Policy { rules, approval_wait_ms: 60_000, read_only: Vec::new() }
}

fn tool_call() -> CallId {
    CallId::derive_tool(call(), 0)
}

pub(crate) fn tool_use() -> ToolUse {
    let arguments = r#"{"timezone":"UTC"}"#.to_owned();
    ToolUse { id: "toolu_1".to_owned(), name: "time_now".to_owned(), arguments }
}

pub(crate) fn spec(capability: Option<Capability>, class: EffectClass, risk: Risk) -> ToolSpec {
    ToolSpec {
        name: name("time_now"),
        description: "Tells the time.".to_owned(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        class,
        risk,
        capability,
        timeout_ms: 1_000,
        pin: None,
        time: None,
    }
}

/// A reply that thinks, in the order that one provider wants back.
pub(crate) fn blocks() -> Blocks {
    let blob = Text::Blob { digest: Digest::of(b"long"), bytes: 300_000 };
    let thinking = |signature| Block::Thinking { text: "hm".into(), signature };
    Blocks {
        model: name("anthropic/claude-x"),
        list: vec![
            thinking(Some("c2ln".into())),
            Block::Text { bytes: 4 },
            Block::RedactedThinking { data: blob.clone() },
            thinking(None),
            Block::Thinking { text: blob, signature: Some("".into()) },
            Block::Opaque { field: "extra_content".to_owned(), data: r#"{"a":1}"#.into() },
            Block::ToolUse {},
        ],
    }
}

/// A message that has them.
pub(crate) fn thinking_message() -> Message {
    let (tool_uses, blocks) = (vec![tool_use()], Some(blocks()));
    Message { tool_uses, blocks, ..Message::text(Role::Assistant, "well") }
}

/// An event that has them.
pub(crate) fn thinking_event() -> SessionEvent {
    ModelDone {
        call: call(),
        attempt: Attempt(2),
        content: "well".into(),
        stop: StopReason::ToolUse,
        usage: usage(),
        model: "model-1".to_owned(),
        tool_uses: vec![tool_use()],
        blocks: Some(blocks()),
    }
    .into()
}

/// A message of each kind that tools bring about.
pub(crate) fn tool_messages() -> Vec<Message> {
    let reply = ToolReply {
        id: "toolu_1".to_owned(),
        content: "12:00".into(),
        is_error: true,
        media: Vec::new(),
    };
    vec![
        Message { tool_uses: vec![tool_use()], ..Message::text(Role::Assistant, "") },
        Message { tool_replies: vec![reply], ..Message::text(Role::User, "and?") },
    ]
}

/// One attachment of each type, the last one without a name.
pub(crate) fn media() -> Vec<Media> {
    let types = [
        (MediaType::Png, Some("a.png")),
        (MediaType::Jpeg, Some("a.jpg")),
        (MediaType::Webp, Some("a.webp")),
        (MediaType::Gif, Some("a.gif")),
        (MediaType::Pdf, Some("a.pdf")),
        (MediaType::Wav, Some("a.wav")),
        (MediaType::Mp3, None),
    ];
    let media = |(media_type, name): (_, Option<&str>)| Media {
        media_type,
        blob: Digest::of(b"blob"),
        bytes: 70,
        name: name.map(str::to_owned),
        at: None,
    };
    types.into_iter().map(media).collect()
}

/// An uploaded file as it is first, once a message names it, and before it is removed.
pub(crate) fn files() -> Vec<FileRecord> {
    let file = FileRecord {
        media_type: MediaType::Pdf,
        name: Some("a.pdf".to_owned()),
        bytes: 70,
        parts: vec![Digest::of(b"blob")],
        at: Timestamp(1_700_000_000_000),
        is_named: false,
        is_going: false,
    };
    let named = FileRecord { is_named: true, name: None, ..file.clone() };
    let going = FileRecord { is_going: true, ..file.clone() };
    vec![file, named, going]
}

/// A note about content without an owner, and the same before the content is removed.
pub(crate) fn content_notes() -> Vec<ContentNote> {
    let at = Timestamp(1_700_000_000_000);
    let note = ContentNote { blob: Digest::of(b"blob"), at, is_going: false };
    vec![note, ContentNote { is_going: true, ..note }]
}

/// One tool as it was approved, and said to be something else since.
pub(crate) fn mcp_pins() -> McpPins {
    let capability = name::<Capability>("mcp.clock");
    let approved = spec(Some(capability), EffectClass::Once, Risk::Write);
    let approved = ToolSpec { name: name("clock__now"), ..approved };
    let listed =
        ToolSpec { description: "Tells the time, and more.".to_owned(), ..approved.clone() };
    McpPins {
        approved: [("now".to_owned(), approved)].into(),
        listed: [("now".to_owned(), listed)].into(),
        node: name("node-1"),
        at: Timestamp(1_700_000_000_000),
    }
}

fn tool_time() -> ToolTime {
    let bound = |ms, set_in: &str| TimeBound { ms, set_in: set_in.to_owned() };
    ToolTime {
        provider: Some(bound(300_000, "sandbox.max_timeout")),
        command: bound(30_000, "sandbox.docker.timeout"),
        argument: Some("timeout_s".to_owned()),
        margin_ms: 30_000,
    }
}

/// A limit of each level.
pub(crate) fn time_limits() -> Vec<TimeLimit> {
    let levels = [TimeLevel::Command, TimeLevel::Provider, TimeLevel::Step, TimeLevel::Global];
    let limit = |level: TimeLevel| TimeLimit {
        level,
        ms: 60_000,
        left_ms: 1_000,
        set_in: "agents.default.timeouts.step".to_owned(),
    };
    levels.into_iter().map(limit).collect()
}

pub(crate) fn store_keys() -> StoreKeys {
    StoreKeys { keys: ["a", "user:7"].map(str::to_owned).into() }
}

pub(crate) fn ssh_pin() -> SshPin {
    SshPin {
        key: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ".to_owned(),
        node: name("node-1"),
        at: Timestamp(1_700_000_000_000),
    }
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
        limit: None,
        action: None,
        callbacks: None,
        traceparent: None,
        not_after: None,
    }
}

pub(crate) fn callbacks() -> Callbacks {
    let rule = Rule {
        tool: Some("file_*".to_owned()),
        risk: None,
        arguments: BTreeMap::new(),
        exact: false,
        verdict: Verdict::Allow,
        reason: None,
    };
    Callbacks {
        tools: [(name("calculate"), Digest::of(b"calculate"))].into(),
        policy: Policy { rules: vec![rule], ..Policy::default() },
        at_once: 8,
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
    let archive = Some(Digest::of(b"archive"));
    let snapshot = |archive, state, superseded, positions: &[u64]| Snapshot {
        tail,
        archive,
        state,
        superseded,
        positions: positions.iter().copied().map(Position).collect(),
    };
    vec![
        Claim::default().into(),
        Born { kind: Kind::SESSION, key: KEY.to_owned() }.into(),
        Accepted { input: input() }.into(),
        Emitted { turn: turn() }.into(),
        snapshot(None, inline.clone(), None, &[]).into(),
        snapshot(archive, blob, None, &[]).into(),
        snapshot(archive, inline.clone(), Some(vec![Digest::of(b"state")]), &[]).into(),
        snapshot(archive, inline, Some(Vec::new()), &[7, 300, 70_000]).into(),
        Parked { input: input() }.into(),
        Quarantined { reason: "5 claims without progress".to_owned() }.into(),
        Released {}.into(),
        Deleted { at: Timestamp(9), dropped: Vec::new() }.into(),
        Deleted { at: Timestamp(9), dropped: vec![input().id] }.into(),
        Claim { excused: true }.into(),
        Restored { input: order() }.into(),
        PurgeBegun {}.into(),
    ]
}

pub(crate) fn remembered() -> Remembered {
    Remembered { input: input().id, ts: Timestamp(4), n: Seq(3) }
}

pub(crate) fn profile() -> Profile {
    Profile {
        agent: name::<AgentName>("default"),
        model: model(),
        system: "be kind".into(),
        sampling: sampling(),
        window_tokens: 100_000,
        reply_tokens: None,
        step_limit: 25,
        tools: Vec::new(),
        max_parallel_tools: Profile::parallel_tools(),
        loop_guard: LoopGuard::default(),
        policy: Policy::default(),
        step_wait_ms: 0,
        time: TurnTime::default(),
        hooks: Vec::new(),
        chain: Vec::new(),
        outage_ms: Profile::outage(),
        response_schema: None,
        routes: Vec::new(),
        limits: SpendLimits::default(),
        context: None,
        compact_model: None,
        reflects: false,
        extracts: false,
    }
}

/// What people think of turns.
pub(crate) fn feedback() -> (Vec<SessionInput>, Vec<SessionEvent>) {
    let moves = vec![RatedPoints {
        memory: name("default/peer/web:bot:ada"),
        points: vec![MemoryPointId::from_u128(1), MemoryPointId::from_u128(2)],
    }];
    let comment = || Some("Tea is at five.".to_owned());
    let input =
        |thumb, comment| SessionInput::Feedback(FeedbackInput { turn: turn(), thumb, comment });
    let given = |thumb, comment, step, moves| {
        let (turn, feedback) = (turn(), input_id());
        SessionEvent::from(FeedbackGiven { turn, feedback, thumb, comment, step, moves })
    };
    let inputs = vec![input(Thumb::Up, None), input(Thumb::Down, comment())];
    let events = vec![
        given(Thumb::Up, None, 1, moves.clone()),
        given(Thumb::Down, comment(), -2, moves),
        given(Thumb::Down, None, 0, Vec::new()),
    ];
    (inputs, events)
}

fn input_id() -> InputId {
    InputId::from_u128(3)
}

/// What is journaled of the rules of a session's requests.
pub(crate) fn context_events() -> Vec<SessionEvent> {
    let configured = |rules, mode| {
        let context = Some(ContextSettings { rules, mode, tokens: 5_000, recent_turns: 5 });
        Profile { context, ..profile() }.into()
    };
    vec![
        configured(ContextRules::V2, ContextMode::Auto),
        configured(ContextRules::V2, ContextMode::Bounded),
        configured(ContextRules::V3, ContextMode::Auto),
    ]
}

/// Models that give way to others, and what is journaled of that.
pub(crate) fn give_way_events() -> Vec<SessionEvent> {
    let gave_way = |why, wait_ms| {
        let (call, attempt, usage) = (call(), Attempt(2), usage());
        SessionEvent::from(ModelGaveWay { call, attempt, why, usage, wait_ms })
    };
    let too_long = |size| ModelFailure {
        too_long: Some(size),
        ..ModelFailure::new(FailureClass::Rejected, "the prompt is too long")
    };
    let size = PromptTooLong { window: Some(8_192), request: Some(9_000) };
    let chain = vec![model(), "other/model-2".parse().unwrap()];
    vec![
        Profile { chain, outage_ms: 60_000, ..profile() }.into(),
        gave_way(failure(), 0),
        gave_way(failure(), 10_000),
        gave_way(too_long(size), 0),
        gave_way(too_long(PromptTooLong::default()), 0),
    ]
}

/// What a message says of its model, what is journaled of that, and what a call is measured by.
pub(crate) fn model_choices() -> (UserMessage, Vec<SessionEvent>) {
    let message = UserMessage { model: Some(model()), ..UserMessage::text("hello") };
    let profile = Profile { reply_tokens: Some(8_192), ..profile() };
    let begun = ModelBegun {
        turn: turn(),
        call: call(),
        attempt: Attempt(1),
        request: Digest::of(b"request"),
        dropped_turns: 0,
        closes_upto: None,
        estimate: Some(1_234),
        route: None,
    };
    (message, vec![profile.into(), begun.into()])
}

/// Messages that choose for their session: a model and how much it thinks, and the agent's own again.
pub(crate) fn kept_choices() -> [UserMessage; 2] {
    let keep = vec![KeptChoice::Model, KeptChoice::Reasoning];
    let sampling = Sampling { reasoning: Some(Reasoning::High), ..Sampling::default() };
    let back = UserMessage { keep, ..UserMessage::text("hello") };
    [UserMessage { model: Some(model()), sampling, ..back.clone() }, back]
}

/// A message whose turn can wait, and one that says that a person waits for it.
pub(crate) fn lanes() -> [UserMessage; 2] {
    let message = |lane| UserMessage { lane: Some(lane), ..UserMessage::text("hello") };
    [message(Lane::Background), message(Lane::Interactive)]
}

/// The routes of an agent, and what they decide about a call.
pub(crate) fn routed_events() -> Vec<SessionEvent> {
    let large = ModelRoute {
        model: name("gemini/large"),
        min_prompt_tokens: Some(1),
        max_prompt_tokens: Some(100_000),
        input: vec![InputKind::Image, InputKind::Document, InputKind::Audio],
        max_usd: None,
    };
    let (min_prompt_tokens, max_prompt_tokens) = (None, None);
    let small = ModelRoute {
        min_prompt_tokens,
        max_prompt_tokens,
        input: vec![InputKind::Text],
        ..large.clone()
    };
    let begun = |row, media| {
        let prompt = PromptFacts { tokens: 1_234, media, ..PromptFacts::default() };
        ModelBegun {
            turn: turn(),
            call: call(),
            attempt: Attempt(1),
            request: Digest::of(b"request"),
            dropped_turns: 0,
            closes_upto: None,
            estimate: Some(1_300),
            route: Some(RouteTaken { row, prompt }),
        }
    };
    vec![
        Profile { routes: vec![large, small], ..profile() }.into(),
        begun(Some(1), vec![MediaKind::Image, MediaKind::Document, MediaKind::Audio]).into(),
        begun(None, Vec::new()).into(),
    ]
}

/// A row with a limit, and what the call would cost by it.
pub(crate) fn priced_events() -> Vec<SessionEvent> {
    let row = ModelRoute {
        model: name("gemini/small"),
        min_prompt_tokens: None,
        max_prompt_tokens: None,
        input: Vec::new(),
        max_usd: Some(MicroUsd(50_000)),
    };
    let costs = vec![RouteCost { row: 1, most: MicroUsd(1_234) }];
    let prompt = PromptFacts { tokens: 1_234, costs, ..PromptFacts::default() };
    let begun = ModelBegun {
        turn: turn(),
        call: call(),
        attempt: Attempt(1),
        request: Digest::of(b"request"),
        dropped_turns: 0,
        closes_upto: None,
        estimate: None,
        route: Some(RouteTaken { row: Some(1), prompt }),
    };
    vec![Profile { routes: vec![row], ..profile() }.into(), begun.into()]
}

/// What a message and an agent say of the schema of replies, the events of such a reply, and the frames
/// for clients.
pub(crate) fn structured_replies() -> (UserMessage, Vec<SessionEvent>, Vec<FrameBody>) {
    let schema = serde_json::json!({"title": "a person", "type": "object"});
    let response_schema = Some(ResponseSchema::new(None, &schema));
    let message =
        UserMessage { response_schema: response_schema.clone(), ..UserMessage::text("who?") };
    let structured = || Some(r#"{"name": "Ada"}"#.to_owned());
    let (turn, call) = (turn(), call());
    let failed = TurnOutcome::SchemaFailed { detail: "`name` is required".to_owned() };
    let events = vec![
        Profile { response_schema, ..profile() }.into(),
        ReplyRefused { turn, call, told: "`name` is required".to_owned() }.into(),
        Reply { turn, call, structured: structured() }.into(),
        TurnDone { turn, outcome: failed }.into(),
    ];
    let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
    let frames = vec![
        FrameBody::Reset { whole: true },
        FrameBody::Done { outcome, text_bytes: 15, structured: structured() },
    ];
    (message, events, frames)
}

fn approval_events() -> Vec<SessionEvent> {
    let (turn, call, action) = (turn(), tool_call(), Digest::of(b"action"));
    let asked = |reason| SessionEvent::from(ApprovalAsked { turn, call, action, reason });
    let decided = decided(Decision::Deny, Some("no".to_owned()));
    vec![
        asked(None),
        asked(Some("it writes".to_owned())),
        ApprovalGiven { turn, call, action, decided }.into(),
        StepLimitReached { turn, limit: 25 }.into(),
        StepPlanned { turn, call: self::call(), step: 1 }.into(),
        SkillsActivated { turn, skills: active_skills() }.into(),
    ]
}

fn active_skills() -> Vec<ActiveSkill> {
    let digest = Digest::of(b"SKILL.md");
    let skill = |text: &str| ActiveSkill { name: "pdf".to_owned(), digest, text: text.to_owned() };
    vec![skill("Use qpdf."), skill("")]
}

fn specs() -> Vec<ToolSpec> {
    let docker: Capability = name("docker");
    vec![
        spec(None, EffectClass::Safe, Risk::ReadOnly),
        spec(Some(docker.clone()), EffectClass::Idempotent, Risk::Write),
        spec(Some(docker.clone()), EffectClass::Check, Risk::Write),
        spec(Some(docker), EffectClass::Once, Risk::Admin),
    ]
}

fn profiles() -> Vec<SessionEvent> {
    let profile = profile();
    let tools = specs();
    let pin = Some(Digest::of(b"pin"));
    let pinned = ToolSpec { pin, ..spec(None, EffectClass::Safe, Risk::ReadOnly) };
    let time = TurnTime { global_ms: 3_600_000, step_ms: 900_000 };
    let timed = ToolSpec { time: Some(tool_time()), ..pinned.clone() };
    let loop_guard = LoopGuard { warn: 2, refuse: 3, end: 4 };
    vec![
        profile.clone().into(),
        Profile { tools, max_parallel_tools: 2, loop_guard, ..profile.clone() }.into(),
        Profile { policy: policy(), step_wait_ms: 300_000, tools: vec![pinned], ..profile.clone() }
            .into(),
        Profile { time, tools: vec![timed], ..profile.clone() }.into(),
        Profile { hooks: hooks(), ..profile }.into(),
    ]
}

fn turn_ends() -> impl Iterator<Item = TurnOutcome> {
    [
        TurnOutcome::Completed { stop: StopReason::EndTurn },
        TurnOutcome::Failed { failure: failure() },
        TurnOutcome::Cancelled,
        TurnOutcome::Stopped { detail: "everything was stopped by token at a".to_owned() },
        TurnOutcome::StepLimit { limit: 25 },
        TurnOutcome::Looped { tool: "time_now".to_owned(), times: 30 },
        TurnOutcome::TimedOut { level: TimeLevel::Global, detail: "1 s was over".to_owned() },
        TurnOutcome::BadCalls { detail: "not an object".to_owned() },
        TurnOutcome::Blocked { block: hook_block() },
        TurnOutcome::StepFailed {
            step: 2,
            tool: name("time_now"),
            detail: "no such zone".to_owned(),
        },
    ]
    .into_iter()
}

pub(crate) fn session_events() -> Vec<SessionEvent> {
    let attempt = Attempt(2);
    let ended = |outcome| SessionEvent::from(TurnDone { turn: turn(), outcome });
    let done = |content, stop| {
        let model = "model-1".to_owned();
        let tool_uses = Vec::new();
        let (call, usage, blocks) = (call(), usage(), None);
        ModelDone { call, attempt, content, stop, usage, model, tool_uses, blocks }
    };
    let (turn, tool) = (turn(), tool_call());
    let tool_done = |outcome| {
        SessionEvent::from(ToolDone { turn, call: tool, outcome, hooks: HookTrail::default() })
    };
    let blob = Text::Blob { digest: Digest::of(b"long"), bytes: 300_000 };
    let mut events = profiles();
    events.push(BegunAgain { after: Seq(7) }.into());
    events.extend(vec![
        ModelBegun {
            turn,
            call: call(),
            attempt,
            request: Digest::of(b"request"),
            dropped_turns: 1,
            closes_upto: None,
            estimate: None,
            route: None,
        }
        .into(),
        done("hi".into(), StopReason::EndTurn).into(),
        done(blob, StopReason::Other { reason: "novel".to_owned() }).into(),
        done("".into(), StopReason::Refusal).into(),
        done("cut".into(), StopReason::MaxTokens).into(),
        done("END".into(), StopReason::StopSequence).into(),
        ModelDone { tool_uses: vec![tool_use()], ..done("".into(), StopReason::ToolUse) }.into(),
        model_failed(attempt).into(),
        Reply { turn, call: call(), structured: None }.into(),
    ]);
    events.extend(turn_ends().map(ended));
    events.extend(recalled_events());
    events.extend(vec![
        Settled { turn, usage: usage(), lost_attempts: 1, cost: None }.into(),
        ToolAsked { turn, call: tool, tool: name("time_now"), by_client: false }.into(),
        LedgerEntry {
            turn,
            call: tool,
            number: 7,
            entry: EntryType::Finding,
            text: "noon is at 12:00".to_owned(),
        }
        .into(),
        tool_done(None),
        tool_done(Some(ToolOutcome::done("12:00"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Invalid, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Refused, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Unavailable, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Failed, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::TimedOut, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Cancelled, "no"))),
        tool_done(Some(ToolOutcome::failed(ToolFailure::Crashed, "no"))),
        ToolDone { turn, call: tool, outcome: None, hooks: hook_trail() }.into(),
        ToolUncertain { turn, call: tool, detail: None }.into(),
        ToolUncertain { turn, call: tool, detail: Some("died".to_owned()) }.into(),
    ]);
    events.extend(approval_events());
    events.extend(hook_events());
    events
}

fn recalled_events() -> [SessionEvent; 3] {
    let (at, entity) = (Timestamp(1_764_201_600_000), entity());
    let point = RecalledPoint {
        memory: "default/peer/web:site:ada".parse().unwrap(),
        point: MemoryPointId::derive(entity, 7, 0),
        layer: MemoryLayer::Semantic,
        trust: MemoryTrust::Person,
        at,
        text: "Tea is at four.".to_owned(),
    };
    let passage = RecalledPassage {
        session: KEY.parse().unwrap(),
        event: 7,
        part: 1,
        trust: MemoryTrust::Agent,
        at,
        text: "So it is.".to_owned(),
    };
    let standing = RecalledPoint {
        memory: "default/all".parse().unwrap(),
        point: MemoryPointId::derive(entity, 8, 0),
        layer: MemoryLayer::Procedural,
        trust: MemoryTrust::Operator,
        at,
        text: "Always answer briefly.".to_owned(),
    };
    let store = "local".to_owned();
    let found = Recalled {
        turn: turn(),
        standing: vec![standing],
        points: vec![point],
        passages: vec![passage],
        store: store.clone(),
        upto: BTreeMap::new(),
        degraded: None,
    };
    let behind = Recalled { upto: filled_upto(), standing: Vec::new(), ..found.clone() };
    let (points, passages, degraded) = (Vec::new(), Vec::new(), Some(RecallFault::Late));
    let (turn, standing, upto) = (turn(), Vec::new(), BTreeMap::new());
    let late = Recalled { turn, standing, points, passages, store, upto, degraded };
    [found.into(), late.into(), behind.into()]
}

fn filled_upto() -> BTreeMap<String, u64> {
    [("memory/default/all".to_owned(), 3), (format!("session/{KEY}"), 41)].into()
}

fn model_failed(attempt: Attempt) -> ModelFailed {
    let (call, failure, usage) = (call(), failure(), Usage::default());
    ModelFailed { call, attempt, failure, partial: "h".into(), usage }
}

fn hook() -> HookName {
    name("10-guard")
}

fn hook_block() -> HookBlock {
    HookBlock { hook: hook(), reason: "a secret".to_owned() }
}

fn hook_trail() -> HookTrail {
    let faults = [
        HookFault::Missing,
        HookFault::Unsafe,
        HookFault::NotStarted,
        HookFault::TimedOut,
        HookFault::Failed,
        HookFault::Garbage,
        HookFault::TooMuch,
        HookFault::Unfit,
        HookFault::TooLarge,
        HookFault::Stopped,
    ];
    HookTrail {
        changed_by: vec![hook()],
        blocked: Some(hook_block()),
        passed_over: faults.map(|fault| PassedOver { hook: hook(), fault }).into(),
    }
}

fn hooks() -> Vec<HookSpec> {
    let spec = |point, required| HookSpec {
        point,
        name: hook(),
        required,
        timeout_ms: 5_000,
        modifies: !required,
        tools: if required { vec!["sandbox_*".to_owned()] } else { Vec::new() },
    };
    HookPoint::ALL.into_iter().flat_map(|point| [spec(point, true), spec(point, false)]).collect()
}

fn hook_events() -> Vec<SessionEvent> {
    let (turn, tool, request) = (turn(), tool_call(), Digest::of(b"request"));
    let patch = ModelPatch {
        system: Some("be brief".to_owned()),
        messages: vec![MessagePatch { index: 2, content: "[redacted]".to_owned() }],
        append: Some("in English".to_owned()),
        sampling: sampling(),
    };
    let hooked = |patches, trail| ModelHooked { turn, call: call(), request, patches, trail };
    let judged = |arguments, trail| ToolHooked { turn, call: tool, arguments, trail };
    vec![
        hooked(Vec::new(), HookTrail::default()).into(),
        hooked(vec![ModelPatch::default(), patch], hook_trail()).into(),
        judged(None, HookTrail::default()).into(),
        judged(Some("{}".to_owned()), hook_trail()).into(),
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
        FailureClass::Stopped,
        FailureClass::GlobalTime,
        FailureClass::StepTime,
        FailureClass::Preempted,
    ]
}

pub(crate) fn frames() -> Vec<Frame> {
    let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
    let error = ErrorBody::new(ErrorCode::ProviderTimeout, "provider timeout").hint("try later");
    let notice = FrameBody::Notice(Notice {
        name: "history_dropped".to_owned(),
        message: "2 turns are left out".to_owned(),
    });
    let (id, name) = (tool_call(), "time_now".to_owned());
    let tool_use =
        FrameBody::ToolUse(ToolStarted { id, name: name.clone(), arguments: "{}".to_owned() });
    let result = |failure| {
        let (name, content) = (name.clone(), "12:00".to_owned());
        FrameBody::ToolResult(ToolFinished { id, name, content, is_error: None, failure })
    };
    let request = FrameBody::ApprovalRequest(ApprovalRequest {
        id,
        name: name.clone(),
        arguments: "{}".to_owned(),
        action: Digest::of(b"action"),
        risk: Risk::Write,
        reason: Some("it writes".to_owned()),
        expires: Timestamp(2_000),
        truncated: false,
        chars: 0,
    });
    let cut = FrameBody::ApprovalRequest(ApprovalRequest {
        id,
        name: name.clone(),
        arguments: "{\"a\":\"…".to_owned(),
        action: Digest::of(b"action"),
        risk: Risk::Write,
        reason: None,
        expires: Timestamp(2_000),
        truncated: true,
        chars: 4_321,
    });
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
        frame(6, request),
        frame(7, cut),
        frame(8, FrameBody::Reset { whole: false }),
        frame(FrameKey::ERROR, FrameBody::Error { error }),
        frame(FrameKey::DONE, FrameBody::Done { outcome, text_bytes: 3, structured: None }),
    ]
}

/// What clients get of the same frames, and what they get besides.
pub(crate) fn turn_events() -> Vec<TurnEvent> {
    let mut events = Vec::new();
    let key = FrameKey { turn: turn(), call: call(), attempt: Attempt(0), index: 0 };
    let session = "default:test:bot:ada".to_owned();
    let accepted = AcceptedView { session, turn: turn(), cursor: key };
    events.push(TurnEvent::from(TurnBody::Accepted(accepted)));
    for frame in frames() {
        events.push(match frame.body {
            FrameBody::Reset { .. } => {
                let text = "hé".to_owned();
                TurnEvent::at(frame.key, TurnBody::Reset(ReplyReset { text }))
            }
            FrameBody::Done { outcome, .. } => TurnEvent::done(frame.key, outcome),
            body => TurnEvent::at(frame.key, TurnBody::of_frame(body).unwrap()),
        });
    }
    events.push(TurnEvent::at(key, TurnBody::Lagged(Lagged::default())));
    let lost = StreamEnd { turn: Some(turn()), ..StreamEnd::default() };
    events.push(TurnBody::Done(lost).into());
    events.push(TurnBody::Done(StreamEnd::default()).into());
    events
}

pub(crate) fn batch() -> FrameBatch {
    FrameBatch { frames: frames() }
}

fn provider_reports() -> Vec<ProviderReport> {
    let report = |kind, name: &str| ProviderReport {
        kind,
        name: name.to_owned(),
        problem: None,
        checked_ago_ms: None,
        failures: 0,
        in_hand: 0,
        waiting: 0,
        recent: RecentRuns::default(),
        circuit: None,
    };
    let recent = RecentRuns { runs: 3, ok: 2, p50_ms: 20, p95_ms: 30 };
    let docker = report(ProviderKind::Execution, "docker");
    let problem = Some("no engine".to_owned());
    vec![
        ProviderReport {
            problem,
            checked_ago_ms: Some(7),
            failures: 2,
            in_hand: 1,
            recent,
            ..docker
        },
        report(ProviderKind::Model, "anthropic"),
    ]
}

/// A provider whose circuit is open.
pub(crate) fn open_circuit() -> ProviderReport {
    let at = |seconds: u64| Timestamp(1_700_000_000_000 + seconds * 1_000);
    let [_, provider] = provider_reports().try_into().unwrap();
    let change =
        |at, state, failure| CircuitChange { at, state, failure, by_probe: failure.is_none() };
    let circuit = CircuitReport {
        state: CircuitState::Open,
        since: at(4),
        next_try: Some(at(14)),
        refused: 3,
        failures: vec![CircuitFailures { kind: CircuitFailure::Overloaded, count: 5, last: at(4) }],
        history: vec![
            change(at(1), CircuitState::HalfOpen, None),
            change(at(4), CircuitState::Open, Some(CircuitFailure::Overloaded)),
        ],
        probe: Some(ProviderProbe { at: at(5), failure: Some(CircuitFailure::Unreachable) }),
        limits: vec![ProviderLimit {
            model: "claude-sonnet-4-5".to_owned(),
            resource: LimitedResource::Requests,
            limit: Some(50),
            remaining: 0,
            resets: at(60),
        }],
    };
    ProviderReport { circuit: Some(Box::new(circuit)), ..provider }
}

pub(crate) fn heartbeat() -> Heartbeat {
    Heartbeat {
        providers: provider_reports(),
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
        time: Some(Timestamp(1_700_000_000_001)),
        file: FileState {
            waits: vec!["mcp_servers".to_owned()],
            problem: Some("unknown key".to_owned()),
        },
        agents: vec![AgentCounts {
            agent: name("research"),
            tool_calls: 61,
            egress_bytes: 1 << 20,
            turns: 7,
            stops: 1,
            exceeded: Some(ExceededLimit { limit: AgentLimit::ToolCallsPerMinute, allowed: 60 }),
        }],
        spending: Some(Digest::of(b"[budgets]")),
    }
}

pub(crate) fn hearsay() -> Vec<Hearsay> {
    vec![Hearsay::Suspected { process: process() }, Hearsay::Gone { process: process() }]
}

fn embed(dimensions: Option<u32>) -> EmbedTexts {
    let texts = vec!["one".to_owned(), "two".to_owned()];
    EmbedTexts { model: "openai/text-embedding-3-small".to_owned(), texts, dimensions }
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
        NodeRequest::KillSwitch { scope: SwitchScope::All, wait_ms: 2_000 },
        NodeRequest::JobLog { job: job().id, after: 7, wait_ms: 500 },
        NodeRequest::CleanJobs { which: clean(None) },
        NodeRequest::CleanJobs { which: clean(Some(job().id)) },
        NodeRequest::Embed { request: embed(None) },
        NodeRequest::Embed { request: embed(Some(256)) },
        NodeRequest::BudgetStanding { standing: crate::budget::standing() },
        NodeRequest::SearchStore { search: store_search() },
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
        NodeReply::KillSwitch { position: Position(7), running: 2 },
        NodeReply::JobLog { part: part(None) },
        NodeReply::JobLog { part: part(Some(cut())) },
        NodeReply::Cleaned { view: CleanView { jobs: 1, blobs: 2, bytes: 300, more: 4 } },
        NodeReply::Embedded {
            result: Embedded {
                model: "openai/text-embedding-3-small".parse().unwrap(),
                vectors: vec![Vector::new(&[0.5, -1.0]), Vector::new(&[0.25, 2.0])],
                input_tokens: 5,
            },
        },
        NodeReply::NotEmbedded { error: ErrorBody::new(ErrorCode::NotFound, "no such model") },
        NodeReply::StoreFound { found: StoreFound::default() },
        NodeReply::StoreFound { found: store_found() },
        NodeReply::StoreFound { found: StoreFound { upto: filled_upto(), ..store_found() } },
    ]
}

fn store_search() -> StoreSearch {
    StoreSearch {
        scopes: vec!["memory/default/peer/web:bot:ada".to_owned()],
        text: "tea".to_owned(),
        within_ms: 100,
        layers: [MemoryLayer::Semantic].into(),
        passages: true,
        least_trust: MemoryTrust::Agent,
        most: 15,
    }
}

fn store_found() -> StoreFound {
    let held = "memory/default/peer/web:bot:ada".to_owned();
    let score = StoreScore {
        bm25: 2.5_f64.to_bits(),
        words: 1.0_f64.to_bits(),
        meaning: None,
        neighbours: 0.0_f64.to_bits(),
        factor: 1.0_f64.to_bits(),
        total: 1.0_f64.to_bits(),
    };
    let point = StoreFind {
        scope: held.clone(),
        entity: entity(),
        event: 7,
        part: 0,
        layer: Some(MemoryLayer::Semantic),
        text: "Tea is at four.".to_owned(),
        trust: MemoryTrust::Person,
        at: Timestamp(9_000),
        importance: 5,
        score,
    };
    let meaning = Some(0.5_f64.to_bits());
    let passage =
        StoreFind { layer: None, score: StoreScore { meaning, ..score }, ..point.clone() };
    StoreFound { found: vec![point, passage], damaged: vec![held], upto: BTreeMap::new() }
}

fn clean(job: Option<JobId>) -> CleanJobs {
    CleanJobs { before: Timestamp(9_000), job, session: job.map(|_| entity()) }
}

const fn cut() -> LogCut {
    LogCut { after: 2, lines: 3, bytes: 40, unheard: 5 }
}

fn part(cut: Option<LogCut>) -> LogPart {
    LogPart { run: 1, lines: log_lines(), cut, more: cut.is_some() }
}

pub(crate) fn log_lines() -> Vec<LogLine> {
    let line = |n, stream, goes_on| LogLine {
        n,
        at: Timestamp(1_700_000_000_000 + n),
        stream,
        text: "hé".to_owned(),
        goes_on,
    };
    vec![line(1, LogStream::Stdout, true), line(6, LogStream::Stderr, false)]
}

pub(crate) fn archived() -> JobRecord {
    let Job { id, session, turn, call, tool, capability, arguments, .. } = job();
    let run = |number, how: Option<RunEnd>| JobRun {
        number,
        process: process(),
        node: name("node-1"),
        began: Timestamp(1_000),
        ended: how.map(|how| Ended { at: Timestamp(2_000), how }),
        log: None,
        artifacts: Vec::new(),
        result: None,
        lost: Vec::new(),
    };
    let failed = RunEnd::Failed { failure: ToolFailure::TimedOut };
    let digest = Digest::of(b"log");
    let full = JobRun {
        log: Some(StoredLog { digest, bytes: 300, lines: 6, cut: Some(cut()) }),
        artifacts: vec![Artifact { name: "out/a.txt".to_owned(), digest, bytes: 3 }],
        result: Some(StoredResult { digest, bytes: 9_000 }),
        lost: vec!["its log: full".to_owned()],
        ..run(5, Some(RunEnd::Done))
    };
    let runs = vec![
        run(1, None),
        run(2, Some(RunEnd::Interrupted)),
        run(3, Some(RunEnd::Uncertain)),
        run(4, Some(failed)),
        full,
    ];
    JobRecord { job: id, session, turn, call, tool, capability, arguments, runs }
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
    let limit_key = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
    let bodies = vec![
        EventBody::NodeJoined { version: "1.2.3".to_owned(), roles: vec![NodeRole::Gateway] },
        EventBody::NodeCordoned { on: true },
        EventBody::NodeDraining,
        EventBody::NodeLeft,
        EventBody::NodeDead { process: process(), node: Some(name("worker-1")) },
        EventBody::TurnStarted { session, turn },
        EventBody::ApprovalAsked { session, call: tool_call(), tool: name("shell") },
        EventBody::TurnEnded { session, turn, outcome: "completed".to_owned() },
        EventBody::Claimed { session, from: process(), epoch: Epoch(4) },
        EventBody::Fenced { session },
        EventBody::Quarantined { session, reason: "5 claims without progress".to_owned() },
        EventBody::BudgetWarned {
            account: name("cluster"),
            of: limit_key,
            spent: 3_750_000,
            limit: 5_000_000,
        },
        EventBody::BudgetAsked {
            account: name("agent:research"),
            of: limit_key,
            spent: 4_500_000,
            limit: 5_000_000,
        },
        EventBody::BudgetOver { account: name("cluster"), of: limit_key, excess: 12 },
        EventBody::Discarded { session, by: "token at gateway-1".to_owned() },
        EventBody::KillSwitch {
            scope: SwitchScope::Agent(name("default")),
            on: true,
            by: "token at gateway-1".to_owned(),
            why: "it runs away".to_owned(),
        },
        EventBody::AgentPaused {
            agent: name("research"),
            pause: AgentPause {
                by: "node worker-1".to_owned(),
                why: "more than 60 tool calls in a minute".to_owned(),
                at: Timestamp(1_700_000_000_000),
                limit: Some(AgentLimit::ToolCallsPerMinute),
            },
        },
        EventBody::AgentResumed { agent: name("research"), by: "operator at a".to_owned() },
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

/// The values of kill switches in the bucket, and their messages.
pub(crate) fn latches() -> Vec<SwitchRecord> {
    let switch = |scope| KillSwitch {
        id: SwitchId::from_u128(9),
        scope,
        by: "token at gateway-1".to_owned(),
        at: Timestamp(1_700_000_000_000),
        why: "it runs away".to_owned(),
    };
    let by = "token at gateway-2".to_owned();
    vec![
        SwitchRecord::Set { switch: switch(SwitchScope::All) },
        SwitchRecord::Set { switch: switch(SwitchScope::Egress) },
        SwitchRecord::Set { switch: switch(SwitchScope::Tool(name("time_now"))) },
        SwitchRecord::Set { switch: switch(SwitchScope::Agent(name("default"))) },
        SwitchRecord::Cleared {
            switch: KillSwitch { why: String::new(), ..switch(SwitchScope::All) },
            by,
            at: Timestamp(1_700_000_000_001),
        },
    ]
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

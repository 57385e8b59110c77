//! The methods: from a name and parameters to a call, and from a call to its answer.
//!
//! The one list of methods is `proto::api::Method`; a method added there does not compile here
//! until it is answered. WebSocket, `POST /v1/rpc` and REST all come through here.

use std::time::Instant;

use clawnode_proto::{
    AgentName, CallId, Digest, ErrorBody, ErrorCode, FrameKey, IdempotencyKey, McpServerName, Seq,
    SessionKey, Traceparent, TurnId,
    api::{
        AgentParams, ApprovalDecide, ApprovalParams, CONVERSATION, ChatCancel, ChatContinue,
        ChatSend, EventsParams, JournalShow, JournalVerify, ListParams, McpApprove, McpParams,
        Method, NodeParams, NodesDrain, PanicClear, PanicParams, ParkedDrop, PolicyCheck,
        SessionParams, SessionsList, SessionsResume, TreeParams,
    },
    id::KeyPart,
    latch::LatchScope,
    limits,
    llm::Text,
    policy::Decision,
    provider::DiagnoseParams,
    route::Inbound,
    session::UserMessage,
    usage::UsageParams,
    view::{DoneView, TicketView},
};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{
    auth::TICKET_LIFE,
    backend::{Backend, NodeOrder, SendRequest, SessionRef},
    error::json,
    execute::ExecuteCall,
    frame::RequestId,
    jobs::JobsCall,
    params::{answer_within, document, events, invalid, page, parse, read, rows, sessions},
    serve::Gateway,
};

/// A request, read as far as its method.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) method: Method,
    pub(super) params: Value,
}

/// A request that makes sense.
#[derive(Debug)]
pub(super) enum Call {
    /// Stores a message and streams its turn.
    Send(Box<SendRequest>),
    /// Streams a turn that there is.
    Resume { session: SessionRef, turn: Option<TurnId>, after: Option<FrameKey> },
    /// Answers once.
    Unary(Unary),
}

/// A request with one answer.
#[derive(Debug)]
pub(super) enum Unary {
    Ping,
    Status,
    Nodes,
    Partitions,
    Usage(UsageParams),
    Tree(TreeParams),
    Events(EventsParams),
    Stats,
    Cancel { session: SessionRef, turn: TurnId },
    Sessions(SessionsList),
    History(SessionRef),
    Export(SessionRef),
    Delete(SessionRef),
    Journal { session: SessionRef, after: Seq, limit: u32 },
    Verify(Option<SessionRef>),
    Quarantined(ListParams),
    Quarantine(SessionRef),
    Replay(SessionRef),
    Bury(SessionRef),
    Parked(ListParams),
    DropLetter(String),
    Approvals,
    Approval(CallId),
    Decide { call: CallId, action: Digest, decision: Decision, reason: Option<String> },
    Jobs(JobsCall),
    Check(PolicyCheck),
    Providers,
    Diagnose(DiagnoseParams),
    Execute(ExecuteCall),
    GoOn { session: SessionRef, turn: Option<TurnId> },
    Agents,
    Agent(AgentName),
    Pause { agent: AgentName, paused: bool },
    McpServers,
    McpServer(McpServerName),
    ApproveMcp { server: McpServerName, tool: Option<String>, digest: Option<String> },
    Order { node: String, order: NodeOrder },
    Panic(PanicParams),
    Panics,
    ClearPanic(PanicClear),
    Ticket,
}

/// What is not even a request, with the id to answer to, as far as there is one.
pub(super) type BadRequest = (RequestId, ErrorBody);

// === impl Request ===

impl Request {
    /// Reads a request from text.
    pub(super) fn read(text: &str) -> Result<Self, BadRequest> {
        let value = document(text).map_err(|error| {
            (RequestId::null(), error.hint(r#"send `{"id":1,"method":"ping"}`"#))
        })?;
        let Value::Object(mut fields) = value else {
            return Err((RequestId::null(), shapeless("a request is a JSON object")));
        };
        let id = RequestId::new(fields.get("id").unwrap_or(&Value::Null))
            .map_err(|error| (RequestId::null(), error))?;
        if let (None, Some("panic")) =
            (fields.get("method"), fields.get("type").and_then(Value::as_str))
        {
            let params = panic_of(fields.get("payload"));
            return Ok(Self { id, method: Method::Panic, params });
        }
        let method = match fields.get("method") {
            Some(Value::String(name)) => Method::parse(name).ok_or_else(|| unknown(name)),
            Some(_) => Err(shapeless("`method` is not a string")),
            None => Err(shapeless("`method` is missing")),
        };
        match method {
            Ok(method) => {
                let params = fields.remove("params").unwrap_or(Value::Null);
                Ok(Self { id, method, params })
            }
            Err(error) => Err((id, error)),
        }
    }
}

/// The parameters of a frame `{"type":"panic","payload":{…}}`, as clients of another protocol send
/// it. Whatever else is in it: a person wants things stopped, so nothing of it is an error.
fn panic_of(payload: Option<&Value>) -> Value {
    let text = |name| payload.and_then(|it| it.get(name)).and_then(Value::as_str);
    let scope = text("scope").filter(|scope| scope.parse::<LatchScope>().is_ok());
    let why = text("why").or_else(|| text("reason")).unwrap_or_default();
    serde_json::json!({ "scope": scope, "why": why })
}

fn shapeless(message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, message)
        .hint(r#"send `{"id":1,"method":"ping","params":{}}`"#)
}

fn unknown(name: &str) -> ErrorBody {
    let name: String = name.chars().take(80).collect();
    let known: Vec<&str> = Method::ALL.iter().map(|method| method.as_str()).collect();
    ErrorBody::new(ErrorCode::UnknownMethod, format!("there is no method `{name}`"))
        .hint(format!("methods are {}", known.join(", ")))
}

// === impl Call ===

impl Call {
    /// Reads a method's parameters.
    #[expect(clippy::too_many_lines, reason = "one flat match over the methods")]
    pub(super) fn read(
        method: Method,
        params: Value,
        backend: &dyn Backend,
        trace: Option<Traceparent>,
    ) -> Result<Self, ErrorBody> {
        let unary = match method {
            Method::ChatSend => {
                return send(read(method, params)?, backend, trace).map(Box::new).map(Self::Send);
            }
            Method::SessionsResume => return resume(read(method, params)?),
            Method::Ping => Unary::Ping,
            Method::Status => Unary::Status,
            Method::NodesList => Unary::Nodes,
            Method::PartitionsList => Unary::Partitions,
            Method::ClusterTree => Unary::Tree(read(method, params)?),
            Method::EventsList => Unary::Events(events(read(method, params)?)?),
            Method::StatsShow => Unary::Stats,
            Method::UsageShow => Unary::Usage(read(method, params)?),
            Method::ChatCancel => {
                let ChatCancel { session, turn } = read(method, params)?;
                Unary::Cancel { session: parse("session", &session)?, turn: parse("turn", &turn)? }
            }
            Method::SessionsList => Unary::Sessions(sessions(read(method, params)?)?),
            Method::SessionsHistory => Unary::History(session(method, params)?),
            Method::SessionsExport => Unary::Export(session(method, params)?),
            Method::SessionsDelete => Unary::Delete(session(method, params)?),
            Method::JournalShow => {
                let JournalShow { session, after, limit } = read(method, params)?;
                Unary::Journal {
                    session: parse("session", &session)?,
                    after: after.unwrap_or_default(),
                    limit: rows(limit)?,
                }
            }
            Method::JournalVerify => {
                let JournalVerify { session } = read(method, params)?;
                Unary::Verify(session.map(|text| parse("session", &text)).transpose()?)
            }
            Method::QuarantineList => Unary::Quarantined(page(read(method, params)?)?),
            Method::QuarantineShow => Unary::Quarantine(session(method, params)?),
            Method::QuarantineReplay => Unary::Replay(session(method, params)?),
            Method::QuarantineDrop => Unary::Bury(session(method, params)?),
            Method::ParkedList => Unary::Parked(page(read(method, params)?)?),
            Method::ParkedDrop => {
                let ParkedDrop { letter } = read(method, params)?;
                Unary::DropLetter(letter)
            }
            Method::AgentsList => Unary::Agents,
            Method::AgentsShow => Unary::Agent(agent(method, params)?),
            Method::AgentsPause => Unary::Pause { agent: agent(method, params)?, paused: true },
            Method::AgentsResume => Unary::Pause { agent: agent(method, params)?, paused: false },
            Method::McpList | Method::McpShow | Method::McpApprove => mcp(method, params)?,
            Method::NodesDrain => {
                let NodesDrain { node, force } = read(method, params)?;
                Unary::Order { node, order: NodeOrder::Drain { force } }
            }
            Method::NodesCordon => order(read(method, params)?, NodeOrder::Cordon),
            Method::NodesUncordon => order(read(method, params)?, NodeOrder::Uncordon),
            Method::ApprovalsList => Unary::Approvals,
            Method::ApprovalsShow => {
                let ApprovalParams { call } = read(method, params)?;
                Unary::Approval(parse("call", &call)?)
            }
            Method::ApprovalsApprove => decide(read(method, params)?, Decision::Approve)?,
            Method::ApprovalsDeny => decide(read(method, params)?, Decision::Deny)?,
            Method::JobsList
            | Method::JobsShow
            | Method::JobsLogs
            | Method::JobsArtifact
            | Method::JobsClean
            | Method::JobsStats => Unary::Jobs(JobsCall::read(method, params)?),
            Method::PolicyCheck => Unary::Check(read(method, params)?),
            Method::ProvidersHealth => Unary::Providers,
            Method::SchedulerDiagnose => Unary::Diagnose(read(method, params)?),
            Method::Execute | Method::ExecuteShow | Method::ExecuteCancel => {
                Unary::Execute(ExecuteCall::read(method, params, trace)?)
            }
            Method::ChatContinue => {
                let ChatContinue { session, turn } = read(method, params)?;
                let turn = turn.map(|text| parse("turn", &text)).transpose()?;
                Unary::GoOn { session: parse("session", &session)?, turn }
            }
            Method::Panic => {
                let params: PanicParams = read(method, params)?;
                answer_within(params.wait_ms)?;
                Unary::Panic(params)
            }
            Method::PanicList => Unary::Panics,
            Method::PanicClear => {
                let params: PanicClear = read(method, params)?;
                answer_within(params.wait_ms)?;
                Unary::ClearPanic(params)
            }
            Method::TicketCreate => Unary::Ticket,
        };
        Ok(Self::Unary(unary))
    }
}

/// What people ask of MCP servers.
fn mcp(method: Method, params: Value) -> Result<Unary, ErrorBody> {
    Ok(match method {
        Method::McpShow => {
            let McpParams { server } = read(method, params)?;
            Unary::McpServer(parse("server", &server)?)
        }
        Method::McpApprove => {
            let McpApprove { server, tool, digest } = read(method, params)?;
            Unary::ApproveMcp { server: parse("server", &server)?, tool, digest }
        }
        _ => Unary::McpServers,
    })
}

/// Whether a method answers with a stream.
pub(super) fn is_stream(method: Method) -> bool {
    matches!(method, Method::ChatSend | Method::SessionsResume)
}

/// The message as the node takes it.
pub(super) fn send(
    params: ChatSend,
    backend: &dyn Backend,
    trace: Option<Traceparent>,
) -> Result<SendRequest, ErrorBody> {
    let ChatSend {
        channel,
        account,
        peer,
        conversation,
        content,
        guild,
        team,
        agent,
        idempotency_key,
        mode,
    } = params;
    let agent = match agent {
        Some(agent) => parse("agent", &agent)?,
        None => backend.route(&Inbound {
            channel: &channel,
            account: &account,
            peer: &peer,
            guild: guild.as_deref(),
            team: team.as_deref(),
        }),
    };
    let key = match idempotency_key {
        Some(key) => parse("idempotency_key", &key)?,
        None => fresh_key()?,
    };
    if content.is_empty() {
        return Err(invalid("`content` is empty"));
    }
    let message = UserMessage::text(content);
    check_size(&message)?;
    // `peer` alone too, so that no part of a key is made of what could not be one. And with the sign in
    // neither, no peer is the conversation of another.
    let mut whole: KeyPart = parse("peer", &peer)?;
    for (name, text) in [("peer", Some(&peer)), ("conversation", conversation.as_ref())] {
        if text.is_some_and(|it| it.contains(CONVERSATION)) {
            let what = format!("parameter `{name}`: `{CONVERSATION}` cannot be in it");
            return Err(invalid(what).hint("it separates a peer from a conversation"));
        }
    }
    if let Some(conversation) = conversation {
        let part: KeyPart = parse("conversation", &conversation)?;
        whole = parse("peer", &format!("{whole}{CONVERSATION}{part}"))?;
    }
    let session = SessionKey {
        agent,
        channel: parse("channel", &channel)?,
        account: parse("account", &account)?,
        peer: whole,
    };
    Ok(SendRequest { session, message, mode, key, trace, sent_before: false })
}

fn resume(params: SessionsResume) -> Result<Call, ErrorBody> {
    let SessionsResume { session, turn, cursor } = params;
    let session = parse("session", &session)?;
    let after: Option<FrameKey> = cursor.map(|text| parse("cursor", &text)).transpose()?;
    let turn: Option<TurnId> = turn.map(|text| parse("turn", &text)).transpose()?;
    if let (Some(turn), Some(after)) = (turn, after)
        && turn != after.turn
    {
        return Err(invalid(format!("`cursor` belongs to turn `{}`, not `{turn}`", after.turn)));
    }
    Ok(Call::Resume { session, turn: turn.or(after.map(|cursor| cursor.turn)), after })
}

/// What a key begins with that a gateway made.
pub(super) const FRESH_KEY: &str = "auto-";

/// A name for a request whose client gave none.
pub(super) fn fresh_key() -> Result<IdempotencyKey, ErrorBody> {
    parse("idempotency_key", &format!("{FRESH_KEY}{:032x}", rand::random::<u128>()))
}

/// Everything said in one message, its history included, within [`limits::MESSAGE_BYTES`].
pub(super) fn check_size(message: &UserMessage) -> Result<(), ErrorBody> {
    let history: u64 = message.history.iter().map(|earlier| earlier.content.bytes()).sum();
    let system = message.system.as_deref().map_or(0, str::len) as u64;
    let bytes = Text::bytes(&message.content) + history + system;
    if bytes <= limits::MESSAGE_BYTES as u64 {
        return Ok(());
    }
    let limit = limits::MESSAGE_BYTES;
    let message = format!("the message is {bytes} bytes, the limit is {limit}");
    Err(ErrorBody::new(ErrorCode::TooLarge, message).hint("send it in parts, or shorten it"))
}

fn session(method: Method, params: Value) -> Result<SessionRef, ErrorBody> {
    let SessionParams { session } = read(method, params)?;
    parse("session", &session)
}

fn agent(method: Method, params: Value) -> Result<AgentName, ErrorBody> {
    let AgentParams { agent } = read(method, params)?;
    parse("agent", &agent)
}

fn decide(params: ApprovalDecide, decision: Decision) -> Result<Unary, ErrorBody> {
    let ApprovalDecide { call, action, reason } = params;
    let (call, action) = (parse("call", &call)?, parse("action", &action)?);
    let longest = limits::DECISION_CHARS;
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > longest) {
        return Err(invalid(format!("`reason` is longer than {longest} characters")));
    }
    Ok(Unary::Decide { call, action, decision, reason })
}

fn order(params: NodeParams, order: NodeOrder) -> Unary {
    Unary::Order { node: params.node, order }
}

// === impl Unary ===

impl Unary {
    /// Answers, in JSON.
    pub(super) async fn answer(
        self,
        gateway: &Gateway,
        trace: Option<Traceparent>,
    ) -> Result<String, ErrorBody> {
        let backend = &gateway.backend;
        Ok(match self {
            Self::Ping => json(&"pong"),
            Self::Status => json(&backend.status().await?),
            Self::Nodes => json(&backend.nodes().await),
            Self::Partitions => json(&backend.partitions().await),
            Self::Tree(TreeParams { node }) => json(&backend.tree(node.as_deref()).await?),
            Self::Events(page) => json(&backend.events(page).await),
            Self::Usage(wanted) => json(&backend.usage(wanted).await?),
            Self::Stats => json(&gateway.metrics.stats()),
            Self::Cancel { session, turn } => {
                backend.cancel(&session, turn, trace).await?;
                json(&DoneView { ok: true })
            }
            Self::Sessions(page) => json(&backend.sessions(page).await?),
            Self::History(session) => json(&backend.history(&session).await?),
            Self::Export(session) => json(&backend.export(&session).await?),
            Self::Delete(session) => {
                backend.delete(&session).await?;
                json(&DoneView { ok: true })
            }
            Self::Journal { session, after, limit } => {
                json(&backend.journal(&session, after, limit).await?)
            }
            Self::Verify(session) => json(&backend.verify(session.as_ref()).await?),
            Self::Quarantined(page) => json(&backend.quarantined(page).await?),
            Self::Quarantine(session) => json(&backend.quarantine(&session).await?),
            Self::Replay(session) => json(&backend.replay(&session).await?),
            Self::Bury(session) => json(&backend.bury(&session).await?),
            Self::Parked(page) => json(&backend.parked(page).await?),
            Self::DropLetter(letter) => {
                backend.drop_letter(&letter).await?;
                json(&DoneView { ok: true })
            }
            Self::Approvals => json(&backend.approvals().await?),
            Self::Approval(call) => json(&backend.approval(call).await?),
            Self::Decide { call, action, decision, reason } => {
                json(&backend.decide(call, action, decision, reason).await?)
            }
            Self::Jobs(call) => call.answer(backend.archive()).await?,
            Self::Check(check) => json(&backend.check(check).await?),
            Self::Providers => json(&backend.providers().await),
            Self::Diagnose(params) => json(&backend.diagnose(&params).await?),
            Self::Execute(call) => json(&call.view(&**backend, trace).await?),
            Self::GoOn { session, turn } => json(&backend.go_on(&session, turn).await?),
            Self::Agents => json(&backend.agents().await?),
            Self::Agent(agent) => json(&backend.agent(&agent).await?),
            Self::Pause { agent, paused } => json(&backend.pause(&agent, paused).await?),
            Self::McpServers => json(&backend.mcp_servers().await),
            Self::McpServer(server) => json(&backend.mcp_server(&server).await?),
            Self::ApproveMcp { server, tool, digest } => {
                json(&backend.approve_mcp(&server, tool.as_deref(), digest.as_deref()).await?)
            }
            Self::Order { node, order } => json(&backend.order(&node, order).await?),
            Self::Panic(params) => json(&backend.panic(params, gateway.auth.credential()).await?),
            Self::Panics => json(&backend.panics().await),
            Self::ClearPanic(params) => {
                json(&backend.clear_panic(params, gateway.auth.credential()).await?)
            }
            Self::Ticket => {
                let ticket = gateway.auth.make_ticket(Instant::now())?;
                let ticket = ticket.expose_secret().to_owned();
                let protocol = format!("{}{ticket}", super::auth::TICKET_PROTOCOL);
                json(&TicketView { ticket, protocol, expires_seconds: TICKET_LIFE.as_secs() })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

    use super::*;

    /// What is mutated.
    const SAMPLES: [&str; 5] = [
        r#"{"type":"panic","id":7,"payload":{"scope":"all","reason":"x"}}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"id":"a","method":"chat.send","params":{"channel":"c","content":"\u00e9"}}"#,
        r#"{"id":null,"method":"sessions.resume","params":{"session":"a:b:c:d","turn":null}}"#,
        r#"[{"id":{}}]"#,
    ];

    fn mutated(random: &mut StdRng) -> String {
        let mut bytes = SAMPLES.choose(random).map_or_else(Vec::new, |one| one.as_bytes().to_vec());
        for _ in 0..random.random_range(0..6) {
            let at = random.random_range(0..=bytes.len());
            match random.random_range(0..4) {
                0 if at < bytes.len() => bytes[at] = random.random(),
                1 => bytes.insert(at, random.random()),
                2 => bytes.truncate(at),
                _ => {
                    let piece = bytes[at..].to_vec();
                    bytes.extend(piece);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Any text is a request or is refused with the code that says why, under its own id if it has
    /// a usable one.
    fn read_one(text: &str) {
        match Request::read(text) {
            Ok(request) => assert!(Method::ALL.contains(&request.method)),
            Err((_, error)) => assert!(
                matches!(
                    error.code,
                    ErrorCode::Malformed
                        | ErrorCode::InvalidRequest
                        | ErrorCode::UnknownMethod
                        | ErrorCode::InvalidParams
                ),
                "{text:?}: {error:?}"
            ),
        }
    }

    #[test]
    fn requests_are_refused_or_understood() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..20_000 {
            read_one(&mutated(&mut random));
        }
    }

    #[test]
    fn requests_soak() {
        let mut random = StdRng::seed_from_u64(rand::random());
        let end = Instant::now() + Duration::from_mins(1);
        while Instant::now() < end {
            read_one(&mutated(&mut random));
        }
    }
}

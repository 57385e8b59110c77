//! The methods: from a name and parameters to an answer.
//!
//! The one list of methods is `proto`'s table; a method added there does not compile here until it
//! is answered. WebSocket, `POST /v1/rpc` and REST all come through here.

use std::{future::ready, sync::Arc, time::Instant};

use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey, IdempotencyKey, SessionKey, Traceparent, TurnId,
    api::{CONVERSATION, ChatSend, JobArtifact, Method, SendMode, SessionsResume},
    id::KeyPart,
    kill_switch::SwitchScope,
    limits,
    llm::{Sampling, Text},
    methods::types,
    response::ResponseSchema,
    route::Inbound,
    session::UserMessage,
    view::TicketView,
};
use futures_util::future::{BoxFuture, FutureExt as _};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::Value;

use super::{
    attachments,
    auth::{TICKET_LIFE, TICKET_PROTOCOL},
    backend::{Backend, RequestCaller, SendRequest, SessionRef},
    error::json,
    frame::RequestId,
    gateway::Gateway,
    jobs::artifact_part,
    lane,
    params::{document, given, invalid, parse, take},
};

/// A request, read as far as its method.
#[derive(Debug)]
pub(super) struct RpcCall {
    pub(super) id: RequestId,
    pub(super) method: Method,
    pub(super) params: Value,
}

/// A turn that there is, and from where on it is streamed.
#[derive(Debug)]
pub(super) struct Resume {
    pub(super) session: SessionRef,
    pub(super) turn: Option<TurnId>,
    pub(super) after: Option<FrameKey>,
}

/// An answer in JSON, which nothing is done for until it is awaited.
pub(super) type Promise = BoxFuture<'static, Result<String, ErrorBody>>;

/// What is not even a request, with the id to answer to, as far as there is one.
pub(super) type BadRequest = (RequestId, ErrorBody);

// === impl RpcCall ===

impl RpcCall {
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
    let text = |name| payload.and_then(|payload| payload.get(name)).and_then(Value::as_str);
    let scope = text("scope").filter(|scope| scope.parse::<SwitchScope>().is_ok());
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

// === Answers ===

macro_rules! answers {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$($routes:tt)*])?;
    )*) => {
        /// Reads a method's parameters, and promises its answer.
        pub(super) fn answer(
            gateway: Arc<Gateway>,
            caller: RequestCaller,
            method: Method,
            params: Value,
        ) -> Result<Promise, ErrorBody> {
            Ok(match method {
                $( $( Method::$variant => {
                    let params: given::$takes = take::<types::$takes, _>(method, params)?;
                    promise(async move { gateway.backend.$handler(&caller, params).await })
                } )? )*
                // What the gateway answers itself.
                Method::Ping => promise(ready(Ok("pong"))),
                Method::StatsShow => promise(async move { Ok(gateway.metrics.stats()) }),
                Method::TicketCreate => promise(async move { ticket(&gateway) }),
                Method::JobsArtifact => {
                    let (job, wanted) = take::<JobArtifact, given::JobArtifact>(method, params)?;
                    promise(async move { artifact_part(&*gateway.backend, job, wanted).await })
                }
                Method::ChatSend | Method::SessionsResume => return Err(streams(method)),
            })
        }
    };
}

clawnode_proto::methods!(answers);

fn promise<T: Serialize + 'static>(
    answer: impl Future<Output = Result<T, ErrorBody>> + Send + 'static,
) -> Promise {
    answer.map(|answer| answer.map(|answer| json(&answer))).boxed()
}

fn ticket(gateway: &Gateway) -> Result<TicketView, ErrorBody> {
    let ticket = gateway.auth.make_ticket(Instant::now())?;
    let ticket = ticket.expose_secret().to_owned();
    let protocol = format!("{TICKET_PROTOCOL}{ticket}");
    Ok(TicketView { ticket, protocol, expires_seconds: TICKET_LIFE.as_secs() })
}

fn streams(method: Method) -> ErrorBody {
    let message = format!("`{}` answers with a stream", method.as_str());
    ErrorBody::new(ErrorCode::Unsupported, message).hint(
        "call it on the WebSocket `/ws`, or use `/v1/sessions/SESSION/messages` and \
         `/v1/sessions/SESSION/events`",
    )
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
        attachments,
        guild,
        team,
        agent,
        model,
        idempotency_key,
        mode,
        reasoning,
        response_schema,
        keep,
        lane,
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
    let attachments = attachments::read(attachments)?;
    if content.is_empty() && attachments.is_empty() {
        return Err(invalid("`content` is empty"));
    }
    let of_turn = model.is_some() || reasoning.is_some() || response_schema.is_some();
    if matches!(mode, SendMode::Steer) && (of_turn || !keep.is_empty() || lane.is_some()) {
        return Err(invalid(
            "`model`, `reasoning`, `response_schema`, `keep` and `lane` are of a turn, and `steer` \
             adds to one that runs",
        )
        .hint("leave them out, or send the message as a turn"));
    }
    let sampling = Sampling { reasoning, ..Sampling::default() };
    let response_schema = response_schema.map(|schema| ResponseSchema::new(None, &schema));
    let text = UserMessage::text(content);
    let lane = lane.map(lane::of_client).transpose()?;
    let message = UserMessage { model, sampling, response_schema, keep, lane, ..text };
    check_size(&message)?;
    // `peer` alone too, so that no part of a key is made from a text that could not be one. And with the sign in
    // neither, no peer is the conversation of another.
    let mut whole: KeyPart = parse("peer", &peer)?;
    for (name, text) in [("peer", Some(&peer)), ("conversation", conversation.as_ref())] {
        if text.is_some_and(|text| text.contains(CONVERSATION)) {
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
    Ok(SendRequest { session, message, attachments, mode, key, trace, sent_before: false })
}

/// What a client wants to see of a turn.
pub(super) fn resume(params: SessionsResume) -> Result<Resume, ErrorBody> {
    let SessionsResume { session, turn, cursor } = params;
    let session = parse("session", &session)?;
    let after: Option<FrameKey> = cursor.map(|text| parse("cursor", &text)).transpose()?;
    let turn: Option<TurnId> = turn.map(|text| parse("turn", &text)).transpose()?;
    if let (Some(turn), Some(after)) = (turn, after)
        && turn != after.turn
    {
        return Err(invalid(format!("`cursor` belongs to turn `{}`, not `{turn}`", after.turn)));
    }
    Ok(Resume { session, turn: turn.or(after.map(|cursor| cursor.turn)), after })
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
        match RpcCall::read(text) {
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

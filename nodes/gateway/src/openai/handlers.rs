//! The three endpoints.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{
    AgentName, EntityId, ErrorBody, ErrorCode, IdempotencyKey, api::Nothing,
    client_tool::ClientCalls, frame::ApprovalRequest, lane::Lane, limits::COMPLETION_BYTES,
};
use serde::Serialize;

use super::{
    super::{
        backend::{Following, SessionRef},
        error::{OpenAiError, json},
        gateway::Gateway,
        guard::RequestTrace,
        lane, rest,
        rpc::fresh_key,
        slow_client_stream::{count, lost},
    },
    approval::{self, Heard, PersonWait},
    format::SCHEMA,
    id::ResponseId,
    message_parts::about,
    repeats::{self, WatchedRequest},
    reply::{FinishReason, Label, OpenAiReply, ReplyStep},
    request::{Ask, Wanted},
    stream::{self, CompletionWords, drain},
};

/// What makes repeating a request harmless.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A request that a turn may come of.
pub(in super::super) struct Received {
    pub(in super::super) body: String,
    /// The name that its client gave it.
    named: Option<IdempotencyKey>,
    /// The lane that its header names.
    lane: Option<Lane>,
    watched: Option<WatchedRequest>,
}

#[derive(Serialize)]
struct ModelsReply<'a> {
    object: &'static str,
    data: Vec<ModelObject<'a>>,
}

#[derive(Serialize)]
struct ModelObject<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

/// `GET /v1/models`.
pub(in super::super) async fn models(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.backend.agents_list(&gateway.caller(None), Nothing {}).await {
        Ok(list) => {
            let data =
                list.agents.iter().map(|view| named(&gateway, view.agent.as_str())).collect();
            rest::json(json(&ModelsReply { object: "list", data }))
        }
        Err(error) => OpenAiError::from(error).respond(),
    }
}

/// `GET /v1/models/{model}`.
pub(in super::super) async fn model(
    State(gateway): State<Arc<Gateway>>,
    Path(name): Path<String>,
) -> Response {
    let Ok(agent) = name.parse::<AgentName>() else {
        return unknown(&gateway, OpenAiError::no_model(&name)).respond();
    };
    match gateway.backend.agents_show(&gateway.caller(None), agent).await {
        Ok(view) => rest::json(json(&named(&gateway, view.view.agent.as_str()))),
        Err(error) => of_model(&gateway, error, &name).respond(),
    }
}

/// `POST /v1/chat/completions`.
pub(in super::super) async fn completions(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let received = match Received::of(&gateway, &headers, request).await {
        Ok(received) => received,
        Err(error) => return error.respond(),
    };
    let Ask { model, stream, include_usage, has_schema, wanted } =
        match Ask::read(&received.body, received.key(), trace) {
            Ok(ask) => ask,
            Err(error) => return unknown(&gateway, error).respond(),
        };
    let (sent, after) = (Instant::now(), wanted.after());
    let is_held = has_schema || gateway.backend.has_schema(wanted.agent());
    let following = match received.send(&gateway, wanted).await {
        Ok(following) => following,
        // All else was judged before.
        Err(error) if has_schema && error.code == ErrorCode::InvalidParams => {
            return about(SCHEMA, error).respond();
        }
        Err(error) => return of_model(&gateway, error, &model).respond(),
    };
    let (session, turn) = (session_of(&following), following.accepted.turn);
    let label = Label {
        id: ResponseId { session, turn, after, is_held: false },
        created: gateway.options.clock.now().0 / 1_000,
        model,
        metadata: None,
        usage: include_usage,
    };
    if stream {
        stream::respond(gateway, CompletionWords(label), following, sent, is_held).await
    } else {
        whole(&gateway, &label, following, sent).await
    }
}

// === impl Received ===

impl Received {
    /// Reads a request as far as its body.
    pub(in super::super) async fn of(
        gateway: &Gateway,
        headers: &HeaderMap,
        request: Request,
    ) -> Result<Self, OpenAiError> {
        let named = idempotency_key(headers)?;
        let lane = lane::header(headers)?;
        let body = rest::body_within(gateway, request.into_body(), COMPLETION_BYTES).await?;
        let watched = watched(gateway, headers, &body, named.is_some())?;
        Ok(Self { body, named, lane, watched })
    }

    /// What makes sending it again harmless.
    pub(in super::super) fn key(&self) -> Option<IdempotencyKey> {
        self.named.clone().or_else(|| self.watched.as_ref().map(|watched| watched.key.clone()))
    }

    /// Whether its client has sent it before, to another gateway.
    pub(super) fn is_sent_elsewhere(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.sent_elsewhere)
    }

    /// Does what it wants, and follows the turn.
    pub(in super::super) async fn send(
        self,
        gateway: &Gateway,
        wanted: Wanted,
    ) -> Result<Following, ErrorBody> {
        let mut following = match wanted {
            Wanted::Send(mut message) => {
                message.sent_before = self.is_sent_elsewhere();
                message.message.lane = self.lane;
                gateway.backend.send(*message).await?
            }
            Wanted::Results(results) => gateway.backend.results(*results).await?,
        };
        if let Some(watched) = self.watched {
            following.events = watched.watch(following.events);
        }
        gateway.metrics.accepted();
        Ok(following)
    }
}

/// The session of a turn that is followed.
pub(in super::super) fn session_of(following: &Following) -> EntityId {
    let session = following.accepted.session.parse::<SessionRef>().map(|session| session.id);
    session.unwrap_or_else(|_unnamed| EntityId::from_u128(0))
}

/// The request among those of the last minutes, unless its client has named it.
fn watched(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: &str,
    is_named: bool,
) -> Result<Option<WatchedRequest>, ErrorBody> {
    if is_named {
        return Ok(None);
    }
    let again = repeats::comes_again(headers);
    Ok(Some(gateway.repeats.enter(body.as_bytes(), again, fresh_key()?)))
}

/// Waits for the whole reply.
async fn whole(gateway: &Gateway, label: &Label, following: Following, sent: Instant) -> Response {
    let session = following.accepted.session.clone();
    let (reply, end) = heard(gateway, following, sent).await;
    match end {
        WholeEnd::Called(calls) => rest::json(label.called(&reply, &calls)),
        WholeEnd::Finished(reason) => rest::json(label.completion(&reply, reason)),
        WholeEnd::Failed(error) => OpenAiError::from(error).respond_ended(),
        WholeEnd::Lost => OpenAiError::from(lost()).respond(),
        WholeEnd::Waits(request) => approval::pending(&request, &session),
    }
}

/// How a client ends to wait for a whole reply.
pub(in super::super) enum WholeEnd {
    Called(ClientCalls),
    Finished(FinishReason),
    Failed(ErrorBody),
    /// The node lost sight of the turn.
    Lost,
    /// A call waits for a person, for longer than its client does.
    Waits(ApprovalRequest),
}

/// Waits for the whole reply, whatever its shape.
pub(in super::super) async fn heard(
    gateway: &Gateway,
    following: Following,
    sent: Instant,
) -> (OpenAiReply, WholeEnd) {
    let (mut reply, mut events) = (OpenAiReply::default(), following.events);
    let mut people = PersonWait::new(gateway.options.approval_patience);
    loop {
        let event = match people.next(gateway, &mut events).await {
            Heard::Event(Some(event)) => event,
            Heard::Event(None) => return (reply, WholeEnd::Lost),
            Heard::TooLong(request) => return (reply, WholeEnd::Waits(request)),
        };
        count(gateway, &event.body, sent);
        match reply.take(event.body) {
            ReplyStep::Nothing
            | ReplyStep::Text(_)
            | ReplyStep::Thought(_)
            | ReplyStep::Asks(_)
            | ReplyStep::Waits(_)
            | ReplyStep::Diverged => {}
            ReplyStep::Called(calls) => return (reply, WholeEnd::Called(calls)),
            ReplyStep::Finished(reason) => return (reply, WholeEnd::Finished(reason)),
            ReplyStep::Failed(error) => {
                drain(gateway, &mut events, sent);
                return (reply, WholeEnd::Failed(error));
            }
        }
    }
}

/// The same with the nearest names, if it is about a model that there is not.
pub(in super::super) fn unknown(gateway: &Gateway, error: OpenAiError) -> OpenAiError {
    error.near(|model| gateway.backend.agents_like(model))
}

/// Whether it is the model that was not found. Of an agent that there is, it may be a file.
pub(in super::super) fn is_of_model(gateway: &Gateway, error: &ErrorBody, model: &str) -> bool {
    error.code == ErrorCode::NotFound
        && gateway.backend.agents_like(model).iter().all(|agent| agent.as_str() != model)
}

/// What a node refuses of a request to this model.
pub(in super::super) fn of_model(gateway: &Gateway, error: ErrorBody, model: &str) -> OpenAiError {
    if is_of_model(gateway, &error, model) {
        return unknown(gateway, OpenAiError::no_model(model));
    }
    // The node names a parameter in words.
    let named = error.message.strip_prefix("parameter `").and_then(|rest| rest.split('`').next());
    match named.map(str::to_owned) {
        Some(param) => OpenAiError::from(error).about(param),
        None => error.into(),
    }
}

fn named<'a>(gateway: &Gateway, id: &'a str) -> ModelObject<'a> {
    let created = gateway.started.0 / 1_000;
    ModelObject { id, object: "model", created, owned_by: "clawnode" }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, OpenAiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let invalid = |problem: String| OpenAiError::invalid("Idempotency-Key", problem);
    let text = value.to_str().map_err(|error| invalid(error.to_string()))?;
    text.parse()
        .map(Some)
        .map_err(|error: clawnode_proto::id::ParseIdError| invalid(error.to_string()))
}

//! The three endpoints.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, IdempotencyKey, api::Nothing, limits::COMPLETION_BYTES,
};
use futures_util::StreamExt as _;
use serde::Serialize;

use super::{
    super::{
        backend::Following,
        error::{OpenAiError, json},
        gateway::Gateway,
        guard::RequestTrace,
        rest,
        rpc::fresh_key,
        turn::{count, lost},
    },
    format::SCHEMA,
    parts::about,
    repeats::{self, WatchedRequest},
    reply::{Label, OpenAiReply, ReplyStep},
    request::Ask,
    stream::{self, drain},
};

/// What makes repeating a request harmless.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

/// `GET /v1/models`.
pub(in super::super) async fn models(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.backend.agents_list(&gateway.caller(None), Nothing {}).await {
        Ok(list) => {
            let data = list.agents.iter().map(|it| named(&gateway, it.agent.as_str())).collect();
            rest::json(json(&ModelList { object: "list", data }))
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
        return OpenAiError::no_model(&name).respond();
    };
    match gateway.backend.agents_show(&gateway.caller(None), agent).await {
        Ok(view) => rest::json(json(&named(&gateway, view.view.agent.as_str()))),
        Err(error) => of_model(error, &name).respond(),
    }
}

/// `POST /v1/chat/completions`.
pub(in super::super) async fn completions(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let named = match idempotency_key(&headers) {
        Ok(key) => key,
        Err(error) => return error.respond(),
    };
    let body = rest::body_within(&gateway, request.into_body(), COMPLETION_BYTES).await;
    let body = match body {
        Ok(body) => body,
        Err(error) => return OpenAiError::from(error).respond(),
    };
    let watched = match watched(&gateway, &headers, &body, named.is_some()) {
        Ok(watched) => watched,
        Err(error) => return OpenAiError::from(error).respond(),
    };
    let key = named.or_else(|| watched.as_ref().map(|it| it.key.clone()));
    let Ask { model, stream, include_usage, mut send } = match Ask::read(&body, key, trace) {
        Ok(ask) => ask,
        Err(error) => return error.respond(),
    };
    send.sent_before = watched.as_ref().is_some_and(|it| it.sent_elsewhere);
    let has_schema = send.message.response_schema.is_some();
    let is_held = has_schema || gateway.backend.has_schema(&send.session.agent);
    let sent = Instant::now();
    let mut following = match gateway.backend.send(send).await {
        Ok(following) => following,
        // All else was judged before.
        Err(error) if has_schema && error.code == ErrorCode::InvalidParams => {
            return about(SCHEMA, error).respond();
        }
        Err(error) => return of_model(error, &model).respond(),
    };
    if let Some(watched) = watched {
        following.events = watched.watch(following.events);
    }
    gateway.metrics.accepted();
    let label = Label {
        turn: following.accepted.turn,
        created: gateway.options.clock.now().0 / 1_000,
        model,
        usage: include_usage,
    };
    if stream {
        stream::respond(gateway, label, following, sent, is_held).await
    } else {
        whole(&gateway, &label, following, sent).await
    }
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
    let mut reply = OpenAiReply::default();
    let mut events = following.events;
    while let Some(event) = events.next().await {
        count(gateway, &event.body, sent);
        match reply.take(event.body) {
            ReplyStep::Nothing
            | ReplyStep::Text(_)
            | ReplyStep::Thought(_)
            | ReplyStep::Diverged => {}
            ReplyStep::Finished(reason) => return rest::json(label.completion(&reply, reason)),
            ReplyStep::Failed(error) => {
                drain(gateway, events, sent);
                return OpenAiError::from(error).respond_ended();
            }
        }
    }
    OpenAiError::from(lost()).respond()
}

/// What is not found behind a completion is its model: sessions are made as needed.
fn of_model(error: ErrorBody, model: &str) -> OpenAiError {
    if error.code == ErrorCode::NotFound { OpenAiError::no_model(model) } else { error.into() }
}

fn named<'a>(gateway: &Gateway, id: &'a str) -> Model<'a> {
    let created = gateway.started.0 / 1_000;
    Model { id, object: "model", created, owned_by: "clawnode" }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, OpenAiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let invalid = |problem: String| OpenAiError::invalid("Idempotency-Key", problem);
    let text = value.to_str().map_err(|error| invalid(error.to_string()))?;
    text.parse()
        .map(Some)
        .map_err(|error: clawnode_proto::id::ParseIdError| invalid(error.to_string()))
}

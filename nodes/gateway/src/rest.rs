//! REST: the methods of `rpc` under the routes of `routes`; nothing is done only here.

use std::sync::Arc;

use axum::{
    Extension,
    body::BodyDataStream,
    extract::{Path, RawPathParams, RawQuery, Request, State, rejection::RawPathParamsRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use clawnode_proto::{ErrorBody, ErrorCode, Traceparent, api::Method, limits};
use futures_util::StreamExt as _;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    error::{self, ErrorDialect},
    gateway::Gateway,
    guard::RequestTrace,
    params::{document, invalid},
    route::{Route, RouteBody, query},
    rpc,
};

/// What a decision looks like.
const DECISION: &str = "send `{\"decision\":\"approve\",\"digest\":\"DIGEST\"}`, or `\"deny\"`; \
     `GET /v1/approvals/CALL` shows the digest, and `\"reason\":\"…\"` may be added";

/// Characters of an unknown path that are repeated.
const PATH_CHARS: usize = 80;

/// The first parts, after `/v1/`, of the paths at which other servers take files.
const FILE_PATHS: [&str; 2] = ["files", "uploads"];
/// What to do instead.
const FILES_HINT: &str = "upload files as OpenAI's clients do, by `POST /v1/files` with a form, or send their bytes \
     as the body of `POST /v1/sessions/SESSION/files`, then name the `file_…` in a message; or put the content \
     itself into the message, as a data URL or base64";

/// Bytes of a body that are still read, and dropped, once it is too large (16 MiB).
pub(super) const DROPPED_BYTES: usize = 16 << 20;

pub(super) async fn health() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    if !gateway.draining.is_cancelled() && gateway.backend.ready().await {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ok\n").into_response()
    }
}

pub(super) async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut out = String::new();
    gateway.metrics.render(&gateway.connections, &mut out);
    gateway.backend.metrics(&mut out);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], out).into_response()
}

/// `POST /v1/rpc`.
pub(super) async fn call(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    request: Request,
) -> Response {
    let refuse = |id: &str, error: &ErrorBody| error::respond(error, error::rpc(id, error));
    let text = match body(&gateway, request.into_body()).await {
        Ok(text) => text,
        Err(error) => return refuse("null", &error),
    };
    let request = match rpc::RpcCall::read(&text) {
        Ok(request) => request,
        Err((id, error)) => return refuse(id.as_str(), &error),
    };
    gateway.metrics.call(request.method.as_str());
    match unary(&gateway, request.method, request.params, trace).await {
        Ok(result) => json(request.id.result(&result)),
        Err(error) => refuse(request.id.as_str(), &error),
    }
}

async fn unary(
    gateway: &Arc<Gateway>,
    method: Method,
    params: Value,
    trace: Option<Traceparent>,
) -> Result<String, ErrorBody> {
    rpc::answer(Arc::clone(gateway), gateway.caller(trace), method, params)?.await
}

/// Answers a route that is a method: what its address and its body say are the parameters, and the path
/// says what it is about.
pub(super) async fn answer(
    route: &'static Route,
    method: Method,
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    RawQuery(text): RawQuery,
    request: Request,
) -> Response {
    gateway.metrics.call(method.as_str());
    let answer = async {
        // A route that asks nothing of its query takes no notice of one.
        let text = text.filter(|_| !route.query.is_empty());
        let mut params = query(text.as_deref(), route.query);
        params.extend(said(&gateway, route.body, request).await?);
        let path = path.map_err(|refused| invalid(refused.to_string()))?;
        let named = path.iter().map(|(name, value)| (name.to_owned(), value.into()));
        params.extend(named);
        unary(&gateway, method, Value::Object(params), trace).await
    };
    match answer.await {
        Ok(result) => json(result),
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

/// What a request's body says.
pub(super) async fn said(
    gateway: &Gateway,
    shape: RouteBody,
    request: Request,
) -> Result<Map<String, Value>, ErrorBody> {
    let (example, optional) = match shape {
        RouteBody::None => return Ok(Map::new()),
        RouteBody::Optional(example) => (example, true),
        RouteBody::Object(example) => (example, false),
    };
    let text = body(gateway, request.into_body()).await?;
    if optional && ["", "null"].contains(&text.trim()) {
        return Ok(Map::new());
    }
    let or_nothing = if optional { ", or nothing at all" } else { "" };
    object(&text).map_err(|error| error.hint(format!("send `{example}`{or_nothing}")))
}

/// `{"decision":"approve","digest":"DIGEST","reason":"…"}`.
pub(super) async fn decide(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<RequestTrace>,
    Path(call): Path<String>,
    request: Request,
) -> Response {
    let decided = match posted(&gateway, request).await.and_then(|params| decision(params, call)) {
        Ok((method, params)) => {
            gateway.metrics.call(method.as_str());
            unary(&gateway, method, params, trace.0).await
        }
        Err(error) => Err(error),
    };
    match decided {
        Ok(approval) => json(approval),
        Err(error) if error.code == ErrorCode::InvalidParams && error.hint.is_none() => {
            ErrorDialect::Rest.respond(&error.hint(DECISION))
        }
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

/// Which method decides so, and its parameters.
fn decision(mut params: Map<String, Value>, call: String) -> Result<(Method, Value), ErrorBody> {
    let method = match params.remove("decision").as_ref().and_then(Value::as_str) {
        Some("approve") => Method::ApprovalsApprove,
        Some("deny") => Method::ApprovalsDeny,
        Some(_) | None => {
            let what = "`decision` is neither `approve` nor `deny`";
            return Err(ErrorBody::new(ErrorCode::InvalidParams, what));
        }
    };
    params.insert("call".to_owned(), Value::String(call));
    Ok((method, Value::Object(params)))
}

/// A body that is a JSON object.
pub(super) async fn posted(
    gateway: &Gateway,
    request: Request,
) -> Result<Map<String, Value>, ErrorBody> {
    object(&body(gateway, request.into_body()).await?)
}

fn object(text: &str) -> Result<Map<String, Value>, ErrorBody> {
    match document(text)? {
        Value::Object(params) => Ok(params),
        _ => Err(ErrorBody::new(ErrorCode::InvalidParams, "the body is not a JSON object")),
    }
}

pub(super) async fn nowhere(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path();
    let shown: String = path.chars().take(PATH_CHARS).collect();
    let first = path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next());
    let is_of_files = first.is_some_and(|first| FILE_PATHS.contains(&first));
    let hint = match path {
        "/v1/completions" => "use `/v1/chat/completions`",
        "/v1/complete" => "use `/v1/messages`",
        _ if is_of_files => FILES_HINT,
        _ => "`GET /` shows how to connect",
    };
    let error = ErrorBody::new(ErrorCode::NotFound, format!("there is nothing at `{shown}`"));
    let answer = ErrorDialect::of(path, request.headers()).respond(&error.hint(hint));
    if is_of_files {
        // A client that still sends its file would not read the answer.
        let mut pieces = request.into_body().into_data_stream();
        if timeout(gateway.options.body_deadline, drop_rest(&mut pieces)).await.is_err() {
            tracing::debug!("a file that is not taken came too slowly");
        }
    }
    answer
}

pub(super) async fn wrong_verb(request: Request) -> Response {
    let message = format!("this path does not accept the method `{}`", request.method());
    let error = ErrorBody::new(ErrorCode::InvalidRequest, message);
    let dialect = ErrorDialect::of(request.uri().path(), request.headers());
    dialect.respond_with(StatusCode::METHOD_NOT_ALLOWED, &error)
}

/// Reads a body as text: bounded in bytes and time.
pub(super) async fn body(gateway: &Gateway, body: axum::body::Body) -> Result<String, ErrorBody> {
    body_within(gateway, body, limits::WS_FRAME_BYTES).await
}

/// The same with a bound of its own.
pub(super) async fn body_within(
    gateway: &Gateway,
    body: axum::body::Body,
    limit: usize,
) -> Result<String, ErrorBody> {
    let deadline = gateway.options.body_deadline;
    let late = Instant::now() + deadline;
    let mut pieces = body.into_data_stream();
    let bytes = match timeout_at(late, read_within(&mut pieces, limit)).await {
        Ok(Ok(Some(bytes))) => bytes,
        Ok(Ok(None)) => {
            if timeout_at(late, drop_rest(&mut pieces)).await.is_err() {
                tracing::debug!("the rest of a body that is too large came too slowly");
            }
            let message = format!("the body is larger than {limit} bytes");
            return Err(ErrorBody::new(ErrorCode::TooLarge, message));
        }
        Ok(Err(error)) => {
            let message = format!("the body ended early: {error}");
            return Err(ErrorBody::new(ErrorCode::Malformed, message));
        }
        Err(_elapsed) => {
            let message = format!("the body took longer than {} s", deadline.as_secs());
            return Err(ErrorBody::new(ErrorCode::Malformed, message));
        }
    };
    String::from_utf8(bytes).map_err(|error| {
        ErrorBody::new(ErrorCode::Malformed, format!("the body is not UTF-8: {error}"))
    })
}

/// The whole body, or `None` once it is larger than `limit` bytes.
async fn read_within(
    pieces: &mut BodyDataStream,
    limit: usize,
) -> Result<Option<Vec<u8>>, axum::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if piece.len() > limit.saturating_sub(bytes.len()) {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes))
}

/// Reads and drops the rest of a body, or [`DROPPED_BYTES`] of it. A connection that is closed while
/// bytes wait in it is reset, and its client may lose the answer that says what was wrong.
async fn drop_rest(pieces: &mut BodyDataStream) {
    let mut dropped = 0_usize;
    while dropped < DROPPED_BYTES
        && let Some(Ok(piece)) = pieces.next().await
    {
        dropped = dropped.saturating_add(piece.len());
    }
}

/// A JSON answer.
pub(super) fn json(body: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

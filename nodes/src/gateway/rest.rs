//! The routes. REST is a thin dress over the methods of `rpc`; nothing is done only here.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, RawQuery, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse as _, Response},
    routing::{any, get, post},
};
use clawnode_proto::{ErrorBody, ErrorCode, Traceparent, api::Method, limits};
use serde_json::{Map, Value};

use super::{
    error::{self, Dialect},
    events,
    guard::{Trace, guard},
    openai, page,
    rpc::{self, Call, is_stream},
    serve::Gateway,
    ws,
};

/// Every route; what needs a token is the guard's to say.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/ws", any(ws::upgrade))
        .route("/v1/rpc", post(call))
        .route("/v1/status", get(status))
        .route("/v1/agents", get(agents))
        .route("/v1/sessions", get(sessions))
        .route("/v1/sessions/{session}", get(history).delete(delete))
        .route("/v1/sessions/{session}/events", get(events::events))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{model}", get(openai::model))
        .route("/v1/chat/completions", post(openai::completions))
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_verb)
        .layer(middleware::from_fn_with_state(Arc::clone(&gateway), guard))
        .with_state(gateway)
}

async fn health() -> &'static str {
    "ok\n"
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    if !gateway.draining.is_cancelled() && gateway.backend.ready().await {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ok\n").into_response()
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut out = String::new();
    gateway.metrics.render(&mut out);
    gateway.backend.metrics(&mut out);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], out).into_response()
}

/// `POST /v1/rpc`.
async fn call(
    State(gateway): State<Arc<Gateway>>,
    Extension(Trace(trace)): Extension<Trace>,
    request: Request,
) -> Response {
    let refuse = |id: &str, error: &ErrorBody| error::respond(error, error::rpc(id, error));
    let text = match body(&gateway, request.into_body()).await {
        Ok(text) => text,
        Err(error) => return refuse("null", &error),
    };
    let request = match rpc::Request::read(&text) {
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
    gateway: &Gateway,
    method: Method,
    params: Value,
    trace: Option<Traceparent>,
) -> Result<String, ErrorBody> {
    if is_stream(method) {
        let message = format!("`{}` answers with a stream", method.as_str());
        return Err(ErrorBody::new(ErrorCode::Unsupported, message).hint(
            "call it on the WebSocket `/ws`, or use `/v1/chat/completions` and \
                 `/v1/sessions/SESSION/events`",
        ));
    }
    match Call::read(method, params, &*gateway.backend, trace.clone())? {
        Call::Unary(unary) => unary.answer(gateway, trace).await,
        Call::Send(_) | Call::Resume { .. } => {
            Err(ErrorBody::new(ErrorCode::Internal, "a stream was taken for a single answer"))
        }
    }
}

async fn rest(gateway: &Gateway, method: Method, params: Value, trace: Trace) -> Response {
    gateway.metrics.call(method.as_str());
    match unary(gateway, method, params, trace.0).await {
        Ok(result) => json(result),
        Err(error) => Dialect::Rest.respond(&error),
    }
}

async fn status(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
) -> Response {
    rest(&gateway, Method::Status, Value::Null, trace).await
}

async fn agents(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
) -> Response {
    rest(&gateway, Method::AgentsList, Value::Null, trace).await
}

/// `?limit=10&after=ent_…`: neither needs an escape.
async fn sessions(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    RawQuery(query): RawQuery,
) -> Response {
    let mut params = Map::new();
    let query = query.unwrap_or_default();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let number = value.parse::<u64>().ok().filter(|_| name == "limit");
        params.insert(name.to_owned(), number.map_or_else(|| value.into(), Value::from));
    }
    rest(&gateway, Method::SessionsList, Value::Object(params), trace).await
}

async fn history(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    Path(session): Path<String>,
) -> Response {
    rest(&gateway, Method::SessionsHistory, named(session), trace).await
}

async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    Path(session): Path<String>,
) -> Response {
    rest(&gateway, Method::SessionsDelete, named(session), trace).await
}

fn named(session: String) -> Value {
    Value::Object(Map::from_iter([("session".to_owned(), Value::String(session))]))
}

async fn nowhere(request: Request) -> Response {
    let path = request.uri().path();
    let error = ErrorBody::new(ErrorCode::NotFound, "there is nothing at this path")
        .hint("`/` says how to connect");
    Dialect::of(path).respond(&error)
}

async fn wrong_verb(request: Request) -> Response {
    let message = format!("`{}` is not what this path is asked with", request.method());
    let error = ErrorBody::new(ErrorCode::InvalidRequest, message);
    let mut response = Dialect::of(request.uri().path()).respond(&error);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

/// Reads a body as text: bounded in bytes and time.
pub(super) async fn body(gateway: &Gateway, body: Body) -> Result<String, ErrorBody> {
    let limit = limits::WS_FRAME_BYTES;
    let deadline = gateway.options.body_deadline;
    let read = tokio::time::timeout(deadline, axum::body::to_bytes(body, limit));
    let bytes = match read.await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if is_too_long(&error) => {
            let message = format!("the body is larger than {limit} bytes");
            return Err(ErrorBody::new(ErrorCode::TooLarge, message));
        }
        Ok(Err(error)) => {
            let message = format!("the body broke off: {error}");
            return Err(ErrorBody::new(ErrorCode::Malformed, message));
        }
        Err(_elapsed) => {
            let message = format!("the body took longer than {} s", deadline.as_secs());
            return Err(ErrorBody::new(ErrorCode::Malformed, message));
        }
    };
    String::from_utf8(bytes.into()).map_err(|error| {
        ErrorBody::new(ErrorCode::Malformed, format!("the body is not UTF-8: {error}"))
    })
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A JSON answer.
pub(super) fn json(body: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

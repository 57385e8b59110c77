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
    events, execute,
    guard::{Trace, guard},
    jobs, openai, page,
    params::document,
    rpc::{self, Call, is_stream},
    serve::Gateway,
    ws,
};

/// What a decision looks like.
const DECISION: &str = "send `{\"decision\":\"approve\",\"digest\":\"DIGEST\"}`, or `\"deny\"`; \
     `GET /v1/approvals/CALL` shows the digest, and `\"reason\":\"…\"` may be added";

/// Characters of an unknown path that are repeated.
const PATH_CHARS: usize = 80;

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
        .route("/v1/panic", get(panics).post(panic).delete(clear_panic))
        .route("/v1/mcp", get(mcp_servers))
        .route("/v1/mcp/{server}", get(mcp_server))
        .route("/v1/mcp/{server}/approve", post(approve_mcp))
        .route("/v1/sessions", get(sessions))
        .route("/v1/sessions/{session}", get(history).delete(delete))
        .route("/v1/sessions/{session}/events", get(events::events))
        .route("/v1/sessions/{session}/continue", post(go_on))
        .route("/v1/approvals", get(approvals))
        .route("/v1/approvals/{call}", get(approval).post(decide))
        .merge(jobs::routes())
        .merge(execute::routes())
        .route("/v1/policy/check", post(check))
        .route("/v1/providers/health", get(providers))
        .route("/v1/scheduler/diagnose", post(diagnose))
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
    gateway.metrics.render(&gateway.connections, &mut out);
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

pub(super) async fn rest(
    gateway: &Gateway,
    method: Method,
    params: Value,
    trace: Trace,
) -> Response {
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

async fn panics(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
) -> Response {
    rest(&gateway, Method::PanicList, Value::Null, trace).await
}

/// `{"scope":"tool:NAME","why":"…"}`; without a body everything is stopped.
async fn panic(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    request: Request,
) -> Response {
    let text = match body(&gateway, request.into_body()).await {
        Ok(text) => text,
        Err(error) => return Dialect::Rest.respond(&error),
    };
    let params = match text.trim() {
        "" => Value::Null,
        text => match document(text) {
            Ok(params) => params,
            Err(error) => {
                let error = error.hint(r#"send `{"scope":"all"}`, or nothing at all"#);
                return Dialect::Rest.respond(&error);
            }
        },
    };
    rest(&gateway, Method::Panic, params, trace).await
}

/// `?latch=latch_…`.
async fn clear_panic(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let latch = query.split('&').find_map(|pair| pair.strip_prefix("latch="));
    let params = latch.map(|latch| ("latch".to_owned(), Value::String(latch.to_owned())));
    let params = Value::Object(Map::from_iter(params));
    rest(&gateway, Method::PanicClear, params, trace).await
}

async fn mcp_servers(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
) -> Response {
    rest(&gateway, Method::McpList, Value::Null, trace).await
}

async fn mcp_server(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    Path(server): Path<String>,
) -> Response {
    let params = Map::from_iter([("server".to_owned(), Value::String(server))]);
    rest(&gateway, Method::McpShow, Value::Object(params), trace).await
}

/// The body, if there is one: `{"tool":"echo","digest":"…"}`.
async fn approve_mcp(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    Path(server): Path<String>,
    request: Request,
) -> Response {
    let text = match body(&gateway, request.into_body()).await {
        Ok(text) => text,
        Err(error) => return Dialect::Rest.respond(&error),
    };
    let read = if text.trim().is_empty() { Ok(Map::new()) } else { object(&text) };
    let mut params = match read {
        Ok(params) => params,
        Err(error) => {
            let error = error.hint(r#"send `{"tool":"echo"}`, or nothing to approve all tools"#);
            return Dialect::Rest.respond(&error);
        }
    };
    params.insert("server".to_owned(), Value::String(server));
    rest(&gateway, Method::McpApprove, Value::Object(params), trace).await
}

/// `?limit=10&agent=default&since=2h&stateless=true`. What needs an escape is percent-encoded.
async fn sessions(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    RawQuery(query): RawQuery,
) -> Response {
    let mut params = Map::new();
    let query = query.unwrap_or_default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let read = match name.as_ref() {
            "limit" => value.parse::<u64>().ok().map(Value::from),
            "stateless" => value.parse::<bool>().ok().map(Value::from),
            _ => None,
        };
        params.insert(name.into_owned(), read.unwrap_or_else(|| value.into()));
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

async fn go_on(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    Path(session): Path<String>,
) -> Response {
    rest(&gateway, Method::ChatContinue, named(session), trace).await
}

async fn approvals(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
) -> Response {
    rest(&gateway, Method::ApprovalsList, Value::Null, trace).await
}

async fn approval(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    Path(call): Path<String>,
) -> Response {
    let params = Map::from_iter([("call".to_owned(), Value::String(call))]);
    rest(&gateway, Method::ApprovalsShow, Value::Object(params), trace).await
}

/// `{"decision":"approve","digest":"DIGEST","reason":"…"}`.
async fn decide(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
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
            Dialect::Rest.respond(&error.hint(DECISION))
        }
        Err(error) => Dialect::Rest.respond(&error),
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

async fn check(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    request: Request,
) -> Response {
    match posted(&gateway, request).await {
        Ok(params) => rest(&gateway, Method::PolicyCheck, Value::Object(params), trace).await,
        Err(error) => Dialect::Rest.respond(&error),
    }
}

async fn providers(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
) -> Response {
    rest(&gateway, Method::ProvidersHealth, Value::Null, trace).await
}

/// `{"execution_spec":{"steps":[{"action":"run_command"}]},"fallback":"node-1"}`.
async fn diagnose(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<Trace>,
    request: Request,
) -> Response {
    match posted(&gateway, request).await {
        Ok(params) => rest(&gateway, Method::SchedulerDiagnose, Value::Object(params), trace).await,
        Err(error) => Dialect::Rest.respond(&error),
    }
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

/// The parameters of a query; those of `numbers` are numbers if they can be.
pub(super) fn query(query: Option<&str>, numbers: &[&str]) -> Map<String, Value> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let value = |name: &str, text: &str| {
        let number = text.parse::<u64>().ok().filter(|_| numbers.contains(&name));
        number.map_or_else(|| text.into(), Value::from)
    };
    pairs.map(|(name, text)| (name.to_string(), value(&name, &text))).collect()
}

fn named(session: String) -> Value {
    Value::Object(Map::from_iter([("session".to_owned(), Value::String(session))]))
}

async fn nowhere(request: Request) -> Response {
    let path = request.uri().path();
    let shown: String = path.chars().take(PATH_CHARS).collect();
    let hint = match path {
        "/v1/responses" | "/v1/completions" => "use `/v1/chat/completions`",
        "/v1/embeddings" => "give your client another server for embeddings; agents make none",
        _ => "`/` says how to connect",
    };
    let error = ErrorBody::new(ErrorCode::NotFound, format!("there is nothing at `{shown}`"));
    Dialect::of(path).respond(&error.hint(hint))
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

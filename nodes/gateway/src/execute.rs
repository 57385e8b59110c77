//! Executions, as clients ask for them: `execute*`, and `/v1/execute`.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, RawQuery, Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use clawnode_proto::{
    AgentName, ErrorBody, IdempotencyKey,
    api::Method,
    execute::{ExecuteParams, ExecutionParams},
    provider::ExecutionSpec,
};
use serde_json::{Map, Value};

use super::{
    error::{ErrorDialect, json},
    gateway::Gateway,
    given_params::ExecutionWait,
    guard::RequestTrace,
    params::{Judge, answer_within, given, idempotency_header, invalid, parse, take},
    rest::{self, posted},
    route::{QueryKind, query},
    rpc::fresh_key,
};

/// What is to be executed.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecuteRequest {
    /// Whose tools and policy; the default agent's if absent.
    pub agent: Option<AgentName>,
    /// The client's name for this request; sending again with the same one is harmless.
    pub request: IdempotencyKey,
    /// The steps.
    pub spec: ExecutionSpec,
    /// How long to wait for the end.
    pub wait: Duration,
}

// === impl Judge ===

impl Judge<ExecuteRequest> for ExecuteParams {
    fn judge(self) -> Result<ExecuteRequest, ErrorBody> {
        let Self { execution_spec: spec, agent, request_id, wait_ms } = self;
        let agent = agent.map(|text| parse("agent", &text)).transpose()?;
        let request = match request_id {
            Some(text) => parse("request_id", &text)?,
            None => fresh_key()?,
        };
        Ok(ExecuteRequest { agent, request, spec, wait: wait(wait_ms)? })
    }
}

impl Judge<given::ExecutionParams> for ExecutionParams {
    fn judge(self) -> Result<given::ExecutionParams, ErrorBody> {
        let execution = parse("execution_id", &self.execution_id)?;
        Ok(ExecutionWait { execution, wait: wait(self.wait_ms)? })
    }
}

fn wait(wait_ms: Option<u32>) -> Result<Duration, ErrorBody> {
    answer_within(wait_ms)?;
    Ok(Duration::from_millis(wait_ms.unwrap_or_default().into()))
}

// === REST ===

/// `{"execution_spec":{"steps":[{"action":"TOOL","params":{…}}]},"agent":"…","request_id":"…"}`,
/// and `?wait=SECONDS`.
pub(super) async fn begin(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<RequestTrace>,
    RawQuery(text): RawQuery,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let params = async {
        let mut params = posted(&gateway, request).await?;
        waits(&mut params, text.as_deref())?;
        let named = params.contains_key("request_id") || params.contains_key("idempotency_key");
        if !named && let Some(name) = idempotency_header(&headers)? {
            params.insert("request_id".to_owned(), name.into());
        }
        Ok(params)
    };
    match params.await {
        Ok(params) => answer(&gateway, Method::Execute, params, trace).await,
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

pub(super) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<RequestTrace>,
    Path(execution): Path<String>,
    RawQuery(text): RawQuery,
) -> Response {
    one(&gateway, Method::ExecuteShow, execution, text.as_deref(), trace).await
}

pub(super) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    Extension(trace): Extension<RequestTrace>,
    Path(execution): Path<String>,
    RawQuery(text): RawQuery,
) -> Response {
    one(&gateway, Method::ExecuteCancel, execution, text.as_deref(), trace).await
}

async fn one(
    gateway: &Gateway,
    method: Method,
    execution: String,
    query: Option<&str>,
    trace: RequestTrace,
) -> Response {
    let mut params = Map::from_iter([("execution_id".to_owned(), Value::String(execution))]);
    match waits(&mut params, query) {
        Ok(()) => answer(gateway, method, params, trace).await,
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

/// Takes `?wait=SECONDS` among the parameters.
fn waits(params: &mut Map<String, Value>, text: Option<&str>) -> Result<(), ErrorBody> {
    for (name, value) in query(text, &[("wait", QueryKind::Number)]) {
        let seconds = value.as_u64().filter(|_| name == "wait");
        let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok()?.checked_mul(1_000));
        let seconds = seconds.ok_or_else(|| {
            invalid(format!("parameter `{name}` of the query")).hint("write `?wait=5`, in seconds")
        })?;
        params.insert("wait_ms".to_owned(), seconds.into());
    }
    Ok(())
}

/// What was begun, or asked to end, and has not ended is only accepted.
async fn answer(
    gateway: &Gateway,
    method: Method,
    params: Map<String, Value>,
    RequestTrace(trace): RequestTrace,
) -> Response {
    gateway.metrics.call(method.as_str());
    let (backend, caller, params) = (&gateway.backend, gateway.caller(trace), params.into());
    let view = async {
        match method {
            Method::Execute => {
                backend.execute(&caller, take::<ExecuteParams, _>(method, params)?).await
            }
            Method::ExecuteCancel => {
                backend.execute_cancel(&caller, take::<ExecutionParams, _>(method, params)?).await
            }
            _ => backend.execute_show(&caller, take::<ExecutionParams, _>(method, params)?).await,
        }
    };
    match view.await {
        Ok(view) => {
            let mut response = rest::json(json(&view));
            if method != Method::ExecuteShow && !view.status.is_over() {
                *response.status_mut() = StatusCode::ACCEPTED;
            }
            response
        }
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

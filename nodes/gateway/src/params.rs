//! Parameters of methods: read, and judged where their types do not.

use axum::http::HeaderMap;
use clawnode_proto::{
    ErrorBody, ErrorCode,
    api::{EventsParams, ListParams, Method, SessionsList},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Rows of a list unless the client says otherwise.
const PAGE: u32 = 100;
/// Rows of a list at most.
const PAGE_MAX: u32 = 1_000;
/// Milliseconds that `events.list` may wait for an event, and `panic` for the nodes.
const WAIT_MAX: u32 = 10_000;

pub(super) fn page(page: ListParams) -> Result<ListParams, ErrorBody> {
    Ok(ListParams { limit: Some(rows(page.limit)?), after: page.after })
}

pub(super) fn sessions(page: SessionsList) -> Result<SessionsList, ErrorBody> {
    Ok(SessionsList { limit: Some(rows(page.limit)?), ..page })
}

pub(super) fn events(page: EventsParams) -> Result<EventsParams, ErrorBody> {
    answer_within(page.wait_ms)?;
    Ok(EventsParams { limit: Some(rows(page.limit)?), ..page })
}

pub(super) fn answer_within(wait: Option<u32>) -> Result<(), ErrorBody> {
    match wait {
        Some(wait) if wait > WAIT_MAX => {
            Err(invalid(format!("`wait_ms` is {wait}, not 0 to {WAIT_MAX}")))
        }
        _ => Ok(()),
    }
}

pub(super) fn rows(limit: Option<u32>) -> Result<u32, ErrorBody> {
    match limit {
        None => Ok(PAGE),
        Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(invalid(format!("`limit` is {limit}, not 1 to {PAGE_MAX}"))),
    }
}

/// Reads parameters, and says which of them is wrong.
pub(super) fn read<T: DeserializeOwned>(method: Method, params: Value) -> Result<T, ErrorBody> {
    let params = match params {
        Value::Null => Value::Object(serde_json::Map::new()),
        params @ Value::Object(_) => params,
        _ => return Err(invalid("`params` is not an object")),
    };
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        let message = match path.as_str() {
            "." => format!("parameters of `{}`: {problem}", method.as_str()),
            path => format!("parameter `{path}` of `{}`: {problem}", method.as_str()),
        };
        invalid(message)
    })
}

/// Reads a request's JSON, which means one thing: no field of it is there twice.
pub(super) fn document(text: &str) -> Result<Value, ErrorBody> {
    clawnode_proto::json::read(text)
        .map_err(|error| ErrorBody::new(ErrorCode::Malformed, format!("malformed JSON: {error}")))
}

/// Names a request where its body does not.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The client's name for its request, if a header has one.
pub(super) fn idempotency_header(headers: &HeaderMap) -> Result<Option<String>, ErrorBody> {
    let named = headers.get(IDEMPOTENCY_KEY).map(|name| name.to_str().map(str::to_owned));
    named.transpose().map_err(|error| invalid(format!("Idempotency-Key: {error}")))
}

pub(super) fn parse<T>(name: &str, text: &str) -> Result<T, ErrorBody>
where
    T: std::str::FromStr<Err = clawnode_proto::id::ParseIdError>,
{
    text.parse().map_err(|problem| invalid(format!("parameter `{name}`: {problem}")))
}

pub(super) fn invalid(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidParams, message)
}

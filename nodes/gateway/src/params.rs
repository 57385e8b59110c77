//! Parameters of methods: read, and judged where their types do not.

use axum::http::HeaderMap;
use clawnode_proto::{
    AgentName, CallId, Cursor, Digest, ErrorBody, ErrorCode, McpServerName, TurnId,
    api::{
        AgentParams, ApprovalDecide, ApprovalParams, ChatCancel, ChatContinue, EventsParams,
        JournalShow, JournalVerify, ListParams, McpApprove, McpParams, Method, NodeParams,
        NodesDrain, Nothing, PanicClear, PanicParams, ParkedDrop, PolicyCheck, SessionParams,
        SessionsHistory, SessionsList, TreeParams,
    },
    limits,
    model::ModelParams,
    provider::DiagnoseParams,
    usage::UsageParams,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::backend::SessionRef;

/// Rows of a list unless the client says otherwise.
const PAGE: u32 = 100;
/// Rows of a list at most.
const PAGE_MAX: u32 = 1_000;
/// Milliseconds that `events.list` may wait for an event, and `panic` for the nodes.
const WAIT_MAX: u32 = 10_000;

/// What a method takes, as it is on the wire.
pub trait Params: DeserializeOwned {
    /// What its handler is given: nothing of it is wrong by itself.
    type Read: Send + 'static;

    /// Judges what types do not.
    fn judge(self) -> Result<Self::Read, ErrorBody>;

    /// Reads it from JSON, and says which part of it is wrong.
    fn read(method: Method, params: Value) -> Result<Self::Read, ErrorBody> {
        read::<Self>(method, params)?.judge()
    }
}

/// What types say all about.
macro_rules! typed {
    ($( $params:ty ),*) => { $(
        impl Params for $params {
            type Read = Self;

            fn judge(self) -> Result<Self, ErrorBody> {
                Ok(self)
            }
        }
    )* };
}

typed!(
    DiagnoseParams,
    ModelParams,
    NodeParams,
    NodesDrain,
    ParkedDrop,
    PolicyCheck,
    TreeParams,
    UsageParams
);

// === impl Params ===

impl Params for Nothing {
    type Read = Self;

    fn judge(self) -> Result<Self, ErrorBody> {
        Ok(self)
    }

    /// Whatever is given to what takes nothing is no error.
    fn read(_: Method, _: Value) -> Result<Self, ErrorBody> {
        Ok(Self {})
    }
}

impl Params for SessionParams {
    type Read = SessionRef;

    fn judge(self) -> Result<SessionRef, ErrorBody> {
        parse("session", &self.session)
    }
}

impl Params for AgentParams {
    type Read = AgentName;

    fn judge(self) -> Result<AgentName, ErrorBody> {
        parse("agent", &self.agent)
    }
}

impl Params for McpParams {
    type Read = McpServerName;

    fn judge(self) -> Result<McpServerName, ErrorBody> {
        parse("server", &self.server)
    }
}

impl Params for McpApprove {
    /// The server, the tool, and the digest of what is approved.
    type Read = (McpServerName, Option<String>, Option<String>);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        Ok((parse("server", &self.server)?, self.tool, self.digest))
    }
}

impl Params for ChatCancel {
    type Read = (SessionRef, TurnId);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        Ok((parse("session", &self.session)?, parse("turn", &self.turn)?))
    }
}

impl Params for ChatContinue {
    type Read = (SessionRef, Option<TurnId>);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        let turn = self.turn.map(|text| parse("turn", &text)).transpose()?;
        Ok((parse("session", &self.session)?, turn))
    }
}

impl Params for ListParams {
    /// At most so many rows after this one.
    type Read = (Option<Cursor>, usize);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        Ok((self.cursor, rows(self.limit)? as usize))
    }
}

impl Params for SessionsHistory {
    /// At most so many turns after this one.
    type Read = (SessionRef, Option<Cursor>, usize);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        Ok((parse("session", &self.session)?, self.cursor, rows(self.limit)? as usize))
    }
}

impl Params for SessionsList {
    /// It has a limit.
    type Read = Self;

    fn judge(self) -> Result<Self, ErrorBody> {
        Ok(Self { limit: Some(rows(self.limit)?), ..self })
    }
}

impl Params for EventsParams {
    /// It has a limit.
    type Read = Self;

    fn judge(self) -> Result<Self, ErrorBody> {
        answer_within(self.wait_ms)?;
        Ok(Self { limit: Some(rows(self.limit)?), ..self })
    }
}

impl Params for JournalShow {
    /// At most so many events after this one.
    type Read = (SessionRef, Option<Cursor>, usize);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        Ok((parse("session", &self.session)?, self.cursor, rows(self.limit)? as usize))
    }
}

impl Params for JournalVerify {
    type Read = Option<SessionRef>;

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        self.session.map(|text| parse("session", &text)).transpose()
    }
}

impl Params for ApprovalParams {
    type Read = CallId;

    fn judge(self) -> Result<CallId, ErrorBody> {
        parse("call", &self.call)
    }
}

impl Params for ApprovalDecide {
    /// The call, the action that was shown, and why.
    type Read = (CallId, Digest, Option<String>);

    fn judge(self) -> Result<Self::Read, ErrorBody> {
        let Self { call, action, reason } = self;
        let (call, action) = (parse("call", &call)?, parse("action", &action)?);
        let longest = limits::DECISION_CHARS;
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > longest) {
            return Err(invalid(format!("`reason` is longer than {longest} characters")));
        }
        Ok((call, action, reason))
    }
}

impl Params for PanicParams {
    type Read = Self;

    fn judge(self) -> Result<Self, ErrorBody> {
        answer_within(self.wait_ms)?;
        Ok(self)
    }
}

impl Params for PanicClear {
    type Read = Self;

    fn judge(self) -> Result<Self, ErrorBody> {
        answer_within(self.wait_ms)?;
        Ok(self)
    }
}

// === Reading ===

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

//! Parameters of methods: read, and judged where their types do not.

use std::any::TypeId;

use axum::http::HeaderMap;
use clawnode_proto::{
    AgentName, CallId, Cursor, ErrorBody, ErrorCode, McpServerName,
    api::{
        AgentParams, ApprovalDecide, ApprovalParams, ChatCancel, ChatContinue, EventsParams,
        JournalShow, JournalVerify, ListParams, McpApprove, McpParams, Method, Nothing, PanicClear,
        PanicParams, SessionParams, SessionsHistory, SessionsList,
    },
    context_view::SessionsContext,
    feedback_view::{FeedbackGive, FeedbackList, MemoryReflectParams},
    ledger::LedgerShow,
    limits,
    memory_view::{MemoryPutParams, MemorySearchParams, MemoryShowParams},
    usage::{Day, UsageAuditParams, UsageCallsParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    given_params::{
        CallDecision, ContinuedTurn, ListPage, McpApproval, ReflectRequest, SessionContext,
        SessionLedgerShow, SessionPage, SessionTurn, TurnRating,
    },
    session_ref::SessionRef,
};

/// Rows of a list unless the client says otherwise.
const PAGE: u32 = 100;
/// Rows of a list at most.
const PAGE_MAX: u32 = 1_000;
/// Milliseconds that `events.list` may wait for an event, and `panic` for the nodes.
const WAIT_MAX: u32 = 10_000;

/// What handlers are given: the parameters of their method, unless a name here says what is made of them.
pub mod given {
    pub use clawnode_proto::methods::types::*;
    use clawnode_proto::{AgentName, CallId, JobId, McpServerName, methods::types, usage::Day};

    pub use super::Checked;
    use crate::{
        CallDecision, CleanFilter, ContinuedTurn, ExecuteRequest, ExecutionWait, JobFilter,
        ListPage, LogFilter, McpApproval, ReflectRequest, SessionContext, SessionLedgerShow,
        SessionPage, SessionRef, SessionTurn, TurnRating,
    };

    pub type AgentParams = AgentName;
    pub type ApprovalDecide = CallDecision;
    pub type ApprovalParams = CallId;
    pub type ChatCancel = SessionTurn;
    pub type ChatContinue = ContinuedTurn;
    pub type EventsParams = Checked<types::EventsParams>;
    pub type ExecuteParams = ExecuteRequest;
    pub type ExecutionParams = ExecutionWait;
    pub type FeedbackGive = TurnRating;
    pub type FeedbackList = SessionPage;
    /// The job, and what is wanted of it.
    pub type JobArtifact = (JobId, types::JobArtifact);
    pub type JobLogs = LogFilter;
    pub type JobParams = JobId;
    pub type JobsClean = CleanFilter;
    pub type JobsList = JobFilter;
    pub type JournalShow = SessionPage;
    pub type JournalVerify = Option<SessionRef>;
    pub type LedgerShow = SessionLedgerShow;
    pub type ListParams = ListPage;
    pub type McpApprove = McpApproval;
    pub type McpParams = McpServerName;
    pub type MemoryPutParams = Checked<types::MemoryPutParams>;
    pub type MemoryReflectParams = ReflectRequest;
    pub type MemorySearchParams = Checked<types::MemorySearchParams>;
    pub type MemoryShowParams = Checked<types::MemoryShowParams>;
    pub type PanicClear = Checked<types::PanicClear>;
    pub type PanicParams = Checked<types::PanicParams>;
    pub type SessionParams = SessionRef;
    pub type SessionsContext = SessionContext;
    pub type SessionsHistory = SessionPage;
    pub type SessionsList = Checked<types::SessionsList>;
    pub type UsageAuditParams = Day;
    pub type UsageCallsParams = Checked<types::UsageCallsParams>;
}

/// Parameters whose values are in their bounds. Those of a list have a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked<T>(pub T);

/// Parameters that a handler is given as `T`, once they make sense.
pub(super) trait Judge<T>: DeserializeOwned + 'static {
    /// Judges what types do not.
    fn judge(self) -> Result<T, ErrorBody>;
}

/// Of parameters that a handler is given as they are, their types say all.
impl<T: DeserializeOwned + 'static> Judge<T> for T {
    fn judge(self) -> Result<T, ErrorBody> {
        Ok(self)
    }
}

/// Reads a method's parameters from JSON, says which of them is wrong, and judges them.
pub(super) fn take<P: Judge<T>, T>(method: Method, params: Value) -> Result<T, ErrorBody> {
    read::<P>(method, params)?.judge()
}

// === impl Judge ===

impl Judge<SessionRef> for SessionParams {
    fn judge(self) -> Result<SessionRef, ErrorBody> {
        parse("session", &self.session)
    }
}

impl Judge<AgentName> for AgentParams {
    fn judge(self) -> Result<AgentName, ErrorBody> {
        parse("agent", &self.agent)
    }
}

impl Judge<McpServerName> for McpParams {
    fn judge(self) -> Result<McpServerName, ErrorBody> {
        parse("server", &self.server)
    }
}

impl Judge<given::McpApprove> for McpApprove {
    fn judge(self) -> Result<given::McpApprove, ErrorBody> {
        let server = parse("server", &self.server)?;
        Ok(McpApproval { server, tool: self.tool, digest: self.digest })
    }
}

impl Judge<given::ChatCancel> for ChatCancel {
    fn judge(self) -> Result<given::ChatCancel, ErrorBody> {
        let (session, turn) = (parse("session", &self.session)?, parse("turn", &self.turn)?);
        Ok(SessionTurn { session, turn })
    }
}

impl Judge<given::ChatContinue> for ChatContinue {
    fn judge(self) -> Result<given::ChatContinue, ErrorBody> {
        let turn = self.turn.map(|text| parse("turn", &text)).transpose()?;
        Ok(ContinuedTurn { session: parse("session", &self.session)?, turn })
    }
}

impl Judge<given::ListParams> for ListParams {
    fn judge(self) -> Result<given::ListParams, ErrorBody> {
        Ok(ListPage { after: self.cursor, limit: rows(self.limit)? as usize })
    }
}

impl Judge<given::SessionsHistory> for SessionsHistory {
    fn judge(self) -> Result<given::SessionsHistory, ErrorBody> {
        session_page(&self.session, self.cursor, self.limit)
    }
}

impl Judge<given::SessionsContext> for SessionsContext {
    fn judge(self) -> Result<given::SessionsContext, ErrorBody> {
        Ok(SessionContext { session: parse("session", &self.session)?, at: self.at })
    }
}

impl Judge<given::FeedbackGive> for FeedbackGive {
    fn judge(self) -> Result<given::FeedbackGive, ErrorBody> {
        let Self { session, turn, thumb, comment, idempotency_key: name } = self;
        let longest = limits::FEEDBACK_CHARS;
        if comment.as_ref().is_some_and(|comment| comment.chars().count() > longest) {
            return Err(invalid(format!("`comment` is longer than {longest} characters")));
        }
        let comment = comment.filter(|comment| !comment.trim().is_empty());
        let (session, turn) = (parse("session", &session)?, parse("turn", &turn)?);
        Ok(TurnRating { session, turn, thumb, comment, name })
    }
}

impl Judge<given::MemoryReflectParams> for MemoryReflectParams {
    fn judge(self) -> Result<given::MemoryReflectParams, ErrorBody> {
        let Self { session, turn, idempotency_key: name } = self;
        let turn = turn.map(|text| parse("turn", &text)).transpose()?;
        Ok(ReflectRequest { session: parse("session", &session)?, turn, name })
    }
}

impl Judge<given::FeedbackList> for FeedbackList {
    fn judge(self) -> Result<given::FeedbackList, ErrorBody> {
        session_page(&self.session, self.cursor, self.limit)
    }
}

impl Judge<given::LedgerShow> for LedgerShow {
    fn judge(self) -> Result<given::LedgerShow, ErrorBody> {
        match self.last {
            Some(last) if !(1..=PAGE_MAX).contains(&last) => {
                Err(invalid(format!("`last` is {last}, not 1 to {PAGE_MAX}")))
            }
            _ => {
                let session = parse("session", &self.session)?;
                Ok(SessionLedgerShow { session, wanted: self })
            }
        }
    }
}

impl Judge<Checked<SessionsList>> for SessionsList {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        Ok(Checked(Self { limit: Some(rows(self.limit)?), ..self }))
    }
}

impl Judge<Checked<UsageCallsParams>> for UsageCallsParams {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        Ok(Checked(Self { limit: Some(rows(self.limit)?), ..self }))
    }
}

impl Judge<Checked<MemoryShowParams>> for MemoryShowParams {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        Ok(Checked(Self { limit: Some(rows(self.limit)?), ..self }))
    }
}

impl Judge<Checked<MemoryPutParams>> for MemoryPutParams {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        let (given, most) = (self.points.len(), limits::MEMORY_PUT_POINTS);
        if !(1..=most).contains(&given) {
            return Err(invalid(format!("`points` has {given} points, not 1 to {most}")));
        }
        Ok(Checked(self))
    }
}

impl Judge<Checked<MemorySearchParams>> for MemorySearchParams {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        if self.memory.is_some() == self.session.is_some() {
            return Err(invalid("say either which `memory` to search, or which `session`"));
        }
        let (given, most) = (self.query.chars().count(), limits::MEMORY_QUERY_CHARS);
        if self.query.trim().is_empty() || given > most {
            return Err(invalid(format!(
                "`query` has {given} characters, not 1 to {most} with a word"
            )));
        }
        let (limit, most) = (self.limit.unwrap_or(10), limits::MEMORY_FOUND);
        if !(1..=most).contains(&limit) {
            return Err(invalid(format!("`limit` is {limit}, not 1 to {most}")));
        }
        Ok(Checked(Self { limit: Some(limit), ..self }))
    }
}

impl Judge<Day> for UsageAuditParams {
    fn judge(self) -> Result<Day, ErrorBody> {
        let wrong = |problem: String| invalid(format!("parameter `day`: {problem}"));
        self.day.parse().map_err(wrong)
    }
}

impl Judge<Checked<EventsParams>> for EventsParams {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        answer_within(self.wait_ms)?;
        Ok(Checked(Self { limit: Some(rows(self.limit)?), ..self }))
    }
}

impl Judge<given::JournalShow> for JournalShow {
    fn judge(self) -> Result<given::JournalShow, ErrorBody> {
        session_page(&self.session, self.cursor, self.limit)
    }
}

impl Judge<Option<SessionRef>> for JournalVerify {
    fn judge(self) -> Result<Option<SessionRef>, ErrorBody> {
        self.session.map(|text| parse("session", &text)).transpose()
    }
}

impl Judge<CallId> for ApprovalParams {
    fn judge(self) -> Result<CallId, ErrorBody> {
        parse("call", &self.call)
    }
}

impl Judge<given::ApprovalDecide> for ApprovalDecide {
    fn judge(self) -> Result<given::ApprovalDecide, ErrorBody> {
        let Self { call, action, reason } = self;
        let (call, action) = (parse("call", &call)?, parse("action", &action)?);
        let longest = limits::DECISION_CHARS;
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > longest) {
            return Err(invalid(format!("`reason` is longer than {longest} characters")));
        }
        Ok(CallDecision { call, action, reason })
    }
}

impl Judge<Checked<PanicParams>> for PanicParams {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        answer_within(self.wait_ms)?;
        Ok(Checked(self))
    }
}

impl Judge<Checked<PanicClear>> for PanicClear {
    fn judge(self) -> Result<Checked<Self>, ErrorBody> {
        answer_within(self.wait_ms)?;
        Ok(Checked(self))
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

fn session_page(
    session: &str,
    after: Option<Cursor>,
    limit: Option<u32>,
) -> Result<SessionPage, ErrorBody> {
    let session = parse("session", session)?;
    Ok(SessionPage { session, after, limit: rows(limit)? as usize })
}

pub(super) fn rows(limit: Option<u32>) -> Result<u32, ErrorBody> {
    match limit {
        None => Ok(PAGE),
        Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(invalid(format!("`limit` is {limit}, not 1 to {PAGE_MAX}"))),
    }
}

/// Reads parameters, and says which of them is wrong.
pub(super) fn read<T>(method: Method, params: Value) -> Result<T, ErrorBody>
where
    T: DeserializeOwned + 'static,
{
    // Anything may be given to what takes nothing.
    let takes_nothing = TypeId::of::<T>() == TypeId::of::<Nothing>();
    let params = match params {
        _ if takes_nothing => Value::Object(serde_json::Map::new()),
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
        match as_text(&path, &problem.to_string()) {
            Some(text) => invalid(message).hint(format!("write it as text: `\"{text}\"`")),
            None => invalid(message),
        }
    })
}

/// The number that should have been a text, if that is the problem. Amounts of money have two decimals.
fn as_text(path: &str, problem: &str) -> Option<String> {
    let (kind, said) = problem.strip_prefix("invalid type: ")?.split_once(" `")?;
    let (number, expected) = said.split_once("`, expected ")?;
    if !matches!(kind, "integer" | "floating point") || !expected.starts_with("a string") {
        return None;
    }
    let is_short = number.rsplit_once('.').is_some_and(|(_, decimals)| decimals.len() == 1);
    let zero = if is_short && path.ends_with("amount") { "0" } else { "" };
    Some(format!("{number}{zero}"))
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

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::BudgetSetParams;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_in_the_place_of_a_text_is_shown_as_text() {
        let refused = |amount: Value| {
            let limit = json!({ "unit": "usd", "window": "day", "amount": amount });
            let params = json!({ "account": "cluster", "limits": [limit], "keep_others": true });
            read::<BudgetSetParams>(Method::BudgetSet, params).unwrap_err()
        };
        for (amount, hint) in [
            (json!(5.0), Some("write it as text: `\"5.00\"`")),
            (json!(0.25), Some("write it as text: `\"0.25\"`")),
            (json!(5), Some("write it as text: `\"5\"`")),
            (json!(true), None),
        ] {
            let error = refused(amount.clone());
            assert!(error.message.starts_with("parameter `limits[0].amount` of `budget.set`: "));
            assert_eq!(error.hint.as_deref(), hint, "{amount}");
        }
    }
}

//! The archive of jobs, as clients ask for it: `jobs.*`, and `/v1/jobs`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use clawnode_proto::{
    AgentName, CallId, CursorError, EntityId, ErrorBody, JobId, ToolName,
    api::{JobArtifact, JobLogs, JobParams, JobsClean, JobsList, Method},
    archive::{ArtifactView, JobStatus, LogStream},
    cursor::Pair,
    id::ParseIdError,
    limits::ARTIFACT_PART_BYTES,
};
use serde_json::Value;

use super::{
    backend::{Backend, SessionRef},
    error::ErrorDialect,
    gateway::Gateway,
    params::{Judge, answer_within, given, invalid, parse, rows, take},
    route::{QueryKind, query},
};

/// Characters of a text to search for.
const SEARCH_CHARS: usize = 1_000;

/// Which jobs are listed: all that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of this session.
    pub session: Option<EntityId>,
    /// Of this agent.
    pub agent: Option<AgentName>,
    /// Of this tool.
    pub tool: Option<ToolName>,
    /// In this state.
    pub state: Option<JobStatus>,
    /// Those that follow this one: when it began, and its id.
    pub after: Option<Pair<u64, JobId>>,
    /// At most this many.
    pub limit: usize,
}

/// Which lines of a job's log are asked for: all that is given must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    pub job: JobId,
    /// Which run; the last one if absent.
    pub run: Option<u32>,
    /// Only lines after this number.
    pub after: u64,
    /// Only the last that fit.
    pub tail: Option<usize>,
    /// Only lines with this text.
    pub search: Option<String>,
    /// Only lines of this stream.
    pub stream: Option<LogStream>,
    /// At most this many.
    pub limit: usize,
    /// How long to wait for a line.
    pub wait_ms: u32,
}

/// Where a page of a log ends: the job, the run, the line.
type LogEnd = Pair<JobId, Pair<u32, u64>>;

/// Which jobs are removed: all that is given must fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanFilter {
    /// Those that ended longer ago than this, in milliseconds.
    pub older_than_ms: u64,
    /// This one.
    pub job: Option<JobId>,
    /// Those of this session.
    pub session: Option<EntityId>,
}

// === impl Judge ===

impl Judge<JobFilter> for JobsList {
    fn judge(self) -> Result<JobFilter, ErrorBody> {
        let Self { cursor, session, agent, tool, state, limit } = self;
        let after = cursor.map(|cursor| cursor.read(Method::JobsList)).transpose()?;
        Ok(JobFilter {
            session: session.map(|text| session_of(&text)).transpose()?,
            agent: agent.map(|text| parse("agent", &text)).transpose()?,
            tool: tool.map(|text| parse("tool", &text)).transpose()?,
            state,
            after,
            limit: rows(limit)? as usize,
        })
    }
}

impl Judge<JobId> for JobParams {
    fn judge(self) -> Result<JobId, ErrorBody> {
        job_of(&self.job)
    }
}

impl Judge<LogFilter> for JobLogs {
    fn judge(self) -> Result<LogFilter, ErrorBody> {
        let Self { job, run, cursor, tail, search, stream, limit, wait_ms } = self;
        answer_within(wait_ms)?;
        let job = job_of(&job)?;
        let after = cursor.map(|cursor| cursor.read::<LogEnd>(Method::JobsLogs)).transpose()?;
        let (run, after) = match after {
            None => (run, 0),
            Some(Pair(cursor_job, Pair(number, line)))
                if cursor_job == job && run.is_none_or(|cursor_run| cursor_run == number) =>
            {
                (Some(number), line)
            }
            Some(_) => return Err(CursorError(Method::JobsLogs).into()),
        };
        let tail = tail.map(|tail| rows(Some(tail))).transpose()?;
        // A request for the last lines wants all of them.
        let limit = rows(limit.or(tail))? as usize;
        if search.as_ref().is_some_and(|text| text.chars().count() > SEARCH_CHARS) {
            let what = format!("`search` is longer than {SEARCH_CHARS} characters");
            return Err(invalid(what));
        }
        Ok(LogFilter {
            job,
            run,
            after,
            tail: tail.map(|tail| tail as usize),
            search: search.filter(|text| !text.is_empty()),
            stream,
            limit,
            wait_ms: wait_ms.unwrap_or_default(),
        })
    }
}

impl Judge<given::JobArtifact> for JobArtifact {
    fn judge(self) -> Result<given::JobArtifact, ErrorBody> {
        Ok((job_of(&self.job)?, self))
    }
}

impl Judge<CleanFilter> for JobsClean {
    fn judge(self) -> Result<CleanFilter, ErrorBody> {
        let Self { older_than_ms, job, session } = self;
        let job = job.map(|text| job_of(&text)).transpose()?;
        let session = session.map(|text| session_of(&text)).transpose()?;
        if older_than_ms.is_none() && job.is_none() && session.is_none() {
            return Err(invalid("the request does not say which jobs to remove")
                .hint("give `older_than_ms`, `job` or `session`"));
        }
        Ok(CleanFilter { older_than_ms: older_than_ms.unwrap_or_default(), job, session })
    }
}

/// Answers `jobs.artifact`.
pub(super) async fn artifact_part(
    backend: &dyn Backend,
    job: JobId,
    wanted: JobArtifact,
) -> Result<ArtifactView, ErrorBody> {
    let content = backend.artifact(job, wanted.run, &wanted.name).await?;
    Ok(part(wanted.name, &content, wanted.offset))
}

/// A job is named by its id, or by that of its call, which people see elsewhere.
fn job_of(text: &str) -> Result<JobId, ErrorBody> {
    match text.parse::<CallId>() {
        Ok(call) => Ok(call.into()),
        Err(ParseIdError { .. }) => parse("job", text),
    }
}

fn session_of(text: &str) -> Result<EntityId, ErrorBody> {
    parse::<SessionRef>("session", text).map(|session| session.id)
}

fn part(name: String, content: &Bytes, offset: u64) -> ArtifactView {
    let bytes = content.len();
    let from = usize::try_from(offset).map_or(bytes, |offset| offset.min(bytes));
    let to = bytes.min(from + ARTIFACT_PART_BYTES);
    ArtifactView {
        name,
        bytes: bytes as u64,
        offset: from as u64,
        content: STANDARD.encode(content.slice(from..to)),
        next: (to < bytes).then_some(to as u64),
    }
}

// === REST ===

/// The file itself. Whatever a command made is never shown as a page of this origin; that no browser
/// guesses what it is, and that a page may do nothing, the guard says of all answers.
pub(super) async fn artifact(
    State(gateway): State<Arc<Gateway>>,
    Path((job, name)): Path<(String, String)>,
    RawQuery(text): RawQuery,
) -> Response {
    let method = Method::JobsArtifact;
    gateway.metrics.call(method.as_str());
    let mut params = query(text.as_deref(), &[("run", QueryKind::Number)]);
    params.extend([("job".to_owned(), job.into()), ("name".to_owned(), name.into())]);
    let content = async {
        let params = Value::Object(params);
        let (job, wanted) = take::<JobArtifact, given::JobArtifact>(method, params)?;
        gateway.backend.artifact(job, wanted.run, &wanted.name).await
    };
    match content.await {
        Ok(content) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CONTENT_DISPOSITION, "attachment"),
            ];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            (headers, Body::from(content)).into_response()
        }
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::Cursor;

    use super::*;

    #[test]
    fn a_file_is_told_in_parts() {
        let content = Bytes::from(vec![7; ARTIFACT_PART_BYTES + 5]);
        let first = part("a".to_owned(), &content, 0);
        assert_eq!(first.next, Some(ARTIFACT_PART_BYTES as u64));
        let last = part("a".to_owned(), &content, ARTIFACT_PART_BYTES as u64);
        assert_eq!((last.bytes, last.next), (content.len() as u64, None));
        assert_eq!(STANDARD.decode(last.content).unwrap(), [7; 5]);
        let beyond = part("a".to_owned(), &content, u64::MAX);
        assert_eq!((beyond.content.as_str(), beyond.next), ("", None));
    }

    #[test]
    fn a_query_is_read_as_it_was_meant() {
        let known = [("tail", QueryKind::Number), ("limit", QueryKind::Number)];
        let read = query(Some("search=a%20b%26c&tail=7&job=9&limit=x"), &known);
        let wanted = serde_json::json!({"search":"a b&c","tail":7,"job":"9","limit":"x"});
        assert_eq!(Value::Object(read), wanted);
    }

    #[test]
    fn a_cursor_of_a_log_is_of_one_run_of_one_job() {
        let log = |job: u128, run: Option<u32>| -> Result<LogFilter, ErrorBody> {
            let position = Pair(JobId::from_u128(9), Pair(2, 40));
            let cursor = Some(Cursor::new(Method::JobsLogs, position));
            let job = JobId::from_u128(job).to_string();
            JobLogs { job, run, cursor, ..JobLogs::default() }.judge()
        };
        let filter = log(9, None).unwrap();
        assert_eq!((filter.run, filter.after), (Some(2), 40));
        assert!(log(9, Some(2)).is_ok());
        for foreign in [log(9, Some(3)), log(8, None)] {
            assert!(foreign.unwrap_err().message.contains("`cursor`"));
        }
    }

    #[test]
    fn a_job_is_named_by_its_call_too() {
        let job = JobId::from_u128(9);
        for text in [job.to_string(), CallId::from_u128(9).to_string()] {
            assert_eq!(job_of(&text).unwrap(), job);
        }
        assert!(job_of("../x").unwrap_err().message.contains("`job`"));
    }
}

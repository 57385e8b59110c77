//! What `jobs.*` take.

use serde::{Deserialize, Serialize};

use crate::{
    archive::{JobStatus, LogStream},
    cursor::Cursor,
};

/// Parameters of `jobs.list`: all that are given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JobsList {
    /// `next` of the page before; the first page if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// Of this session, by key or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Of this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobStatus>,
    /// At most this many (100 if absent, 1,000 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `jobs.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobParams {
    /// The job, as `jobs.list` names it, or its call.
    pub job: String,
}

/// Parameters of `jobs.logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobLogs {
    /// The job, as `jobs.list` names it, or its call.
    pub job: String,
    /// Which run of it; that of `cursor`, or the last one, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// `next` of the last answer: only lines after that, of the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// Only the last lines that fit, so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u32>,
    /// Only lines with this text, in upper or lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Only lines of this stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<LogStream>,
    /// At most this many (100 if absent, 1,000 at most).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// If the job runs and there are none yet, wait so long for one, in milliseconds (at most
    /// 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `jobs.artifact`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobArtifact {
    /// The job, as `jobs.list` names it, or its call.
    pub job: String,
    /// The file, as `jobs.show` names it; [`RESULT_NAME`](crate::archive::RESULT_NAME) for a long result.
    pub name: String,
    /// Which run of it; the last one that made it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// Where to begin.
    #[serde(default)]
    pub offset: u64,
}

/// Parameters of `jobs.clean`: all that are given must fit, and one must be. Jobs that run are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JobsClean {
    /// Those whose last run ended longer ago than this, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// This one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Those of this session, by key or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

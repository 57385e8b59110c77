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
    /// The `next` of the page before. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// Only jobs of this session, by key or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Only jobs of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only jobs of this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Only jobs in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobStatus>,
    /// How many to list (default 100, at most 1,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `jobs.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobParams {
    /// The id of the job, or of its call.
    pub job: String,
}

/// Parameters of `jobs.logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobLogs {
    /// The id of the job, or of its call.
    pub job: String,
    /// The number of the run. Default: the run of `cursor`, else the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// The `next` of the last answer: only lines after it, of the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// Only this many of the last lines that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u32>,
    /// Only lines with this text, in upper or lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Only lines of this stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<LogStream>,
    /// How many lines to return (default 100, at most 1,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long to wait for a line if the job runs and there is none, in milliseconds (at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `jobs.artifact`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobArtifact {
    /// The id of the job, or of its call.
    pub job: String,
    /// The name of the file in `jobs.show`, or `@result` for a long result.
    pub name: String,
    /// The number of the run. Default: the last one with this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// The first byte to return.
    #[serde(default)]
    pub offset: u64,
}

/// Parameters of `jobs.clean`: all that are given must fit, and one must be. Jobs that run are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JobsClean {
    /// Jobs whose last run ended longer ago than this, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// The job with this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Jobs of this session, by key or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

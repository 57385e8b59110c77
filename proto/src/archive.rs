//! The archive: the runs, output and files of jobs, for people. No decision depends on it.
//!
//! Each job has one record in the bucket, with a part for each of its runs. The output and the files of a
//! run are in the blob store. [`view`](crate::archive::JobView) and the parameters are those of
//! `jobs.*`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    codec::{CodecError, decode, encode},
    cursor::Cursor,
    id::{CallId, Capability, Digest, EntityId, JobId, NodeName, ProcessId, SessionKey, TurnId},
    name::ToolName,
    timestamp::Timestamp,
    tool::ToolFailure,
};

/// The stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A line of a run's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// The number of the line in the run, from 1.
    pub n: u64,
    /// When its first byte arrived, by the clock of the node that ran the job.
    pub at: Timestamp,
    /// Standard output or standard error of the run.
    pub stream: LogStream,
    /// The text, without the end of line.
    pub text: String,
    /// Whether the next line of this stream continues this one, which was too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_on: bool,
}

/// What is missing from a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogCut {
    /// The number of the last line before the gap.
    pub after: u64,
    /// How many lines are missing.
    pub lines: u64,
    /// How many bytes are missing.
    pub bytes: u64,
    /// How many bytes at the end were not read, because there were too many.
    #[serde(default)]
    pub unheard: u64,
}

/// Where the log of a run is, as JSON lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoredLog {
    /// The blob, which only this run has.
    pub digest: Digest,
    /// Its bytes.
    pub bytes: u64,
    /// Lines in it.
    pub lines: u64,
    /// What is missing from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<LogCut>,
}

/// A file that a run made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    /// Its path below the run's directory for files.
    pub name: String,
    /// The blob: its content, and then the name of its run, so that no other run has the same blob.
    pub digest: Digest,
    /// Bytes of its content.
    pub bytes: u64,
}

/// A result that was too long for the session's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoredResult {
    /// The blob. It belongs to the session, and is deleted with it.
    pub digest: Digest,
    /// Bytes of its text.
    pub bytes: u64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEnd {
    /// The run succeeded.
    Done,
    /// The run failed.
    Failed {
        /// How it failed.
        failure: ToolFailure,
    },
    /// It is unknown whether the run had an effect.
    Uncertain,
    /// The process that ran it stopped before the end.
    Interrupted,
}

/// One run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRun {
    /// The number of the run, from 1.
    pub number: u32,
    /// The process that ran it.
    pub process: ProcessId,
    /// The name of the node.
    pub node: NodeName,
    /// When the run began.
    pub began: Timestamp,
    /// When and how the run ended. Absent while it runs, and if its process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The log. Absent if there was no output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<StoredLog>,
    /// The files that the run created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// The result, if it is too long for the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<StoredResult>,
    /// What could not be kept of the run, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    /// When it ended.
    pub at: Timestamp,
    /// How it ended.
    pub how: RunEnd,
}

/// The record of a job: the value of its key in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRecord {
    /// Its id, as `jobs.show` takes it.
    pub job: JobId,
    /// Whose turn asked for the call. The record is deleted with it.
    pub session: SessionKey,
    /// The turn whose model, or plan, asked for the call.
    pub turn: TurnId,
    /// The tool call.
    pub call: CallId,
    /// As the model called it: `run_command`, or `SERVER__TOOL` of an MCP server.
    pub tool: ToolName,
    /// The capability that a node needs to run it.
    pub capability: Capability,
    /// The beginning of its arguments; empty in records of older builds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Its runs, the oldest first; at most [`RUNS_KEPT`](crate::limits::RUNS_KEPT).
    pub runs: Vec<JobRun>,
}

/// A part of a log, as the process that runs the job still has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPart {
    /// The number of the run; 0 while that is not known yet.
    pub run: u32,
    /// In order, without a gap but for `cut`.
    pub lines: Vec<LogLine>,
    /// What is missing from the log so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<LogCut>,
    /// Whether it has more lines already.
    pub more: bool,
}

/// The state of a job: that of its last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// The run has not ended.
    Running,
    /// The run succeeded.
    Done,
    /// The run failed.
    Failed,
    /// It is unknown whether the run had an effect.
    Uncertain,
    /// The process that ran it stopped before the end.
    Interrupted,
    /// The process that ran it is gone, and its output with it.
    Lost,
}

/// A job, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobView {
    /// The id of the job.
    pub job: JobId,
    /// The state of the last run.
    pub status: JobStatus,
    /// The key of the session.
    pub session: SessionKey,
    /// The turn whose model, or plan, asked for the call.
    pub turn: TurnId,
    /// The tool call.
    pub call: CallId,
    /// As the model called it: `run_command`, or `SERVER__TOOL` of an MCP server.
    pub tool: ToolName,
    /// The capability that a node needs to run it.
    pub capability: Capability,
    /// The beginning of the arguments. Empty in records of older builds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// The runs of the job, oldest first.
    pub runs: Vec<JobRun>,
}

/// Answer of `jobs.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobList {
    /// The jobs that match, newest first.
    pub jobs: Vec<JobView>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// How many jobs are on the pages after this one.
    pub more: u64,
}

/// Answer of `jobs.logs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogView {
    /// The id of the job.
    pub job: JobId,
    /// The number of the run.
    pub run: u32,
    /// The number of the last run.
    pub runs: u32,
    /// The state of the run.
    pub status: JobStatus,
    /// The lines that match.
    pub lines: Vec<LogLine>,
    /// What is missing from the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<LogCut>,
    /// Pass this as `cursor` for the lines that follow. Always there, because a running job may print more.
    pub next: Cursor,
    /// Whether no more lines will follow.
    pub over: bool,
    /// What could not be kept of the run, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// Answer of `jobs.artifact`: a part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArtifactView {
    /// The name of the file.
    pub name: String,
    /// The size of the whole file.
    pub bytes: u64,
    /// The first byte of this part.
    pub offset: u64,
    /// The bytes of this part, in base64.
    pub content: String,
    /// Pass this as `offset` for the next part. Absent after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Answer of `jobs.clean`: what was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanView {
    /// How many jobs were deleted.
    pub jobs: u64,
    /// How many logs and files of these jobs were deleted.
    pub blobs: u64,
    /// How many bytes that was.
    pub bytes: u64,
    /// How many jobs are left. Send the request again to delete them.
    pub more: u64,
}

/// Answer of `jobs.stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArchiveStats {
    /// How many jobs are kept.
    pub jobs: u64,
    /// How many, by state.
    pub by_status: BTreeMap<JobStatus, u64>,
    /// How many, by tool.
    pub by_tool: BTreeMap<ToolName, u64>,
    /// How many runs the kept jobs have.
    pub runs: u64,
    /// The size of all logs.
    pub log_bytes: u64,
    /// How many files are kept.
    pub artifacts: u64,
    /// The size of all kept files.
    pub artifact_bytes: u64,
    /// When the oldest run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
}

/// The jobs that a process removes from the archive when another one asks it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanJobs {
    /// Jobs whose last run ended before this time.
    pub before: Timestamp,
    /// Only this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Only jobs of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<EntityId>,
}

/// The name of a long result among the files of a run; no file can have it.
pub const RESULT_NAME: &str = "@result";

// === impl LogStream ===

impl LogStream {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

// === impl JobStatus ===

impl JobStatus {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
            Self::Interrupted => "interrupted",
            Self::Lost => "lost",
        }
    }
}

// === impl JobRun ===

impl JobRun {
    /// Its state; `is_gone` says whether a process is gone.
    pub fn status(&self, is_gone: impl Fn(ProcessId) -> bool) -> JobStatus {
        match self.ended.as_ref().map(|ended| &ended.how) {
            None if is_gone(self.process) => JobStatus::Lost,
            None => JobStatus::Running,
            Some(RunEnd::Done) => JobStatus::Done,
            Some(RunEnd::Failed { .. }) => JobStatus::Failed,
            Some(RunEnd::Uncertain) => JobStatus::Uncertain,
            Some(RunEnd::Interrupted) => JobStatus::Interrupted,
        }
    }

    /// The blobs that are its own, with their bytes.
    pub fn blobs(&self) -> impl Iterator<Item = (Digest, u64)> + '_ {
        let log = self.log.iter().map(|log| (log.digest, log.bytes));
        log.chain(self.artifacts.iter().map(|artifact| (artifact.digest, artifact.bytes)))
    }

    /// The time of its last news.
    pub fn last(&self) -> Timestamp {
        self.ended.as_ref().map_or(self.began, |ended| ended.at.max(self.began))
    }
}

// === impl JobRecord ===

impl JobRecord {
    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
    }

    /// Its state; `is_gone` says whether a process is gone.
    pub fn status(&self, is_gone: impl Fn(ProcessId) -> bool) -> JobStatus {
        self.runs.last().map_or(JobStatus::Lost, |run| run.status(is_gone))
    }

    /// The time of its last news.
    pub fn last(&self) -> Timestamp {
        self.runs.iter().map(JobRun::last).max().unwrap_or_default()
    }

    /// The job, for people.
    pub fn view(self, is_gone: impl Fn(ProcessId) -> bool) -> JobView {
        let status = self.status(is_gone);
        let Self { job, session, turn, call, tool, capability, arguments, runs } = self;
        JobView { job, status, session, turn, call, tool, capability, arguments, runs }
    }
}

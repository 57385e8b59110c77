//! What commands need of a data directory that no node runs on. The composition root lends it.

use async_trait::async_trait;
use clawnode_proto::{ErrorBody, api::Method};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A data directory, opened read-only.
#[async_trait]
pub trait Offline: Send + Sync {
    /// Answers `sessions.list`, `sessions.history`, `sessions.export`, `journal.show` and
    /// `journal.verify` with the same documents as a node; any other method is `unsupported`.
    async fn call(&self, method: Method, params: Value) -> Result<Value, ErrorBody>;

    /// Plays recorded turns again without a model and compares what the model would be shown with
    /// what it was shown; of one session, or of all.
    async fn replay(&self, session: Option<&str>) -> Result<ReplayView, ErrorBody>;
}

/// What `journal replay` found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayView {
    /// One row a session.
    pub sessions: Vec<ReplayRow>,
}

/// One session, played again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRow {
    /// Its key, or its id if the key cannot be read.
    pub session: String,
    /// Model requests that were compared.
    pub requests: u64,
    /// The first that differs, naming the event; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What `journal repair` found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairView {
    /// One sentence a finding: what, at which file and offset, and what becomes or became of it.
    pub findings: Vec<String>,
    /// Whether it was done, or only looked at.
    pub applied: bool,
}

/// What `backup` and `restore` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    /// The backup.
    pub file: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Sessions in it.
    pub sessions: u64,
}

/// What `import` did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportView {
    /// The data directory.
    pub from: String,
    /// The cluster.
    pub to: String,
    /// Sessions that are in the cluster now, as they were in the directory or further on.
    pub sessions: u64,
    /// Those of them of which something was copied this time.
    pub moved: u64,
    /// Inputs that wait in the cluster since.
    pub inputs: u64,
    /// Timers that are set in the cluster.
    pub timers: u64,
    /// Jobs that wait in the cluster since.
    #[serde(default)]
    pub jobs: u64,
    /// Large bodies that were copied.
    pub blobs: u64,
    /// Shared settings that were copied, such as an agent's pause.
    pub values: u64,
    /// What stays in the directory.
    pub refused: Vec<ImportRefusal>,
}

/// Something that was not moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRefusal {
    /// A session, by key and id, or a setting.
    pub what: String,
    /// Why.
    pub why: String,
}

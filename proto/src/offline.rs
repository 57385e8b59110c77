//! What commands on a data directory show when no node runs on it: `journal replay`, `journal
//! repair`, `backup`, `restore` and `import`.
//!
//! With `--json` these are the documents themselves. Fields are only ever added.

use serde::{Deserialize, Serialize};

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
    /// The path of the backup, as it was given.
    pub file: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// How many sessions it has, with entities of other kinds.
    pub sessions: u64,
}

/// What `import` did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportView {
    /// The path of the data directory.
    pub from: String,
    /// The cluster: its servers and its prefix, without passwords.
    pub to: String,
    /// Sessions that are in the cluster now, as they were in the directory or further on.
    pub sessions: u64,
    /// Entities of other kinds that are in the cluster now.
    #[serde(default)]
    pub others: u64,
    /// Budgets that the cluster has, too: they stay there as they are.
    #[serde(default)]
    pub kept: u64,
    /// Those of all of them of which something was copied this time.
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
    /// An entity, by key and id, or a setting.
    pub what: String,
    /// Why it stays, for people.
    pub why: String,
}

//! The composition root: from settings to a running node.

use clawnode_proto::{ProcessId, node::NodeRole};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::offline::{BackupView, Offline, RepairView},
    config::{Config, Loaded, Secret},
    failure::{Exit, Failure},
};

/// What a node is told.
#[derive(Debug)]
pub struct NodeArgs {
    /// Its settings; `reload` reads them again.
    pub loaded: Loaded,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// Told once, when it serves. Dropped unsent if it cannot.
    pub ready: oneshot::Sender<Ready>,
    /// Cancelled when it is to drain and end.
    pub stop: CancellationToken,
}

/// What a node says once it serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where: `http://127.0.0.1:3100`.
    pub url: String,
    /// Its process id.
    pub process: ProcessId,
    /// The token that it asks for; `None` with `no_auth`.
    pub token: Option<Secret>,
    /// Which model answers by default, and why that one.
    pub model: String,
    /// What a person is told at the start, line by line.
    pub banner: Vec<String>,
}

/// Runs a node until `stop`; returns once everything is stored and let go.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    drop(args);
    std::future::ready(Err(unfinished())).await
}

/// Opens the data directory for reading, where no node runs.
pub async fn open_read_only(_config: &Config) -> Result<Box<dyn Offline>, Failure> {
    std::future::ready(Err(unfinished())).await
}

/// Looks for damage in the data directory, and repairs it if `apply`.
pub async fn repair(_config: &Config, _apply: bool) -> Result<RepairView, Failure> {
    std::future::ready(Err(unfinished())).await
}

/// Writes the data directory to `file`, which must not exist.
pub async fn backup(_config: &Config, _file: &std::path::Path) -> Result<BackupView, Failure> {
    std::future::ready(Err(unfinished())).await
}

/// Fills the data directory, which must be empty, from `file`.
pub async fn restore(_config: &Config, _file: &std::path::Path) -> Result<BackupView, Failure> {
    std::future::ready(Err(unfinished())).await
}

fn unfinished() -> Failure {
    Failure::new(Exit::Failed, "unsupported", "the composition root is not part of this build")
}

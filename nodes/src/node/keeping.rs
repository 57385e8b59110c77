//! What is done with a data directory where no node runs: read, repaired, kept and brought back.

use std::path::Path;

use clawnode_cluster::local;

use super::{backup, ground, offline::Directory};
use crate::{
    cli::offline::{BackupView, Offline, RepairView},
    config::Config,
    failure::{Exit, Failure},
};

/// Opens the data directory for reading, where no node runs.
pub async fn open_read_only(config: &Config) -> Result<Box<dyn Offline>, Failure> {
    Ok(Box::new(Directory::open(config).await?))
}

/// Looks for damage in the data directory, and repairs it if `apply`.
pub async fn repair(config: &Config, apply: bool) -> Result<RepairView, Failure> {
    let dir = config.node.data_dir.clone();
    let looked =
        tokio::task::spawn_blocking(
            move || {
                if apply { local::repair(&dir) } else { local::inspect(&dir) }
            },
        );
    let report = looked
        .await
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))?
        .map_err(|error| ground::refused(&error))?;
    let mut findings: Vec<String> = report
        .spans
        .iter()
        .map(|span| {
            format!(
                "`{}` at offset {}: {} bytes hold no readable record; a copy goes to `{}`",
                span.file.display(),
                span.offset,
                span.len,
                span.kept.display()
            )
        })
        .collect();
    findings.extend(report.damaged_entities.iter().map(|entity| {
        format!("`{entity}` has a damaged record and is refused until it is restored or deleted")
    }));
    Ok(RepairView { findings, applied: apply })
}

/// Writes the data directory to `file`, which must not exist.
pub async fn backup(config: &Config, file: &Path) -> Result<BackupView, Failure> {
    // Open, it is held shared: no node can start while it is read.
    let directory = Directory::open(config).await?;
    let sessions = directory.all().await?.len() as u64;
    let (dir, file) = (config.node.data_dir.clone(), file.to_owned());
    tokio::task::spawn_blocking(move || backup::write(&dir, &file, sessions))
        .await
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))?
}

/// Fills the data directory, which must be empty, from `file`.
pub async fn restore(config: &Config, file: &Path) -> Result<BackupView, Failure> {
    let (dir, from) = (config.node.data_dir.clone(), file.to_owned());
    let bytes = tokio::task::spawn_blocking(move || backup::read(&from, &dir))
        .await
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))??;
    let sessions = Directory::open(config).await?.all().await?.len() as u64;
    Ok(BackupView { file: file.display().to_string(), bytes, sessions })
}

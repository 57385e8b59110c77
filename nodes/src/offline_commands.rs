//! Commands on what a node keeps, without a node: their composition root.

use std::{path::Path, sync::Arc};

use clawnode_cluster::{Clock, SystemClock};
use clawnode_local as local;
use clawnode_proto::offline::{BackupView, ImportView, RepairView};

use crate::{
    config::{Config, LoadedConfig},
    node::{
        backup_and_restore,
        import::{self, Import},
        kinds,
        offline::DataDirectory,
        storage,
    },
    start_error::StartError,
};

/// Opens the data directory for reading, where no node runs.
pub async fn open_read_only(config: &Config) -> Result<DataDirectory, StartError> {
    DataDirectory::open(config).await
}

/// Looks for damage in the data directory, and repairs it if `apply`.
pub async fn repair(config: &Config, apply: bool) -> Result<RepairView, StartError> {
    let dir = config.node.data_dir.clone();
    let looked =
        tokio::task::spawn_blocking(
            move || {
                if apply { local::repair(&dir) } else { local::inspect(&dir) }
            },
        );
    let report = looked
        .await
        .map_err(|error| StartError::failed("internal", error.to_string()))?
        .map_err(|error| storage::refused(&error))?;
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
    findings.extend(report.damaged_jobs.iter().map(|job| {
        format!("`{job}` has a damaged record: if it waits, it runs only when requested again")
    }));
    Ok(RepairView { findings, applied: apply })
}

/// Writes the data directory to `file`, which must not exist.
pub async fn backup(config: &Config, file: &Path) -> Result<BackupView, StartError> {
    // Open, it is held shared: no node can start while it is read.
    let directory = DataDirectory::open(config).await?;
    let sessions = directory.all().await?.len() as u64;
    let (dir, file) = (config.node.data_dir.clone(), file.to_owned());
    tokio::task::spawn_blocking(move || backup_and_restore::write(&dir, &file, sessions))
        .await
        .map_err(|error| StartError::failed("internal", error.to_string()))?
}

/// Fills the data directory, which must be empty, from `file`.
pub async fn restore(config: &Config, file: &Path) -> Result<BackupView, StartError> {
    let (dir, from) = (config.node.data_dir.clone(), file.to_owned());
    let bytes = tokio::task::spawn_blocking(move || backup_and_restore::read(&from, &dir))
        .await
        .map_err(|error| StartError::failed("internal", error.to_string()))??;
    let sessions = DataDirectory::open(config).await?.all().await?.len() as u64;
    Ok(BackupView { file: file.display().to_string(), bytes, sessions })
}

/// Moves the sessions of the data directory `from` into the cluster that the settings name.
pub async fn import(loaded: &LoadedConfig, from: &Path) -> Result<ImportView, StartError> {
    let config = &loaded.config;
    let Some(nats) = &config.cluster.nats else {
        return Err(StartError::usage("usage", "an import needs a target cluster")
            .hint("name its servers with `--nats URL`"));
    };
    let to = format!("{nats} (prefix `{}`)", config.cluster.prefix);
    // Open, it is held shared: no node can start while it is read.
    let source = DataDirectory::at(from.to_owned()).await?;
    let target = storage::cluster(config).await?;
    #[cfg(feature = "test-util")]
    let target = crate::node::failpoint::arm(target, loaded.env())?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let health = Arc::clone(&target.health);
    let import = Import {
        from: from.to_owned(),
        to,
        source: source.entities().clone(),
        target: kinds::entities(target, clock),
    };
    let done = import::run(import).await;
    health.close().await;
    done
}

/// Lets nodes use the data directory although its sessions were moved; says where to, if they were.
pub async fn take_back(config: &Config) -> Result<Option<String>, StartError> {
    let dir = config.node.data_dir.clone();
    let taken = tokio::task::spawn_blocking(move || local::take_back(&dir));
    let moved = taken
        .await
        .map_err(|error| StartError::failed("internal", error.to_string()))?
        .map_err(|error| storage::refused(&error))?;
    Ok(moved.map(|moved| moved.to))
}

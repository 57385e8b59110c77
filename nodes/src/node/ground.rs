//! Opening what a node stands on.

use std::sync::Arc;

use clawnode_cluster::{
    Clock, Substrate,
    local::{self, LocalControl, LocalOptions, OpenError},
};
use clawnode_proto::{ErrorChain, ProcessId};

use crate::{
    config::{Config, Loaded},
    failure::{Exit, Failure},
};

/// Free bytes on the disk below which new input is refused, in tests.
#[cfg(feature = "test-util")]
const HEAD_ROOM: &str = "CLAWNODE_TEST_HEAD_ROOM";

/// What a node stands on.
#[derive(Debug)]
pub struct Ground {
    /// The doors.
    pub substrate: Substrate,
    /// The local store's word on its own health; none on NATS.
    pub control: Option<LocalControl>,
}

/// Opens the substrate that the settings name: NATS if a server is given, else the data directory.
pub async fn open(
    loaded: &Loaded,
    process: ProcessId,
    clock: &Arc<dyn Clock>,
) -> Result<Ground, Failure> {
    let config = &loaded.config;
    if config.cluster.nats.is_some() {
        let substrate = cluster(config, Some(process)).await?;
        return Ok(Ground { substrate, control: None });
    }
    let dir = config.node.data_dir.clone();
    let mut options = LocalOptions::new(config.cluster.prefix.clone(), Arc::clone(clock));
    if let Some(partitions) = config.cluster.partitions {
        options.partitions = partitions;
    }
    // So that a test sees a full disk without one.
    #[cfg(feature = "test-util")]
    if let Some(bytes) = loaded.env().get(HEAD_ROOM).and_then(|text| text.parse().ok()) {
        options.head_room = bytes;
    }
    let opened = tokio::task::spawn_blocking(move || local::open(&dir, options)).await;
    let (substrate, control) = opened
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))?
        .map_err(|error| refused(&error))?;
    Ok(Ground { substrate, control: Some(control) })
}

/// An unopened data directory as a command's end.
pub fn refused(error: &OpenError) -> Failure {
    let message = ErrorChain(error).to_string();
    match error {
        OpenError::Held { .. } => Failure::new(Exit::Failed, "data_dir_held", message)
            .hint("stop that node, or use it: `clawnode status`, `clawnode chat`"),
        OpenError::Moved { complete, .. } => {
            let go_on = if *complete {
                "use that cluster: `clawnode chat --url URL`"
            } else {
                "finish it: `clawnode import` again"
            };
            Failure::new(Exit::Failed, "data_dir_moved", message).hint(format!(
                "{go_on}; `--take-back` uses the directory all the same, and there are two of each \
                 session from then on"
            ))
        }
        OpenError::TooNew { .. } => Failure::new(Exit::Failed, "data_dir_too_new", message),
        OpenError::NotADataDirectory { .. } => Failure::new(Exit::Unreachable, "no_node", message)
            .hint("start a node with `clawnode up`, or name its directory with `--data-dir`"),
        OpenError::Damaged { .. } => Failure::new(Exit::Failed, "log_damaged", message)
            .hint("`clawnode journal repair` says what it would cut out; `--yes` does it"),
        OpenError::Index { .. } | OpenError::Io { .. } => {
            Failure::new(Exit::Failed, "data_dir_unusable", message)
                .hint("`clawnode doctor` looks for causes")
        }
    }
}

/// Opens the cluster that the settings name.
#[cfg(not(feature = "nats"))]
pub async fn cluster(_config: &Config, _process: Option<ProcessId>) -> Result<Substrate, Failure> {
    let message = "this build has no NATS: it was made without the feature `nats`";
    std::future::ready(Err(Failure::new(Exit::Config, "unsupported", message)
        .hint("leave `--nats` out, or build with the default features")))
    .await
}

/// Opens the cluster that the settings name, for a process that takes part in it or for a command.
#[cfg(feature = "nats")]
pub async fn cluster(config: &Config, process: Option<ProcessId>) -> Result<Substrate, Failure> {
    use clawnode_cluster::nats::{ConnectError, NatsOptions, Replicas, connect};

    let it = &config.cluster;
    let mut options =
        NatsOptions::new(it.nats.iter().flat_map(crate::config::secret::ServerUrl::each));
    options.prefix.clone_from(&it.prefix);
    options.process = process;
    options.credentials.clone_from(&it.credentials);
    options.sys_credentials.clone_from(&it.sys_credentials);
    options.partitions = it.partitions;
    options.replicas = match it.replicas {
        None => Replicas::Auto,
        Some(1) => Replicas::One,
        Some(_) => Replicas::Three,
    };
    connect(options).await.map_err(|error| {
        let message = ErrorChain(&error).to_string();
        match error {
            ConnectError::Unreachable { .. } => {
                Failure::new(Exit::Unreachable, "nats_unreachable", message)
            }
            ConnectError::Login { .. } => Failure::new(Exit::Refused, "nats_refused", message),
            _ => Failure::new(Exit::Config, "nats_unusable", message),
        }
    })
}

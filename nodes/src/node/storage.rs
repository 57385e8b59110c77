//! Opening the storage of a node.

use std::sync::Arc;
#[cfg(feature = "nats")]
use std::time::Duration;

use clawnode_cluster::{Clock, Lost, Storage};
use clawnode_local as local;
use clawnode_local::{LocalControl, LocalOptions, OpenError};
#[cfg(feature = "nats")]
use clawnode_nats::{Birth, ConnectError, NatsOptions, connect};
use clawnode_proto::{ErrorChain, ProcessId, node::NodeRole};

#[cfg(feature = "nats")]
use crate::{
    bus::{
        cluster::{replicas, unconnected},
        join::{self, Member},
    },
    config::Config,
};
use crate::{config::LoadedConfig, secret::Secret, start_error::StartError};

/// Free bytes on the disk below which new input is refused, in tests.
#[cfg(feature = "test-util")]
const HEAD_ROOM: &str = "CLAWNODE_TEST_HEAD_ROOM";

/// Milliseconds after which NATS delivers unacknowledged messages again, in tests; the same for all
/// nodes of a cluster.
#[cfg(all(feature = "test-util", feature = "nats"))]
const ACK_WAIT: &str = "CLAWNODE_TEST_ACK_WAIT";

/// What a node stores in, on NATS or in a folder of its own.
#[derive(Debug)]
pub struct NodeStorage {
    /// The handles.
    pub storage: Storage,
    /// The local store's word on its own health; none on NATS.
    pub control: Option<LocalControl>,
}

/// The node that the storage backend is opened for.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The process id of the node.
    pub process: ProcessId,
    /// What the node does.
    pub roles: &'a [NodeRole],
    /// A join token, if the node is to join a cluster now.
    pub join: Option<&'a Secret>,
}

/// Opens the storage backend that the settings name: NATS if a server is given, or if the node joined a
/// cluster (now, with a join token, or before), else the data directory.
pub async fn open(
    loaded: &LoadedConfig,
    opening: Opening<'_>,
    clock: &Arc<dyn Clock>,
) -> Result<NodeStorage, StartError> {
    let config = &loaded.config;
    #[cfg(feature = "nats")]
    {
        let member = join::member(loaded, opening.roles, opening.join).await?;
        if member.is_some() || config.cluster.nats.is_some() {
            // It holds this node's credential and token.
            local::keep_private(&config.node.data_dir);
            let storage = nats(config, member, Some(opening.process), ack_wait(loaded)).await?;
            return Ok(NodeStorage { storage, control: None });
        }
    }
    #[cfg(not(feature = "nats"))]
    if opening.join.is_some() || config.cluster.nats.is_some() {
        return Err(without_nats());
    }
    whole(opening.roles)?;
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
    let (storage, control) = opened
        .map_err(|error| StartError::failed("internal", error.to_string()))?
        .map_err(|error| refused(&error))?;
    Ok(NodeStorage { storage, control: Some(control) })
}

/// So that a test of many deaths need not wait for each.
#[cfg(all(feature = "nats", feature = "test-util"))]
fn ack_wait(loaded: &LoadedConfig) -> Option<Duration> {
    loaded.env().get(ACK_WAIT)?.parse().ok().map(Duration::from_millis)
}

#[cfg(all(feature = "nats", not(feature = "test-util")))]
const fn ack_wait(_loaded: &LoadedConfig) -> Option<Duration> {
    None
}

/// A data directory has one process, so that has to do everything.
fn whole(roles: &[NodeRole]) -> Result<(), StartError> {
    let missing = match roles {
        [NodeRole::Gateway] => "no worker would process the messages of its gateway",
        [NodeRole::Worker] => "no gateway would reach its worker",
        _ => return Ok(()),
    };
    let message = format!("a node on its own data directory is alone: {missing}");
    Err(StartError::config("role_alone", message).hint(
        "name the cluster (`--nats URL` or `--join TOKEN`), or start one process that does \
         everything: `clawnode up`",
    ))
}

/// An unopened data directory as a command's end.
pub fn refused(error: &OpenError) -> StartError {
    let message = ErrorChain(error).to_string();
    match error {
        OpenError::Held { .. } => StartError::failed("data_dir_held", message)
            .hint("stop that node, or use it: `clawnode status`, `clawnode chat`"),
        OpenError::Moved { complete, .. } => {
            let go_on = if *complete {
                "use that cluster: `clawnode chat --url URL`"
            } else {
                "finish the move: run `clawnode import` again"
            };
            StartError::failed("data_dir_moved", message).hint(format!(
                "{go_on}; `--take-back` uses the directory anyway, but each session then exists \
                 twice"
            ))
        }
        OpenError::TooNew { .. } => StartError::failed("data_dir_too_new", message),
        OpenError::NotADataDirectory { .. } => StartError::unreachable("no_node", message)
            .hint("start a node with `clawnode up`, or name its directory with `--data-dir`"),
        OpenError::Damaged { .. } => StartError::failed("log_damaged", message)
            .hint("`clawnode journal repair` shows what it would remove; `--yes` removes it"),
        OpenError::Unsynced { .. } => StartError::failed("disk_failed", message)
            .hint("`clawnode doctor` looks for causes; the kernel's log names a failing disk"),
        OpenError::Index { .. } | OpenError::Io { .. } => {
            StartError::failed("data_dir_unusable", message)
                .hint("`clawnode doctor` looks for causes")
        }
    }
}

/// The loss of the storage backend while the node ran, as the reason why the node ends.
pub fn lost(why: Lost) -> StartError {
    let hint = "other nodes continue the work that was begun";
    match why {
        Lost::Refused(why) => StartError::refused("credential_refused", why)
            .hint(format!("ask the operator for a join token; {hint}")),
        Lost::Broken(why) => StartError::unreachable("nats_unreachable", why)
            .hint(format!("start the node again; {hint}")),
    }
}

#[cfg(not(feature = "nats"))]
fn without_nats() -> StartError {
    let message = "this build has no NATS: it was made without the feature `nats`";
    StartError::config("unsupported", message)
        .hint("leave `--nats` and `--join` out, or build with the default features")
}

/// Opens the cluster that the settings name, for a command.
#[cfg(feature = "nats")]
pub async fn cluster(config: &Config) -> Result<Storage, StartError> {
    nats(config, None, None, None).await
}

/// Opens the cluster that the settings name.
#[cfg(not(feature = "nats"))]
pub async fn cluster(_config: &crate::config::Config) -> Result<Storage, StartError> {
    let message = "this build has no NATS: it was made without the feature `nats`";
    std::future::ready(Err(
        StartError::config("unsupported", message).hint("build with the default features")
    ))
    .await
}

#[cfg(feature = "nats")]
async fn nats(
    config: &Config,
    member: Option<Member>,
    process: Option<ProcessId>,
    ack_wait: Option<Duration>,
) -> Result<Storage, StartError> {
    let section = &config.cluster;
    let data_dir = &config.node.data_dir;
    let remembered = join::remembered(data_dir)?;
    let urls = section.nats.iter().flat_map(crate::config::secret::ServerUrl::each);
    let defaults = NatsOptions::new(urls);
    let settings = NatsOptions {
        partitions: section.partitions,
        replicas: replicas(config),
        cluster: remembered.clone(),
        process,
        sys_credentials: section.sys_credentials.clone(),
        ack_wait: ack_wait.unwrap_or(defaults.ack_wait),
        ..defaults
    };
    let joined = member.is_some();
    let options = match member {
        // What it may do, it was given; giving birth is not among it.
        Some(member) => NatsOptions {
            urls: member.urls,
            prefix: member.prefix,
            ca: Some(member.ca),
            credential: Some(member.credential),
            birth: Birth::Never,
            cluster: Some(member.cluster),
            ..settings
        },
        None => NatsOptions {
            prefix: section.prefix.clone(),
            ca: section.ca.clone(),
            credentials: section.credentials.clone(),
            ..settings
        },
    };
    if !joined {
        // The servers that `cluster init` configures have it. Others tell no client, so `status` has no
        // warning of it, which nothing could end.
        tracing::info!("a power cut loses nothing if each NATS server has `sync_interval: always`");
    }
    let storage = connect(options).await.map_err(|error| match error {
        ConnectError::Login { .. } if joined => StartError::refused(
            "credential_refused",
            "the cluster refuses this node's credential: it was revoked, or it has expired",
        )
        .hint("ask the operator for a join token (`clawnode cluster join-token`)"),
        error => unconnected(&error),
    })?;
    if let (None, Some(cluster)) = (remembered, storage.health.cluster()) {
        join::remember(data_dir, &cluster)?;
    }
    Ok(storage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start_error::StartErrorKind;

    #[test]
    fn one_role_alone_is_of_no_use_on_a_data_directory() {
        for role in [NodeRole::Gateway, NodeRole::Worker] {
            let failure = whole(&[role]).unwrap_err();
            assert_eq!((failure.kind, failure.code), (StartErrorKind::Config, "role_alone"));
            assert!(failure.hint.unwrap().contains("clawnode up"));
        }
        assert!(whole(&[NodeRole::Gateway, NodeRole::Worker]).is_ok());
    }
}

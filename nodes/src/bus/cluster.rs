//! Opening a cluster: what the settings ask of it, and why it cannot be opened.

use clawnode_nats::{ConnectError, Replicas};
use clawnode_proto::ErrorChain;

use crate::{config::Config, start_error::StartError};

/// How many copies the settings ask for.
pub fn replicas(config: &Config) -> Replicas {
    match config.cluster.replicas {
        None => Replicas::Auto,
        Some(1) => Replicas::One,
        Some(_) => Replicas::Three,
    }
}

/// A cluster that cannot be opened as a command's end.
pub fn unconnected(error: &ConnectError) -> StartError {
    let message = ErrorChain(error).to_string();
    match error {
        ConnectError::Unreachable { .. } => StartError::unreachable("nats_unreachable", message),
        ConnectError::NotReady { .. } => StartError::unreachable("nats_not_ready", message),
        ConnectError::Login { .. } | ConnectError::Expired { .. } => {
            StartError::refused("nats_refused", message)
        }
        ConnectError::OtherCluster { .. } => StartError::config("other_cluster", message),
        _ => StartError::config("nats_unusable", message),
    }
}

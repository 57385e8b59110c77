//! Opening a cluster: what the settings ask of it, and why it cannot be opened.

use clawnode_cluster::nats::{ConnectError, Replicas};
use clawnode_proto::ErrorChain;

use crate::{
    config::Config,
    failure::{Exit, Failure},
};

/// How many copies the settings ask for.
pub fn replicas(config: &Config) -> Replicas {
    match config.cluster.replicas {
        None => Replicas::Auto,
        Some(1) => Replicas::One,
        Some(_) => Replicas::Three,
    }
}

/// A cluster that cannot be opened as a command's end.
pub fn unconnected(error: &ConnectError) -> Failure {
    let message = ErrorChain(error).to_string();
    match error {
        ConnectError::Unreachable { .. } => {
            Failure::new(Exit::Unreachable, "nats_unreachable", message)
        }
        ConnectError::NotReady { .. } => Failure::new(Exit::Unreachable, "nats_not_ready", message),
        ConnectError::Login { .. } | ConnectError::Expired { .. } => {
            Failure::new(Exit::Refused, "nats_refused", message)
        }
        ConnectError::OtherCluster { .. } => Failure::new(Exit::Config, "other_cluster", message),
        _ => Failure::new(Exit::Config, "nats_unusable", message),
    }
}

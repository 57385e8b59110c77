//! The arguments of a node, and its report once it serves.

use clawnode_cluster::Storage;
use clawnode_proto::{ProcessId, node::NodeRole};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{config::LoadedConfig, secret::Secret};

/// The arguments of a node.
#[derive(Debug)]
pub struct NodeArgs {
    /// Its settings; `reload` reads them again.
    pub loaded: LoadedConfig,
    pub roles: Vec<NodeRole>,
    /// A join token, if the node is to join a cluster.
    pub join: Option<Secret>,
    /// Notified once, when it serves. Dropped unsent if it cannot.
    pub ready: oneshot::Sender<Ready>,
    /// Cancelled when it is to drain and end.
    pub stop: CancellationToken,
}

/// What a node says once it serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where: `http://127.0.0.1:3100`; empty without a gateway.
    pub url: String,
    pub process: ProcessId,
    /// The token that it asks for; `None` with `no_auth`.
    pub token: Option<Secret>,
    /// Which model answers by default, and why that one.
    pub model: String,
    /// The lines that a person sees at the start.
    pub banner: Vec<String>,
}

// === impl Ready ===

impl Ready {
    /// Of a node that does not serve yet.
    pub(super) fn soon(process: ProcessId, model: &str, storage: &Storage) -> Self {
        let storage = storage.health.describe();
        Self {
            url: String::new(),
            process,
            token: None,
            banner: vec![
                format!("clawnode {} on {storage}", env!("CARGO_PKG_VERSION")),
                format!("model {model}"),
            ],
            model: model.to_owned(),
        }
    }
}

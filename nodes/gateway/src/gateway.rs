//! What all handlers of a gateway share.

use std::{net::SocketAddr, sync::Arc};

use clawnode_proto::{Timestamp, Traceparent};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    auth::Auth,
    backend::{Backend, RequestCaller},
    connections::Connections,
    metrics::Metrics,
    openai::Repeats,
    options::GatewayOptions,
    origin::AllowedNames,
};

/// What all handlers share.
pub(super) struct Gateway {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) options: GatewayOptions,
    pub(super) auth: Auth,
    pub(super) names: AllowedNames,
    pub(super) metrics: Metrics,
    pub(super) connections: Connections,
    /// Requests that may come again.
    pub(super) repeats: Repeats,
    /// Places for uploads.
    pub(super) uploads: Semaphore,
    /// Where it listens.
    pub(super) addr: SocketAddr,
    pub(super) started: Timestamp,
    /// Nothing new is begun.
    pub(super) draining: CancellationToken,
    /// Everything ends now.
    pub(super) killed: CancellationToken,
    /// Connections, sockets and sends under way.
    pub(super) tasks: TaskTracker,
}

impl Gateway {
    /// Who asks, for the handlers of the node.
    pub(super) fn caller(&self, trace: Option<Traceparent>) -> RequestCaller {
        RequestCaller { trace, credential: self.auth.credential() }
    }
}

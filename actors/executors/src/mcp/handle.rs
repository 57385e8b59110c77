//! What reaches one server on this node.

use std::sync::Arc;

use clawnode_proto::McpServerName;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    options::McpOptions,
    phase::ServerPhase,
    state::{Inner, McpContext},
};

/// The handle of one server on this node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct McpServer(pub(super) Arc<Inner>);

// === impl McpServer ===

impl McpServer {
    /// A server that is not run yet.
    pub fn new(options: McpOptions, context: McpContext) -> Self {
        Self(Arc::new(Inner {
            options,
            context,
            phase: watch::Sender::new(ServerPhase::Starts),
            changed: Notify::new(),
            suspected: Notify::new(),
            calls: watch::Sender::new(0),
            stop: CancellationToken::new(),
            #[cfg(feature = "test-util")]
            planted: super::McpBug::None,
        }))
    }

    /// One with a bug in it.
    #[cfg(feature = "test-util")]
    pub fn with_bug(options: McpOptions, context: McpContext, planted: super::McpBug) -> Self {
        let mut server = Self::new(options, context);
        if let Some(inner) = Arc::get_mut(&mut server.0) {
            inner.planted = planted;
        }
        server
    }

    pub fn name(&self) -> &McpServerName {
        &self.0.options.name
    }

    /// Runs it whenever it is this node's to run; returns after [`Self::stop`]. To be started again
    /// should it end otherwise.
    pub fn run(self) -> BoxFuture<'static, ()> {
        // Boxed here, so that the crates that await it do not compile it once more.
        Box::pin(async move {
            self.0.run().await;
            if self.0.stop.is_cancelled() {
                // Who ends is started again.
                std::future::pending::<()>().await;
            }
        })
    }

    /// Ends it; returns once nothing of it is left.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        let mut phase = self.0.phase.subscribe();
        // It ends only with the last server of this name, which is here.
        drop(phase.wait_for(|phase| matches!(phase, ServerPhase::Stopped)).await);
    }
}

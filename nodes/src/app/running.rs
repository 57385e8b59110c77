//! The third phase: a node that serves, and its stop.

use std::sync::Arc;

use clawnode_cluster::Peek;
use clawnode_kernel::driver::Worker;
use clawnode_proto::{budget::AccountKey, feed::EventBody};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{args::Ready, gateway::OpenGateway, wire::Wired};
use crate::{
    failure::Failure,
    node::{
        base::NodeBase,
        embedder::Embedder,
        mcp::McpServers,
        operate::Operations,
        status::NodeStatus,
        tools::NodeTools,
        version_check::{self, HeartbeatSource},
    },
};

/// Everything of a node that its stop must reach.
pub(super) struct RunningNode {
    base: NodeBase,
    worker: Option<Worker>,
    gateway: Option<OpenGateway>,
    node_status: Arc<NodeStatus>,
    heartbeat_source: HeartbeatSource,
    shutdown: CancellationToken,
    operations: Operations,
    mcp: McpServers,
    tools: NodeTools,
}

// === impl Wired ===

impl Wired {
    /// Serves clients, if it is a gateway, and then takes its part in the cluster.
    pub(super) async fn serve(self) -> Result<(RunningNode, Ready), Failure> {
        self.node_status.embeds(Embedder::new(self.models.clone(), self.agents.clone()));
        self.node_status.searches(self.base.memory.clone());
        let mut ready = Ready::soon(self.base.process, &self.model, &self.base.storage);
        if self.base.is_worker() {
            let set = self.base.budgets.set_by_person(&AccountKey::Cluster);
            ready.banner.push(self.loaded.config.budgets.banner(set.as_deref()));
        }
        let mut gateway = None;
        if self.base.is_gateway() {
            let open = self.open_gateway().await?;
            ready.url.clone_from(&open.serving.url);
            ready.token.clone_from(&open.token);
            gateway = Some(open);
        }
        // Last: a node that cannot start must not have claimed sessions and begun calls.
        let worker = self.take_part().await?;
        let Self { base, node_status, heartbeat_source, shutdown, operations, mcp, tools, .. } =
            self;
        let running = RunningNode {
            base,
            worker,
            gateway,
            node_status,
            heartbeat_source,
            shutdown,
            operations,
            mcp,
            tools,
        };
        Ok((running, ready))
    }
}

// === impl RunningNode ===

impl RunningNode {
    /// Drains: nothing new, running calls end, every entity is handed over, everything is stored.
    pub(super) async fn stop(self) {
        info!("draining");
        self.node_status.drains();
        self.shutdown.cancel();
        let runner = self.node_status.jobs().peek(Clone::clone);
        let jobs = async {
            if let Some(runner) = runner {
                runner.drain().await;
            }
            self.tools.close().await;
        };
        let sessions = async {
            if let Some(worker) = &self.worker {
                worker.drain().await;
            }
        };
        tokio::join!(jobs, sessions);
        // After the calls that spend it.
        self.base.budgets.leave().await;
        // After those who call them.
        self.mcp.stop().await;
        let mut announced = None;
        if let Some(gateway) = self.gateway {
            gateway.serving.ended().await;
            announced = gateway.announced;
        }
        let storage = &self.base.storage;
        self.operations.feed.tell_now(storage, EventBody::NodeLeft).await;
        self.base.supervisor.stop().await;
        version_check::farewell(storage, &self.heartbeat_source).await;
        storage.health.close().await;
        if let Some(announced) = announced {
            announced.remove();
        }
        info!("stopped");
    }
}

//! The cluster, as clients see it and as operators give its nodes orders.

use clawnode_gateway::HandlerResult;
use clawnode_kernel::EntityError;
use clawnode_proto::view::{NodeView, StatusView};

use super::{
    backend::NodeBackend,
    drain_orders::{self, NodeOrder},
    health, node_requests, reload, runaways,
};

impl NodeBackend {
    /// The state of the cluster, with what a person should look at.
    pub(super) async fn state(&self) -> StatusView {
        let mut status = self.overview.status().await;
        let alive = self.overview.alive();
        status.warnings.extend(health::warnings(&alive, &self.needs()));
        status.warnings.extend(reload::warnings(&alive));
        status.warnings.splice(0..0, runaways::warnings(self.agents.paused()));
        status.warnings.extend(self.budgets.warnings().await);
        status.warnings.extend(self.memories.behind());
        // An operator's stop comes before everything else.
        status.warnings.splice(0..0, self.switch.warnings());
        status
    }

    /// Deletes a dead letter. A node that is no worker asks one.
    pub(super) async fn drop_letter(&self, letter: String) -> HandlerResult<()> {
        if self.overview.is_worker() {
            return Ok(self.sessions.entities().drop_letter(&letter).await?);
        }
        let nodes = self.overview.nodes().nodes;
        if node_requests::drop_letter(self.sessions.storage(), &nodes, &letter).await? {
            return Ok(());
        }
        Err(EntityError::NoLetter(letter).into())
    }

    /// Gives a node an order; answers with the node as it is then.
    pub(super) async fn order(&self, node: &str, order: NodeOrder) -> HandlerResult<NodeView> {
        drain_orders::give(self.sessions.storage(), &self.overview.nodes().nodes, node, order).await
    }
}

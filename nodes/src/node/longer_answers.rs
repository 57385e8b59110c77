//! Answers that are put together from several parts of a node, or carried to another node.

use clawnode_gateway::{HandlerResult, SessionRef};
use clawnode_kernel::EntityError;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode,
    model_route::RouteView,
    view::{NodeView, StatusView},
};

use super::{
    backend::{NodeBackend, named},
    health,
    orders::{self, NodeOrder},
    reload, runaways,
};

impl NodeBackend {
    /// Answers `status`, with all warnings.
    pub(super) async fn warned_status(&self) -> StatusView {
        let mut status = self.overview.status().await;
        let alive = self.overview.alive();
        status.warnings.extend(health::warnings(&alive, &self.needs()));
        status.warnings.extend(reload::warnings(&alive));
        status.warnings.splice(0..0, runaways::warnings(self.agents.paused()));
        status.warnings.extend(self.budgets.warnings().await);
        // An operator's stop comes before everything else.
        status.warnings.splice(0..0, self.switch.warnings());
        status
    }

    /// Answers `models.route`.
    pub(super) async fn next_route(&self, session: SessionRef) -> HandlerResult<RouteView> {
        let options = |agent: &AgentName| self.agents.options(agent);
        let found = self.sessions.next_route(session.id, options).await;
        let unknown = || {
            ErrorBody::new(ErrorCode::NotFound, "the session's agent is not in the configuration")
                .hint("`clawnode agents list` shows the agents there are")
        };
        found.map_err(|error| named(&session, error))?.ok_or_else(unknown)
    }

    /// Deletes a dead letter; only workers may, so a gateway asks one.
    pub(super) async fn drop_letter(&self, letter: String) -> HandlerResult<()> {
        if self.overview.is_worker() {
            return Ok(self.sessions.entities().drop_letter(&letter).await?);
        }
        let nodes = self.overview.nodes().nodes;
        if orders::drop_letter(self.sessions.storage(), &nodes, &letter).await? {
            return Ok(());
        }
        Err(EntityError::NoLetter(letter).into())
    }

    /// Gives an order to a node.
    pub(super) async fn order(&self, node: &str, order: NodeOrder) -> HandlerResult<NodeView> {
        orders::give(self.sessions.storage(), &self.overview.nodes().nodes, node, order).await
    }
}

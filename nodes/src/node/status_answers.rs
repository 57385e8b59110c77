//! The state of a node and its cluster, with all that is wrong with them.

use clawnode_proto::view::StatusView;

use super::{backend::NodeBackend, health, reload, runaways};

impl NodeBackend {
    /// What `status` answers.
    pub(super) async fn status_view(&self) -> StatusView {
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
}

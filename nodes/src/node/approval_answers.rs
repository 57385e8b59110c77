//! What waits for a person, and what operators decide about it.

use clawnode_gateway::{CallDecision, HandlerResult};
use clawnode_proto::{
    AgentName, CallId,
    cursor::Cursor,
    policy::{Approval, Decided, Decision},
    view::ApprovalList,
};

use super::backend::NodeBackend;

impl NodeBackend {
    /// What waits for a person: calls, and on the first page budgets.
    pub(super) async fn waiting_for_people(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> HandlerResult<ApprovalList> {
        let mut list = self.sessions.approvals(after, limit).await?;
        self.name_points(&mut list.approvals).await;
        if after.is_none() {
            list.budgets = self.budgets.asking().await?;
        }
        Ok(list)
    }

    /// A call that waits, or has waited, for a person.
    pub(super) async fn approval(&self, call: CallId) -> HandlerResult<Approval> {
        let mut approval = self.sessions.approval(call).await?;
        self.name_points(std::slice::from_mut(&mut approval)).await;
        Ok(approval)
    }

    /// Approves or denies a call: the action that was shown, and why.
    pub(super) async fn decide(
        &self,
        decision: Decision,
        decided: CallDecision,
    ) -> HandlerResult<Approval> {
        let CallDecision { call, action, reason } = decided;
        // The holder of the gateway's token is the operator; where they came in is all that is known.
        let by = format!("operator at {}", self.overview.node());
        Ok(self.sessions.decide(call, action, Decided { decision, by, reason }).await?)
    }

    /// What calls of `forget` take away, as the configuration of agents is now.
    async fn name_points(&self, approvals: &mut [Approval]) {
        let shared = |agent: &AgentName| Some(self.agents.options(agent)?.memory?.shared);
        self.sessions.name_points(approvals, shared).await;
    }
}

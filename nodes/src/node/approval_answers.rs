//! What operators decide about tool calls that wait for a person.

use clawnode_gateway::HandlerResult;
use clawnode_proto::{
    CallId, Digest,
    policy::{Approval, Decided, Decision},
};

use super::backend::NodeBackend;

impl NodeBackend {
    /// Approves or denies a call: the action that was shown, and why.
    pub(super) async fn decide(
        &self,
        decision: Decision,
        (call, action, reason): (CallId, Digest, Option<String>),
    ) -> HandlerResult<Approval> {
        // The holder of the gateway's token is the operator; where they came in is all that is known.
        let by = format!("operator at {}", self.overview.node());
        Ok(self.sessions.decide(call, action, Decided { decision, by, reason }).await?)
    }
}

//! What is known of a person's decision about a tool call: pure.

use std::time::Duration;

use clawnode_proto::{
    Digest, Timestamp,
    policy::{Decided, Decision},
    session::{ApprovalAsked, ApprovalDecided, ApprovalGiven},
    tool::{Risk, ToolFailure, ToolOutcome},
};
use serde::{Deserialize, Serialize};

use super::tools::ToolCall;
use crate::durable::Violation;

/// A person was asked about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalState {
    /// The digest of the action that they were asked about.
    pub action: Digest,
    /// How much harm it can do.
    pub risk: Risk,
    /// Why they were asked, if a rule says so.
    pub reason: Option<String>,
    /// When.
    pub asked: Timestamp,
    /// Until when they are waited for.
    pub expires: Timestamp,
    /// The time is over.
    pub overdue: bool,
    /// What they decided, as an input says; the journal's own word follows.
    pub brought: Option<Decided>,
    /// What they decided.
    pub given: Option<Decided>,
}

// === impl ApprovalState ===

impl ApprovalState {
    /// They were asked at this time, and are waited for so many milliseconds.
    pub(super) fn asked(asked: &ApprovalAsked, risk: Risk, at: Timestamp, wait_ms: u64) -> Self {
        Self {
            action: asked.action,
            risk,
            reason: asked.reason.clone(),
            asked: at,
            expires: at.plus(Duration::from_millis(wait_ms)),
            overdue: false,
            brought: None,
            given: None,
        }
    }

    /// Nothing is decided, and there is time.
    pub const fn is_open(&self) -> bool {
        !self.overdue && self.brought.is_none() && self.given.is_none()
    }

    /// It is journaled that a person approved.
    pub fn is_approved(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.decision == Decision::Approve)
    }

    /// Why the call will never run, if that is so.
    pub(super) fn refusal(&self) -> Option<ToolOutcome> {
        let why = match &self.given {
            Some(Decided { decision: Decision::Deny, reason, .. }) => match reason {
                Some(reason) => format!("a person decided that it is not done: {reason}"),
                None => "a person decided that it is not done".to_owned(),
            },
            None if self.overdue => {
                "it needed a person's approval, and nobody decided in time".to_owned()
            }
            Some(Decided { decision: Decision::Approve, .. }) | None => return None,
        };
        Some(ToolOutcome::failed(ToolFailure::Refused, why))
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// It waits for a person.
    pub fn is_asked_about(&self) -> bool {
        self.end.is_none() && self.approval.as_ref().is_some_and(ApprovalState::is_open)
    }

    /// Takes a decision: the first one about the action that was asked about, in time (APR-3).
    pub(super) fn decide(&mut self, it: ApprovalDecided, now: Timestamp) {
        if let Some(approval) = &mut self.approval
            && self.end.is_none()
            && approval.is_open()
            && approval.action == it.action
            && now <= approval.expires
        {
            approval.brought = Some(it.decided);
        }
    }

    /// Takes the journal's word of a decision.
    pub(super) fn given(&mut self, given: &ApprovalGiven) -> Result<(), Violation> {
        let call = self.call;
        let Some(approval) = &mut self.approval else {
            return Err(Violation(format!("nobody was asked about `{call}` (APR-1)")));
        };
        if approval.action != given.action || approval.given.is_some() {
            return Err(Violation(format!(
                "a decision about `{call}` is about another action, or the second (APR-1)"
            )));
        }
        approval.brought = None;
        approval.given = Some(given.decided.clone());
        Ok(())
    }
}

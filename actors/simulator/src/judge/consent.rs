//! What people were asked about, what they said, and when that was written down.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId, Digest, TimerId, Timestamp, ToolName,
    policy::Decision,
    session::{ApprovalDecided, SessionInput},
};

use crate::{JudgeViolation, book::Checked};

/// A question.
#[derive(Debug)]
struct AskedCall {
    /// What was asked about.
    action: Digest,
    /// The last moment for an answer, by the time of events.
    until: u64,
    /// What was said, or that time ran out first.
    says: Option<bool>,
}

/// All questions.
#[derive(Debug)]
pub(super) struct Consent {
    wait: u64,
    /// People are asked about these.
    pub(super) changing: Vec<ToolName>,
    questions: BTreeMap<CallId, AskedCall>,
    timers: BTreeMap<TimerId, CallId>,
}

// === impl Consent ===

impl Consent {
    pub(super) fn new(wait: u64, changing: Vec<ToolName>) -> Self {
        let (questions, timers) = Default::default();
        Self { wait, changing, questions, timers }
    }

    pub(super) fn asks(&mut self, at: Timestamp, call: CallId, action: Digest) {
        let until = at.0.saturating_add(self.wait);
        self.timers.insert(TimerId::of_approval(call), call);
        self.questions.insert(call, AskedCall { action, until, says: None });
    }

    /// A session takes something at this time.
    pub(super) fn takes(&mut self, at: Timestamp, body: &SessionInput) {
        match body {
            SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided }) => {
                if let Some(question) = self.questions.get_mut(call)
                    && question.action == *action
                    && question.until >= at.0
                {
                    question.says.get_or_insert(decided.decision == Decision::Approve);
                }
            }
            SessionInput::TimerFired { timer } => {
                let call = self.timers.get(timer);
                if let Some(question) = call.and_then(|call| self.questions.get_mut(call)) {
                    question.says.get_or_insert(false);
                }
            }
            _ => {}
        }
    }

    /// A call runs, and does this.
    pub(super) fn runs(&self, call: CallId, action: Option<Digest>) -> Checked {
        let wrong = |why: &str| Err(JudgeViolation::new("APR-1", format!("`{call}` runs, {why}")));
        match self.questions.get(&call) {
            Some(question) if question.says != Some(true) => wrong("and was not approved in time"),
            Some(question) if Some(question.action) != action => {
                wrong("and another action was approved of")
            }
            None => wrong("and no person was asked"),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::policy::Decided;

    use super::*;

    fn says(action: Digest, decision: Decision) -> SessionInput {
        let decided = Decided { decision, by: "ada".to_owned(), reason: None };
        let call = CallId::from_u128(1);
        SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided })
    }

    /// Whether it may run, after it was asked about at 100 and these were written down.
    fn may(said: &[(u64, SessionInput)]) -> bool {
        let (call, action) = (CallId::from_u128(1), Digest::of(b"it"));
        let mut consent = Consent::new(50, Vec::new());
        consent.asks(Timestamp(100), call, action);
        for (at, body) in said {
            consent.takes(Timestamp(*at), body);
        }
        assert!(consent.runs(call, Some(Digest::of(b"other"))).is_err());
        consent.runs(call, Some(action)).is_ok()
    }

    #[test]
    fn apr_1_the_first_word_in_time_about_that_very_action_counts() {
        let yes = || says(Digest::of(b"it"), Decision::Approve);
        let no = || says(Digest::of(b"it"), Decision::Deny);
        let other = || says(Digest::of(b"other"), Decision::Approve);
        let timer = TimerId::of_approval(CallId::from_u128(1));
        let timer = || SessionInput::TimerFired { timer };
        assert!(!may(&[]));
        assert!(may(&[(150, yes())]));
        assert!(!may(&[(151, yes())]));
        assert!(!may(&[(120, other())]));
        assert!(may(&[(120, other()), (121, yes()), (122, no()), (123, timer())]));
        assert!(!may(&[(120, no()), (121, yes())]));
        assert!(!may(&[(120, timer()), (121, yes())]));
        let consent = Consent::new(50, Vec::new());
        assert!(consent.runs(CallId::from_u128(1), None).is_err(), "no person was asked");
    }
}

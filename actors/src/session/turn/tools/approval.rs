//! What is known of a person's decision about a tool call: pure.

use std::time::Duration;

use clawnode_proto::{
    CallId, Digest, Timestamp,
    frame::ApprovalRequest,
    limits::FRAME_TOOL_CHARS,
    policy::{Action, Approval, Decided, Decision},
    session::{ApprovalAsked, ApprovalDecided, ApprovalGiven},
    tool::{Risk, ToolFailure, ToolOutcome},
};
use serde::{Deserialize, Serialize};

use super::super::state::Turn;
use super::{tool_calls::ToolCall, tool_frames::cut};
#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;
use clawnode_kernel::Violation;

/// Who decides in place of a person about a call that could not do anything. A person has another name.
pub(in crate::session) const BY_NODE: &str = "clawnode";

/// A person was asked about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalState {
    /// The digest of the action that they were asked about.
    pub action: Digest,
    /// How much harm it can do.
    pub risk: Risk,
    /// Why they were asked, if a rule says so.
    pub reason: Option<String>,
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
    pub(in crate::session) fn asked(
        asked: &ApprovalAsked,
        risk: Risk,
        at: Timestamp,
        wait_ms: u64,
    ) -> Self {
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

    /// What people are shown: this action, which was asked about.
    pub(in crate::session::turn) fn shown(&self, action: Action) -> Approval {
        Approval {
            action,
            digest: self.action,
            risk: self.risk,
            reason: self.reason.clone(),
            about: None,
            asked: self.asked,
            expires: self.expires,
            decided: None,
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
    pub(in crate::session) fn refusal(&self) -> Option<ToolOutcome> {
        let why = match &self.given {
            Some(Decided { decision: Decision::Deny, reason: Some(why), by }) if by == BY_NODE => {
                return Some(ToolOutcome::failed(ToolFailure::Invalid, why.as_str()));
            }
            Some(Decided { decision: Decision::Deny, reason, .. }) => match reason {
                Some(reason) => format!("a person denied the call: {reason}"),
                None => "a person denied the call".to_owned(),
            },
            None if self.overdue => {
                "the call needed a person's approval, and no person decided in time".to_owned()
            }
            Some(Decided { decision: Decision::Approve, .. }) | None => return None,
        };
        Some(ToolOutcome::failed(ToolFailure::Refused, why))
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// What clients see when a person is asked.
    pub(in crate::session) fn request(&self) -> Option<ApprovalRequest> {
        let approval = self.approval.as_ref()?;
        let chars = self.arguments().chars().count();
        Some(ApprovalRequest {
            id: self.call,
            name: cut(&self.using.name),
            arguments: cut(self.arguments()),
            action: approval.action,
            risk: approval.risk,
            reason: approval.reason.clone(),
            expires: approval.expires,
            truncated: chars > FRAME_TOOL_CHARS,
            chars: chars as u64,
        })
    }

    /// It waits for a person.
    pub fn is_asked_about(&self) -> bool {
        self.end.is_none() && self.approval.as_ref().is_some_and(ApprovalState::is_open)
    }

    /// Takes a decision: the first one about the action that was asked about, in time (APR-3).
    pub(in crate::session) fn decide(&mut self, decision: ApprovalDecided, now: Timestamp) {
        #[cfg(feature = "test-util")]
        let (any, late) =
            (KernelBug::ApprovalOfAnything.is_in_folds(), KernelBug::ApprovalTooLate.is_in_folds());
        #[cfg(not(feature = "test-util"))]
        let (any, late) = (false, false);
        if let Some(approval) = &mut self.approval
            && self.end.is_none()
            && approval.is_open()
            && (approval.action == decision.action || any)
            && (now <= approval.expires || late)
        {
            approval.brought = Some(decision.decided);
        }
    }

    /// Takes the journal's word of a decision.
    pub(in crate::session) fn given(&mut self, given: &ApprovalGiven) -> Result<(), Violation> {
        let call = self.call;
        let Some(approval) = &mut self.approval else {
            return Err(Violation(format!("no person was asked about `{call}` (APR-1)")));
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

// === impl Turn ===

impl Turn {
    /// Its calls of tools that wait for a person.
    pub fn asks(&self) -> impl Iterator<Item = CallId> {
        let tools = self.steps.iter().flat_map(|step| &step.tools);
        let waits = |tool: &&ToolCall| self.outcome.is_none() && tool.is_asked_about();
        tools.filter(waits).map(|tool| tool.call)
    }

    /// It has used up its steps, and waits for a person to give it more.
    pub fn wants_steps(&self) -> bool {
        self.outcome.is_none() && self.limit_reached.is_some_and(|reached| !reached.overdue)
    }

    /// It goes on only once a person decides.
    pub fn waits_for_person(&self) -> bool {
        self.wants_steps() || self.asks().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{hook::HookPoint, session::SessionInput};

    use super::*;
    use crate::session::turn::prepare::AskJob;
    use crate::session::{Outcome, Session, SessionJob, played::PlayedActivation};
    use clawnode_kernel::{Entity, LoadedJournal, MachineInput};

    /// What people are asked about the reply's call, once it is.
    fn asked(run: &mut PlayedActivation) -> AskJob {
        let started = run.started.pop();
        let Some((_, SessionJob::Ask(ask))) = started else { panic!("{started:?}") };
        assert_eq!(ask.approval.action.digest().unwrap(), ask.approval.digest);
        *ask
    }

    /// What runs once a person approves of that.
    fn runs_approved(run: &mut PlayedActivation, ask: &AskJob) -> String {
        let decided = Decided { decision: Decision::Approve, by: "ada".to_owned(), reason: None };
        let (call, action) = (ask.approval.action.call, ask.approval.digest);
        run.hears("yes", &SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided }));
        let started = run.started.pop();
        let Some((_, SessionJob::Tool(job))) = started else { panic!("{started:?}") };
        assert_eq!(job.action, job.would.digest().unwrap(), "APR-2");
        assert_eq!(job.would.arguments, job.arguments);
        job.arguments
    }

    /// APR-2: one text is recorded, shown, digested and run, however the model wrote it.
    #[test]
    fn apr_2_arguments_have_one_text() {
        for written in [
            "{\n\n\n  \"b\" : \"x\",\n \"at\" : 2 }",
            r#"{"b":"\u0078","at":2}"#,
            r#"{"at":2,"b":"x"}"#,
        ] {
            let mut run = PlayedActivation::new(&[], Vec::new());
            run.says("hello");
            run.replies(&[("write", written)]);
            let ask = asked(&mut run);
            assert_eq!(ask.approval.action.arguments, r#"{"at":2,"b":"x"}"#, "{written}");
            assert_eq!(runs_approved(&mut run, &ask), ask.approval.action.arguments);
        }
    }

    /// The model reads that the call could do nothing, and not that a person denied it.
    #[test]
    fn what_a_node_refuses_in_place_of_a_person_reads_as_it_is() {
        for (by, says) in [
            (BY_NODE, "The call of `write` was not run: there is no such point"),
            ("operator at a", "a person denied the call: there is no such point"),
        ] {
            let mut run = PlayedActivation::new(&[], Vec::new());
            run.says("hello");
            run.replies(&[("write", r#"{"at":2,"b":"x"}"#)]);
            let approval = asked(&mut run).approval;
            let reason = Some("there is no such point".to_owned());
            let decided = Decided { decision: Decision::Deny, by: by.to_owned(), reason };
            let (call, action) = (approval.action.call, approval.digest);
            let denied = ApprovalDecided { call, action, decided };
            run.hears("no", &SessionInput::ApprovalDecided(denied));
            let mut calls = run.started.iter().rev().filter_map(|(_, job)| match job {
                SessionJob::Call(call) => Some(call),
                _ => None,
            });
            let call = calls.next().unwrap();
            let told = call.request.messages.last().unwrap().tool_replies[0].clone();
            assert_eq!((told.is_error, told.content.inline()), (true, Some(says)));
        }
    }

    /// What waits for a person has not failed.
    #[test]
    fn a_call_that_waits_for_a_person_is_shown_as_one() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("hello");
        run.replies(&[("write", r#"{"at":2,"b":"x"}"#), ("look", "{\"at\":")]);
        let ask = asked(&mut run);
        let records = run.journal.clone();
        let loaded = LoadedJournal { records, snapshot: None };
        let entity_id = ask.approval.action.session.entity();
        let entity = Entity::<Session>::of(entity_id, &loaded).unwrap();
        let turn = entity.state.running().unwrap();
        let (shown, notes) = turn.shown();
        assert_eq!(turn.asks().collect::<Vec<_>>(), [ask.approval.action.call]);
        assert!(turn.waits_for_person() && !turn.wants_steps());
        let replies: usize = shown.iter().map(|message| message.tool_replies.len()).sum();
        assert_eq!(replies, 0, "nothing is known of the call yet\n{shown:?}");
        // What the model reads about a call that is none is the node's own text.
        let [note] = notes[..] else { panic!("{notes:?}") };
        assert_eq!(note, shown.len() - 1);
        assert!(shown[note].content.inline().unwrap().contains("`look`"), "{shown:?}");
        // A model would be told all the same.
        assert!(turn.messages().iter().any(|message| !message.tool_replies.is_empty()));
    }

    /// Arguments that mean several things are no call: no person is asked, and nothing runs.
    #[test]
    fn arguments_with_two_fields_of_one_name_are_a_bad_call() {
        for written in [r#"{"at":1,"at":2}"#, r#"{"at":1,"o":[{"x":1,"x":2}]}"#] {
            for tool in ["write", "look"] {
                let mut run = PlayedActivation::new(&[], Vec::new());
                run.says("hello");
                run.replies(&[(tool, written)]);
                let appended = run.appends.concat();
                assert!(appended.contains(&"tool_done"), "{appended:?}");
                assert!(!appended.contains(&"approval_asked") && !appended.contains(&"tool_asked"));
                let started = run.started.pop();
                let Some((_, SessionJob::Call(call))) = started else { panic!("{started:?}") };
                let told = call.request.messages.last().unwrap().tool_replies[0].clone();
                assert!(told.is_error);
                let told = told.content.inline().unwrap().to_owned();
                assert!(told.contains("two fields are called"), "{told}");
            }
        }
    }

    /// What earlier builds recorded is asked about and run as it is recorded, to the byte. Hooks
    /// may still record such text.
    #[test]
    fn apr_2_arguments_that_are_recorded_otherwise_stay_as_they_are() {
        let recorded = "{ \"b\": \"x\",  \"at\": 2 }";
        let mut run = PlayedActivation::new(&[HookPoint::BeforeToolCall], Vec::new());
        run.says("hello");
        run.replies(&[("write", r#"{"at":1}"#)]);
        let (key, _) = run.judge();
        let trail = clawnode_proto::hook::HookTrail::default();
        let arguments = Some(recorded.to_owned());
        run.feed(MachineInput::Ended(key, Outcome::ToolJudged { arguments, trail }));
        let ask = asked(&mut run);
        assert_eq!(ask.approval.action.arguments, recorded);
        // The next owner reads the same.
        let mut successor =
            PlayedActivation::new(&[HookPoint::BeforeToolCall], run.journal.clone());
        let again = asked(&mut successor);
        assert_eq!(again.approval, ask.approval);
        assert_eq!(runs_approved(&mut successor, &again), recorded);
    }

    /// A frame says whether it has everything that a person is asked about.
    #[test]
    fn a_frame_says_that_it_is_cut() {
        for (length, is_cut) in [(3_000, false), (5_000, true)] {
            let mut run = PlayedActivation::new(&[], Vec::new());
            run.says("hello");
            let long = format!(r#"{{"at":2,"b":"{}"}}"#, "é".repeat(length));
            run.replies(&[("write", &long)]);
            let ask = asked(&mut run);
            assert_eq!(ask.approval.action.arguments, long);
            let [_, frame] = &run.told[..] else { panic!("{:?}", run.told) };
            let clawnode_proto::FrameBody::ApprovalRequest(request) = &frame.body else {
                panic!("{frame:?}");
            };
            let chars = long.chars().count() as u64;
            assert_eq!((request.truncated, request.chars), (is_cut, chars));
            assert_eq!(request.arguments == long, !is_cut);
        }
    }
}

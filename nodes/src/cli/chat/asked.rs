//! The tool calls that a person at the terminal is asked about.
//!
//! A frame may have only a part of the arguments, and says so or, from older builds, does not. So
//! the chat fetches a call by its id, and whole: it never asks for a yes to arguments that were not
//! shown to their end, and the yes is about the shown bytes exactly.

use std::collections::VecDeque;

use clawnode_proto::{
    CallId, ErrorBody,
    api::{ApprovalDecide, ApprovalParams, Method},
    frame::ApprovalRequest,
    policy::{Approval, Decision},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cli::output::{clean, count, exact};
use crate::client::{ClientError, ClientSocket};

/// What the person is asked about tool calls.
#[derive(Default)]
pub(super) struct AskedCalls {
    /// Those that the node was asked for, by the request, and not yet shown.
    looks: Vec<(u64, ApprovalRequest)>,
    /// Shown whole and not answered, in order.
    open: VecDeque<Approval>,
    /// The requests that told the node of their answers.
    sent: Vec<u64>,
}

/// What a person is shown of a call.
#[derive(Debug)]
pub(super) enum ShownQuestion {
    /// All of it: they may say yes or no.
    Whole(Box<Approval>, String),
    /// A part, with a note on how to see the rest.
    Part(String),
}

// === impl AskedCalls ===

impl AskedCalls {
    /// Whether the person's next line is an answer.
    pub(super) fn waits(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether this request told the node of an answer.
    pub(super) fn is_answer(&self, request: u64) -> bool {
        self.sent.contains(&request)
    }

    /// Asks the node for the whole of a call.
    pub(super) async fn look(
        &mut self,
        approval: ApprovalRequest,
        socket: &mut ClientSocket,
    ) -> Result<(), ClientError> {
        let params = json!(ApprovalParams { call: approval.id.to_string() });
        let request = socket.send(Method::ApprovalsShow, params).await?;
        self.looks.push((request, approval));
        Ok(())
    }

    /// The call that this request asked for.
    pub(super) fn looked(&mut self, request: u64) -> Option<ApprovalRequest> {
        let at = self.looks.iter().position(|(id, _)| *id == request)?;
        Some(self.looks.remove(at).1)
    }

    /// It is shown whole: the person's answer is waited for.
    pub(super) fn wait_for(&mut self, approval: Approval) {
        self.open.push_back(approval);
    }

    /// Nothing can be answered any more.
    pub(super) fn give_up(&mut self) {
        self.open.clear();
    }

    /// What the person is asked now.
    pub(super) fn question(&self) -> Option<String> {
        let action = &self.open.front()?.action;
        let chars = count(action.arguments.chars().count() as u64, "character");
        Some(format!("run `{}` with these {chars} of arguments? y or n:", action.tool))
    }

    /// The call that the person is asked about now.
    pub(super) fn front(&self) -> Option<&Approval> {
        self.open.front()
    }

    /// A call has ended: another client decided about it. Whether the person was asked about it
    /// now.
    pub(super) fn ended(&mut self, call: CallId) -> bool {
        let was = self.open.front().is_some_and(|approval| approval.action.call == call);
        self.looks.retain(|(_, look)| look.id != call);
        self.open.retain(|approval| approval.action.call != call);
        was
    }

    /// Tells the node what the person decided about the call that they were asked about.
    pub(super) async fn decide(
        &mut self,
        decision: Decision,
        socket: &mut ClientSocket,
    ) -> Result<(), ClientError> {
        let method = match decision {
            Decision::Approve => Method::ApprovalsApprove,
            Decision::Deny => Method::ApprovalsDeny,
        };
        let Some(approval) = self.open.pop_front() else { return Ok(()) };
        let (call, action) = (approval.action.call.to_string(), approval.digest.to_string());
        let params = json!(ApprovalDecide { call, action, reason: None });
        self.sent.push(socket.send(method, params).await?);
        Ok(())
    }

    /// Takes a line that the person typed; what is neither yes nor no is asked again.
    pub(super) async fn answer(
        &mut self,
        line: &str,
        socket: &mut ClientSocket,
    ) -> Result<(), ClientError> {
        match line.to_ascii_lowercase().as_str() {
            "y" | "yes" => self.decide(Decision::Approve, socket).await,
            "n" | "no" => self.decide(Decision::Deny, socket).await,
            _ => Ok(()),
        }
    }
}

/// What a person is shown of a call that the node was asked for.
pub(super) fn shown(request: &ApprovalRequest, answer: Result<Value, ErrorBody>) -> ShownQuestion {
    let why =
        request.reason.as_deref().map_or_else(String::new, |why| format!(" ({})", exact(why)));
    let card = |tool: &str, arguments: &str| {
        let (tool, what, risk) = (exact(tool), exact(arguments), request.risk.as_str());
        format!("waits for you: {tool} {what}\n  {risk}{why}")
    };
    let whole = match answer {
        Ok(value) => Approval::deserialize(value).map_err(|error| error.to_string()),
        Err(error) => Err(error.message),
    };
    let whole = whole.and_then(|whole| {
        let digest = whole.action.digest().map_err(|error| error.to_string())?;
        if (digest, whole.digest, whole.action.call) == (request.action, request.action, request.id)
        {
            return Ok(whole);
        }
        Err("the node shows a different action from the one that it asks about".to_owned())
    });
    match whole {
        Ok(whole) => {
            let mut card = card(whole.action.tool.as_str(), &whole.action.arguments);
            if let Some(about) = &whole.about {
                card = format!("{card}\n  about: {}", exact(about));
            }
            ShownQuestion::Whole(Box::new(whole), card)
        }
        Err(why) => {
            let (card, id) = (card(&request.name, &request.arguments), request.id);
            ShownQuestion::Part(format!(
                "{card}\n  this may be incomplete ({}); `clawnode approvals show {id}` shows the \
                 whole call; decide with `clawnode approvals approve {id}` or `deny`",
                clean(&why)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        CallId, Digest, ErrorCode, Timestamp, TurnId,
        policy::Action,
        tool::{EffectClass, Risk},
    };

    use super::*;

    fn approval(arguments: &str) -> Approval {
        let action = Action {
            session: "a:b:c:d".parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(2),
            tool: "run_command".parse().unwrap(),
            pin: Some(Digest::of(b"image")),
            capability: Some("process".parse().unwrap()),
            class: EffectClass::Once,
            timeout_ms: 1_000,
            arguments: arguments.to_owned(),
        };
        Approval {
            digest: action.digest().unwrap(),
            action,
            risk: Risk::Admin,
            reason: None,
            about: None,
            asked: Timestamp(1),
            expires: Timestamp(2),
            decided: None,
        }
    }

    fn request(approval: &Approval, arguments: &str) -> ApprovalRequest {
        ApprovalRequest {
            id: approval.action.call,
            name: approval.action.tool.to_string(),
            arguments: arguments.to_owned(),
            action: approval.digest,
            risk: approval.risk,
            reason: Some("it \u{202e}writes".to_owned()),
            expires: approval.expires,
            truncated: false,
            chars: 0,
        }
    }

    #[test]
    fn the_whole_of_a_call_is_shown_to_its_end() {
        let long =
            format!("{{\"command\":\"echo {}; echo DONE-\u{200b}TAIL\"}}", "A".repeat(9_000));
        let whole = approval(&long);
        let ShownQuestion::Whole(found, card) =
            shown(&request(&whole, "{\"command\":\"echo AA…"), Ok(json!(whole)))
        else {
            panic!("it is shown");
        };
        assert_eq!(*found, whole);
        assert!(card.contains("AAAA; echo DONE-\\u{200b}TAIL\"}"), "{card:.200}");
        assert!(card.ends_with("\n  ADMIN (it \\u{202e}writes)"));
    }

    #[test]
    fn no_yes_is_taken_to_what_is_not_shown_whole() {
        let (whole, other) = (approval(r#"{"command":"rm"}"#), approval(r#"{"command":"ls"}"#));
        let mut elsewhere = whole.clone();
        elsewhere.action.call = CallId::from_u128(3);
        elsewhere.digest = elsewhere.action.digest().unwrap();
        // A node that says that one thing is another.
        let lie = Approval { digest: whole.digest, ..other.clone() };
        let gone = ErrorBody::new(ErrorCode::NotFound, "no such call");
        for answer in
            [Ok(json!(other)), Ok(json!(elsewhere)), Ok(json!(lie)), Ok(json!({})), Err(gone)]
        {
            let ShownQuestion::Part(card) = shown(&request(&whole, "{\"comm…"), answer) else {
                panic!("it is not shown whole");
            };
            assert!(card.contains("waits for you: run_command {\"comm…"), "{card}");
            let id = whole.action.call;
            assert!(card.contains(&format!("`clawnode approvals show {id}`")), "{card}");
        }
    }
}

//! A turn as a client follows it: which request to send next, and what a frame means for what is
//! shown. Pure; [`super::chat`] does the talking.

use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey,
    api::{ChatSend, Method, SessionsResume},
    session::TurnOutcome,
    view::AcceptedView,
};
use serde_json::Value;

use crate::client::Event;

/// One turn, from what is said to how it ended.
#[derive(Debug)]
pub(super) struct Turn {
    say: ChatSend,
    accepted: Option<AcceptedView>,
    cursor: Option<FrameKey>,
    error: Option<ErrorBody>,
}

/// What to do about a frame.
#[derive(Debug, PartialEq)]
#[must_use]
pub(super) enum Step {
    /// Show more of the reply.
    Show(String),
    /// The reply begins anew, with this.
    Restart(String),
    /// Tell the person something.
    Tell(String),
    /// Nothing.
    Wait,
    /// The turn has ended well.
    Completed,
    /// The turn has ended otherwise.
    Failed(ErrorBody),
    /// The node lost sight of the turn: send [`Turn::request`] again.
    Again,
}

impl Turn {
    /// A turn that begins by saying `say`. It needs an idempotency key, because it may be sent
    /// again.
    pub(super) fn new(say: ChatSend) -> Self {
        Self { say, accepted: None, cursor: None, error: None }
    }

    /// What to send now: the message until it is stored, from then on the wish to follow.
    pub(super) fn request(&self) -> Result<(Method, Value), serde_json::Error> {
        let Some(accepted) = &self.accepted else {
            return Ok((Method::ChatSend, serde_json::to_value(&self.say)?));
        };
        let resume = SessionsResume {
            session: accepted.session.clone(),
            turn: Some(accepted.turn.to_string()),
            cursor: Some(self.cursor.unwrap_or(accepted.cursor).to_string()),
        };
        Ok((Method::SessionsResume, serde_json::to_value(resume)?))
    }

    /// The session and turn, once stored.
    pub(super) const fn accepted(&self) -> Option<&AcceptedView> {
        self.accepted.as_ref()
    }

    /// Takes a frame in.
    pub(super) fn take(&mut self, event: Event, cursor: Option<FrameKey>) -> Step {
        if let Some(cursor) = cursor {
            self.cursor = Some(cursor);
        }
        match event {
            Event::Accepted(view) => {
                self.accepted.get_or_insert(view);
                Step::Wait
            }
            Event::Text(text) => Step::Show(text),
            Event::Reset(text) => Step::Restart(text),
            Event::Notice(message) => Step::Tell(message),
            Event::Lagged => Step::Tell("some of the reply was left out for a moment".to_owned()),
            Event::Error(error) => {
                self.error = Some(error);
                Step::Wait
            }
            Event::Done(outcome) => self.done(outcome),
            Event::Usage(_) | Event::Unknown(_) => Step::Wait,
        }
    }

    fn done(&mut self, outcome: Option<TurnOutcome>) -> Step {
        let error = self.error.take();
        match (outcome, error) {
            (Some(TurnOutcome::Completed { .. }), _) => Step::Completed,
            (Some(_), Some(error)) => Step::Failed(error),
            (Some(TurnOutcome::Failed { failure }), None) => {
                Step::Failed(ErrorBody::new(failure.code(), failure.message))
            }
            (Some(TurnOutcome::Cancelled), None) => {
                Step::Failed(ErrorBody::new(ErrorCode::Cancelled, "the turn was cancelled"))
            }
            (Some(TurnOutcome::StepLimit { limit }), None) => {
                let message = format!("the turn used all its {limit} steps");
                Step::Failed(ErrorBody::new(ErrorCode::StepLimit, message))
            }
            // A refusal, unless the node only cannot just now.
            (None, Some(error)) if error.code != ErrorCode::Unavailable => Step::Failed(error),
            (None, _) => Step::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Attempt, CallId, TurnId,
        api::SendMode,
        llm::{FailureClass, ModelFailure, StopReason},
    };

    use super::*;

    fn turn() -> Turn {
        Turn::new(ChatSend {
            channel: "cli".to_owned(),
            account: "local".to_owned(),
            peer: "ada".to_owned(),
            content: "hello".to_owned(),
            guild: None,
            team: None,
            agent: None,
            idempotency_key: Some("k".to_owned()),
            mode: SendMode::Turn,
        })
    }

    fn cursor(index: u32) -> FrameKey {
        let (turn, call) = (TurnId::from_u128(1), CallId::from_u128(2));
        FrameKey { turn, call, attempt: Attempt(1), index }
    }

    fn accepted() -> Event {
        Event::Accepted(AcceptedView {
            session: "default:cli:local:ada".to_owned(),
            turn: TurnId::from_u128(1),
            cursor: cursor(0),
        })
    }

    #[test]
    fn before_it_is_stored_the_message_is_sent_again_and_after_it_is_followed() {
        let mut turn = turn();
        let first = turn.request().unwrap();
        assert_eq!(first.0, Method::ChatSend);
        assert_eq!(turn.request().unwrap(), first, "with the same key");
        assert_eq!(turn.take(accepted(), None), Step::Wait);
        assert_eq!(turn.take(Event::Text("a".to_owned()), Some(cursor(3))), Step::Show("a".into()));
        assert_eq!(turn.take(Event::Done(None), None), Step::Again);
        let (method, params) = turn.request().unwrap();
        assert_eq!(method, Method::SessionsResume);
        assert_eq!(params["cursor"], cursor(3).to_string());
        assert_eq!(params["turn"], TurnId::from_u128(1).to_string());
    }

    #[test]
    fn each_end_has_its_name() {
        let refusal = ErrorBody::new(ErrorCode::Overloaded, "256 messages wait");
        let away = ErrorBody::new(ErrorCode::Unavailable, "no bus");
        let failure = ModelFailure {
            class: FailureClass::Timeout,
            message: "provider timeout".to_owned(),
            status: None,
        };
        let completed = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let cases = [
            (None, Some(completed), Step::Completed),
            (Some(refusal.clone()), None, Step::Failed(refusal)),
            (Some(away), None, Step::Again),
            (
                None,
                Some(TurnOutcome::Failed { failure }),
                Step::Failed(ErrorBody::new(ErrorCode::ProviderTimeout, "provider timeout")),
            ),
            (
                None,
                Some(TurnOutcome::Cancelled),
                Step::Failed(ErrorBody::new(ErrorCode::Cancelled, "the turn was cancelled")),
            ),
        ];
        for (error, outcome, step) in cases {
            let mut turn = turn();
            if let Some(error) = error {
                assert_eq!(turn.take(Event::Error(error), None), Step::Wait);
            }
            assert_eq!(turn.take(Event::Done(outcome), None), step);
        }
    }
}

//! `/good` and `/bad`: what the person thinks of the last turn of the conversation.

use clawnode_proto::{api::calls, feedback::Thumb, feedback_view::FeedbackGive};

use super::{Chat, conversation};
use crate::failure::Failure;

impl Chat<'_> {
    /// Gives the last turn that has ended this thumb.
    pub(super) async fn rate(
        &mut self,
        thumb: Thumb,
        comment: Option<String>,
    ) -> Result<(), Failure> {
        let nothing = "no turn of this conversation has ended yet";
        let Some(session) = self.conversation.key().map(ToString::to_string) else {
            return self.aside(nothing);
        };
        let client = self.gateways.current().clone();
        let history = conversation::history(&client, &session).await?;
        let Some(turn) = history.turns.iter().rev().find(|turn| turn.outcome.is_some()) else {
            return self.aside(nothing);
        };
        let turn = turn.turn.to_string();
        let given = FeedbackGive { session, turn, thumb, comment, idempotency_key: None };
        client.call(calls::FeedbackGive, &given).await?;
        self.aside(match thumb {
            Thumb::Up => "thumb up: what the last turn recalled matters more",
            Thumb::Down => "thumb down: what the last turn recalled matters less",
        })
    }
}

//! Finds the turn of a message that a client sends again without naming it.

use std::time::Duration;

use clawnode_proto::{
    SessionKey, TurnId,
    session::{SessionInput, UserMessage},
};

use super::{
    client::{SendError, Sessions},
    kind::Session,
    state::Turn,
};
use crate::durable::Entity;

/// How long ago the message may have been taken.
const TAKEN_AGO: Duration = Duration::from_mins(10);
/// How long a message that was stored is waited for to be in the journal.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How often that is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Sessions {
    /// The newest turn of a session that began with the text of this message in the last 10 minutes.
    pub async fn turn_of(
        &self,
        key: &SessionKey,
        message: &UserMessage,
    ) -> Result<Option<TurnId>, SendError> {
        let session = key.entity();
        // As it would be stored.
        let input = SessionInput::UserMessage(message.clone());
        let SessionInput::UserMessage(message) = self.fitted(session, input).await? else {
            return Ok(None);
        };
        let looks = async {
            loop {
                // Before the journal: what leaves the inbox is in the journal by then.
                let waiting = self.substrate.inbox.pending(session).await?;
                let found = match self.read(session).await {
                    Ok(entity) => self.newest(&entity, &message),
                    Err(SendError::NotFound { .. }) => None,
                    Err(failure) => return Err(failure),
                };
                if found.is_some() || waiting == 0 {
                    return Ok(found);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(TAKEN_WITHIN, looks).await.unwrap_or(Ok(None))
    }

    fn newest(&self, entity: &Entity<Session>, message: &UserMessage) -> Option<TurnId> {
        let now = self.now();
        let is_it = |turn: &&Turn| {
            let began_with = turn.said.first().map(|(_, text)| text);
            let taken = entity.core.accepted_at(turn.id);
            began_with == Some(&message.content)
                && taken.is_some_and(|taken| now.since(taken) <= TAKEN_AGO)
        };
        let turns = entity.state.open.iter().rev().chain(entity.state.closed.iter().rev());
        turns.into_iter().find(is_it).map(|turn| turn.id)
    }
}

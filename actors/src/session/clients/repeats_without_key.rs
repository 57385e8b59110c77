//! Finds the turn of a message that a client sends again without naming it.

use std::time::Duration;

use clawnode_cluster::StoreError;
use clawnode_kernel::Entity;
use clawnode_proto::{
    SessionKey, TurnId,
    session::{SessionInput, UserMessage},
};

use super::{send_error::SendError, sessions::Sessions};
use crate::session::turn::kind::Session;

/// How long after a turn's end its message may come again: clients wait for at most 8 s before they try again.
const ENDED_AGO: Duration = Duration::from_secs(10);
/// How long a message that was stored is waited for to be in the journal.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How often that is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Sessions {
    /// The newest turn of a session, if it began with the text of this message and runs, waits, or ended less
    /// than 10 s ago. Fails with `unavailable` if an input waits that the journal does not have within 1 s:
    /// it may be this message.
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
                let waiting = self.storage().inbox.pending(session).await?;
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
        let detail = "no worker has processed the earlier messages yet".to_owned();
        let unknown = |_elapsed| Err(StoreError::Unavailable { store: "inbox", detail }.into());
        tokio::time::timeout(TAKEN_WITHIN, looks).await.unwrap_or_else(unknown)
    }

    fn newest(&self, entity: &Entity<Session>, message: &UserMessage) -> Option<TurnId> {
        let is_recent = self.now().since(entity.core.tail.ts) <= ENDED_AGO;
        let closed = entity.state.closed.last().filter(|_| is_recent);
        let turn = entity.state.open.iter().next_back().or(closed)?;
        let began_with = turn.said.first().map(|(_, text)| text);
        let attached = turn.attached.first().filter(|(at, _)| *at == 0);
        let attached = attached.map_or(&[][..], |(_, media)| media);
        let is_same = began_with == Some(&message.content)
            && attached == message.attachments
            && turn.response_schema == message.response_schema;
        is_same.then_some(turn.id)
    }
}

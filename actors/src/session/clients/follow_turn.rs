//! Follows a turn from a cursor: listens to frames, and reads the journal if they stay away.

use clawnode_proto::{EntityId, FrameKey, TurnId};

use super::{
    follow::{FollowRequest, follow},
    send_error::SendError,
    sessions::{SentMessage, Sessions, start_of},
};

// === impl Sessions ===

impl Sessions {
    /// Follows a turn (the running or last one if none is named) from after a cursor.
    pub async fn follow(
        &self,
        session: EntityId,
        turn: Option<TurnId>,
        after: Option<FrameKey>,
    ) -> Result<SentMessage, SendError> {
        let frames = self.shared.ears.listen_together(self.storage(), session).await?;
        let turn = match turn.or(after.map(|key| key.turn)) {
            Some(turn) => turn,
            None => self.last(session).await?,
        };
        let sessions = self.clone();
        let from = None;
        let request = FollowRequest { sessions, session, turn, after, from, frames, fresh: false };
        let events = follow(request);
        Ok(SentMessage { session, turn, cursor: after.unwrap_or_else(|| start_of(turn)), events })
    }

    async fn last(&self, session: EntityId) -> Result<TurnId, SendError> {
        let state = self.read(session).await?.state;
        state
            .running()
            .or(state.closed.last())
            .map(|turn| turn.id)
            .ok_or_else(|| SendError::NotFound { session: session.to_string() })
    }
}

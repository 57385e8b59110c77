//! What is recorded of one turn, for a client that knows its id alone.

use std::collections::BTreeMap;

use clawnode_proto::{CallId, EntityId, Seq, SessionKey, Timestamp, TurnId};

use super::{
    archived_turns::is_remembered,
    client_tool_results::unknown,
    follow::{FollowRequest, follow},
    follow_from::FollowFrom,
    send_error::SendError,
    sessions::{SentMessage, Sessions},
};
use crate::session::turn::state::{SessionState, Step, Turn};

/// What is recorded of a turn, or of the part of it between two answers to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTurn {
    /// Its session; absent while its first message is only stored.
    pub session: Option<SessionKey>,
    /// When its first model call was begun.
    pub begun: Option<Timestamp>,
    /// Whether the journal has it.
    pub is_accepted: bool,
    /// Whether it has ended, or its client was asked to run tools.
    pub is_over: bool,
    /// The turn of the same session after it.
    pub next: Option<TurnId>,
    /// Whether its session has nothing else.
    pub is_only: bool,
    /// Pairs that its client gave it.
    pub metadata: BTreeMap<String, String>,
}

// === impl Sessions ===

impl Sessions {
    /// What is recorded of a turn; with `after`, of the part of it that follows this call of its client.
    pub async fn recorded(
        &self,
        session: EntityId,
        turn: TurnId,
        after: Option<CallId>,
    ) -> Result<RecordedTurn, SendError> {
        let entity = self.read_with_turn(session, turn).await?;
        if let Some(recorded) = recorded(&entity.state, turn, after) {
            return Ok(recorded);
        }
        drop(entity);
        // Before the journal is read again: what leaves the inbox is in the journal by then.
        let waiting = self.storage().inbox.pending(session).await?;
        let mut entity = self.read(session).await?;
        // What the journal has had does not wait: its session was deleted, or has other inputs that wait.
        let waits = waiting > 0 && !is_remembered(&entity, turn);
        if !waits && entity.state.turn(turn).is_none() && !entity.state.has_all_turns() {
            // It may be so old that its input is forgotten.
            entity = self.past_turn(session, turn).await?;
        }
        if let Some(recorded) = recorded(&entity.state, turn, after) {
            return Ok(recorded);
        }
        if !waits {
            return Err(SendError::NotFound { session: session.to_string() });
        }
        let is_born = entity.core.tail.n > Seq(0);
        Ok(RecordedTurn {
            session: entity.state.key.clone().filter(|_| is_born),
            begun: None,
            is_accepted: false,
            is_over: false,
            next: None,
            is_only: false,
            metadata: BTreeMap::new(),
        })
    }

    /// Follows a turn from after this call, which its client has brought the result of.
    pub async fn follow_results(
        &self,
        session: EntityId,
        call: CallId,
    ) -> Result<SentMessage, SendError> {
        // Before the journal is read, so that nothing that follows is missed.
        let frames = self.shared.ears.listen_together(self.storage(), session).await?;
        let entity = self.read_with_call(session, call).await?;
        let place = entity.state.place_of_call(call);
        let from = place.and_then(|(turn, at)| FollowFrom::of(turn, at));
        let from = from.ok_or_else(|| unknown(call))?;
        drop(entity);
        let (turn, cursor) = (from.cursor.turn, from.cursor);
        let (sessions, after, from) = (self.clone(), Some(cursor), Some(from));
        let request = FollowRequest { sessions, session, turn, after, from, frames, fresh: false };
        Ok(SentMessage { session, turn, cursor, events: follow(request) })
    }
}

fn recorded(state: &SessionState, turn: TurnId, after: Option<CallId>) -> Option<RecordedTurn> {
    let turn = state.turn(turn)?;
    let before = match after {
        None => 0,
        Some(call) => {
            let has = |step: &Step| step.tools.iter().any(|tool| tool.call == call);
            turn.steps.iter().position(has)? + 1
        }
    };
    let mut steps = turn.steps.iter().skip(before);
    let asks_client = steps.any(|step| step.client_calls().is_some());
    let mut all = state.turns();
    let next = all.by_ref().find(|other| other.id == turn.id).and_then(|_| all.next());
    Some(RecordedTurn {
        session: state.key.clone(),
        begun: turn.clock.begun(),
        is_accepted: true,
        is_over: turn.outcome.is_some() || asks_client,
        next: next.map(|next| next.id),
        is_only: state.turn_count() == 1 && is_whole(turn, after),
        metadata: turn.metadata_after(after),
    })
}

/// Whether what follows this call, or the beginning, is all of the turn: its client was asked to run tools at
/// its end only, if at all.
fn is_whole(turn: &Turn, after: Option<CallId>) -> bool {
    let mut earlier = turn.steps.iter().rev().skip(1);
    after.is_none() && earlier.all(|step| step.client_calls().is_none())
}

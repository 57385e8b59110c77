//! What people think of turns: given as inputs of a session, and read from its journal.

use std::ops::ControlFlow;

use clawnode_kernel::Service;
use clawnode_proto::{
    Cursor, EntityId, IdempotencyKey, Sealed, Seq, Traceparent, TurnId,
    api::Method,
    feedback::{FeedbackGiven, FeedbackInput},
    feedback_view::{FeedbackRow, FeedbackView},
    kernel::DELETED,
    session::{SessionEvent, SessionInput},
};

use super::{send_error::SendError, sessions::Sessions};

/// The list that cursors are of.
const LIST: Method = Method::FeedbackList;

impl Sessions {
    /// Says what a person thinks of a turn that has ended; answers once that is stored. The last feedback of a turn
    /// counts.
    pub async fn give_feedback(
        &self,
        session: EntityId,
        given: FeedbackInput,
        idempotency_key: IdempotencyKey,
        trace: Option<Traceparent>,
    ) -> Result<(), SendError> {
        let turn = self.rated_turn(session, given.turn).await?;
        let given = FeedbackInput { turn, ..given };
        self.tell(session, &SessionInput::Feedback(given), idempotency_key, trace).await
    }

    /// The turn with this id, or that the message with this turn id joined, if it takes feedback.
    async fn rated_turn(&self, session: EntityId, id: TurnId) -> Result<TurnId, SendError> {
        let entity = self.known(session).await?;
        if matches!(entity.core.service, Service::Deleted) {
            return Err(SendError::NotFound { session: session.to_string() });
        }
        let refused = |what: &str| {
            let what = what.to_owned();
            Err(SendError::NoFeedback { turn: id.to_string(), what })
        };
        let Some(turn) = entity.state.turn(id) else {
            return match self.earlier_turn(&entity, id, true).await {
                Some(_) => refused("later turns have taken its place in the state of its session"),
                None => Err(SendError::NoTurn { turn: id.to_string() }),
            };
        };
        if turn.outcome.is_none() {
            return refused("it has not ended");
        }
        if turn.feedback.is_full() {
            return refused("its feedback was changed as often as it may be");
        }
        Ok(turn.id)
    }

    /// What people said of the turns of a session, oldest first: one page.
    pub async fn feedback(
        &self,
        id: EntityId,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<FeedbackView, SendError> {
        let after = after.map(|cursor| cursor.read::<u64>(LIST)).transpose()?.unwrap_or_default();
        let known = self.known(id).await?;
        let session = known.core.key.clone().unwrap_or_else(|| id.to_string());
        if matches!(known.core.service, Service::Deleted) {
            return Err(SendError::NotFound { session });
        }
        let (mut rows, mut is_more) = (Vec::new(), false);
        let visit = |sealed: Sealed| {
            if sealed.head.kind == DELETED {
                // What is before is of a session that was deleted.
                rows.clear();
            }
            let Ok(Some(SessionEvent::FeedbackGiven(given))) = sealed.event() else {
                return ControlFlow::Continue(());
            };
            is_more = rows.len() >= limit;
            if is_more {
                return ControlFlow::Break(());
            }
            rows.push(row(&sealed, given));
            ControlFlow::Continue(())
        };
        self.entities().each_event(id, Seq(after), visit).await?;
        let next = rows.last().filter(|_| is_more).map(|row| Cursor::new(LIST, row.event));
        Ok(FeedbackView { session, feedback: rows, next })
    }
}

fn row(sealed: &Sealed, given: FeedbackGiven) -> FeedbackRow {
    let FeedbackGiven { turn, feedback: _, thumb, comment, step, moves } = given;
    let (at, event) = (sealed.head.ts, sealed.head.n.0);
    FeedbackRow { turn, thumb, comment, at, event, step, moves }
}

//! What people think of turns: given as inputs of a session, and read from its journal, with what models think of them.

use std::ops::ControlFlow;

use clawnode_kernel::Service;
use clawnode_proto::{
    CallId, Cursor, EntityId, IdempotencyKey, Sealed, Seq, Traceparent, TurnId,
    api::Method,
    context_view::TurnPlace,
    feedback::{FeedbackGiven, FeedbackInput},
    feedback_view::{FeedbackRow, FeedbackView, ReflectionRow},
    kernel::DELETED,
    reflection::ReflectInput,
    session::{Reflected, ReflectionFailed, SessionEvent, SessionInput},
};

use super::{send_error::SendError, sessions::Sessions};
use crate::session::turn::state_parts::reflection_state::ReflectionAim;

/// The list that cursors are of.
const LIST: Method = Method::FeedbackList;

/// An event that is listed.
enum FeedbackEntry {
    OfPerson(FeedbackRow),
    OfModel(ReflectionRow),
}

impl Sessions {
    /// The id of the turn at this place. A number is that of a turn in the state of its session: no other turn takes feedback,
    /// or is looked back at.
    pub async fn turn_at(&self, session: EntityId, place: TurnPlace) -> Result<TurnId, SendError> {
        let number = match place {
            TurnPlace::Id(id) => return Ok(id),
            TurnPlace::Number(number) => number,
        };
        let entity = self.known(session).await?;
        if matches!(entity.core.service, Service::Deleted) {
            return Err(SendError::NotFound { session: session.to_string() });
        }
        let state = &entity.state;
        match state.turn_at(number) {
            Some(turn) => Ok(turn.id),
            None if number <= state.turn_count() => Err(SendError::NoFeedback {
                turn: number.to_string(),
                what: "later turns have taken its place in the state of its session".to_owned(),
            }),
            None => Err(SendError::NoTurn { turn: number.to_string() }),
        }
    }

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

    /// Has a model look back at a turn that has ended, or at the last one; answers once the request is stored.
    pub async fn reflect(
        &self,
        session: EntityId,
        turn: Option<TurnId>,
        idempotency_key: IdempotencyKey,
        trace: Option<Traceparent>,
    ) -> Result<(), SendError> {
        let turn = self.reflected_turn(session, turn).await?;
        let input = SessionInput::Reflect(ReflectInput { turn });
        self.tell(session, &input, idempotency_key, trace).await
    }

    /// The turn that a model is to look back at, if it can.
    async fn reflected_turn(
        &self,
        session: EntityId,
        wanted: Option<TurnId>,
    ) -> Result<TurnId, SendError> {
        let entity = self.known(session).await?;
        if matches!(entity.core.service, Service::Deleted) {
            return Err(SendError::NotFound { session: session.to_string() });
        }
        let state = &entity.state;
        let Some(id) = wanted.or_else(|| Some(state.closed.last()?.id)) else {
            return Err(SendError::NoTurnEnded { session: session.to_string() });
        };
        let refused = |what: &str| {
            let what = what.to_owned();
            Err(SendError::NoReflection { turn: id.to_string(), what })
        };
        let Some(turn) = state.turn(id) else {
            return match self.earlier_turn(&entity, id, true).await {
                Some(_) => refused("later turns have taken its place in the state of its session"),
                None => Err(SendError::NoTurn { turn: id.to_string() }),
            };
        };
        if turn.outcome.is_none() {
            return refused("it has not ended");
        }
        if !turn.may_be_reflected_on() {
            return refused("it was cancelled or blocked, or no model was asked in it");
        }
        if !state.has_person() {
            return refused(
                "its session is deleted, or is of one request, so no memory takes lessons",
            );
        }
        let (reflections, aim) = (&state.reflections, ReflectionAim::Rating);
        if reflections.is_full(aim) && !reflections.waits_for(turn.id, aim) {
            return refused("as many turns of its session wait for that as may; ask again later");
        }
        Ok(turn.id)
    }

    /// What people said of the turns of a session, and models, oldest first: one page.
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
        let (mut rows, mut reflections, mut is_more) = (Vec::new(), Vec::new(), false);
        let mut last = None;
        let visit = |sealed: Sealed| {
            if sealed.head.kind == DELETED {
                // What is before is of a session that was deleted.
                rows.clear();
                reflections.clear();
            }
            let Some(entry) = entry(&sealed) else { return ControlFlow::Continue(()) };
            is_more = rows.len().saturating_add(reflections.len()) >= limit;
            if is_more {
                return ControlFlow::Break(());
            }
            last = Some(sealed.head.n.0);
            match entry {
                FeedbackEntry::OfPerson(row) => rows.push(row),
                FeedbackEntry::OfModel(row) => reflections.push(row),
            }
            ControlFlow::Continue(())
        };
        self.entities().each_event(id, Seq(after), visit).await?;
        let next = last.filter(|_| is_more).map(|event| Cursor::new(LIST, event));
        Ok(FeedbackView { session, feedback: rows, reflections, next })
    }
}

fn entry(sealed: &Sealed) -> Option<FeedbackEntry> {
    match sealed.event::<SessionEvent>().ok()?? {
        SessionEvent::FeedbackGiven(given) => Some(FeedbackEntry::OfPerson(row(sealed, given))),
        SessionEvent::Reflected(done) if is_rating(done.turn, done.call) => {
            Some(FeedbackEntry::OfModel(reflection(sealed, done)))
        }
        SessionEvent::ReflectionFailed(failed) if is_rating(failed.turn, failed.call) => {
            Some(FeedbackEntry::OfModel(no_reflection(sealed, failed)))
        }
        _ => None,
    }
}

/// Facts that a model looked for say nothing of how good a turn was.
fn is_rating(turn: TurnId, call: CallId) -> bool {
    ReflectionAim::of(turn, call) == ReflectionAim::Rating
}

fn reflection(sealed: &Sealed, done: Reflected) -> ReflectionRow {
    let Reflected { turn, call: _, attempt: _, rating, lessons, facts: _, by, usage } = done;
    let (by, failure) = (Some(by), None);
    let (at, event) = (sealed.head.ts, sealed.head.n.0);
    ReflectionRow { turn, rating, lessons, by, failure, usage, at, event }
}

fn no_reflection(sealed: &Sealed, failed: ReflectionFailed) -> ReflectionRow {
    let ReflectionFailed { turn, call: _, attempt: _, failure, usage } = failed;
    let (rating, lessons, by, failure) = (None, Vec::new(), None, Some(failure.message));
    let (at, event) = (sealed.head.ts, sealed.head.n.0);
    ReflectionRow { turn, rating, lessons, by, failure, usage, at, event }
}

fn row(sealed: &Sealed, given: FeedbackGiven) -> FeedbackRow {
    let FeedbackGiven { turn, feedback: _, thumb, comment, step, moves } = given;
    let (at, event) = (sealed.head.ts, sealed.head.n.0);
    FeedbackRow { turn, thumb, comment, at, event, step, moves }
}

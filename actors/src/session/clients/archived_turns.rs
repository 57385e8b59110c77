//! Turns that left the state of their session: read from the journal's archives.
//!
//! A session of many turns keeps its last ones in its state (`turn/kept_turns`), and most readers want one of those. Who
//! wants an older one folds the past from its beginning, one archive at a time, and keeps only what it looks for.

use std::ops::ControlFlow;

use clawnode_kernel::Entity;
use clawnode_proto::{CallId, EntityId, InputId, TurnId};
use futures_util::future::BoxFuture;
use tracing::debug;

use super::{send_error::SendError, sessions::Sessions};
use crate::session::turn::{
    kind::Session,
    state::{SessionState, Step, Turn},
};

/// What a reader of the past does with a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Sifted {
    /// It is not looked for.
    Skipped,
    /// It is kept.
    Kept,
    /// It is not looked for, and neither is any turn after it.
    Over,
}

impl Sessions {
    /// A session with this turn, or with the turn that the input with this turn id joined, if it has it: also if
    /// that turn left the session's state.
    pub(in crate::session) async fn read_with_turn(
        &self,
        session: EntityId,
        turn: TurnId,
    ) -> Result<Entity<Session>, SendError> {
        let entity = self.read(session).await?;
        let is_missing = !entity.state.has_all_turns() && entity.state.turn(turn).is_none();
        if is_missing && is_remembered(&entity, turn) {
            return self.past_turn(session, turn).await;
        }
        Ok(entity)
    }

    /// A turn that left the session's state, if its input is still remembered, or if none waits that would begin it.
    pub(in crate::session) async fn earlier_turn(
        &self,
        entity: &Entity<Session>,
        turn: TurnId,
        nothing_waits: bool,
    ) -> Option<Turn> {
        let is_missing = !entity.state.has_all_turns() && entity.state.turn(turn).is_none();
        if !is_missing || !(nothing_waits || is_remembered(entity, turn)) {
            return None;
        }
        match self.past_turn(entity.id, turn).await {
            Ok(past) => past.state.turn(turn).cloned(),
            Err(failure) => {
                debug!(entity = %entity.id, %failure, "the past of a session cannot be read now");
                None
            }
        }
    }

    /// A session as its archives show it, with this turn and the one after it among its turns.
    pub(in crate::session) async fn past_turn(
        &self,
        session: EntityId,
        turn: TurnId,
    ) -> Result<Entity<Session>, SendError> {
        self.past(session, with_next(|past| past.id == turn || past.joined.contains(&turn))).await
    }

    /// A session with the turn of this tool call, if it has it: also if that turn left the session's state.
    pub fn read_with_call(
        &self,
        session: EntityId,
        call: CallId,
    ) -> BoxFuture<'_, Result<Entity<Session>, SendError>> {
        Box::pin(async move {
            let entity = self.read(session).await?;
            if entity.state.has_all_turns() || entity.state.place_of_call(call).is_some() {
                return Ok(entity);
            }
            let has = |step: &Step| step.tools.iter().any(|tool| tool.call == call);
            self.past(session, with_next(move |turn| turn.steps.iter().any(has))).await
        })
    }

    /// A session folded from its beginning. Of the turns that left its state it has those that are to be kept. If
    /// no more are looked for, it is as it was then.
    pub(in crate::session) async fn past(
        &self,
        session: EntityId,
        mut sift: impl FnMut(&Turn) -> Sifted + Send,
    ) -> Result<Entity<Session>, SendError> {
        let mut kept = 0;
        let visit = |entity: &mut Entity<Session>| {
            let Some(turns) = entity.state.collected() else { return ControlFlow::Continue(()) };
            // A deletion, or a new beginning, has taken those that were kept.
            kept = kept.min(turns.len());
            let mut is_over = false;
            for turn in turns.split_off(kept) {
                match sift(&turn) {
                    Sifted::Kept => turns.push(turn),
                    Sifted::Skipped => {}
                    Sifted::Over => {
                        is_over = true;
                        break;
                    }
                }
            }
            kept = turns.len();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let begin = SessionState::collect_turns;
        Ok(self.entities().fold_past::<Session>(session, begin, visit).await?)
    }
}

/// Whether the session remembers the input that began this turn, or joined one.
pub(super) fn is_remembered(entity: &Entity<Session>, turn: TurnId) -> bool {
    entity.core.has(InputId::from_u128(turn.as_u128()))
}

/// Keeps a turn and the one after it.
fn with_next(is_it: impl Fn(&Turn) -> bool + Send) -> impl FnMut(&Turn) -> Sifted + Send {
    let mut found = 0;
    move |turn| {
        if found == 0 && !is_it(turn) {
            return Sifted::Skipped;
        }
        found += 1;
        if found > 2 { Sifted::Over } else { Sifted::Kept }
    }
}

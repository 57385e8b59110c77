//! A session takes feedback on its turns, and says what memories are sent. Pure.

use clawnode_kernel::Violation;
use clawnode_proto::{
    InputId,
    feedback::{FeedbackGiven, FeedbackInput, RatedPoints},
    limits::FEEDBACK_OF_TURN,
    memory_point::PointsRating,
};

use super::super::state::{SessionState, Turn};
use super::turn_feedback::{CountedFeedback, MemoryRating, UnsentFeedback, WantedFeedback};

// === impl SessionState ===

impl SessionState {
    /// Takes feedback, if it changes something.
    pub(in crate::session::turn) fn is_rated(&mut self, id: InputId, given: FeedbackInput) {
        let is_it = |turn: &&Turn| turn.id == given.turn || turn.joined.contains(&given.turn);
        let Some(turn) = self.closed.iter().rev().find(is_it) else { return };
        let given = FeedbackInput { turn: turn.id, ..given };
        let waits = self.feedback.wanted.iter().filter(|wanted| wanted.given.turn == turn.id);
        let counted =
            |given: &FeedbackInput| CountedFeedback::of(given.thumb, given.comment.as_ref());
        let last = waits.clone().next_back().map(|wanted| counted(&wanted.given));
        let is_same = last.or(turn.feedback.last) == Some(counted(&given));
        let changes = u32::try_from(waits.count()).unwrap_or(u32::MAX);
        if !is_same && turn.feedback.changes.saturating_add(changes) < FEEDBACK_OF_TURN {
            self.feedback.wanted.push_back(WantedFeedback { id, given });
        }
    }

    /// The feedback that is recorded next.
    pub(in crate::session::turn) fn next_feedback(&self) -> Option<FeedbackGiven> {
        let WantedFeedback { id, given } = self.feedback.wanted.front()?;
        let turn = self.closed.iter().rev().find(|turn| turn.id == given.turn)?;
        let step = given.thumb.after(turn.feedback.last.map(|last| last.thumb));
        let moves = if step == 0 { Vec::new() } else { turn.feedback.shown.clone() };
        let FeedbackInput { turn, thumb, comment } = given.clone();
        Some(FeedbackGiven { turn, feedback: *id, thumb, comment, step, moves })
    }

    /// Feedback is recorded.
    pub(in crate::session::turn) fn feedback_given(
        &mut self,
        given: &FeedbackGiven,
    ) -> Result<(), Violation> {
        let FeedbackGiven { turn: id, feedback, thumb, comment, step, moves } = given;
        let next = self.feedback.wanted.front();
        if next.is_none_or(|next| next.id != *feedback || next.given.turn != *id) {
            return Err(Violation(format!("the feedback `{feedback}` was not given")));
        }
        let turn = self.closed.iter_mut().rev().find(|turn| turn.id == *id);
        let turn = turn.ok_or_else(|| Violation(format!("`{id}` has not ended")))?;
        let rated = &mut turn.feedback;
        if *step != thumb.after(rated.last.map(|last| last.thumb)) {
            return Err(Violation(format!("the feedback `{feedback}` is not {step}")));
        }
        if rated.is_full() || !rated.has(moves) {
            return Err(Violation(format!(
                "the feedback `{feedback}` moves what `{id}` was not shown, or is one too many (MEM-1)"
            )));
        }
        rated.last = Some(CountedFeedback::of(*thumb, comment.as_ref()));
        rated.changes = rated.changes.saturating_add(1);
        self.feedback.wanted.pop_front();
        if !moves.is_empty() {
            let (id, turn, step, moves) = (*feedback, *id, *step, moves.clone());
            self.feedback.unsent.push(UnsentFeedback { id, turn, step, moves });
        }
        Ok(())
    }

    /// What memories are sent of this feedback.
    pub(in crate::session::turn) fn ratings(&self, feedback: InputId) -> Option<Vec<MemoryRating>> {
        let session = self.key.as_ref()?.entity();
        let unsent = self.feedback.unsent.iter().find(|unsent| unsent.id == feedback)?;
        let UnsentFeedback { turn, step, moves, .. } = unsent;
        #[cfg(feature = "test-util")]
        let shown: Vec<RatedPoints> =
            self.closed.iter().flat_map(|turn| turn.feedback.shown.clone()).collect();
        #[cfg(feature = "test-util")]
        let moves =
            if clawnode_kernel::KernelBug::RatesUnrecalled.is_in_folds() { &shown } else { moves };
        let rating = |moved: &RatedPoints| MemoryRating {
            memory: moved.memory.clone(),
            rating: PointsRating {
                feedback,
                session,
                turn: *turn,
                step: *step,
                points: moved.points.clone(),
            },
        };
        Some(moves.iter().map(rating).collect())
    }
}

//! What feedback changes in a memory: how much the points matter that a turn was shown.
//!
//! Each feedback counts once, by its id, also if its session sends it again. A point has the sum of all feedback beside
//! the importance that it came with, so the order in which sessions send it makes no difference.

use clawnode_kernel::Violation;
use clawnode_proto::{
    feedback::PointFeedback,
    memory::MemoryTrust,
    memory_point::{IMPORTANCE, PointsRated, PointsRating, RatedPoint},
};

use super::{
    kept_points::KeptPoint,
    state::{MemoryState, WantedChange},
};

// === impl KeptPoint ===

impl KeptPoint {
    /// How much it matters after a step of feedback, and what is kept of that.
    fn rated(&self, step: i8) -> (u8, PointFeedback) {
        let content = &self.point.content;
        let before = self.feedback.unwrap_or(PointFeedback::none(content.importance));
        let after = before.and(step);
        (after.importance(content.trust == MemoryTrust::Operator), after)
    }
}

// === impl MemoryState ===

impl MemoryState {
    /// Takes feedback, unless it is known.
    pub(super) fn rate(&mut self, rating: PointsRating) {
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::RatingsDoubled.is_in_folds() {
            self.wanted.push_back(WantedChange::Rate(rating));
            return;
        }
        let is_live = |kept: &KeptPoint| rating.points.contains(&kept.id);
        // What left the live points never comes back, so it need not be remembered for that.
        if self.live.iter().any(is_live) && self.ratings.adds(rating.feedback) {
            self.wanted.push_back(WantedChange::Rate(rating));
        }
    }

    /// What feedback makes of the points that are live now.
    pub(super) fn rates(&self, rating: &PointsRating) -> PointsRated {
        let PointsRating { feedback, session, turn, step, points } = rating;
        let live = self.live.iter().filter(|kept| points.contains(&kept.id));
        let points =
            live.map(|kept| RatedPoint { point: kept.id, importance: kept.rated(*step).0 });
        let (points, session, turn) = (points.collect(), *session, *turn);
        PointsRated { feedback: *feedback, session, turn, step: *step, points }
    }

    /// The importance of points has moved.
    pub(super) fn are_rated(&mut self, rated: &PointsRated) -> Result<(), Violation> {
        let is_it = |change: &WantedChange| matches!(change, WantedChange::Rate(rating) if rating.feedback == rated.feedback);
        let at = self.wanted.iter().position(is_it);
        let asked = match at.and_then(|at| self.wanted.remove(at)) {
            Some(WantedChange::Rate(asked)) if asked.step == rated.step => asked,
            _ => return Err(Violation(format!("the feedback `{}` was not sent", rated.feedback))),
        };
        for RatedPoint { point, importance } in &rated.points {
            let live = self.live.iter_mut().find(|kept| kept.id == *point);
            let Some(kept) = live.filter(|_| asked.points.contains(point)) else {
                return Err(Violation(format!("`{point}` cannot be rated")));
            };
            let (_, after) = kept.rated(rated.step);
            let is_of_operator = kept.point.content.trust == MemoryTrust::Operator;
            let (least, most) = IMPORTANCE;
            let least = if is_of_operator { after.given } else { least };
            if !(least..=most).contains(importance) {
                return Err(Violation(format!(
                    "`{point}` cannot have the importance {importance}"
                )));
            }
            kept.point.content.importance = *importance;
            kept.feedback = Some(after);
        }
        Ok(())
    }
}

//! Points as a memory keeps them, and what became of those that it was sent.

use std::collections::VecDeque;

use clawnode_proto::{
    InputId, MemoryPointId,
    feedback::PointFeedback,
    limits::MEMORY_RATINGS,
    memory_point::{MemoryPoint, PointRefused},
    memory_view::PointState,
};
use serde::{Deserialize, Serialize};

/// A live point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPoint {
    /// Its id.
    pub id: MemoryPointId,
    pub point: MemoryPoint,
    /// How feedback has moved its importance. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<PointFeedback>,
}

/// A point that is not live any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastPoint {
    /// Its id.
    pub id: MemoryPointId,
    pub point: MemoryPoint,
    /// Why it is not live.
    pub state: PointState,
    /// The point that took its place.
    pub superseded_by: Option<MemoryPointId>,
    /// How feedback had moved its importance. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<PointFeedback>,
}

/// A live point that becomes one that is only shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeavingPoint {
    pub(super) id: MemoryPointId,
    /// Why it leaves.
    pub(super) state: PointState,
    /// The point that takes its place.
    pub(super) by: Option<MemoryPointId>,
}

/// What became of the points of one input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutAnswer {
    pub input: InputId,
    /// Those that were added.
    pub added: Vec<MemoryPointId>,
    /// Those whose sources were known.
    pub known: Vec<MemoryPointId>,
    /// Those that were not added.
    pub refused: Vec<PointRefused>,
}

/// The feedback that a memory has had lately, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct KnownRatings(VecDeque<InputId>);

// === impl KnownRatings ===

impl KnownRatings {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers it; whether it was new.
    pub(super) fn adds(&mut self, feedback: InputId) -> bool {
        if self.0.contains(&feedback) {
            return false;
        }
        self.0.push_back(feedback);
        if self.0.len() > MEMORY_RATINGS {
            self.0.pop_front();
        }
        true
    }
}

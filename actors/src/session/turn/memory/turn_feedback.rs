//! What people think of turns that have ended, and which points move by that. Pure.
//!
//! The last feedback of a turn counts. A changed thumb moves points by the difference to the one before, and the same one
//! changes nothing. Memories are sent what moves as a post-turn effect (C23): again under the same key until `Emitted` is
//! folded, and the feedback is not acknowledged before.
//!
//! - MEM-1 Only points move that the turn was shown, as its event `recalled` has them. The fold refuses others.
//! - A turn takes at most 16 changes, and none once it has left the state.

use std::collections::VecDeque;

use clawnode_memory::Memory;
use clawnode_proto::{
    CodecError, Digest, IdempotencyKey, Input, InputId, Timestamp, TurnId,
    feedback::{FeedbackInput, RatedPoints, Thumb},
    limits::FEEDBACK_OF_TURN,
    memory::MemoryKey,
    memory_point::{MemoryInput, PointsRating},
    recall::Recalled,
};
use serde::{Deserialize, Serialize};

/// What people think of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFeedback {
    /// The points that it was shown, once it is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::session::turn) shown: Vec<RatedPoints>,
    /// The last one, which counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<CountedFeedback>,
    /// How many there were.
    #[serde(default)]
    pub(in crate::session::turn) changes: u32,
}

/// The feedback of a turn that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CountedFeedback {
    pub(super) thumb: Thumb,
    /// Of the text, which the journal has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<Digest>,
}

/// Feedback that is not recorded, or that memories do not have yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFeedback {
    /// In the order of inputs.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) wanted: VecDeque<WantedFeedback>,
    /// What memories may not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unsent: Vec<UnsentFeedback>,
}

/// Feedback that is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WantedFeedback {
    pub(in crate::session::turn) id: InputId,
    pub(in crate::session::turn) given: FeedbackInput,
}

/// Feedback that memories are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnsentFeedback {
    pub(in crate::session::turn) id: InputId,
    pub(in crate::session::turn) turn: TurnId,
    pub(in crate::session::turn) step: i8,
    pub(super) moves: Vec<RatedPoints>,
}

/// What a memory is sent of one feedback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRating {
    /// The memory that was recalled.
    pub memory: MemoryKey,
    /// Which points move, and by how much.
    pub rating: PointsRating,
}

// === impl TurnFeedback ===

impl TurnFeedback {
    pub(in crate::session::turn) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Keeps which points a turn was shown, in the order of their memories.
    pub(in crate::session::turn) fn shows(&mut self, recalled: &Recalled) {
        for shown in recalled.standing.iter().chain(&recalled.points) {
            match self.shown.iter_mut().find(|group| group.memory == shown.memory) {
                Some(group) if group.points.contains(&shown.point) => {}
                Some(group) => group.points.push(shown.point),
                None => self
                    .shown
                    .push(RatedPoints { memory: shown.memory.clone(), points: vec![shown.point] }),
            }
        }
    }

    /// Whether the turn takes no further change.
    pub(in crate::session) const fn is_full(&self) -> bool {
        self.changes >= FEEDBACK_OF_TURN
    }

    /// Whether these points were shown in the turn.
    pub(in crate::session::turn) fn has(&self, moves: &[RatedPoints]) -> bool {
        moves.iter().all(|moved| {
            let shown = self.shown.iter().find(|shown| shown.memory == moved.memory);
            shown.is_some_and(|shown| moved.points.iter().all(|id| shown.points.contains(id)))
        })
    }
}

// === impl CountedFeedback ===

impl CountedFeedback {
    pub(in crate::session::turn) fn of(thumb: Thumb, comment: Option<&String>) -> Self {
        Self { thumb, comment: comment.map(|text| Digest::of(text.as_bytes())) }
    }
}

// === impl OpenFeedback ===

impl OpenFeedback {
    pub(in crate::session::turn) fn is_none(&self) -> bool {
        self.wanted.is_empty() && self.unsent.is_empty()
    }

    /// Whether feedback of this turn is to be recorded.
    pub(in crate::session::turn) fn waits_for(&self, turn: TurnId) -> bool {
        self.wanted.iter().any(|wanted| wanted.given.turn == turn)
    }

    /// The feedback that memories are sent.
    pub(in crate::session::turn) fn unsent(&self) -> impl Iterator<Item = InputId> {
        self.unsent.iter().map(|unsent| unsent.id)
    }

    /// Memories have it, if this is the id of feedback as that of a turn.
    pub(in crate::session::turn) fn is_sent(&mut self, id: TurnId) {
        self.unsent.retain(|unsent| TurnId::from(unsent.id) != id);
    }
}

// === impl MemoryRating ===

impl MemoryRating {
    /// What the memory is sent. Sent again, it is the same input.
    pub fn input(&self, now: Timestamp) -> Result<Option<Input>, CodecError> {
        let name = format!("rated:{}", self.rating.feedback).parse::<IdempotencyKey>();
        let Ok(name) = name else { return Ok(None) };
        Memory::input(&self.memory, name, now, &MemoryInput::Rate(self.rating.clone())).map(Some)
    }
}

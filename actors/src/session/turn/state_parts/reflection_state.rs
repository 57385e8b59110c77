//! What a state keeps of reflections: the turns that a model is to look back at and why, the call that is under way, and what
//! memories do not have yet.

use std::collections::VecDeque;

use clawnode_kernel::Violation;
use clawnode_proto::{
    Attempt, CallId, Timestamp, TurnId,
    after_deletion::AfterDeletion,
    budget::BudgetHeld,
    limits::REFLECTIONS_WAITING,
    llm::{ModelRef, Usage},
    memory_point::PointContent,
};
use serde::{Deserialize, Serialize};

use super::compaction_state::Compaction;

/// What a model is asked for that looks back at a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::session) enum ReflectionAim {
    /// How good the turn was, and lessons.
    #[default]
    Rating,
    /// What the person said of themselves.
    Facts,
}

/// The reflections of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reflections {
    /// In the order in which they were asked for. The first one is under way, or next.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(in crate::session::turn) wanted: VecDeque<WantedReflection>,
    /// The call of the first one, once an attempt has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session::turn) open: Option<Box<Compaction>>,
    /// What its next attempt has reserved: it begins with the next event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session::turn) held: Option<Box<BudgetHeld>>,
    /// Those that have ended, until memories have the lessons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::session::turn) unsent: Vec<EndedReflection>,
}

/// A reflection that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::session::turn) struct WantedReflection {
    /// The turn itself, or the input that asked for it, as that of a turn.
    pub(in crate::session::turn) id: TurnId,
    /// The turn that the model looks back at.
    pub(in crate::session::turn) turn: TurnId,
    /// What it is asked for.
    #[serde(default, skip_serializing_if = "is_rating")]
    pub(in crate::session::turn) aim: ReflectionAim,
    /// The deletion that its session began after.
    #[serde(default, skip_serializing_if = "AfterDeletion::is_none")]
    pub(in crate::session::turn) after: AfterDeletion,
}

/// A reflection that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedReflection {
    pub turn: TurnId,
    pub call: CallId,
    /// The attempt that ended; 0 if none was made, or if its end is not known.
    pub attempt: Attempt,
    /// The model that was asked, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// What the attempt used.
    pub usage: Usage,
    /// The number of its event: the source of the lessons or facts.
    pub event: u64,
    /// When it was journaled.
    pub at: Timestamp,
    /// What the model wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<String>,
    /// What it found in the words of the person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<PointContent>,
    /// Why there is neither a rating nor facts, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

// === impl ReflectionAim ===

impl ReflectionAim {
    /// What the call is for that looks back at this turn. Facts are looked for once a turn, so their call follows from the turn.
    pub(in crate::session) fn of(turn: TurnId, call: CallId) -> Self {
        if call.is_at(turn, Self::Facts.place()) { Self::Facts } else { Self::Rating }
    }

    /// The place of its calls among those that are derived from the same id. No turn has so many steps, and a summary has another
    /// one.
    const fn place(self) -> u32 {
        match self {
            Self::Rating => u32::MAX - 1,
            Self::Facts => u32::MAX - 2,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_rating(aim: &ReflectionAim) -> bool {
    *aim == ReflectionAim::Rating
}

// === impl WantedReflection ===

impl WantedReflection {
    /// The call that makes it.
    pub(in crate::session::turn) fn call(&self) -> CallId {
        self.after.call(self.id, self.aim.place())
    }
}

// === impl Reflections ===

impl Reflections {
    pub(in crate::session::turn) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether no further turn may wait for this. Turns that wait for something else take no room from it.
    pub(in crate::session) fn is_full(&self, aim: ReflectionAim) -> bool {
        let waiting = self.wanted.iter().filter(|wanted| wanted.aim == aim);
        waiting.count() >= REFLECTIONS_WAITING
    }

    /// Whether memories lack the lessons of so many that no other one may begin.
    pub(in crate::session::turn) fn is_behind(&self) -> bool {
        self.unsent.len() >= REFLECTIONS_WAITING
    }

    /// Whether this turn waits for this, or a model looks back at it.
    pub(in crate::session) fn waits_for(&self, turn: TurnId, aim: ReflectionAim) -> bool {
        self.wanted.iter().any(|wanted| (wanted.turn, wanted.aim) == (turn, aim))
    }

    /// The call that is under way.
    pub fn open(&self) -> Option<&Compaction> {
        self.open.as_deref()
    }

    /// The one that is under way, or next.
    pub(in crate::session::turn) fn next(&self) -> Option<WantedReflection> {
        self.wanted.front().copied()
    }

    /// Asks for one, unless the turn waits already or too many others do.
    pub(in crate::session::turn) fn want(&mut self, wanted: WantedReflection) {
        if !self.is_full(wanted.aim) && !self.waits_for(wanted.turn, wanted.aim) {
            self.wanted.push_back(wanted);
        }
    }

    /// Forgets turns that wait, but for those of which this says that they are still there. A call that is under way ends
    /// first.
    pub(in crate::session::turn) fn keep_those(&mut self, is_there: impl Fn(TurnId) -> bool) {
        let mut is_under_way = self.open.is_some();
        self.wanted.retain(|wanted| std::mem::take(&mut is_under_way) || is_there(wanted.turn));
    }

    /// Takes what the next attempt has reserved, if it is of a reflection.
    pub(in crate::session::turn) fn takes(&mut self, held: &BudgetHeld) -> bool {
        let is_its = self.next().is_some_and(|next| next.call() == held.call);
        if is_its {
            self.held = Some(Box::new(held.clone()));
        }
        is_its
    }

    /// What is under way of this reflection, whose first attempt may begin or be refused.
    pub(in crate::session::turn) fn begun(
        &mut self,
        turn: TurnId,
        call: CallId,
    ) -> Result<Compaction, Violation> {
        if self.next().is_none_or(|next| (next.turn, next.call()) != (turn, call)) {
            return Err(Violation(format!("`{call}` looks back at `{turn}`, which is not next")));
        }
        Ok(self.open.take().map_or_else(|| Compaction::new(call), |open| *open))
    }

    /// Those that have ended, and that memories may not have.
    pub(in crate::session::turn) fn unsent(&self) -> impl Iterator<Item = CallId> {
        self.unsent.iter().map(|ended| ended.call)
    }

    /// Memories have the lessons, if this is the id of a reflection's call as that of a turn.
    pub(in crate::session::turn) fn is_sent(&mut self, id: TurnId) {
        self.unsent.retain(|ended| emitted_as(ended.call) != id);
    }
}

/// The id under which the kernel confirms that memories have the lessons of a call. No turn has it.
pub(in crate::session::turn) const fn emitted_as(call: CallId) -> TurnId {
    TurnId::from_u128(call.as_u128())
}

//! Ids of a session that began again after it was deleted.
//!
//! The ids of calls, and so those of jobs, timers and results, follow from the message of their turn. A client may
//! send the same message once more after the deletion. What its turn does then must not be taken for what was done
//! before, so the ids also follow from the deletion.

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Seq, TurnId, derive};

/// The bits of a call's id that no deletion changes: readers who know the id of a turn alone know its first call.
const SAME_BITS: u128 = u64::MAX as u128;

/// A session begins again after it was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BegunAgain {
    /// The number of the event that ended the deletion.
    pub after: Seq,
}

/// The number of the event that ended the deletion before a session began; 0 if there was none, or if a build let it
/// begin again that did not record this.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct AfterDeletion(Seq);

// === impl AfterDeletion ===

impl AfterDeletion {
    /// After the deletion that this event ended.
    pub const fn of(deletion: Seq) -> Self {
        Self(deletion)
    }

    /// Whether ids follow from no deletion.
    pub const fn is_none(&self) -> bool {
        self.0.0 == 0
    }

    /// The call that a turn makes at its `step` (from 0).
    pub fn call(self, turn: TurnId, step: u32) -> CallId {
        self.of_call(CallId::derive(turn, step))
    }

    /// What the frames about the tools of a model's reply belong to, if this is the call with that reply.
    pub fn tools(self, model_call: CallId) -> CallId {
        self.of_call(CallId::derive_tools(self.of_call(model_call)))
    }

    /// What takes the place of a turn's id where the ids of its timers follow from that.
    pub fn timers(self, turn: TurnId) -> TurnId {
        TurnId::from_u128(turn.as_u128() ^ self.mask())
    }

    /// The id of a call after this deletion, if this is the one without any; and the other way round.
    fn of_call(self, call: CallId) -> CallId {
        CallId::from_u128(call.as_u128() ^ self.mask())
    }

    fn mask(self) -> u128 {
        if self.is_none() {
            return 0;
        }
        derive("clawnode ids after a deletion v1", &[&self.0.0.to_be_bytes()]) & !SAME_BITS
    }
}

impl CallId {
    /// Whether this is the call that a turn makes at its `step` (from 0), after whichever deletion.
    pub fn is_at(self, turn: TurnId, step: u32) -> bool {
        self.differs_by_deletion(Self::derive(turn, step))
    }

    /// Whether the frames about the tools of that call's reply belong to this.
    pub fn is_of_tools_at(self, turn: TurnId, step: u32) -> bool {
        self.differs_by_deletion(Self::derive_tools(Self::derive(turn, step)))
    }

    fn differs_by_deletion(self, other: Self) -> bool {
        (self.as_u128() ^ other.as_u128()) & SAME_BITS == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::id::TimerId;

    const TURN: TurnId = TurnId::from_u128(7);

    #[test]
    fn ids_of_a_session_that_was_never_deleted_stay_as_they_are() {
        let never = AfterDeletion::default();
        assert!(never.is_none());
        for step in [0, 1, u32::MAX] {
            assert_eq!(never.call(TURN, step), CallId::derive(TURN, step));
        }
        let call = CallId::derive(TURN, 3);
        assert_eq!(never.tools(call), CallId::derive_tools(call));
        assert_eq!(never.timers(TURN), TURN);
    }

    #[test]
    fn no_id_comes_again_after_a_deletion() {
        let (mut calls, mut timers) = (BTreeSet::new(), BTreeSet::new());
        let after = [0, 1, 2, 300, u64::MAX].map(|n| AfterDeletion::of(Seq(n)));
        let turns = [TURN, TurnId::from_u128(8)];
        for (after, turn) in after.iter().flat_map(|after| turns.map(|turn| (*after, turn))) {
            for step in 0..4 {
                let call = after.call(turn, step);
                assert!(calls.insert(call));
                assert!(calls.insert(CallId::derive_tool(call, 0)));
                assert!(calls.insert(after.tools(call)));
                assert!(timers.insert(TimerId::of_outage(call, 1)));
                assert!(timers.insert(TimerId::of_client(call)));
            }
            assert!(timers.insert(TimerId::of_time(after.timers(turn), 0)));
            assert!(timers.insert(TimerId::of_steps(after.timers(turn), 4)));
        }
    }

    #[test]
    fn the_first_call_of_a_turn_is_known_after_any_deletion() {
        let other = TurnId::from_u128(8);
        for after in [0, 1, 300].map(|n| AfterDeletion::of(Seq(n))) {
            let (call, tools) = (after.call(TURN, 0), after.tools(after.call(TURN, 0)));
            assert!(call.is_at(TURN, 0) && tools.is_of_tools_at(TURN, 0));
            assert!(!call.is_at(TURN, 1) && !tools.is_of_tools_at(TURN, 1));
            assert!(!call.is_at(other, 0) && !tools.is_of_tools_at(other, 0));
            assert!(!tools.is_at(TURN, 0) && !call.is_of_tools_at(TURN, 0));
            assert!(!CallId::derive_tool(call, 0).is_at(TURN, 0));
            assert_eq!(call.to_string().parse::<CallId>(), Ok(call));
        }
    }
}

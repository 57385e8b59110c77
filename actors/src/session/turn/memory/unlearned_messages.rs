//! Which events of the journal have what persons said in a turn, until memories have learned from it.

use clawnode_proto::{Timestamp, TurnId};
use serde::{Deserialize, Serialize};

/// A message of a person that begins a turn or joins one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardMessage {
    /// Its id: that of the turn that it begins, or would have begun.
    pub turn: TurnId,
    /// The number of its event in the journal of the session.
    pub event: u64,
    /// When it was journaled.
    pub at: Timestamp,
}

/// Takes a message that begins a turn of its own after all.
pub(in crate::session::turn) fn taken(
    heard: &mut Vec<HeardMessage>,
    turn: TurnId,
) -> Vec<HeardMessage> {
    let (taken, left) = heard.iter().partition(|message| message.turn == turn);
    *heard = left;
    taken
}

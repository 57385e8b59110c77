//! Frames: what a client sees of a turn while it runs.
//!
//! Frames are provisional (I7: never folded). Their key is `(turn, call, attempt, index)`: a higher
//! attempt at the same call implies a reset, a lower one is ignored, an index already seen is a
//! repeat.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    error::ErrorBody,
    id::{Attempt, CallId, ParseIdError, TurnId},
    llm::Usage,
    session::TurnOutcome,
};

/// A frame's place in its turn; as text, the cursor that a client resumes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameKey {
    /// Of which turn.
    pub turn: TurnId,
    /// Of which call; a turn's last frames belong to its last call.
    pub call: CallId,
    /// Which try at the call.
    pub attempt: Attempt,
    /// Counts from 0 within the attempt.
    pub index: u32,
}

impl fmt::Display for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.turn, self.call, self.attempt, self.index)
    }
}

impl FromStr for FrameKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let malformed = || ParseIdError::new(text, "a cursor `turn.call.attempt.index`");
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or_else(malformed);
        let key = Self {
            turn: next()?.parse()?,
            call: next()?.parse()?,
            attempt: Attempt(next()?.parse().ok().ok_or_else(malformed)?),
            index: next()?.parse().ok().ok_or_else(malformed)?,
        };
        if parts.next().is_some() { Err(malformed()) } else { Ok(key) }
    }
}

/// One frame as it crosses the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Where it belongs.
    pub key: FrameKey,
    /// What it says.
    pub body: FrameBody,
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FrameBody {
    /// More of the reply.
    Text {
        /// What is added.
        delta: String,
    },
    /// What the call used.
    Usage {
        /// Reported by the provider.
        usage: Usage,
    },
    /// Something the user should know while the turn goes on.
    Notice {
        /// A stable name, for example `history_dropped` or `retrying`.
        name: String,
        /// For people.
        message: String,
    },
    /// The turn failed; `done` follows.
    Error {
        /// What happened.
        error: ErrorBody,
    },
    /// The turn has ended and is in the journal.
    Done {
        /// How.
        outcome: TurnOutcome,
    },
}

/// Several frames, as one bus message carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameBatch {
    /// In order.
    pub frames: Vec<Frame>,
}

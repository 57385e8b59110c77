//! What processes say to each other: heartbeats, and requests to one process.

use serde::{Deserialize, Serialize};

use crate::{
    event::Timestamp,
    frame::Frame,
    id::{Digest, EntityId, Epoch, InputId, NodeName, ProcessId, TurnId},
};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Holds client connections, owns nothing.
    Gateway,
    /// Owns entities.
    Worker,
}

/// "I am alive", once a second on `cn.hb.<process>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Who.
    pub process: ProcessId,
    /// What people call it.
    pub node: NodeName,
    /// The program's version.
    pub version: String,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// When it started, by its own clock; for people only.
    pub started: Timestamp,
    /// Whether it takes no more work.
    pub draining: bool,
    /// Resident entities.
    pub entities: u64,
    /// The digest of what its configuration means for agents; nodes should agree.
    pub config: Digest,
}

/// A request to one process on `cn.rpc.<process>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeRequest {
    /// Are you there?
    Ping,
    /// Do you have this input in hand?
    Ask {
        /// The entity.
        entity: EntityId,
        /// Its input.
        input: InputId,
    },
    /// You lost the entity: stop paying for it.
    Fenced {
        /// The entity.
        entity: EntityId,
        /// The epoch that is in force now.
        epoch: Epoch,
    },
    /// Which frames of this turn do you still have?
    Frames {
        /// The session.
        entity: EntityId,
        /// The turn.
        turn: TurnId,
    },
}

/// The answer to a [`NodeRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeReply {
    /// To `Ping` and `Fenced`.
    Ok,
    /// The actor itself has the input; leave it.
    Held,
    /// The input is done with; acknowledge it.
    Completed,
    /// This process does not own the entity; claim it.
    NotMine,
    /// What is left of the turn's frames, in order.
    Frames {
        /// At most [`crate::limits::FRAMES_KEPT`].
        frames: Vec<Frame>,
        /// Whether the oldest frames of the turn are missing.
        truncated: bool,
    },
}

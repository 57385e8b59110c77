//! What processes say to each other: heartbeats, and requests to one process.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    event::Timestamp,
    frame::Frame,
    id::{Capability, Digest, EntityId, Epoch, InputId, NodeName, ProcessId, TurnId},
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
    /// Whether it hands everything over and ends.
    pub draining: bool,
    /// Resident entities.
    pub entities: u64,
    /// The digest of what its configuration means for agents; nodes should agree.
    pub config: Digest,
    /// Whether it was told to take no more entities; it keeps those that it has.
    #[serde(default)]
    pub cordoned: bool,
    /// The versions of the envelope that it reads and writes.
    #[serde(default)]
    pub speaks: VersionRange,
    /// What it can do beside its roles.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// How busy it is.
    #[serde(default)]
    pub load: Load,
    /// By how many ranks it stands back from what it would serve, because it is busy.
    #[serde(default)]
    pub shed: u8,
    /// Partitions that it serves first, by its own view of the cluster.
    #[serde(default)]
    pub first_of: u16,
    /// Where clients reach it, if it is a gateway that says so.
    #[serde(default)]
    pub url: Option<String>,
}

/// Versions of the envelope, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

/// Those of a process that does not say: the first.
impl Default for VersionRange {
    fn default() -> Self {
        Self { oldest: 1, newest: 1 }
    }
}

impl VersionRange {
    /// Whether both can read what the other writes.
    pub const fn overlaps(self, other: Self) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

/// How busy a process is; for placement and for people, never for safety.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Processor time it used lately, in thousandths of what its host has.
    pub cpu_permille: u16,
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Turns that run now.
    pub turns_running: u32,
    /// Turns that it has ended since its start.
    pub turns_done: u64,
    /// Clients that are connected now.
    pub clients: u32,
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
    /// Take no more entities, or take them again. Answered `Ok`.
    Cordon {
        /// Whether to stand back.
        on: bool,
    },
    /// Hand everything over and end. Answered `Ok` before it has ended.
    Drain,
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
    /// To `Ping`, `Fenced`, `Cordon` and `Drain`.
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

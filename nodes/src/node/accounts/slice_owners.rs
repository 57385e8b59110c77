//! The processes that have parts of limits: their names, and whether they live.

use clawnode_cluster::Peek as _;
use clawnode_proto::{NodeName, ProcessId};

use crate::node::overview::NodeInfo;

/// What is known of processes.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    node: NodeInfo,
    /// No other process can be alive: the storage backend belongs to this one.
    is_alone: bool,
}

/// Whether a process lives, as membership has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// It is held alive.
    Alive,
    /// It is held dead.
    Dead,
    /// This node has not listened long enough to say.
    Unknown,
}

// === impl Peers ===

impl Peers {
    pub(super) const fn new(node: NodeInfo, is_alone: bool) -> Self {
        Self { node, is_alone }
    }

    /// Whether no other process can be alive.
    pub(super) const fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// This process.
    pub(super) const fn process(&self) -> ProcessId {
        self.node.process
    }

    /// The name of this node.
    pub(super) fn own(&self) -> NodeName {
        (self.node.heartbeat)().node
    }

    /// Whether a process lives.
    pub(super) fn state(&self, process: ProcessId) -> PeerState {
        if process == self.node.process {
            return PeerState::Alive;
        }
        if self.is_alone {
            return PeerState::Dead;
        }
        self.node.members.peek(|members| {
            if members.alive.iter().any(|one| one.process == process) {
                PeerState::Alive
            } else if members.holds_dead(process) {
                PeerState::Dead
            } else {
                PeerState::Unknown
            }
        })
    }

    /// The name of a process's node, if it is known. Earlier processes of a node that is alone had its
    /// name.
    pub(super) fn name(&self, process: ProcessId) -> Option<NodeName> {
        if process == self.node.process || self.is_alone {
            return Some((self.node.heartbeat)().node);
        }
        let alive = self.node.members.peek(|members| {
            let found = members.alive.iter().find(|one| one.process == process);
            found.map(|one| one.node.clone())
        });
        alive.or_else(|| self.node.events.name_of(process))
    }
}

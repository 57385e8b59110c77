//! The cluster as one process sees it.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    ProcessId,
    node::{Heartbeat, NodeRole},
};

use crate::placement::Seat;

/// The cluster as one process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The processes that are held alive, this one included, by process id.
    pub alive: Vec<Heartbeat>,
    /// Processes that were held dead lately.
    pub dead: BTreeSet<ProcessId>,
    /// Whether this process has listened long enough to know the others.
    pub settled: bool,
    /// Whether it has listened, without a gap, for as long as silence takes to make a process dead:
    /// then each process that it has not heard is dead.
    pub heard_all: bool,
    /// Processes whose clocks are [`CLOCKS_APART_MS`](super::CLOCKS_APART_MS) and more from most
    /// others', and by how many seconds they are ahead. For people.
    pub clocks: BTreeMap<ProcessId, i64>,
}

// === impl Members ===

impl Members {
    /// Whether a process is held dead, also if it was never heard.
    pub fn holds_dead(&self, process: ProcessId) -> bool {
        self.dead.contains(&process)
            || self.heard_all && !self.alive.iter().any(|one| one.process == process)
    }

    /// The workers that take work, as placement counts them.
    pub fn seats(&self) -> Vec<Seat> {
        self.alive
            .iter()
            .filter(|one| one.roles.contains(&NodeRole::Worker) && !one.draining && !one.cordoned)
            .map(|one| Seat { process: one.process, shed: one.shed })
            .collect()
    }
}

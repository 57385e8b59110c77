//! The cluster as one process sees it.

use std::collections::BTreeSet;

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
}

// === impl Members ===

impl Members {
    /// The workers that take work, as placement counts them.
    pub fn seats(&self) -> Vec<Seat> {
        self.alive
            .iter()
            .filter(|one| one.roles.contains(&NodeRole::Worker) && !one.draining && !one.cordoned)
            .map(|one| Seat { process: one.process, shed: one.shed })
            .collect()
    }
}

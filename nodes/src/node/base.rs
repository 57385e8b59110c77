//! The state that the parts of a node share: its identity, its storage, and the members that it
//! hears.

use std::sync::Arc;

use clawnode_budget::holder::HolderHandle;
use clawnode_cluster::{Clock, Storage, membership::Members};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::supervise::Supervisor;
use clawnode_memory::serve::ServedStore;
use clawnode_proto::{ProcessId, node::NodeRole};
use tokio::sync::watch;

use super::current_models::CurrentModels;

/// What answers to clients look things up in.
#[derive(Debug)]
pub struct BackendSources {
    /// Which models are configured now.
    pub models: CurrentModels,
    /// Where memories are searched.
    pub memory: ServedStore,
}

/// The state that the parts of a node share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeBase {
    pub process: ProcessId,
    pub roles: Vec<NodeRole>,
    /// Its storage backend.
    pub storage: Storage,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// The cluster as it sees it; no other process in a single one.
    pub members: watch::Receiver<Members>,
    /// The kill switches.
    pub switch_gate: SwitchGate,
    /// What its calls reserve from, and which accounts it knows.
    pub budgets: HolderHandle,
    /// Looks after its tasks.
    pub supervisor: Supervisor,
    /// Finds what memories and conversations say.
    pub memory: ServedStore,
}

// === impl NodeBase ===

impl NodeBase {
    /// Whether it processes messages.
    pub fn is_worker(&self) -> bool {
        self.roles.contains(&NodeRole::Worker)
    }

    /// Whether it serves clients.
    pub fn is_gateway(&self) -> bool {
        self.roles.contains(&NodeRole::Gateway)
    }
}

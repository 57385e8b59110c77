//! The hooks of a node.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clawnode_proto::{
    AgentName, HookName,
    hook::{HookPoint, HookSpec},
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Hooks of one process that run at once (32); more wait, and their time does not run meanwhile.
const AT_ONCE: usize = 32;

/// The hooks of a node. Cheap to clone.
#[derive(Clone)]
pub struct Hooks(Arc<Inner>);

struct Inner {
    programs: BTreeMap<(HookPoint, HookName), Program>,
    keeper: Option<Keeper>,
    room: Semaphore,
}

/// A hook that may be asked.
#[derive(Clone, Debug)]
pub struct Program {
    /// What sessions know of it.
    pub spec: HookSpec,
    /// Of which agents; of all if there is none.
    pub agents: Vec<AgentName>,
    /// Its file.
    pub path: PathBuf,
}

/// The binary that ends all that a hook has started, whatever becomes of the node, and the command
/// that makes it that.
#[derive(Clone, Debug)]
pub struct Keeper {
    /// The binary.
    pub binary: PathBuf,
    /// Its command.
    pub command: OsString,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("programs", &self.0.programs.len()).finish_non_exhaustive()
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self::new(Vec::new(), None)
    }
}

// === impl Hooks ===

impl Hooks {
    /// These. Without a keeper a hook's process group is killed, and what left it is not found.
    pub fn new(programs: Vec<Program>, keeper: Option<Keeper>) -> Self {
        let key = |it: &Program| (it.spec.point, it.spec.name.clone());
        let programs = programs.into_iter().map(|it| (key(&it), it)).collect();
        Self(Arc::new(Inner { programs, keeper, room: Semaphore::new(AT_ONCE) }))
    }

    /// The hooks of an agent, by point and name.
    pub fn of_agent(&self, agent: &AgentName) -> Vec<HookSpec> {
        let of = |it: &&Program| it.agents.is_empty() || it.agents.contains(agent);
        self.0.programs.values().filter(of).map(|it| it.spec.clone()).collect()
    }

    pub(super) fn keeper(&self) -> Option<&Keeper> {
        self.0.keeper.as_ref()
    }

    /// Waits for room to run one more.
    pub(super) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.0.room.acquire().await.ok()
    }

    pub(super) fn path(&self, spec: &HookSpec) -> Option<&Path> {
        let program = self.0.programs.get(&(spec.point, spec.name.clone()))?;
        Some(&program.path)
    }
}

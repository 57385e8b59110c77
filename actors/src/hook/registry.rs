//! The hooks of a node.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use clawnode_proto::{
    AgentName, HookName,
    hook::{HookFault, HookPoint, HookSpec},
    provider::{HOOK_PREFIX, ProviderKind},
};
use clawnode_tool::Providers;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Hooks of one process that run at once (32); more wait, and their time does not run meanwhile.
const AT_ONCE: usize = 32;

/// The hooks of a node. Cheap to clone.
#[derive(Clone)]
pub struct Hooks(Arc<Inner>);

struct Inner {
    programs: BTreeMap<(HookPoint, HookName), Program>,
    keeper: Option<HookKeeper>,
    room: Semaphore,
    /// Where the node keeps how they fare, once it has such a place.
    health: OnceLock<Providers>,
}

/// A hook that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
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
pub struct HookKeeper {
    pub binary: PathBuf,
    pub command: OsString,
}

/// What a hook is called among providers.
fn provider(point: HookPoint, name: &HookName) -> String {
    format!("{HOOK_PREFIX}{point}.{name}")
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
    pub fn new(programs: Vec<Program>, keeper: Option<HookKeeper>) -> Self {
        let key = |program: &Program| (program.spec.point, program.spec.name.clone());
        let programs = programs.into_iter().map(|program| (key(&program), program)).collect();
        let (room, health) = (Semaphore::new(AT_ONCE), OnceLock::new());
        Self(Arc::new(Inner { programs, keeper, room, health }))
    }

    /// From now on the registry reports to `providers` how each hook fares when it is asked.
    pub fn report_to(&self, providers: &Providers) {
        for (point, name) in self.0.programs.keys() {
            providers.awaits(ProviderKind::Execution, &provider(*point, name));
        }
        // The first stays: a node has one such place.
        drop(self.0.health.set(providers.clone()));
    }

    /// Tells how a hook fared. Its own words are left out: they may quote the conversation.
    pub(super) fn fared(&self, spec: &HookSpec, fault: Option<HookFault>) {
        let health = match fault {
            // An operator's stop, and a conversation that is too large, are no faults of a hook.
            Some(HookFault::Stopped | HookFault::TooLarge) => return,
            Some(fault) => Err(format!("it {}", fault.as_str())),
            None => Ok(()),
        };
        if let Some(providers) = self.0.health.get() {
            providers.looked(&provider(spec.point, &spec.name), &health);
        }
    }

    /// The hooks of an agent, by point and name.
    pub fn of_agent(&self, agent: &AgentName) -> Vec<HookSpec> {
        let is_for_agent =
            |program: &&Program| program.agents.is_empty() || program.agents.contains(agent);
        self.0.programs.values().filter(is_for_agent).map(|program| program.spec.clone()).collect()
    }

    /// Whether these are the hooks that it has, with the same marks.
    pub fn are(&self, programs: &[Program]) -> bool {
        let is_known = |program: &Program| self.0.programs.values().any(|known| known == program);
        programs.len() == self.0.programs.len() && programs.iter().all(is_known)
    }

    pub(super) fn keeper(&self) -> Option<&HookKeeper> {
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

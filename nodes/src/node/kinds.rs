//! The kinds of entities that this build has. From the one row of a kind, a node gets both the reader of its
//! journals and the runner that serves its entities.

use std::sync::Arc;

use clawnode_actors::session::{RunnerParts, Session, SessionRunner};
use clawnode_budget::Budget;
use clawnode_cluster::{Clock, Storage};
use clawnode_kernel::{Entities, KnownKinds, MachineOptions, driver::Kinds};
use clawnode_memory::Memory;
use ractor::SpawnErr;

use super::{base::NodeBase, budgets, memories};

macro_rules! kinds {
    ($base:ident, $parts:ident: $( $kind:ty => $runner:expr; )*) => {
        /// The entities of every kind in these stores. Journals of the kinds in this table can be folded.
        pub fn entities(storage: Storage, clock: Arc<dyn Clock>) -> Entities {
            Entities::new(storage, clock, KnownKinds::default()$( .with::<$kind>() )*)
        }

        /// The kinds that a worker serves. Starts the other tasks of a kind.
        pub async fn served(
            $base: &NodeBase,
            $parts: &RunnerParts,
            machine: MachineOptions,
        ) -> Result<Kinds, SpawnErr> {
            Ok(Kinds::default()$( .with::<$kind>(Arc::new($runner), machine) )*)
        }
    };
}

kinds! { base, parts:
    // A kind, and what performs the effects of its entities.
    Session => sessions(base, parts).await?;
    Budget => budgets::runner(base, parts);
    Memory => memories::runner(base, parts);
}

/// Runs the effects of sessions, and looks after the jobs of dead workers.
async fn sessions(base: &NodeBase, parts: &RunnerParts) -> Result<SessionRunner, SpawnErr> {
    let runner = SessionRunner::new(parts.clone());
    if base.storage.shared && base.is_worker() {
        let follow = runner.clone();
        let follow = move || follow.clone().follow_runners();
        base.supervisor.adopt_task("worker.awaited", follow).await?;
    }
    Ok(runner)
}

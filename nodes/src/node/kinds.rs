//! The kinds of entities that this build has. From the one row of a kind, a node gets both the reader of its
//! journals and the runner that serves its entities.

use std::sync::Arc;

use clawnode_actors::session::{RunnerParts, Session, SessionRunner};
use clawnode_budget::Budget;
use clawnode_cluster::{Clock, Storage};
use clawnode_kernel::{
    Entities, KnownKinds, MachineOptions,
    driver::{AddKind as _, Kinds},
};
use clawnode_memory::Memory;
use ractor::SpawnErr;

use super::{base::NodeBase, budget_holder, memories};

macro_rules! kinds {
    ($base:ident, $parts:ident: $( $kind:ty => $runner:expr; )*) => {
        /// The entities of every kind in these stores. Journals of the kinds in this table can be folded.
        pub fn entities(storage: Storage, clock: Arc<dyn Clock>) -> Entities {
            let known = KnownKinds::default();
            $( let known = <$kind>::know(known); )*
            Entities::new(storage, clock, known)
        }

        /// The names of the events of every kind, in the order of the table.
        pub fn events() -> Vec<(&'static str, clawnode_proto::Kind)> {
            use clawnode_kernel::EntityKind;
            use clawnode_proto::Grammar as _;

            let mut all = Vec::new();
            $( all.extend(<$kind as EntityKind>::Event::KINDS.iter().map(|event| (*event, <$kind>::KIND))); )*
            all
        }

        /// The kinds that a worker serves. Starts the other tasks of a kind.
        pub async fn served(
            $base: &NodeBase,
            $parts: &RunnerParts,
            machine: MachineOptions,
        ) -> Result<Kinds, SpawnErr> {
            let kinds = Kinds::default();
            $( let kinds = <$kind>::serve(kinds, Arc::new($runner), machine); )*
            Ok(kinds)
        }
    };
}

kinds! { base, parts:
    // A kind, and what performs the effects of its entities.
    Session => sessions(base, parts).await?;
    Budget => budget_holder::runner(base, parts);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clawnode_proto::{Grammar as _, kernel::KernelEvent};

    use super::*;

    /// A journal names an event without its kind, and lists of people show events of all kinds.
    #[test]
    fn no_two_kinds_have_events_of_one_name() {
        let kernel = KernelEvent::KINDS.iter().map(|name| (*name, "the kernel".to_owned()));
        let mut owners: BTreeMap<&str, String> = kernel.collect();
        let all = events();
        assert!(!all.is_empty());
        for (name, kind) in all {
            let other = owners.insert(name, kind.to_string());
            assert_eq!(other, None, "`{name}` is an event of `{kind}` too");
        }
    }

    /// `tests/reference/events.rs` makes the page, with the kinds of this table.
    #[test]
    fn the_reference_has_the_events_of_every_kind() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/events.md");
        let page = std::fs::read_to_string(page).unwrap();
        let mut shown: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("#### `")?.strip_suffix('`'))
            .collect();
        let own = events().into_iter().map(|(event, _)| event);
        let mut expected: Vec<&str> = KernelEvent::KINDS.iter().copied().chain(own).collect();
        shown.sort_unstable();
        expected.sort_unstable();
        assert_eq!(shown, expected);
    }
}

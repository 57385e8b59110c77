//! The kinds of entities that a process serves: how each is activated, and what it understands.
//!
//! The dispatcher of a partition knows no kind. It finds the entity's kind in the first input that it
//! reads for it, takes the row of that kind here, and feeds the actor through an object-safe handle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::Pin,
    sync::Arc,
};

use clawnode_proto::{Grammar, Input, Kind, kernel::KernelEvent};
use ractor::{ActorCell, SpawnErr};

use super::{
    EffectRunner,
    entity::{self, EntityHandle, Served, Start},
};
use crate::{EntityKind, InputMemory, KnownKinds, MachineOptions};

/// An activation that is being started.
type Started = Pin<Box<dyn Future<Output = Result<Arc<dyn EntityHandle>, SpawnErr>> + Send>>;

/// A row of the table: one kind.
pub(super) trait ServedKind: Send + Sync + fmt::Debug {
    /// Whether this build can read what the input says.
    fn understands(&self, input: &Input) -> bool;
    /// Its own kinds of events.
    fn events(&self) -> BTreeSet<String>;
    /// Starts the actor of one entity.
    fn start(self: Arc<Self>, start: Start, parent: ActorCell) -> Started;
}

/// A kind that adds itself to the tables of a process.
///
/// What serves and reads a kind is generic, so the crate that calls [`Kinds::with`] and
/// [`KnownKinds::with`] compiles it. With this, that is the crate of the kind and not the program.
pub trait AddKind: EntityKind + Sized {
    /// Adds it to the kinds that a worker serves: `kinds.with::<Self>(runner, machine)`.
    fn serve(kinds: Kinds, runner: Arc<dyn EffectRunner<Self>>, machine: MachineOptions) -> Kinds;
    /// Adds it to the kinds whose journals are read: `known.with::<Self>()`.
    fn know(known: KnownKinds) -> KnownKinds;
}

/// The table. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Kinds(BTreeMap<Kind, Arc<dyn ServedKind>>);

// === impl Kinds ===

impl Kinds {
    /// Adds a kind; its entities are served from the start of the worker on.
    #[must_use]
    pub fn with<K: EntityKind>(
        mut self,
        runner: Arc<dyn EffectRunner<K>>,
        machine: MachineOptions,
    ) -> Self {
        // Where the kind is not known, as for orders, inputs are remembered for `InputMemory::DAYS`.
        const {
            assert!(
                K::MEMORY.least <= InputMemory::DAYS.least
                    && K::MEMORY.age.as_secs() <= InputMemory::DAYS.age.as_secs(),
                "a kind remembers its inputs for longer than `InputMemory::DAYS`"
            );
        }
        self.0.insert(K::KIND, Arc::new(Served { runner, machine }));
        self
    }

    /// What is known of a kind, if it is served.
    pub(super) fn get(&self, kind: Kind) -> Option<&Arc<dyn ServedKind>> {
        self.0.get(&kind)
    }

    /// The kinds that are served.
    pub fn served(&self) -> impl Iterator<Item = Kind> {
        self.0.keys().copied()
    }

    /// All kinds of events that this process knows: the kernel's, and those of each kind of entities.
    pub fn events(&self) -> BTreeSet<String> {
        let kernel = KernelEvent::KINDS.iter().map(|kind| (*kind).to_owned());
        self.0.values().flat_map(|kind| kind.events()).chain(kernel).collect()
    }
}

// === impl Served ===

impl<K: EntityKind> ServedKind for Served<K> {
    fn understands(&self, input: &Input) -> bool {
        K::understands(input)
    }

    fn events(&self) -> BTreeSet<String> {
        let known = K::Event::KINDS.iter().filter(|kind| self.machine.knows::<K>(kind));
        known.map(|kind| (*kind).to_owned()).collect()
    }

    fn start(self: Arc<Self>, start: Start, parent: ActorCell) -> Started {
        Box::pin(entity::start(self, start, parent))
    }
}

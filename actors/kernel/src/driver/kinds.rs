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

use clawnode_proto::{
    EntityId, Epoch, Grammar, Input, InputId, Kind, kernel::KernelEvent, node::NodeReply,
};
use ractor::{ActorCell, SpawnErr};
use tokio::sync::oneshot;

use super::{Context, DispatcherHandle, Runner, entity};
use crate::{Activation, EntityKind, Heir, MachineOptions, Memory};

/// What a dispatcher tells an entity's actor, whatever its kind is.
pub(super) trait EntityHandle: Send + Sync + fmt::Debug {
    /// Inputs from the inbox, in stream order.
    fn deliver(&self, inputs: Vec<Input>);
    /// Time has passed.
    fn tick(&self);
    /// Leave memory, unless something is done for the entity.
    fn make_room(&self);
    /// Another process says that it has claimed the entity.
    fn fenced(&self, epoch: Epoch);
    /// Hand the entity over: no new work; running calls may end.
    fn drain(&self);
    /// Hand the entity over now.
    fn give_up(&self);
    /// Another process asks for an input.
    fn ask(&self, input: InputId, reply: oneshot::Sender<NodeReply>);
    /// The actor, for its supervisor.
    fn cell(&self) -> ActorCell;
}

/// What an activation begins with.
pub(super) struct Start {
    pub(super) id: EntityId,
    pub(super) activation: Activation,
    pub(super) heir: Heir,
    pub(super) context: Arc<Context>,
    pub(super) dispatcher: DispatcherHandle,
}

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

/// A kind with what its entities need.
pub(super) struct Served<K: EntityKind> {
    /// How effects are run.
    pub(super) runner: Arc<dyn Runner<K>>,
    /// How activations treat their entities.
    pub(super) machine: MachineOptions,
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
        runner: Arc<dyn Runner<K>>,
        machine: MachineOptions,
    ) -> Self {
        // Where the kind is not known, as for orders, inputs are remembered for `Memory::DAYS`.
        const {
            assert!(
                K::MEMORY.least <= Memory::DAYS.least
                    && K::MEMORY.age.as_secs() <= Memory::DAYS.age.as_secs(),
                "a kind remembers its inputs for longer than `Memory::DAYS`"
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

impl<K: EntityKind> fmt::Debug for Served<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("kind", &K::KIND).finish_non_exhaustive()
    }
}

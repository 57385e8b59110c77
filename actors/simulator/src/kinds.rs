//! The kinds of entities in the world, each with its production code.

use std::any::Any;

use clawnode_actors::session::Session;
use clawnode_budget::Budget;
use clawnode_kernel::{Activation, Machine, OwnerSays, PreviousOwner, counter::Counter};
use clawnode_memory::Memory;
use clawnode_proto::{EntityId, InputId, Kind, ProcessId};

use super::{
    Sim,
    any_machine::{ActivationPlace, AnyMachine, MachineMessage},
    book::{AnyBook, Book, Booked, Checked},
    clients::SimClient,
    plan::SeedPlan,
    process::Actor,
};

/// All of them; a new kind adds a row.
pub(super) const KINDS: [SimKind; 4] = [
    SimKind::of::<Session>(),
    SimKind::of::<Counter>(),
    SimKind::of::<Budget>(),
    SimKind::of::<Memory>(),
];

/// What the world knows of a kind.
pub(super) struct SimKind {
    pub(super) kind: Kind,
    /// The names of its events.
    #[cfg(test)]
    pub(super) events: &'static [&'static str],
    /// Its entities.
    pub(super) entities: fn(&SeedPlan) -> Vec<EntityId>,
    /// What their clients send.
    pub(super) clients: fn(&SeedPlan, u64) -> Vec<SimClient>,
    pub(super) book: fn(EntityId) -> Box<dyn AnyBook>,
    pub(super) activate: Activate,
}

/// Begins an activation of an entity of one kind.
type Activate = fn(&mut Sim, ProcessId, EntityId, Activation, PreviousOwner) -> Checked;

/// A kind that can be simulated: its clients, and how its effects happen in this world.
pub(super) trait Simulated: Booked {
    /// Its entities. Every entity that no kind names is a session.
    fn entities(_: &SeedPlan) -> Vec<EntityId> {
        Vec::new()
    }

    /// What their clients send, from this time on.
    fn clients(_: &SeedPlan, started: u64) -> Vec<SimClient>;

    /// One of its effects has ended.
    fn ran(_: &mut Actor, _: &Self::Effect) {}

    fn acquire(sim: &mut Sim, at: ActivationPlace, effect: Self::Effect, want: &Self::Want);

    fn start(sim: &mut Sim, at: ActivationPlace, effect: Self::Effect, job: &Self::Job) -> Checked;

    fn abort(sim: &mut Sim, at: ActivationPlace, effect: Self::Effect);

    /// What a call was granted, or asked for, is not needed any more.
    fn release(_: &mut Sim, _: ActivationPlace, _: Self::Effect) -> Checked {
        Ok(())
    }
}

/// The machine, if it is of this kind.
pub(super) fn machine_of<K: Simulated>(any: &mut dyn AnyMachine) -> Option<&mut Machine<K>> {
    let any: &mut dyn Any = any;
    any.downcast_mut()
}

// === impl SimKind ===

impl SimKind {
    const fn of<K: Simulated>() -> Self {
        Self {
            kind: K::KIND,
            #[cfg(test)]
            events: <K::Event as clawnode_proto::Grammar>::KINDS,
            entities: K::entities,
            clients: K::clients,
            book: |entity| Box::new(Book::<K>::new(entity)),
            activate: Sim::activate::<K>,
        }
    }
}

// === impl AnyMachine ===

impl<K: Simulated> AnyMachine for Machine<K> {
    fn says(&self, input: InputId) -> OwnerSays {
        Self::says(self, input)
    }

    fn telling(&self) -> fn(&mut Sim, ActivationPlace, MachineMessage) -> Checked {
        |sim, at, told| sim.feed_as::<K>(at, told.of())
    }
}

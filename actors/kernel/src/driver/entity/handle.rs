//! What reaches one entity's actor: its dispatcher, and the runner of its effects.

use std::{fmt, sync::Arc};

use clawnode_proto::{EntityId, Epoch, Input, InputId, node::NodeReply};
use ractor::{Actor, ActorCell, ActorRef, SpawnErr};
use tokio::sync::oneshot;
use tracing::debug;

use super::actor::{EntityActor, EntityArguments};
use crate::{
    Activation, EntityKind, MachineInput, MachineOptions, PreviousOwner,
    driver::{DispatcherHandle, EffectRunner, WorkerContext},
};

/// What a dispatcher sends to an entity's actor, of any kind.
pub(in crate::driver) trait EntityHandle: Send + Sync + fmt::Debug {
    /// Inputs from the inbox, in stream order.
    fn deliver(&self, inputs: Vec<Input>);
    /// Time has passed.
    fn tick(&self);
    /// Leave memory, if the entity has no work.
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

/// The arguments of an activation.
pub(in crate::driver) struct Start {
    pub(in crate::driver) id: EntityId,
    pub(in crate::driver) activation: Activation,
    pub(in crate::driver) previous_owner: PreviousOwner,
    pub(in crate::driver) context: Arc<WorkerContext>,
    pub(in crate::driver) dispatcher: DispatcherHandle,
}

/// A kind with what its entities need.
pub(in crate::driver) struct Served<K: EntityKind> {
    /// How effects are run.
    pub(in crate::driver) runner: Arc<dyn EffectRunner<K>>,
    /// How activations treat their entities.
    pub(in crate::driver) machine: MachineOptions,
}

/// The handle of an entity's actor, whose kind is known.
#[derive(Debug)]
struct TypedEntityHandle<K: EntityKind>(ActorRef<EntityMessage<K>>);

/// Where an effect's runner reports its result.
#[derive(Debug)]
pub struct Port<K: EntityKind>(pub(super) ActorRef<EntityMessage<K>>);

#[derive(Debug)]
pub(super) enum EntityMessage<K: EntityKind> {
    /// Boxed, because a mailbox keeps room for 32 messages for as long as its entity is resident.
    Feed(Box<MachineInput<K>>),
    Ask(InputId, oneshot::Sender<NodeReply>),
    /// One of its tasks panicked: the answer that the actor waits for will not come.
    Broke,
}

/// Starts the actor of one entity.
pub(in crate::driver) async fn start<K: EntityKind>(
    served: Arc<Served<K>>,
    start: Start,
    parent: ActorCell,
) -> Result<Arc<dyn EntityHandle>, SpawnErr> {
    let actor = EntityActor(std::marker::PhantomData);
    let spawned =
        EntityActor::spawn_linked(None, actor, EntityArguments { served, start }, parent).await;
    Ok(Arc::new(TypedEntityHandle::<K>(spawned?.0)))
}

// === impl TypedEntityHandle ===

impl<K: EntityKind> TypedEntityHandle<K> {
    fn feed(&self, input: MachineInput<K>) {
        if self.0.cast(EntityMessage::Feed(Box::new(input))).is_err() {
            debug!("an entity's actor stopped before a message to it");
        }
    }
}

impl<K: EntityKind> EntityHandle for TypedEntityHandle<K> {
    fn deliver(&self, inputs: Vec<Input>) {
        self.feed(MachineInput::Deliver(inputs));
    }

    fn tick(&self) {
        self.feed(MachineInput::Tick);
    }

    fn make_room(&self) {
        self.feed(MachineInput::MakeRoom);
    }

    fn fenced(&self, epoch: Epoch) {
        self.feed(MachineInput::FencedHint(epoch));
    }

    fn drain(&self) {
        self.feed(MachineInput::Drain);
    }

    fn give_up(&self) {
        self.feed(MachineInput::GiveUp);
    }

    fn ask(&self, input: InputId, reply: oneshot::Sender<NodeReply>) {
        if self.0.cast(EntityMessage::Ask(input, reply)).is_err() {
            debug!("an entity's actor stopped before it was asked something");
        }
    }

    fn cell(&self) -> ActorCell {
        self.0.get_cell()
    }
}

// === impl Port ===

impl<K: EntityKind> Clone for Port<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: EntityKind> Port<K> {
    pub(in crate::driver) fn tell(&self, input: MachineInput<K>) {
        if self.0.cast(EntityMessage::Feed(Box::new(input))).is_err() {
            debug!("an effect outlived its entity's actor");
        }
    }

    /// The call may start.
    pub fn granted(&self, effect: K::Effect, grant: K::Grant) {
        self.tell(MachineInput::Granted(effect, grant));
    }

    /// The call must wait.
    pub fn deferred(&self, effect: K::Effect) {
        self.tell(MachineInput::Deferred(effect));
    }

    /// The call will never be answered.
    pub fn forgotten(&self, effect: K::Effect) {
        self.tell(MachineInput::Forgotten(effect));
    }

    /// The call may not be made.
    pub fn refused(&self, effect: K::Effect, outcome: K::Outcome) {
        self.tell(MachineInput::Refused(effect, outcome));
    }

    /// The call has ended.
    pub fn ended(&self, effect: K::Effect, outcome: K::Outcome) {
        self.tell(MachineInput::Ended(effect, outcome));
    }

    /// An aborted call has ended without an outcome.
    pub fn gone(&self, effect: K::Effect) {
        self.tell(MachineInput::Gone(effect));
    }

    /// The emission is confirmed.
    pub fn confirmed(&self, effect: K::Effect) {
        self.tell(MachineInput::Confirmed(effect));
    }

    /// Whether the entity's actor is gone.
    pub fn is_closed(&self) -> bool {
        matches!(self.0.get_status(), ractor::ActorStatus::Stopping | ractor::ActorStatus::Stopped)
    }
}

// === impl Served ===

impl<K: EntityKind> fmt::Debug for Served<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("kind", &K::KIND).finish_non_exhaustive()
    }
}

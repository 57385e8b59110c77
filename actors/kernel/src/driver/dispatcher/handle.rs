//! What reaches a partition's dispatcher.

use std::{collections::BTreeSet, fmt, sync::Arc};

use clawnode_cluster::{Delivery, Peek};
use clawnode_proto::{
    EntityId, Epoch, InputId, Partition as PartitionId, ProcessId, node::NodeReply,
};
use ractor::{Actor, ActorCell, ActorRef, SpawnErr};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::debug;

use super::{
    actor::{DispatcherActor, DispatcherArguments},
    pump::scan,
};
use crate::{
    MissingCapability,
    driver::{Placed, WorkerContext},
    partition::{Gone, PartitionInput},
};

/// The handle of a partition's dispatcher.
#[derive(Clone, Debug)]
pub struct DispatcherHandle(pub(super) ActorRef<DispatcherMessage>);

/// What a dispatcher looks like from outside.
#[derive(Clone, Debug, Default)]
pub struct DispatcherView {
    /// Entities active or about to be.
    pub entities: usize,
    /// The first of them, and the phase of each in a word.
    pub named: Vec<(EntityId, &'static str)>,
}

pub(super) enum DispatcherMessage {
    Delivered(Delivery, OwnedSemaphorePermit),
    Feed(PartitionInput),
    Asked(EntityId, InputId, Option<ProcessId>, oneshot::Sender<NodeReply>),
    Rung(EntityId, InputId, oneshot::Sender<NodeReply>),
    Fenced(EntityId, Epoch),
    Tick,
    Cordon(bool),
    Drain(oneshot::Sender<()>),
    GiveUp,
    View(usize, oneshot::Sender<DispatcherView>),
    /// One of its tasks panicked: the answer that the actor waits for will not come.
    Broke,
}

impl fmt::Debug for DispatcherMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered(delivery, _) => write!(f, "Delivered({delivery:?})"),
            Self::Feed(input) => write!(f, "Feed({input:?})"),
            Self::Asked(entity, input, ..) => write!(f, "Asked({entity}, {input})"),
            Self::Rung(entity, input, _) => write!(f, "Rung({entity}, {input})"),
            Self::Fenced(entity, epoch) => write!(f, "Fenced({entity}, {epoch})"),
            Self::Tick => f.write_str("Tick"),
            Self::Cordon(is_cordoned) => write!(f, "Cordon({is_cordoned})"),
            Self::Drain(_) => f.write_str("Drain"),
            Self::GiveUp => f.write_str("GiveUp"),
            Self::View(..) => f.write_str("View"),
            Self::Broke => f.write_str("Broke"),
        }
    }
}

// === impl DispatcherHandle ===

impl DispatcherHandle {
    /// Starts a partition's dispatcher and pulls its inbox as it is `placed`. A dispatcher that
    /// follows another (`again`) gets the list of the dead and scans its inbox at once: inputs that
    /// the other had in hand are not delivered before their time is over.
    pub(in crate::driver) async fn spawn(
        partition: PartitionId,
        placed: Placed,
        again: bool,
        context: Arc<WorkerContext>,
        parent: ActorCell,
    ) -> Result<Self, SpawnErr> {
        let actor = DispatcherActor;
        let scans = again.then(|| Arc::clone(&context));
        let arguments = DispatcherArguments { partition, placed, context };
        let (actor, _) = DispatcherActor::spawn_linked(None, actor, arguments, parent).await?;
        let dispatcher = Self(actor);
        if let Some(context) = scans {
            // The dispatcher before it had the list, and only a change sends it again.
            dispatcher.dead(context.peers.peek(|peers| peers.dead.clone()));
            // Detached: it ends with its scan, or as soon as its dispatcher is gone.
            drop(tokio::spawn(scan(partition, context, dispatcher.0.clone())));
        }
        Ok(dispatcher)
    }

    fn tell(&self, message: DispatcherMessage) {
        if self.0.cast(message).is_err() {
            debug!("a dispatcher stopped before a message to it");
        }
    }

    pub(in crate::driver) fn completed(&self, entity: EntityId, input: InputId) {
        self.tell(DispatcherMessage::Feed(PartitionInput::Completed(entity, input)));
    }

    pub(in crate::driver) fn gone(&self, entity: EntityId, why: Gone) {
        self.tell(DispatcherMessage::Feed(PartitionInput::Gone(entity, why)));
    }

    pub(in crate::driver) fn too_new(&self, entity: EntityId, needs: MissingCapability) {
        self.tell(DispatcherMessage::Feed(PartitionInput::TooNew(entity, needs)));
    }

    /// Entities with inputs that were found waiting.
    pub fn scanned(&self, entities: Vec<EntityId>) {
        self.tell(DispatcherMessage::Feed(PartitionInput::Scanned(entities)));
    }

    /// Which other processes are held dead now.
    pub fn dead(&self, dead: BTreeSet<ProcessId>) {
        self.tell(DispatcherMessage::Feed(PartitionInput::Dead(dead)));
    }

    /// Another process asks for an input.
    pub fn asked(
        &self,
        entity: EntityId,
        input: InputId,
        asker: Option<ProcessId>,
        reply: oneshot::Sender<NodeReply>,
    ) {
        self.tell(DispatcherMessage::Asked(entity, input, asker, reply));
    }

    /// Another process wants the entity to be served here.
    pub fn rung(&self, entity: EntityId, input: InputId, reply: oneshot::Sender<NodeReply>) {
        self.tell(DispatcherMessage::Rung(entity, input, reply));
    }

    /// Takes no more entities, or takes them again.
    pub fn cordon(&self, is_cordoned: bool) {
        self.tell(DispatcherMessage::Cordon(is_cordoned));
    }

    /// Another process says that it has claimed an entity.
    pub fn fenced(&self, entity: EntityId, epoch: Epoch) {
        self.tell(DispatcherMessage::Fenced(entity, epoch));
    }

    /// Hands everything over; ends when nothing is left.
    pub async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.tell(DispatcherMessage::Drain(done));
        if drained.await.is_err() {
            debug!("a dispatcher stopped while it was drained");
        }
    }

    /// Gives running calls up; `drain` continues from there.
    pub fn give_up(&self) {
        self.tell(DispatcherMessage::GiveUp);
    }

    /// What it looks like now, with at most `most` entities named.
    pub async fn view(&self, most: usize) -> Option<DispatcherView> {
        let (reply, answer) = oneshot::channel();
        self.tell(DispatcherMessage::View(most, reply));
        answer.await.ok()
    }

    /// Its actor, for the supervisor.
    pub(in crate::driver) fn cell(&self) -> ActorCell {
        self.0.get_cell()
    }
}

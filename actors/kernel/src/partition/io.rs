//! The inputs and outputs of a partition dispatcher.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use clawnode_proto::{EntityId, Input, InputId, Kind, Position, ProcessId};

use crate::{
    MissingCapability, OwnerSays,
    machine::{Activation, PreviousOwner},
};

/// The result of forwarding an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// The actor of the other process has it.
    Held,
    /// It is complete.
    Completed,
    /// The other looks after it from now on.
    Rung,
    /// No process that could serve it takes it now.
    NotNow,
    /// No living process could serve it, not even one that takes nothing now.
    Orphan,
}

/// The driver's name for an acknowledgement handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

/// The driver's name for a question from another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// The last writer of a journal, as admission needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastWriter {
    pub process: ProcessId,
    /// Whether it gave the entity up.
    pub released: bool,
}

/// Why an entity's actor is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Nothing was left to do.
    Idle,
    /// It was fenced: try again after a wait.
    Lost,
    /// It panicked, or ran into a defect: try again after a wait; it counts against the entity.
    Died,
    /// It only waited, and made room; its inputs come again after a while.
    GaveWay,
    /// It cannot be served now; its inputs stay where they are.
    Unservable,
    /// It was handed over.
    Released,
}

/// Something in an inbox, as far as this build can read it.
#[derive(Debug)]
pub enum Arrived {
    Input(Input),
    /// An input that this process cannot serve.
    Foreign {
        input: InputId,
        /// What a process must know to serve it.
        needs: MissingCapability,
        /// The whole of it.
        bytes: Bytes,
    },
    /// No node can read it.
    Unreadable {
        /// The whole of it.
        bytes: Bytes,
        reason: String,
    },
}

/// An input of a partition machine.
#[derive(Debug)]
pub enum PartitionInput {
    /// A delivery.
    Delivered {
        entity: EntityId,
        /// Where the store has it.
        position: Position,
        /// What to answer to.
        handle: HandleId,
        /// Whether a process may have had it before.
        redelivered: bool,
        /// The delivered input, if no other input of the entity waits before it.
        foremost: Option<Arrived>,
    },
    /// Entities with waiting inputs, found by a scan.
    Scanned(Vec<EntityId>),
    /// The entity's inbox, as asked.
    Inbox(EntityId, Position, Vec<(Position, Arrived)>),
    /// An input that no node can read was put aside whole, as asked; or could not be.
    Aside(EntityId, Position, bool),
    /// The entity's last writer, as asked.
    Tail(EntityId, Option<LastWriter>),
    /// The inbox or the tail could not be read.
    ReadFailed(EntityId),
    /// The answer of the last writer's process.
    OwnerSaid(EntityId, OwnerSays),
    /// The entity's actor is done with the input.
    Completed(EntityId, InputId),
    /// The entity's actor is gone.
    Gone(EntityId, Gone),
    /// Another process, named if known, asks for an input of an entity.
    Asked(AskId, EntityId, InputId, Option<ProcessId>),
    /// Another process wants the entity to be served here, because an input of it waits.
    Rung(AskId, EntityId, InputId),
    /// The entity's journal needs a process that knows more than this one; its actor is gone.
    TooNew(EntityId, MissingCapability),
    /// The result of forwarding an input.
    Forwarded(EntityId, Forwarded),
    /// Which other processes are held dead now.
    Dead(BTreeSet<ProcessId>),
    /// Time has passed (about once a second).
    Tick,
    /// Take no more entities, and keep those that are active; or take them again.
    Cordon(bool),
    /// Take nothing new; hand over what there is.
    Drain,
}

/// An output of a partition machine: work for its driver.
#[derive(Debug, PartialEq, Eq)]
pub enum PartitionOutput {
    /// Read the entity's inbox after this position.
    ReadInbox(EntityId, Position),
    /// Read the journal's last record.
    ReadTail(EntityId),
    /// Ask the process whether it holds the input.
    AskOwner(ProcessId, EntityId, InputId),
    /// Keep this whole among the dead letters; answer `Aside`.
    SetAside(EntityId, Position, Bytes, String),
    /// Start an actor for the entity, which is of this kind.
    Activate(EntityId, Kind, Activation, PreviousOwner),
    /// Hand these to the entity's actor.
    Deliver(EntityId, Vec<Input>),
    /// Ask the entity's actor, and answer the question.
    AskActor(AskId, EntityId, InputId),
    /// Answer the question: the owner lives, and will have the input.
    AnswerHeld(AskId),
    /// Answer the question: not owned here.
    AnswerNotMine(AskId),
    /// Answer that the entity is looked after.
    AnswerRung(AskId),
    /// Tell the process that the entity was given up and an input of it waits.
    Ring(ProcessId, EntityId, InputId),
    /// Notify the process that is to serve the partition next that the entity was given up while an
    /// input waits and no process had asked for it. A hint, like a ring.
    RingNext(EntityId, InputId),
    /// Find a process that knows what is needed, and ask it to serve the entity.
    Forward(EntityId, InputId, MissingCapability),
    /// Acknowledge.
    Ack(HandleId),
    /// Extend its time: it is being worked on.
    Progress(HandleId),
    /// Give back for later.
    Nak(HandleId, Duration),
    /// Drop this handle unanswered.
    Forget(HandleId),
    /// Everything is handed over.
    Drained,
}

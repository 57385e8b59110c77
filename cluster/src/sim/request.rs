//! What is asked of the stores, what they answer, and what changes in them.

use std::time::Duration;

use bytes::Bytes;
use clawnode_proto::{Digest, EntityId, Input, InputId, Partition, Position};

use super::inboxes::Token;
use crate::{AppendAnswer, Record, Write};

/// Names a request to whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a process may ask of the stores.
#[derive(Clone, Debug)]
pub enum Request {
    /// One try at an append.
    Append {
        /// Whose journal.
        entity: EntityId,
        /// The fence.
        expected: Position,
        /// What.
        write: Write,
    },
    /// The records after a position.
    Journal(EntityId, Position),
    /// The last record.
    Tail(EntityId),
    /// Store an input.
    Put(Input),
    /// What waits for an entity after a position.
    Inbox(EntityId, Position),
    /// Entities of a partition for which something waits.
    Scan(Partition),
    /// The input is done with.
    Ack(Token),
    /// Still at it.
    Progress(Token),
    /// Deliver again after a while.
    Nak(Token, Duration),
    /// Store a blob.
    PutBlob(Bytes),
    /// Read a blob.
    GetBlob(Digest),
}

/// What a store answers.
#[derive(Debug)]
pub enum Reply {
    /// To an append.
    Append(AppendAnswer),
    /// Records, oldest first.
    Records(Vec<Record>),
    /// The last record.
    Tail(Option<Record>),
    /// The input is stored.
    Put(Position),
    /// What waits.
    Waiting(Vec<(Position, Input)>),
    /// Entities with something waiting.
    Entities(Vec<EntityId>),
    /// To an answer to a delivery.
    Done,
    /// The blob is stored.
    Stored(Digest),
    /// A blob.
    Blob(Option<Bytes>),
    /// No answer, or one that proves nothing.
    Failed,
}

/// A delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// For whom.
    pub entity: EntityId,
    /// Where the store has the input; also what to answer to.
    pub token: Token,
    /// Whether it was delivered before.
    pub redelivered: bool,
}

/// What happens to a process.
#[derive(Debug)]
pub enum Happening<D> {
    /// A request is answered.
    Answer(Ticket, Reply),
    /// An input is delivered.
    Delivery(Delivered),
    /// Something of the driver's own.
    Own(D),
}

/// What changed in the stores, for whoever checks.
#[derive(Clone, Debug)]
pub enum Change {
    /// A record was stored.
    Appended {
        /// Whose.
        entity: EntityId,
        /// What.
        record: Record,
        /// Whether it replaced all before it.
        rollup: bool,
    },
    /// An input was stored.
    Put(EntityId, InputId),
    /// A stored input is gone.
    Removed(EntityId, InputId),
}

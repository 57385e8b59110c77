//! What is asked of the stores, what they answer, and what changes in them.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, BucketEntry, FeedPage, Record, Timer, Write};
use clawnode_proto::{
    Capability, Digest, EntityId, Input, InputId, JobId, Partition, Position, TimerId, job::Job,
};

use super::inboxes::Token;

/// Names a request to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTicket(pub u64);

/// Names one delivered job to the process that answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobToken(pub Position);

/// What a process may ask of the stores.
#[derive(Clone, Debug)]
pub enum StoreRequest {
    /// One try at an append.
    Append {
        /// Whose journal.
        entity: EntityId,
        expected: Position,
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
    /// Store a job, unless it waits already.
    PutJob(Box<Job>),
    /// Whether a job waits.
    JobWaits(Capability, JobId),
    /// The job is done with.
    AckJob(JobToken),
    /// Still at the job.
    ProgressJob(JobToken),
    /// Deliver the job again after a while.
    NakJob(JobToken, Duration),
    /// All jobs that wait.
    Jobs,
    /// Store a blob.
    PutBlob(Bytes),
    /// Read a blob.
    GetBlob(Digest),
    RemoveBlob(Digest),
    Blobs,
    /// At most so many entities with a journal, in order, after this one.
    Entities(Option<EntityId>, usize),
    /// At most so many records of all journals, after a position.
    Follow(Position, usize),
    /// The position of the last record that was stored.
    End,
    /// A value of the bucket.
    Value(String),
    /// The values of the bucket whose keys begin so.
    Values(String),
    SetValue {
        /// Under which key.
        key: String,
        expected: Position,
        value: Bytes,
        /// Gone after this.
        ttl: Option<Duration>,
    },
    /// Remove a value that is at a position.
    RemoveValue(String, Position),
    /// Set or replace a timer.
    SetTimer(Timer),
    /// Remove a timer.
    CancelTimer(EntityId, TimerId),
    Timers(Partition),
}

/// What a store answers.
#[derive(Debug)]
pub enum StoreReply {
    Append(AppendAnswer),
    /// Records, oldest first.
    Records(Vec<Record>),
    /// The last record.
    Tail(Option<Record>),
    /// Records of all journals.
    Page(FeedPage),
    /// The position of the last record that was stored.
    End(Position),
    /// The input is stored.
    Put(Position),
    /// What waits.
    Waiting(Vec<(Position, Input)>),
    /// Entities with something waiting.
    Entities(Vec<EntityId>),
    /// To an answer to a delivery, and to a job that waits from now on at the latest.
    Done,
    /// Whether something is so.
    Is(bool),
    /// Jobs that wait.
    Jobs(Vec<Job>),
    /// The blob is stored.
    Stored(Digest),
    Blob(Option<Bytes>),
    /// All blobs.
    Digests(Vec<Digest>),
    Value(Option<BucketEntry>),
    /// Values, in key order.
    Values(Vec<(String, BucketEntry)>),
    /// Where a value was set (0: removed); `None` if it was not where it was expected.
    Changed(Option<Position>),
    Timers(Vec<Timer>),
    /// No answer, or one that proves nothing.
    Failed,
}

/// A delivery.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub entity: EntityId,
    /// Where the store has the input; also what to answer to.
    pub token: Token,
    /// Whether it was delivered before.
    pub redelivered: bool,
    /// The input, if nothing of its entity waited when it was stored.
    pub foremost: Option<Box<Input>>,
}

/// A delivery of a job.
#[derive(Clone, Debug)]
pub struct JobDelivered {
    pub job: Box<Job>,
    /// What to answer to.
    pub token: JobToken,
    /// Whether it was delivered before.
    pub redelivered: bool,
}

/// What happens to a process.
#[derive(Debug)]
pub enum Happening<D> {
    /// A request is answered.
    Answer(RequestTicket, StoreReply),
    /// An input is delivered.
    Delivery(Delivered),
    /// A job is delivered that the process asked for.
    Job(JobDelivered),
    /// Something of the driver's own.
    Own(D),
}

/// What changed in the stores, for checkers.
#[derive(Clone, Debug)]
pub enum StoreChange {
    /// A record was stored.
    Appended {
        entity: EntityId,
        record: Record,
        /// Whether it replaced all before it.
        rollup: bool,
    },
    /// An input was stored.
    Put(EntityId, InputId),
    /// A stored input is gone.
    Removed(EntityId, InputId),
    /// A job was stored.
    JobPut(JobId),
    /// A stored job is gone.
    JobRemoved(JobId),
}

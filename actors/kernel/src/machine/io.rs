//! The inputs and outputs of an entity machine.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Record, Write};
use clawnode_proto::{Digest, Epoch, Input, InputId, Position, ProcessId, kernel::SnapshotState};

use crate::{MissingCapability, core::LoadedJournal, kind::EntityKind};

/// What another process says about an input of an entity that it owned last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerSays {
    /// Its actor has it.
    Held,
    /// It is complete.
    Completed,
    /// It does not own the entity.
    NotMine,
    Silent,
}

/// An input of an entity machine.
#[derive(Debug)]
pub enum MachineInput<K: EntityKind> {
    /// Inputs from the inbox, in stream order.
    Deliver(Vec<Input>),
    /// The journal, as asked by [`MachineOutput::Load`].
    Loaded(LoadedJournal),
    /// It is the entity's turn to be tried, as asked by [`MachineOutput::EnterProbation`]; it is noted as in
    /// hand from now on.
    Probation {
        /// It was in hand when the process of its last owner died.
        blamed: bool,
    },
    /// The journal cannot be read: damaged, not merely out of reach.
    Unreadable {
        /// What is damaged.
        detail: String,
        /// The position of the last record.
        position: Position,
    },
    /// The answer to [`MachineOutput::Append`].
    Answered(AppendAnswer),
    /// The answer to [`MachineOutput::ReadBack`]: records after the expected position, and the last
    /// record's position if there are none.
    ReadBack {
        /// Records after the expected position.
        after_expected: Vec<Record>,
        /// The position of the last record of all.
        tail: Position,
    },
    /// The call may start.
    Granted(K::Effect, K::Grant),
    /// The call must wait; `Granted` follows.
    Deferred(K::Effect),
    /// The call will not be answered any more; the machine asks again at a tick.
    Forgotten(K::Effect),
    /// The call may not be made at all; this is its outcome.
    Refused(K::Effect, K::Outcome),
    /// A call has ended.
    Ended(K::Effect, K::Outcome),
    /// An emission is confirmed.
    Confirmed(K::Effect),
    /// A call that was aborted before it had an outcome is gone.
    Gone(K::Effect),
    /// Old records are archived and the state is stored, as asked by [`MachineOutput::Archive`].
    Archived {
        /// The archive's digest.
        archive: Digest,
        /// Where the state is.
        state: SnapshotState,
        /// The states of earlier snapshots that nothing needs once this one is stored.
        superseded: Vec<Digest>,
        /// Where the store had the archived records.
        positions: Vec<Position>,
    },
    /// The blobs that [`MachineOutput::Scrub`] names are removed, or enough tries have failed.
    Scrubbed,
    /// The tombstone's state is stored and the blobs of the entity are gone, as asked by
    /// [`MachineOutput::Erase`].
    Erased {
        /// Where the tombstone's state is.
        state: SnapshotState,
        /// The blob of the snapshot that it still loads from.
        before: Option<Digest>,
    },
    /// The state is stored and the archives of the entity are gone, as asked by
    /// [`MachineOutput::Purge`].
    Purged {
        /// Where the state is.
        state: SnapshotState,
        /// The blob of the snapshot that the journal still loads from.
        before: Option<Digest>,
    },
    /// The archive could not be made; the next attempt is after another `snapshot_every` events.
    ArchiveFailed,
    /// Another process says that it has claimed the entity.
    FencedHint(Epoch),
    /// Time has passed.
    Tick,
    /// The process has no room for more: leave memory, if the entity has no work.
    MakeRoom,
    /// Hand the entity over: no new work; running calls may end.
    Drain,
    /// Hand the entity over now: running calls are given up.
    GiveUp,
}

/// An output of an entity machine: work for its driver.
#[derive(Debug)]
pub enum MachineOutput<K: EntityKind> {
    /// Read the journal.
    Load,
    /// Wait until no other entity of the process is tried, look whether this one was in hand when
    /// its last owner died, and note durably that it is in hand; answer `Probation`.
    EnterProbation,
    /// All the work that the entity begins with has begun: once the process has survived that, it
    /// is not in hand any more.
    LeaveProbation {
        /// Whether anything runs for it, which may still kill the process.
        runs: bool,
    },
    /// Append, after a wait.
    Append {
        /// How long to wait before (the driver adds jitter).
        wait: Duration,
        expected: Position,
        write: Write,
    },
    /// Read the records after this position.
    ReadBack {
        /// The fence of the append in flight.
        after: Position,
    },
    /// Ask whether the call may start; answer `Granted` or `Deferred`.
    Acquire(K::Effect, K::Want),
    /// The grant is not needed any more.
    Release(K::Effect),
    /// Start a call or an emission; answer `Ended`, `Confirmed` or `Gone`.
    Start(K::Effect, K::Job),
    /// Abort a call; answer `Ended` with what there is, or `Gone`.
    Abort(K::Effect),
    /// The input may be acknowledged (I4).
    Complete(InputId),
    /// Archive all records up to this position, no fewer and no more (a read may be stale), and
    /// store this state; answer `Archived` or `ArchiveFailed`.
    Archive {
        /// The last record that the state includes.
        upto: Position,
        /// The encoded state.
        state: Bytes,
    },
    /// Store the tombstone's state, then remove the blobs of an entity that is to be deleted,
    /// except for the state it loads from, and those of the inputs that go with it; answer
    /// `Erased`.
    Erase {
        /// The inputs that go with it.
        dropped: Vec<Input>,
        /// The state of the tombstone: encoded, without content.
        state: Bytes,
    },
    /// Store this state, then remove the archives of all records up to this position and the states of earlier
    /// snapshots, the oldest first, except for the one that the journal loads from; answer `Purged`.
    Purge {
        /// The last record that the state includes.
        upto: Position,
        /// The encoded state.
        state: Bytes,
    },
    /// Remove these blobs, also if the activation ends meanwhile; nothing refers to them any more.
    Discard(Vec<Digest>),
    /// Remove these blobs, and have the store free what it removed: the entity is deleted or purged. Answer
    /// `Scrubbed`.
    Scrub(Vec<Digest>),
    /// Tell this process that the entity has another owner now, so that it stops paying at once.
    TellFenced {
        /// The last owner.
        process: ProcessId,
        /// The epoch that is in force now.
        epoch: Epoch,
    },
    /// The activation is over.
    Stop(ActivationEnd),
}

/// Why an activation is over.
#[derive(Clone, Debug)]
pub enum ActivationEnd {
    /// Idle; nothing is left to do.
    Passivated,
    /// It only waited, and another entity needed the room.
    GaveWay,
    /// Handed over.
    Released,
    /// Another process owns the entity.
    Fenced,
    /// Out of service; its inputs are parked.
    Quarantined(String),
    /// The journal cannot be folded; nothing was appended.
    Corrupt(String),
    /// The journal has an event that this process does not know, and another one may; nothing was
    /// appended.
    TooNew(MissingCapability),
    /// The store lost records that it had acknowledged.
    Diverged(String),
    /// This program drafted something that the store or the fold refuses.
    Defect(String),
}

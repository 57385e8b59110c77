//! The kernel's own events: the same for every entity kind.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    envelope::Input,
    event::Tail,
    grammar,
    id::{Digest, InputId, Kind, Position, Seq},
    timestamp::Timestamp,
};

pub use crate::event::CLAIM;

/// The wire name of the event that gives ownership back.
pub const RELEASED: &str = "released";
/// The wire name of the event that takes an entity out of service.
pub const QUARANTINED: &str = "quarantined";
/// The wire name of the event that puts an input of such an entity aside.
pub const PARKED: &str = "parked";
/// The wire name of the event that puts such an entity back in service.
pub const RESTORED: &str = "restored";
/// The wire name of the event that stands for all before it.
pub const SNAPSHOT: &str = "snapshot";
/// The wire name of the last event of all.
pub const DELETED: &str = "deleted";

grammar! {
    /// The kernel's events. `Accepted` carries a whole input; the kind folds it.
    pub enum KernelEvent {
        /// An owner takes the entity; raises the epoch. The append is the lock.
        Claim(Claim) = "claim", required;
        /// The first event after the first claim.
        Born(Born) = "born", required;
        /// An input is in the journal.
        Accepted(Accepted) = "accepted", required;
        /// All effects that a finished turn asked for are confirmed.
        Emitted(Emitted) = "emitted", required;
        /// Stands for all events before it.
        Snapshot(Snapshot) = "snapshot", required;
        /// An input is put aside whole, because the entity is quarantined.
        Parked(Parked) = "parked", required;
        /// The entity is out of service until a person decides.
        Quarantined(Quarantined) = "quarantined", required;
        /// A person put the entity back in service; what was parked is accepted with it.
        Restored(Restored) = "restored", required, progress;
        /// The owner gives the entity up of its own will.
        Released(Released) = "released", required, progress;
        /// The entity is gone; nothing personal remains.
        Deleted(Deleted) = "deleted", required, progress;
    }
}

/// An owner takes the entity. Epoch and incarnation are in the head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The process of the last owner died of something else, so this claim is not counted among
    /// those without progress (C16).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excused: bool,
}

/// What the entity is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Born {
    /// Its kind.
    pub kind: Kind,
    /// Its readable key; must hash to its id.
    pub key: String,
}

/// An input, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The input as it was sent.
    pub input: Input,
}

/// All effects under `key` are confirmed; `decide` need not return them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emitted {
    /// What was emitted, in the kind's own terms (a turn).
    pub turn: crate::id::TurnId,
}

/// Stands for all events up to `tail`: the fold's state, whole or in a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last event that it stands for.
    pub tail: Tail,
    /// The replaced records, archived: `verify` and `replay` follow it.
    pub archive: Option<Digest>,
    /// The encoded state (kernel part and kind part).
    pub state: SnapshotState,
    /// The states of earlier snapshots that nothing needs once this one is stored: whoever stored
    /// it removes them. `None` if a build wrote it that kept them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<Vec<Digest>>,
    /// Where the store had the archived records, oldest first: so a follower of the feed knows which
    /// of them it has seen. Empty if a build wrote it that did not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<Position>,
}

/// Where a snapshot's state is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SnapshotState {
    /// In the event.
    Inline {
        /// The encoded state.
        bytes: ByteBuf,
    },
    /// In the blob store, because it is over [`crate::limits::INLINE_BYTES`].
    Blob {
        /// Its digest.
        digest: Digest,
    },
}

/// An input put aside whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The input as it was sent.
    pub input: Input,
}

/// Why the entity is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// For people.
    pub reason: String,
}

/// A person put the entity back in service: all that was parked is accepted, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The order.
    pub input: Input,
}

/// Nothing to add to the head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {}

/// Who asked, and when it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// When.
    pub at: Timestamp,
    /// Inputs that waited and are gone with it: delivered again, they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<InputId>,
}

/// What the kernel itself remembers of an entity; part of every snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// An accepted input.
    pub input: InputId,
    /// When it was journaled.
    pub ts: Timestamp,
    /// Which event.
    pub n: Seq,
}

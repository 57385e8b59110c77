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
/// The wire name of the event that replaces all before it.
pub const SNAPSHOT: &str = "snapshot";
/// The wire name of the event after which the replaced records of an entity are removed.
pub const PURGE_BEGUN: &str = "purge_begun";
/// The wire name of the last event of all.
pub const DELETED: &str = "deleted";

grammar! {
    /// The kernel's events. `Accepted` carries a whole input; the kind folds it.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum KernelEvent {
        /// A worker takes ownership of the entity and raises the epoch. The append is the lock.
        Claim(Claim) = "claim", required;
        /// What the entity is. The first event after the first claim.
        Born(Born) = "born", required;
        /// An input is accepted: it is in the journal.
        Accepted(Accepted) = "accepted", required;
        /// All effects of a finished turn are confirmed.
        Emitted(Emitted) = "emitted", required;
        /// Replaces all events before it.
        Snapshot(Snapshot) = "snapshot", required;
        /// What the journal had before is removed. A snapshot without an archive follows.
        PurgeBegun(PurgeBegun) = "purge_begun", required, progress;
        /// An input is set aside, because the entity is quarantined.
        Parked(Parked) = "parked", required;
        /// The entity is out of service until a person decides.
        Quarantined(Quarantined) = "quarantined", required;
        /// A person put the entity back in service. Its parked inputs are accepted.
        Restored(Restored) = "restored", required, progress;
        /// The owner gives up the entity, because another worker takes it.
        Released(Released) = "released", required, progress;
        /// The entity is deleted. No personal data remains.
        Deleted(Deleted) = "deleted", required, progress;
    }
}

/// An owner takes the entity. Epoch and incarnation are in the head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// Whether another cause ended the process of the last owner, so that this claim does not count towards
    /// quarantine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excused: bool,
}

/// What the entity is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Born {
    /// The kind of the entity, for example `session`.
    pub kind: Kind,
    /// The readable key. The id of the entity is its hash.
    pub key: String,
}

/// An input, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accepted {
    /// The input, as its sender wrote it.
    pub input: Input,
}

/// All effects under `key` are confirmed; `decide` need not return them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Emitted {
    /// The turn whose effects are confirmed.
    pub turn: crate::id::TurnId,
}

/// Replaces all events up to `tail`: the fold's state, whole or in a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// The last event that the snapshot replaces.
    pub tail: Tail,
    /// The digest of the archive of the replaced records. `journal verify` and `journal replay` read it. Absent if
    /// nothing is left of them: the entity was deleted or purged, as its state says.
    pub archive: Option<Digest>,
    /// The encoded state of the entity.
    pub state: SnapshotState,
    /// The states of earlier snapshots, which the writer of this one deletes. Absent from builds that
    /// kept all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<Vec<Digest>>,
    /// The positions of the archived records in the store, oldest first, so that a reader of the journal
    /// feed knows which of them it has seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<Position>,
}

/// Where a snapshot's state is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SnapshotState {
    /// The event contains the state.
    Inline {
        /// The encoded state.
        #[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))]
        bytes: ByteBuf,
    },
    /// The blob store has the state, because it is larger than [`crate::limits::INLINE_BYTES`].
    Blob {
        /// The digest of the state.
        digest: Digest,
    },
}

/// An input that is set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parked {
    /// The input, as its sender wrote it.
    pub input: Input,
}

/// Why the entity is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quarantined {
    /// The reason, for people.
    pub reason: String,
}

/// A person put the entity back in service. Its parked inputs are accepted, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restored {
    /// The order to restore the entity.
    pub input: Input,
}

/// Nothing to add to the head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Released {}

/// Nothing to add to the head. From here on archives may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PurgeBegun {}

/// Who asked, and when it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deleted {
    /// When it was deleted.
    pub at: Timestamp,
    /// Inputs that waited and were deleted with it. If they are delivered again, they are ignored.
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

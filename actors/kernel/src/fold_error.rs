//! Why a journal cannot be folded.

use clawnode_proto::{CodecError, EntityId, Kind, Sealed, event::RecordError};

use super::kind::Violation;
use crate::MissingCapability;

/// Why a journal cannot be folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// Not a valid continuation (I1, I2).
    #[error("journal of `{entity}` is damaged at event `{at}`")]
    Record {
        entity: EntityId,
        /// The number of the last sound event.
        at: clawnode_proto::Seq,
        source: RecordError,
    },
    /// An event's body, or the state that a snapshot keeps, is sound by its hash and does not decode: a
    /// newer build wrote it.
    #[error("event `{n}` (`{kind}`) of `{entity}` was written by a newer version")]
    Body { entity: EntityId, n: clawnode_proto::Seq, kind: String, source: CodecError },
    /// A required kind that this build does not know.
    #[error("event `{n}` of `{entity}` has the kind `{kind}`, which this build does not know")]
    Unknown { entity: EntityId, n: clawnode_proto::Seq, kind: String },
    /// An input was accepted that only a newer build understands.
    #[error("event `{n}` of `{entity}` has an input of a newer version")]
    Input { entity: EntityId, n: clawnode_proto::Seq, kind: String },
    /// The journal is of another kind of entities.
    #[error("`{entity}` is of the kind `{kind}`")]
    Kind { entity: EntityId, kind: Kind },
    /// An event that contradicts what came before it.
    #[error("event `{n}` (`{kind}`) of `{entity}` contradicts the events before it")]
    Violation { entity: EntityId, n: clawnode_proto::Seq, kind: String, source: Violation },
}

// === impl FoldError ===

impl FoldError {
    /// What a process must know to fold the journal. Absent if none can: it is damaged.
    pub fn needs(&self) -> Option<MissingCapability> {
        match self {
            Self::Unknown { kind, .. } => Some(MissingCapability::Event(kind.clone())),
            Self::Body { kind, .. } | Self::Input { kind, .. } => {
                Some(MissingCapability::Newer(kind.clone()))
            }
            Self::Kind { kind, .. } => Some(MissingCapability::Kind(*kind)),
            Self::Record { .. } | Self::Violation { .. } => None,
        }
    }

    pub(super) fn violation(entity: EntityId, sealed: &Sealed, source: Violation) -> Self {
        Self::Violation { entity, n: sealed.head.n, kind: sealed.head.kind.clone(), source }
    }

    pub(super) fn unknown(entity: EntityId, sealed: &Sealed, kind: &str) -> Self {
        Self::Unknown { entity, n: sealed.head.n, kind: kind.to_owned() }
    }

    pub(super) fn body(entity: EntityId, sealed: &Sealed, source: CodecError) -> Self {
        Self::Body { entity, n: sealed.head.n, kind: sealed.head.kind.clone(), source }
    }
}

//! Why a request about an entity fails, and the error that clients get.

use std::fmt;

use clawnode_cluster::StoreError;
use clawnode_proto::{CodecError, CursorError, EntityId, ErrorBody, ErrorChain, ErrorCode, Kind};

use crate::{Core, FoldError};

/// An entity as commands take it, and its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityName {
    kind: Option<Kind>,
    /// Its key or its id.
    name: String,
}

/// Why a request about an entity fails.
#[derive(Debug, thiserror::Error)]
pub enum EntityError {
    #[error("no entity `{0}`")]
    NotFound(EntityId),
    /// Its journal cannot be folded.
    #[error(transparent)]
    Corrupt(#[from] FoldError),
    /// It is in service, so an order about entities out of service does not apply.
    #[error("{0} is in service")]
    InService(EntityName),
    /// A newer build has written an event that this one cannot read.
    #[error("{entity} needs a newer build: {reason}")]
    TooNew {
        entity: EntityName,
        /// What this build cannot read.
        reason: String,
    },
    /// It cannot be put back in service.
    #[error("{entity} cannot be put back in service: {reason}")]
    Unusable { entity: EntityName, reason: String },
    /// The order is stored, and not done yet.
    #[error("the request about {0} is accepted, but not done yet")]
    Pending(EntityName),
    /// There is no such dead letter.
    #[error("no dead letter `{0}`")]
    NoLetter(String),
    /// A cursor that this list cannot continue from.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An archive cannot be read.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

// === impl EntityName ===

impl EntityName {
    /// The name of an entity, from what is known of it.
    pub(super) fn of(id: EntityId, core: &Core) -> Self {
        let key = core.key.clone().filter(|_| core.kind.is_some_and(Kind::is_named_by_key));
        Self { kind: core.kind, name: key.unwrap_or_else(|| id.to_string()) }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.as_ref().map_or("entity", Kind::as_str);
        write!(f, "{kind} `{}`", self.name)
    }
}

// === impl EntityError ===

impl EntityError {
    /// Whether it is damage, which does not go away by waiting.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Store(failure) => {
                matches!(failure, StoreError::Corrupt { .. } | StoreError::Refused { .. })
            }
            Self::Corrupt(failure) => failure.needs().is_none(),
            Self::Codec(_) => true,
            _ => false,
        }
    }
}

impl From<EntityError> for ErrorBody {
    fn from(error: EntityError) -> Self {
        let message = ErrorChain(&error).to_string();
        match error {
            EntityError::NotFound(_) => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode sessions list` shows the sessions"),
            EntityError::Corrupt(failure) if failure.needs().is_some() => {
                Self::new(ErrorCode::Unavailable, message)
                    .hint("upgrade this node, or ask a node of the newer version")
            }
            EntityError::Corrupt(_) => Self::new(ErrorCode::Corrupt, message).hint(
                "`clawnode journal verify` names the damage; restore a backup, or go on in a new \
                 session",
            ),
            EntityError::InService(_) => Self::new(ErrorCode::Conflict, message)
                .hint("`clawnode quarantine list` shows what is out of service"),
            EntityError::TooNew { entity, .. } => {
                Self::new(ErrorCode::Unavailable, message).hint(format!(
                    "start a node of the newer version, or delete it with `clawnode quarantine \
                     drop {}`",
                    entity.name
                ))
            }
            EntityError::Unusable { entity, .. } => {
                Self::new(ErrorCode::Corrupt, message).hint(format!(
                    "restore a backup, or delete it with `clawnode quarantine drop {}`",
                    entity.name
                ))
            }
            EntityError::Pending(_) => Self::new(ErrorCode::Unavailable, message)
                .hint("check again with `clawnode quarantine show`"),
            EntityError::NoLetter(_) => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode parked` lists the dead letters"),
            EntityError::Cursor(error) => error.into(),
            EntityError::Store(failure) => {
                let hint = match &failure {
                    StoreError::Full { .. } => "free some space; nothing accepted is lost",
                    StoreError::Corrupt { .. } => "`clawnode journal verify` names the damage",
                    StoreError::Unavailable { .. }
                    | StoreError::Refused { .. }
                    | StoreError::Closed { .. } => "try again; `clawnode doctor` looks for causes",
                };
                Self::new(failure.code(), message).hint(hint)
            }
            EntityError::Codec(_) => Self::new(ErrorCode::Internal, message),
        }
    }
}

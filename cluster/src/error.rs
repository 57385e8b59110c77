//! How a store fails.

use clawnode_proto::{EntityId, ErrorCode, Position};

/// A store's failure. The variants say which failures may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Out of reach now; the same call may work later. The call may or may not have taken effect.
    #[error("{store} is unavailable: {detail}")]
    Unavailable {
        /// Which store, for people: `journal of <url>`.
        store: &'static str,
        detail: String,
    },
    /// No room; nothing was written.
    #[error("{store} is full: {detail}")]
    Full { store: &'static str, detail: String },
    /// One entity's data is damaged; others are not.
    #[error("stored data of `{entity}` is damaged at position {position}: {detail}")]
    Corrupt { entity: EntityId, position: Position, detail: String },
    /// The request itself is not allowed or over a limit; trying again cannot help.
    #[error("{store} refused: {detail}")]
    Refused { store: &'static str, detail: String },
    /// The store was closed, because the process stops or its disk failed.
    #[error("{store} is closed: {detail}")]
    Closed { store: &'static str, detail: String },
}

impl StoreError {
    /// Whether the same call may work later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The stable code for clients.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Unavailable { .. } | Self::Closed { .. } => ErrorCode::Unavailable,
            Self::Full { .. } => ErrorCode::DiskFull,
            Self::Corrupt { .. } => ErrorCode::Corrupt,
            Self::Refused { .. } => ErrorCode::Internal,
        }
    }
}

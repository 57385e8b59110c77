//! How filling a store fails.

use clawnode_cluster as cluster;
use clawnode_kernel::EntityError;
use clawnode_proto::{CodecError, ErrorBody, ErrorChain, ErrorCode};

use crate::store::MemoryStoreError;

/// Why a store could not be filled, or asked.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] MemoryStoreError),
    /// A journal cannot be folded.
    #[error(transparent)]
    Journal(#[from] EntityError),
    /// A value in a journal cannot be read.
    #[error(transparent)]
    Unreadable(#[from] CodecError),
    /// Where the feed was followed to cannot be kept.
    #[error("cannot keep how far the store is filled, in `{path}`; check its disk and permissions")]
    Followed {
        /// Which file.
        path: String,
        source: std::io::Error,
    },
}

// === impl FillError ===

impl FillError {
    /// Whether it is about one entity alone and stays as it is: others can be filled.
    pub(super) fn is_of_entity(&self) -> bool {
        match self {
            Self::Journal(EntityError::Corrupt(_))
            | Self::Unreadable(_)
            | Self::Store(MemoryStoreError::Full { .. } | MemoryStoreError::Malformed { .. }) => {
                true
            }
            Self::Journal(failure) => failure.is_damage(),
            Self::Store(_) | Self::Followed { .. } => false,
        }
    }
}

impl From<cluster::StoreError> for FillError {
    fn from(failure: cluster::StoreError) -> Self {
        Self::Journal(failure.into())
    }
}

impl From<FillError> for ErrorBody {
    fn from(error: FillError) -> Self {
        let message = ErrorChain(&error).to_string();
        match error {
            FillError::Journal(failure) => failure.into(),
            FillError::Store(MemoryStoreError::Scopes { .. }) => {
                Self::new(ErrorCode::InvalidParams, message)
            }
            FillError::Store(MemoryStoreError::Full { .. }) => {
                Self::new(ErrorCode::Conflict, message)
            }
            FillError::Store(failure) if failure.is_away() => {
                Self::new(ErrorCode::Unavailable, message)
                    .hint("`clawnode status` says what to do; journals have everything")
            }
            FillError::Store(_) | FillError::Followed { .. } => {
                Self::new(ErrorCode::Unavailable, message)
                    .hint("the store is built from journals: `clawnode memory reindex`")
            }
            FillError::Unreadable(_) => Self::new(ErrorCode::Corrupt, message)
                .hint("`clawnode journal verify` names the damage"),
        }
    }
}

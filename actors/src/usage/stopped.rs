//! Where counts are stored, and why counting stops.

use clawnode_cluster::{BucketError, StoreError};
use clawnode_proto::CodecError;

/// Where the value is kept that says how far the feed is counted. Builds that counted no work of agents have another one
/// (`usage.head`): what they followed is followed again for it, and their days of usage count nothing twice.
pub(super) const HEAD: &str = "usage.followed";
/// What the keys of days of usage begin with; `2026-11-25` follows. All begin with
/// [`clawnode_proto::subject::USAGE_KEYS`].
pub(super) const DAYS: &str = "usage.day.";
/// What the keys of days of work begin with.
pub(super) const WORK: &str = "usage.work.";

/// Why counting cannot go on from what is in memory; what is saved is read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum CountingStopped {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process counts too; which of the two goes on is for their places to say.
    #[error("another process counts the usage")]
    Another,
    #[error("the count `{key}` cannot be read: {detail}")]
    Unreadable { key: String, detail: String },
    #[error("a count cannot be encoded: {0}")]
    Unwritable(CodecError),
}

impl From<BucketError> for CountingStopped {
    fn from(error: BucketError) -> Self {
        match error {
            BucketError::Conflict { .. } => Self::Another,
            BucketError::Store(error) => Self::Store(error),
        }
    }
}

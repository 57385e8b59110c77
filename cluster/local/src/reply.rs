//! Answers to operations.

use clawnode_cluster::{AppendAnswer, BucketError, StoreError};
use clawnode_proto::Position;
use tokio::sync::oneshot;

/// Where to report that a record is stored.
#[derive(Debug)]
pub(super) enum WriteReply {
    Append(oneshot::Sender<AppendAnswer>, Position),
    Position(oneshot::Sender<Result<Position, StoreError>>, Position, &'static str),
    Value(oneshot::Sender<Result<Position, BucketError>>, Position),
}

// === impl WriteReply ===

impl WriteReply {
    pub(super) fn stored(self) {
        match self {
            Self::Append(to, at) => answer(to, AppendAnswer::Stored(at)),
            Self::Position(to, at, _) => answer(to, Ok(at)),
            Self::Value(to, at) => answer(to, Ok(at)),
        }
    }

    /// `early`: inputs that an owner has seen, and may still record.
    pub(super) fn refused(self, error: &std::io::Error, early: &[Position]) {
        let is_early = matches!(&self, Self::Position(_, at, _) if early.contains(at));
        let refusal = |store: &'static str| {
            let detail = error.to_string();
            if error.kind() == std::io::ErrorKind::StorageFull && !is_early {
                StoreError::Full { store, detail }
            } else {
                StoreError::Unavailable { store, detail }
            }
        };
        match self {
            Self::Append(to, _) => answer(to, AppendAnswer::Unknown(refusal("local journal"))),
            Self::Position(to, _, store) => answer(to, Err(refusal(store))),
            Self::Value(to, _) => answer(to, Err(refusal("local bucket").into())),
        }
    }
}

/// Answers a caller that may have given up.
pub(super) fn answer<T>(to: oneshot::Sender<T>, with: T) {
    if to.send(with).is_err() {
        tracing::trace!("the asker gave up");
    }
}

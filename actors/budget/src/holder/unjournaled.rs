//! Calls that no journal shows: embeddings, and tests of models.
//!
//! What a dead process has spent is found in the journals of sessions. A process that runs alone is marked before its
//! first call without a session, so that the next process of its node does not take what journals have for all.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketError, StoreError};
use clawnode_proto::{Position, ProcessId, subject::UNJOURNALED_KEYS};
use tracing::debug;

use super::{CallHold, CallNeeds, HolderHandle, Refusal};

impl HolderHandle {
    /// [`reserved`](Self::reserved) for a call of no session. Fails if the process cannot be marked.
    pub async fn reserved_unjournaled(
        &self,
        needs: CallNeeds,
    ) -> Result<Option<Result<CallHold, Refusal>>, StoreError> {
        if let Some(marks) = self.marks() {
            marks.done.get_or_try_init(|| mark(&*marks.bucket, self.process())).await?;
        }
        Ok(self.reserved(needs).await)
    }
}

/// Where a process is marked, and whether it is.
pub(super) struct UnjournaledMarks {
    bucket: Arc<dyn Bucket>,
    done: tokio::sync::OnceCell<()>,
}

impl UnjournaledMarks {
    pub(super) fn new(bucket: Arc<dyn Bucket>) -> Self {
        Self { bucket, done: tokio::sync::OnceCell::new() }
    }
}

async fn mark(bucket: &dyn Bucket, process: ProcessId) -> Result<(), StoreError> {
    match bucket.put(&key(process), Position(0), Bytes::new(), None).await {
        Ok(_) | Err(BucketError::Conflict { .. }) => Ok(()),
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

fn key(process: ProcessId) -> String {
    format!("{UNJOURNALED_KEYS}{process}")
}

/// The processes that have made calls which no journal shows.
pub async fn unjournaled(bucket: &dyn Bucket) -> Result<BTreeSet<ProcessId>, StoreError> {
    let listed = bucket.list(UNJOURNALED_KEYS).await?;
    let process = |(name, _): &(String, _)| name.strip_prefix(UNJOURNALED_KEYS)?.parse().ok();
    Ok(listed.iter().filter_map(process).collect())
}

/// Removes the mark of a process that has nothing of any account any more.
pub async fn unmark(bucket: &dyn Bucket, process: ProcessId) -> Result<(), StoreError> {
    let key = key(process);
    let Some(entry) = bucket.get(&key).await? else { return Ok(()) };
    match bucket.delete(&key, entry.position).await {
        Ok(()) => Ok(()),
        Err(BucketError::Conflict { .. }) => {
            debug!(key, "another has changed the mark");
            Ok(())
        }
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

//! Notes which turns wait for a provider, so that operators can count them. Nothing else depends on the notes:
//! the journal has the waits, and a timer ends each of them.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{BucketError, StoreError};
use clawnode_proto::{CallId, CodecError, Position, Timestamp, codec, subject::outage_key};
use tracing::debug;

use super::session_runner::SessionRunner;

/// How long a note may take.
const NOTED_WITHIN: Duration = Duration::from_secs(2);
/// How long a note outlives its wait.
const NOTE_KEPT: Duration = Duration::from_secs(10);

/// Why a wait is not noted.
#[derive(Debug, thiserror::Error)]
enum NotNoted {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Read(#[from] StoreError),
    #[error(transparent)]
    Written(#[from] BucketError),
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Notes that a call waits for a provider, until then.
    pub(in crate::session) async fn note_outage(&self, call: CallId, until: Timestamp) {
        match tokio::time::timeout(NOTED_WITHIN, self.put_outage(call, until)).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => debug!(%call, %failure, "a wait for a provider is not noted"),
            Err(_elapsed) => debug!(%call, "a wait for a provider is not noted in time"),
        }
    }

    async fn put_outage(&self, call: CallId, until: Timestamp) -> Result<(), NotNoted> {
        let (bucket, key) = (&self.parts.storage.bucket, outage_key(call));
        let before = bucket.get(&key).await?.map_or(Position(0), |entry| entry.position);
        let left = Duration::from_millis(until.0.saturating_sub(self.parts.clock.now().0));
        let value = Bytes::from(codec::encode(&until)?);
        bucket.put(&key, before, value, Some(left + NOTE_KEPT)).await?;
        Ok(())
    }
}

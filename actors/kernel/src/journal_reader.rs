//! Reading a journal with the state that it begins with.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{Storage, StoreError};
use clawnode_proto::{EntityId, Position};

use super::{LoadedJournal, core::snapshot_blob};

/// How often a journal is read whose state is missing, before that is believed. An owner removes a
/// state as soon as the next snapshot is stored, and a read may be older than that.
const TRIES: u32 = 5;
/// The first wait between two of them; doubles.
const WAIT: Duration = Duration::from_millis(50);

/// A session's journal, unfolded, as the store's leader has it.
pub async fn journal(storage: &Storage, id: EntityId) -> Result<LoadedJournal, StoreError> {
    let mut tries = 0;
    loop {
        let records = storage.journal.read(id, Position(0)).await?;
        let Some(digest) = snapshot_blob(&records) else {
            return Ok(LoadedJournal { records, snapshot: None });
        };
        let snapshot = readable(storage.blobs.get(digest).await)?;
        tries += 1;
        if snapshot.is_some() || tries == TRIES {
            return Ok(LoadedJournal { records, snapshot });
        }
        tokio::time::sleep(WAIT.saturating_mul(1 << tries)).await;
    }
}

/// A damaged blob counts as missing: the fold names what needs it.
pub fn readable(blob: Result<Option<Bytes>, StoreError>) -> Result<Option<Bytes>, StoreError> {
    match blob {
        Err(StoreError::Refused { .. }) => Ok(None),
        blob => blob,
    }
}

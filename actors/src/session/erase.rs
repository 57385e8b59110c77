//! Removing the texts of a session that goes, and what is kept of its jobs.

use clawnode_cluster::StoreError;
use clawnode_proto::{Digest, EntityId, Input};

use super::{
    client::{SendError, Sessions},
    inspect::texts_of_input,
};
use crate::{durable::core::snapshot_blob, tool::archive};

/// Removes the texts of a session and of these inputs, but for the snapshot that it still loads from,
/// which is returned.
pub(super) async fn erase(
    sessions: &Sessions,
    entity: EntityId,
    dropped: &[Input],
) -> Result<Option<Digest>, SendError> {
    let snapshot = match sessions.load(entity).await {
        Ok(loaded) => snapshot_blob(&loaded.records),
        // What only a damaged record tells of is not found any more.
        Err(SendError::Store(StoreError::Corrupt { .. })) => None,
        Err(failure) => return Err(failure),
    };
    let mut blobs = sessions.blobs_of(entity).await?;
    blobs.extend(dropped.iter().flat_map(texts_of_input));
    archive::forget(sessions.substrate(), entity).await?;
    // The oldest first: what is left of the chain stays walkable, should this break off.
    for blob in blobs.into_iter().rev() {
        if Some(blob) != snapshot {
            sessions.substrate().blobs.delete(blob).await?;
        }
    }
    Ok(snapshot)
}

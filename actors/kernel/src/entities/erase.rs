//! The blobs of an entity: listing them, and removing them with it.

use clawnode_cluster::StoreError;
use clawnode_proto::{
    Digest, EntityId, Input, Kind, Sealed,
    event::decode_record,
    kernel::{Accepted, KernelEvent, Parked},
};

use super::{Entities, EntityError, chain::archive_of, known_kinds::KnownKind};
use crate::{
    archive::{ARCHIVES_MAX, snapshot_of},
    core::snapshot_blob,
};

impl Entities {
    /// The blobs of an entity of this kind, without the state that it loads from: those that its
    /// events name, archives, states of earlier snapshots, and those of snapshots that were never
    /// stored. For a damaged journal, those that it still names.
    pub async fn blobs_of(&self, kind: Kind, id: EntityId) -> Result<Vec<Digest>, EntityError> {
        let known = self.kinds.get(kind);
        let loaded = match self.load(id).await.map_err(EntityError::from) {
            Ok(loaded) => loaded,
            Err(failure) if failure.is_damage() => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        let mut blobs = known.map(|known| known.leftovers(id, &loaded)).unwrap_or_default();
        let mut segment = loaded.records;
        for _ in 0..ARCHIVES_MAX {
            let events = segment.iter().filter_map(|one| decode_record(&one.bytes).ok());
            let named = |sealed| known.map(|known| named(known, &sealed)).unwrap_or_default();
            blobs.extend(events.flatten().flat_map(named));
            let earlier = snapshot_of(&segment).and_then(|snapshot| snapshot.superseded);
            blobs.extend(earlier.unwrap_or_default());
            let Some((archive, _)) = archive_of(&segment) else { break };
            segment = match self.segment(archive).await {
                Ok(segment) => segment,
                Err(failure) if failure.is_damage() => {
                    blobs.push(archive);
                    break;
                }
                Err(failure) => return Err(failure),
            };
            blobs.push(archive);
            blobs.extend(snapshot_blob(&segment));
        }
        Ok(blobs)
    }

    /// Removes the blobs of an entity of this kind and of these inputs, but for the state that it still
    /// loads from, which is returned.
    pub async fn erase(
        &self,
        kind: Kind,
        id: EntityId,
        dropped: &[Input],
    ) -> Result<Option<Digest>, EntityError> {
        let snapshot = match self.load(id).await {
            Ok(loaded) => snapshot_blob(&loaded.records),
            // Blobs that only a damaged record names are not found any more.
            Err(StoreError::Corrupt { .. }) => None,
            Err(failure) => return Err(failure.into()),
        };
        let mut blobs = self.blobs_of(kind, id).await?;
        if let Some(known) = self.kinds.get(kind) {
            blobs.extend(dropped.iter().flat_map(|input| known.blobs_of_input(input)));
        }
        // The oldest first: what is left of the chain stays walkable, should this break off.
        for blob in blobs.into_iter().rev() {
            if Some(blob) != snapshot {
                self.storage.blobs.delete(blob).await?;
            }
        }
        Ok(snapshot)
    }
}

/// The blobs that an event names.
fn named(known: &dyn KnownKind, sealed: &Sealed) -> Vec<Digest> {
    match sealed.event() {
        Ok(Some(
            KernelEvent::Accepted(Accepted { input }) | KernelEvent::Parked(Parked { input }),
        )) => known.blobs_of_input(&input),
        _ => known.blobs_of_event(sealed),
    }
}

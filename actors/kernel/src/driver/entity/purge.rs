//! Purging an entity: its state is stored first, then what its journal had before is removed, the oldest first.

use bytes::Bytes;
use clawnode_cluster::{Record, Storage, StoreError};
use clawnode_proto::{
    Digest, EntityId, Position,
    kernel::{Snapshot, SnapshotState},
    limits::INLINE_BYTES,
};
use serde_bytes::ByteBuf;
use tracing::warn;

use super::store::{READ_FIRST, READ_MOST, past_of_dead, pause, unreadable};
use crate::{
    EntityKind, MachineInput,
    archive::{self, ARCHIVES_MAX, snapshot_of},
    core::{position_of, snapshot_blob},
    driver::WorkerContext,
    journal_reader::readable,
};

/// Tries until the past of an entity is removed, its journal turns out to be damaged, another process has the entity,
/// or its actor is gone.
pub(super) async fn purge<K: EntityKind>(
    context: &WorkerContext,
    id: EntityId,
    upto: Position,
    state: Bytes,
) -> MachineInput<K> {
    let mut tries = 0;
    loop {
        match try_to_purge::<K>(&context.storage, id, upto, &state).await {
            Ok(done) => return done,
            Err(failure) => {
                if let Some(stop) = unreadable(context, id, &failure).await {
                    return stop;
                }
                warn!(entity = %id, %failure, "a purge cannot go on now; trying again");
                pause(READ_FIRST, READ_MOST, tries).await;
                tries += 1;
            }
        }
    }
}

async fn try_to_purge<K: EntityKind>(
    storage: &Storage,
    id: EntityId,
    upto: Position,
    state: &Bytes,
) -> Result<MachineInput<K>, StoreError> {
    let records = storage.journal.read(id, Position(0)).await?;
    let end = position_of(&records);
    if end > upto {
        // Another process has appended, so the snapshot is refused. Its state is not needed.
        let state = SnapshotState::Blob { digest: Digest::of(state) };
        return Ok(MachineInput::Purged { state, before: None });
    }
    if end < upto {
        let detail = format!("a read ends at {end}, not at {upto}");
        return Err(StoreError::Unavailable { store: "journal", detail });
    }
    let before = snapshot_blob(&records);
    // First, because a store that has no room for it refuses it before anything is removed.
    let state = if state.len() > INLINE_BYTES {
        SnapshotState::Blob { digest: storage.blobs.put(state.clone()).await? }
    } else {
        SnapshotState::Inline { bytes: ByteBuf::from(state.to_vec()) }
    };
    let mut past = past_of_dead::<K>(storage, id, &records).await?;
    past.extend(past_of(storage, &records).await?);
    // The oldest first: what is left of the chain stays walkable, should this break off.
    for blob in past.into_iter().rev().filter(|blob| Some(*blob) != before) {
        storage.blobs.delete(blob).await?;
    }
    Ok(MachineInput::Purged { state, before })
}

/// The archives behind these records, and the states of snapshots in them, the newest first. It ends where an
/// earlier purge broke off.
async fn past_of(storage: &Storage, records: &[Record]) -> Result<Vec<Digest>, StoreError> {
    let mut past = Vec::new();
    let mut next = snapshot_of(records);
    for _ in 0..ARCHIVES_MAX {
        let Some(Snapshot { archive, superseded, .. }) = next.take() else { break };
        past.extend(superseded.unwrap_or_default());
        let Some(archive) = archive else { break };
        past.push(archive);
        let Some(bytes) = readable(storage.blobs.get(archive).await)? else { break };
        // A damaged archive is removed as well, and what it names cannot be found.
        let Ok(segment) = archive::unpack(&bytes) else { break };
        past.extend(snapshot_blob(&segment));
        next = snapshot_of(&segment);
    }
    Ok(past)
}

#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::SystemClock;
    use clawnode_local::LocalOptions;
    use clawnode_proto::kernel::{KernelEvent, PurgeBegun};

    use super::*;
    use crate::{counter::Counter, written::Written};

    #[tokio::test]
    async fn an_owner_that_was_overtaken_removes_nothing_and_does_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        options.head_room = 0;
        let (storage, _control) = clawnode_local::open(dir.path(), options).unwrap();
        let mut written = Written::born(&storage, Counter::KIND, "one", 100).await.unwrap();
        let records = storage.journal.read(written.id, Position(0)).await.unwrap();
        let archive = storage.blobs.put(archive::pack(&records).unwrap()).await.unwrap();
        let snapshot = Snapshot {
            tail: written.tail,
            archive: Some(archive),
            state: SnapshotState::Inline { bytes: ByteBuf::from(b"a state".to_vec()) },
            superseded: None,
            positions: Vec::new(),
        };
        written.replace(200, KernelEvent::from(snapshot)).await.unwrap();
        let before = storage.journal.position(written.id).await.unwrap();
        written.append::<KernelEvent>(300, &[PurgeBegun {}.into()]).await.unwrap();

        let state = Bytes::from_static(b"the state now");
        let done = try_to_purge::<Counter>(&storage, written.id, before, &state).await.unwrap();
        assert!(matches!(done, MachineInput::Purged { before: None, .. }), "{done:?}");
        assert_eq!(storage.blobs.list().await.unwrap(), [archive], "another process has it");

        let now = storage.journal.position(written.id).await.unwrap();
        let done = try_to_purge::<Counter>(&storage, written.id, now, &state).await.unwrap();
        let MachineInput::Purged { state: SnapshotState::Inline { bytes }, before: None } = done
        else {
            panic!("{done:?}")
        };
        assert_eq!(bytes.as_slice(), &*state);
        assert_eq!(storage.blobs.list().await.unwrap(), []);
    }
}

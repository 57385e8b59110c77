//! An activation's requests to the journal and the blobs, repeated until there is an answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{Record, Storage, StoreError, Write};
use clawnode_proto::{
    Digest, EntityId, ErrorChain, Position,
    kernel::{Snapshot, SnapshotState},
    limits::INLINE_BYTES,
};
use serde_bytes::ByteBuf;
use tracing::{debug, warn};

use super::Port;
use crate::{
    EntityKind, LoadedJournal, MachineInput,
    archive::{self, snapshot_of},
    core::{position_of, snapshot_blob},
    driver::WorkerContext,
    journal_reader::{self, readable},
};

/// The first wait before a read that failed is tried again; doubles up to [`READ_MOST`].
pub(super) const READ_FIRST: Duration = Duration::from_millis(50);
/// The longest wait before a read that failed is tried again.
pub(super) const READ_MOST: Duration = Duration::from_secs(2);
/// Tries at removing a blob.
const DISCARDS_MAX: u32 = 8;

pub(super) async fn load<K: EntityKind>(context: &WorkerContext, id: EntityId) -> MachineInput<K> {
    let mut tries = 0;
    loop {
        match journal_reader::journal(&context.storage, id).await {
            Ok(loaded) => return MachineInput::Loaded(loaded),
            Err(failure) => {
                if let Some(unreadable) = unreadable(context, id, &failure).await {
                    return unreadable;
                }
                warn!(entity = %id, %failure, "journal cannot be read now; trying again");
                pause(READ_FIRST, READ_MOST, tries).await;
                tries += 1;
            }
        }
    }
}

/// Damage does not go away by waiting; but the end of the journal can still be given.
pub(super) async fn unreadable<K: EntityKind>(
    context: &WorkerContext,
    id: EntityId,
    failure: &StoreError,
) -> Option<MachineInput<K>> {
    if !matches!(failure, StoreError::Corrupt { .. }) {
        return None;
    }
    let position = context.storage.journal.position(id).await.ok()?;
    Some(MachineInput::Unreadable { detail: ErrorChain(failure).to_string(), position })
}

pub(super) async fn append<K: EntityKind>(
    context: Arc<WorkerContext>,
    id: EntityId,
    port: Port<K>,
    wait: Duration,
    expected: Position,
    write: Write,
) {
    if !wait.is_zero() {
        jittered(wait).await;
    }
    let answer = context.storage.journal.append(id, expected, write).await;
    port.tell(MachineInput::Answered(answer));
}

pub(super) async fn read_back<K: EntityKind>(
    context: &WorkerContext,
    id: EntityId,
    after: Position,
) -> MachineInput<K> {
    let mut tries = 0;
    loop {
        let read = async {
            let after_expected = context.storage.journal.read(id, after).await?;
            let tail = context.storage.journal.tail(id).await?;
            Ok::<_, StoreError>((after_expected, tail))
        };
        match read.await {
            Ok((after_expected, tail)) => {
                let tail = tail.map_or(Position(0), |record: Record| record.position);
                return MachineInput::ReadBack { after_expected, tail };
            }
            Err(failure) => {
                if let Some(unreadable) = unreadable(context, id, &failure).await {
                    return unreadable;
                }
                debug!(entity = %id, %failure, "journal cannot be read back now; trying again");
                pause(READ_FIRST, READ_MOST, tries).await;
                tries += 1;
            }
        }
    }
}

/// Archives the records that a snapshot replaces; `verify` and `replay` follow the archive.
pub(super) async fn archive<K: EntityKind>(
    context: &WorkerContext,
    id: EntityId,
    upto: Position,
    state: Bytes,
) -> MachineInput<K> {
    // The blobs that may be stored if it breaks off.
    let mut begun: Vec<Bytes> = Vec::new();
    let store = async {
        let records = context.storage.journal.read(id, Position(0)).await?;
        if position_of(&records) != upto {
            return Err(StoreError::Unavailable {
                store: "journal",
                detail: format!("a read ends at {}, not at {upto}", position_of(&records)),
            });
        }
        let superseded = superseded::<K>(&context.storage, id, &records).await?;
        let positions = archive::positions(&records);
        let archive = archive::pack(&records).map_err(|failure| StoreError::Refused {
            store: "blobs",
            detail: failure.to_string(),
        })?;
        drop(records);
        // First, because a store that has no room for it refuses it at once.
        let state = if state.len() > INLINE_BYTES {
            begun.push(state.clone());
            SnapshotState::Blob { digest: context.storage.blobs.put(state).await? }
        } else {
            SnapshotState::Inline { bytes: ByteBuf::from(state.to_vec()) }
        };
        begun.push(archive.clone());
        let archive = context.storage.blobs.put(archive).await?;
        Ok::<_, StoreError>(MachineInput::Archived { archive, state, superseded, positions })
    };
    match store.await {
        Ok(archived) => archived,
        Err(failure) => {
            warn!(entity = %id, %failure, "no snapshot was made; the journal stays as it is");
            let left = begun.iter().map(|bytes| Digest::of(bytes)).collect();
            discard(&context.storage, left).await;
            MachineInput::ArchiveFailed
        }
    }
}

/// The state that a journal loads from now, which the next snapshot makes superfluous unless the past begins there.
/// Those that
/// are superfluous already are removed: states of earlier snapshots, and those of owners that died
/// while they made one.
async fn superseded<K: EntityKind>(
    storage: &Storage,
    id: EntityId,
    records: &[Record],
) -> Result<Vec<Digest>, StoreError> {
    let blobs = &storage.blobs;
    let mut gone = match snapshot_of(records) {
        Some(Snapshot { superseded: Some(earlier), .. }) => earlier,
        // Its writer kept the states of all snapshots.
        Some(Snapshot { superseded: None, archive, .. }) => {
            earlier_states(storage, archive).await?
        }
        None => Vec::new(),
    };
    // Where the past begins, the state is all there is of it.
    let is_begin = snapshot_of(records).is_some_and(|snapshot| snapshot.archive.is_none());
    gone.extend(past_of_dead::<K>(storage, id, records).await?);
    let own = snapshot_blob(records);
    for digest in gone {
        blobs.delete(digest).await?;
    }
    Ok(own.filter(|_| !is_begin).into_iter().collect())
}

/// The blobs of snapshots that owners began and never stored, because they died.
pub(super) async fn past_of_dead<K: EntityKind>(
    storage: &Storage,
    id: EntityId,
    records: &[Record],
) -> Result<Vec<Digest>, StoreError> {
    if !archive::has_deaths(records) {
        return Ok(Vec::new());
    }
    let snapshot = match snapshot_blob(records) {
        Some(digest) => readable(storage.blobs.get(digest).await)?,
        None => None,
    };
    Ok(archive::leftovers::<K>(id, &LoadedJournal { records: records.to_vec(), snapshot }))
}

/// The states of all snapshots in a chain of archives.
async fn earlier_states(
    storage: &Storage,
    mut archive: Option<Digest>,
) -> Result<Vec<Digest>, StoreError> {
    let mut states = Vec::new();
    while let Some(digest) = archive.take() {
        let Some(bytes) = readable(storage.blobs.get(digest).await)? else { break };
        let Ok(records) = archive::unpack(&bytes) else { break };
        states.extend(snapshot_blob(&records));
        archive = snapshot_of(&records).and_then(|snapshot| snapshot.archive);
    }
    Ok(states)
}

/// Removes blobs that nothing refers to any more; one that stays is an orphan, not a loss.
pub(super) async fn discard(storage: &Storage, blobs: Vec<Digest>) {
    for digest in blobs {
        for tries in 0..DISCARDS_MAX {
            match storage.blobs.delete(digest).await {
                Ok(()) => break,
                Err(failure) => warn!(%digest, %failure, "a blob cannot be removed now"),
            }
            pause(READ_FIRST, READ_MOST, tries).await;
        }
    }
}

/// Removes what is left of a deleted entity.
pub(super) async fn scrub<K: EntityKind>(
    context: &WorkerContext,
    blobs: Vec<Digest>,
) -> MachineInput<K> {
    discard(&context.storage, blobs).await;
    if let Err(failure) = context.storage.journal.scrub().await {
        debug!(%failure, "the store erases deleted data when it next cleans up");
    }
    MachineInput::Scrubbed
}

pub(super) async fn pause(first: Duration, most: Duration, tries: u32) {
    jittered(first.saturating_mul(1 << tries.min(10)).min(most)).await;
}

/// Waits between half of `wait` and all of it, so that many waiters do not come back together.
async fn jittered(wait: Duration) {
    let share = rand::random_range(0.5..=1.0);
    tokio::time::sleep(wait.mul_f64(share)).await;
}

#[cfg(test)]
mod tests {
    use clawnode_cluster::SystemClock;
    use clawnode_local as local;
    use clawnode_proto::{
        Epoch, EventId, Grammar as _, Head, Incarnation, ProcessId, Sealed, Seq, Tail, Timestamp,
        event::{VERSION, encode_record},
        kernel::KernelEvent,
    };

    use super::*;
    use crate::counter::Counter;

    /// The record of a snapshot, as a build that kept all states wrote it.
    fn snapshot(n: u64, archive: Option<Digest>, state: &Bytes) -> Record {
        let id = EntityId::from_u128(1);
        let tail = Tail { n: Seq(n - 1), ..Tail::START };
        let state = SnapshotState::Blob { digest: Digest::of(state) };
        let event = KernelEvent::from(Snapshot {
            tail,
            archive,
            state,
            superseded: None,
            positions: Vec::new(),
        });
        let incarnation = Incarnation { process: ProcessId::from_u128(1), counter: 1 };
        let head = Head {
            entity: id,
            n: Seq(n),
            v: VERSION,
            eid: EventId::derive(id, incarnation, Seq(n)),
            epoch: Epoch(1),
            incarnation,
            ts: Timestamp(1),
            kind: event.kind().to_owned(),
            required: true,
            progress: false,
        };
        let sealed = Sealed::seal(head, &event, Digest::ZERO).unwrap();
        Record { position: Position(n), bytes: encode_record(&[sealed]).unwrap().into() }
    }

    #[tokio::test]
    async fn the_states_of_a_build_that_kept_them_all_go_with_the_next_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn clawnode_cluster::Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), clock);
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        let blobs = &storage.blobs;
        let (mut states, mut archives, mut last) = (Vec::new(), Vec::new(), None);
        let mut records = Vec::new();
        for n in 1..=5_u64 {
            let state = Bytes::from(format!("state {n}"));
            states.push(blobs.put(state.clone()).await.unwrap());
            records = vec![snapshot(n, last, &state)];
            if n < 5 {
                last = Some(blobs.put(archive::pack(&records).unwrap()).await.unwrap());
                archives.extend(last);
            }
        }
        let id = EntityId::from_u128(1);
        let superseded = superseded::<Counter>(&storage, id, &records).await.unwrap();
        assert_eq!(superseded, [states[4]], "it is loaded from until the next one is stored");
        let mut left = blobs.list().await.unwrap();
        left.sort_unstable();
        archives.push(states[4]);
        archives.sort_unstable();
        assert_eq!(left, archives);
    }
}

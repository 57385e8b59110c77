//! What an activation asks of the journal and the blobs, tried until there is an answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{Record, StoreError, Write};
use clawnode_proto::{
    Digest, EntityId, ErrorChain, Position, codec, kernel::SnapshotState, limits::INLINE_BYTES,
};
use serde_bytes::ByteBuf;
use tracing::{debug, warn};

use super::{Context, Port};
use crate::durable::{
    EntityKind, In, Loaded,
    core::{position_of, snapshot_blob},
};

/// The first wait before a read that failed is tried again; doubles up to [`READ_MOST`].
const READ_FIRST: Duration = Duration::from_millis(50);
/// The longest wait before a read that failed is tried again.
const READ_MOST: Duration = Duration::from_secs(2);
/// Tries at removing a blob.
const DISCARDS_MAX: u32 = 8;

pub(super) async fn load<K: EntityKind>(context: &Context<K>, id: EntityId) -> In<K> {
    let mut tries = 0;
    loop {
        match read(context, id).await {
            Ok(loaded) => return In::Loaded(loaded),
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

/// Damage does not go away by waiting; where the journal ends can still be said.
async fn unreadable<K: EntityKind>(
    context: &Context<K>,
    id: EntityId,
    failure: &StoreError,
) -> Option<In<K>> {
    if !matches!(failure, StoreError::Corrupt { .. }) {
        return None;
    }
    let position = context.substrate.journal.position(id).await.ok()?;
    Some(In::Unreadable { detail: ErrorChain(failure).to_string(), position })
}

async fn read<K: EntityKind>(context: &Context<K>, id: EntityId) -> Result<Loaded, StoreError> {
    let records = context.substrate.journal.read(id, Position(0)).await?;
    let snapshot = match snapshot_blob(&records) {
        Some(digest) => readable(context.substrate.blobs.get(digest).await)?,
        None => None,
    };
    Ok(Loaded { records, snapshot })
}

/// A damaged blob is none: the fold names what misses it.
fn readable(blob: Result<Option<Bytes>, StoreError>) -> Result<Option<Bytes>, StoreError> {
    match blob {
        Err(StoreError::Refused { .. }) => Ok(None),
        blob => blob,
    }
}

pub(super) async fn append<K: EntityKind>(
    context: Arc<Context<K>>,
    id: EntityId,
    port: Port<K>,
    wait: Duration,
    expected: Position,
    write: Write,
) {
    if !wait.is_zero() {
        jittered(wait).await;
    }
    let answer = context.substrate.journal.append(id, expected, write).await;
    port.tell(In::Answered(answer));
}

pub(super) async fn read_back<K: EntityKind>(
    context: &Context<K>,
    id: EntityId,
    after: Position,
) -> In<K> {
    let mut tries = 0;
    loop {
        let read = async {
            let after_expected = context.substrate.journal.read(id, after).await?;
            let tail = context.substrate.journal.tail(id).await?;
            Ok::<_, StoreError>((after_expected, tail))
        };
        match read.await {
            Ok((after_expected, tail)) => {
                let tail = tail.map_or(Position(0), |record: Record| record.position);
                return In::ReadBack { after_expected, tail };
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
    context: &Context<K>,
    id: EntityId,
    upto: Position,
    state: Bytes,
) -> In<K> {
    let store = async {
        let records = context.substrate.journal.read(id, Position(0)).await?;
        if position_of(&records) != upto {
            return Err(StoreError::Unavailable {
                store: "journal",
                detail: format!("a read ends at {}, not at {upto}", position_of(&records)),
            });
        }
        let list: Vec<ByteBuf> =
            records.iter().map(|record| ByteBuf::from(record.bytes.to_vec())).collect();
        let encoded = codec::encode(&list).map_err(|failure| StoreError::Refused {
            store: "blobs",
            detail: failure.to_string(),
        })?;
        let archive = context.substrate.blobs.put(Bytes::from(encoded)).await?;
        let state = if state.len() > INLINE_BYTES {
            SnapshotState::Blob { digest: context.substrate.blobs.put(state).await? }
        } else {
            SnapshotState::Inline { bytes: ByteBuf::from(state.to_vec()) }
        };
        Ok::<(Digest, SnapshotState), StoreError>((archive, state))
    };
    match store.await {
        Ok((archive, state)) => In::Archived { archive, state },
        Err(failure) => {
            warn!(entity = %id, %failure, "no snapshot was made; the journal stays as it is");
            In::ArchiveFailed
        }
    }
}

/// Removes a blob that nothing refers to any more; one that stays is an orphan, not a loss.
pub(super) async fn discard<K: EntityKind>(context: &Context<K>, digest: Digest) {
    for tries in 0..DISCARDS_MAX {
        match context.substrate.blobs.delete(digest).await {
            Ok(()) => return,
            Err(failure) => warn!(%digest, %failure, "a blob cannot be removed now"),
        }
        pause(READ_FIRST, READ_MOST, tries).await;
    }
}

async fn pause(first: Duration, most: Duration, tries: u32) {
    jittered(first.saturating_mul(1 << tries.min(10)).min(most)).await;
}

/// Waits between half of `wait` and all of it, so that many waiters do not come back together.
async fn jittered(wait: Duration) {
    let share = rand::random_range(0.5..=1.0);
    tokio::time::sleep(wait.mul_f64(share)).await;
}

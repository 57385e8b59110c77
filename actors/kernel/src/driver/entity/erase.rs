//! Deleting an entity: the tombstone's state is stored first, then personal data is removed.

use std::time::Duration;

use bytes::Bytes;
use clawnode_proto::{EntityId, Input, kernel::SnapshotState, limits::INLINE_BYTES};
use serde_bytes::ByteBuf;
use tracing::warn;

use crate::{
    EntityKind, MachineInput,
    driver::{EffectRunner, WorkerContext},
};

/// The first wait before a tombstone's state is stored again; doubles up to [`STORE_MOST`].
const STORE_FIRST: Duration = Duration::from_millis(50);
/// The longest such wait.
const STORE_MOST: Duration = Duration::from_secs(5);

/// Removes an entity's personal data, once the state of its tombstone is stored: a deletion that
/// could not be completed would leave a journal without its texts.
pub(super) async fn erase<K: EntityKind>(
    context: &WorkerContext,
    runner: &dyn EffectRunner<K>,
    id: EntityId,
    dropped: Vec<Input>,
    state: Bytes,
) -> MachineInput<K> {
    let state = if state.len() > INLINE_BYTES {
        stored(context, id, state).await
    } else {
        SnapshotState::Inline { bytes: ByteBuf::from(state.to_vec()) }
    };
    let before = runner.erase(id, dropped).await;
    MachineInput::Erased { state, before }
}

/// Tries until it is stored, or the entity's actor is gone.
async fn stored(context: &WorkerContext, id: EntityId, state: Bytes) -> SnapshotState {
    let mut wait = STORE_FIRST;
    loop {
        match context.storage.blobs.put(state.clone()).await {
            Ok(digest) => return SnapshotState::Blob { digest },
            Err(failure) => {
                warn!(entity = %id, %failure, "a tombstone cannot be stored now; trying again");
            }
        }
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(STORE_MOST);
    }
}

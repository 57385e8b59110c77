//! Dead letters: messages for an entity that no node can read as an input, kept whole until a
//! person drops them.
//!
//! The bytes are a blob, and what is known of them is a value in the bucket. Both are written
//! before the inbox forgets the bytes, and writing them again is harmless.

use bytes::{BufMut, Bytes, BytesMut};
use clawnode_cluster::{BucketError, Storage, StoreError};
use clawnode_proto::{Digest, EntityId, Position, Timestamp, codec, subject::LETTER_KEYS as KEYS};
use serde::{Deserialize, Serialize};

/// Dead letters that are kept. Others stay in their inboxes until some are dropped, so that a
/// broken sender cannot fill the bucket.
pub const LETTERS_MAX: usize = 1_000;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub entity: EntityId,
    /// The blob that holds it, followed by its entity's id.
    pub digest: Digest,
    pub bytes: u64,
    /// Why it cannot be read.
    pub reason: String,
    /// When it was put aside, by the clock of the process that did so.
    pub at: Timestamp,
}

impl DeadLetter {
    pub fn name(&self) -> String {
        format!("{}.{}", self.entity, self.digest)
    }
}

/// Puts bytes aside; the same bytes again are the same letter.
pub async fn keep(
    storage: &Storage,
    entity: EntityId,
    content: &[u8],
    reason: String,
    at: Timestamp,
) -> Result<(), StoreError> {
    let refused = |detail: String| StoreError::Refused { store: "dead letters", detail };
    let kept = storage.bucket.list(KEYS).await?.len();
    if kept >= LETTERS_MAX {
        let detail = format!("{kept} are kept; drop some with `clawnode parked drop`");
        return Err(StoreError::Full { store: "dead letters", detail });
    }
    // Followed by the id of its entity, so that no two entities share a blob.
    let mut blob = BytesMut::with_capacity(content.len() + 16);
    blob.put_slice(content);
    blob.put_u128(entity.as_u128());
    let digest = storage.blobs.put(blob.freeze()).await?;
    let letter = DeadLetter { entity, digest, bytes: content.len() as u64, reason, at };
    let value = codec::encode(&letter).map_err(|error| refused(error.to_string()))?;
    let key = format!("{KEYS}{}", letter.name());
    match storage.bucket.put(&key, Position(0), Bytes::from(value), None).await {
        // It is there already.
        Ok(_) | Err(BucketError::Conflict { .. }) => Ok(()),
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

/// All of them, in the order of their names.
pub async fn list(storage: &Storage) -> Result<Vec<DeadLetter>, StoreError> {
    let entries = storage.bucket.list(KEYS).await?;
    Ok(entries.iter().filter_map(|(_, entry)| codec::decode(&entry.value).ok()).collect())
}

/// Forgets one; says whether there was one of this name.
pub async fn forget(storage: &Storage, name: &str) -> Result<bool, StoreError> {
    let Some(letter) = list(storage).await?.into_iter().find(|one| one.name() == name) else {
        return Ok(false);
    };
    let key = format!("{KEYS}{name}");
    let Some(entry) = storage.bucket.get(&key).await? else { return Ok(false) };
    // The blob first: a letter without one can be dropped again, a blob without a letter cannot.
    storage.blobs.delete(letter.digest).await?;
    match storage.bucket.delete(&key, entry.position).await {
        Ok(()) | Err(BucketError::Conflict { .. }) => Ok(true),
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

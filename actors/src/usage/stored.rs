//! Counts as the bucket stores them.

use bytes::Bytes;
use clawnode_cluster::Storage;
use clawnode_proto::{Position, codec, usage::Followed};
use serde::de::DeserializeOwned;

use super::stopped::{CountingStopped, HEAD};

pub(super) fn counted_to(followed: &Followed) -> Position {
    followed.0.first().copied().unwrap_or_default()
}

/// A value of the bucket and where it is; the default at 0 if there is none.
pub(super) async fn stored<T: DeserializeOwned + Default>(
    storage: &Storage,
    key: &str,
) -> Result<(T, Position), CountingStopped> {
    let Some(entry) = storage.bucket.get(key).await? else {
        return Ok((T::default(), Position(0)));
    };
    Ok((decoded(key, &entry.value)?, entry.position))
}

pub(super) fn decoded<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, CountingStopped> {
    codec::decode(bytes).map_err(|failure| CountingStopped::Unreadable {
        key: key.to_owned(),
        detail: failure.to_string(),
    })
}

/// Removes a count, and has the feed followed from its beginning: every other count knows up to where it
/// counts already.
pub(super) async fn forget(storage: &Storage, key: &str) -> Result<(), CountingStopped> {
    for key in [key, HEAD] {
        if let Some(entry) = storage.bucket.get(key).await? {
            storage.bucket.delete(key, entry.position).await?;
        }
    }
    Ok(())
}

pub(super) fn encoded(value: &impl serde::Serialize) -> Result<Bytes, CountingStopped> {
    codec::encode(value).map(Bytes::from).map_err(CountingStopped::Unwritable)
}

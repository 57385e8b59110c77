//! The bucket handle.

use std::{ops::Bound, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketChange, BucketEntry, BucketError, StoreError};
use clawnode_proto::{EntityId, Position, limits};
use futures_util::Stream;
use tokio::sync::oneshot;

use super::{
    index::{Index, IndexError, Loc, decode_timed, keys},
    queue::EngineOp,
    read_threads::{blocking, is_small},
    record::split_bucket,
    shared::{DirectoryClient, OpenDirectory},
};

const STORE: &str = "local bucket";
/// Bytes of one key.
const KEY_BYTES: usize = 512;

/// Values in the log.
#[derive(Debug)]
pub(super) struct LocalBucket(pub(super) Arc<DirectoryClient>);

#[async_trait]
impl Bucket for LocalBucket {
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError> {
        let shared = &self.0.0;
        let value = shared.look(STORE, |index| index.get(&keys::value(key)))?;
        match value.as_deref().and_then(|value| place(shared, value)) {
            Some((position, loc)) => entry(shared, position, loc).map(Some),
            None => Ok(None),
        }
    }

    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Position, BucketError> {
        check(key, value.len())?;
        let now = self.0.0.clock.now().0;
        let expires = ttl.map_or(0, |ttl| {
            now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)).max(1)
        });
        let (reply, answer) = oneshot::channel();
        let bytes = value.len();
        let op = EngineOp::ValuePut { key: key.to_owned(), expected, value, expires, reply };
        self.0.0.ask(STORE, op, bytes, answer).await?
    }

    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError> {
        check(key, 0)?;
        let (reply, answer) = oneshot::channel();
        let op = EngineOp::ValueDelete { key: key.to_owned(), expected, reply };
        self.0.0.ask(STORE, op, 0, answer).await??;
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        let shared = &self.0.0;
        let places = shared.look(STORE, |index| places(shared, index, prefix))?;
        if is_small(places.iter().map(|(_, _, loc)| *loc)) {
            return entries(shared, places);
        }
        // The cleaner may move a value while the read waits for its thread, so it looks again
        // there.
        let prefix = prefix.to_owned();
        let read = move |shared: &OpenDirectory| {
            entries(shared, shared.look(STORE, |index| self::places(shared, index, &prefix))?)
        };
        blocking(shared, STORE, read).await
    }

    async fn watch(
        &self,
        prefix: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError> {
        let shared = &self.0.0;
        // The engine cannot change a value while the index is looked at, so no change is missed
        // between the present values and the first event.
        let guard = shared.index();
        let Some(index) = guard.as_ref() else { return Err(shared.closed(STORE)) };
        let places = places(shared, index, prefix)
            .map_err(|error| StoreError::Closed { store: STORE, detail: error.to_string() })?;
        let present = entries(shared, places)?;
        Ok(Box::pin(shared.watchers.add(prefix.to_owned(), present)))
    }
}

fn check(key: &str, value: usize) -> Result<(), StoreError> {
    let detail = if key.is_empty() || key.len() > KEY_BYTES {
        format!("a key of {} bytes; 1 to {KEY_BYTES} are allowed", key.len())
    } else if value > limits::APPEND_BYTES {
        format!("{value} bytes under `{key}`, at most {}", limits::APPEND_BYTES)
    } else {
        return Ok(());
    };
    Err(StoreError::Refused { store: STORE, detail })
}

/// Where a value is, unless it has expired.
fn place(shared: &OpenDirectory, value: &[u8]) -> Option<(Position, Loc)> {
    let (expires, position, loc) = decode_timed(value)?;
    (expires == 0 || expires > shared.lifetime()).then_some((position, loc))
}

fn places(
    shared: &OpenDirectory,
    index: &Index,
    prefix: &str,
) -> Result<Vec<(String, Position, Loc)>, IndexError> {
    let mut places = Vec::new();
    index.each(&keys::value(prefix), Bound::Unbounded, &mut |key, value| {
        let name = std::str::from_utf8(&key[1..]).ok();
        if let (Some(name), Some((position, loc))) = (name, place(shared, value)) {
            places.push((name.to_owned(), position, loc));
        }
        true
    })?;
    Ok(places)
}

fn entries(
    shared: &OpenDirectory,
    places: Vec<(String, Position, Loc)>,
) -> Result<Vec<(String, BucketEntry)>, StoreError> {
    let mut entries = Vec::with_capacity(places.len());
    for (key, position, loc) in places {
        entries.push((key, entry(shared, position, loc)?));
    }
    Ok(entries)
}

fn entry(shared: &OpenDirectory, position: Position, loc: Loc) -> Result<BucketEntry, StoreError> {
    let (_, body) = shared.read(EntityId::from_u128(0), position, loc)?;
    let value = split_bucket(&body).map_or(0, |(_, _, value)| value.len());
    Ok(BucketEntry { position, value: body.slice(body.len() - value..) })
}

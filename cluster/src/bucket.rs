//! The bucket trait: small values under keys, changed by compare-and-set.
//!
//! A read may be stale; decide only on a compare-and-set. Keys are subject-safe tokens between
//! dots (`agent.default`, `cluster.meta`).

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::Position;
use futures_util::Stream;

use crate::StoreError;

/// A value and its position in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketEntry {
    /// The expected position for the next change.
    pub position: Position,
    pub value: Bytes,
}

/// A change that a watcher sees: the latest state of a key, not each step to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketChange {
    pub key: String,
    /// Its value now, or `None` if it is gone.
    pub entry: Option<BucketEntry>,
}

/// Why a value was not changed.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// Another writer changed the key in the meantime.
    #[error("`{key}` was changed by another writer")]
    Conflict { key: String },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Small values under keys.
#[async_trait]
pub trait Bucket: Send + Sync + std::fmt::Debug {
    /// The value of `key`, as the store's leader has it.
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError>;

    /// Sets `key` if it is at `expected` (0: absent); gone after `ttl` if given.
    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Position, BucketError>;

    /// Removes `key` if it is at `expected`.
    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError>;

    /// All keys that begin with `prefix`, with their values, in key order.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, BucketEntry)>, StoreError>;

    /// First every present key that begins with `prefix`, then every change. Ends only when the
    /// store is closed.
    async fn watch(
        &self,
        prefix: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError>;
}

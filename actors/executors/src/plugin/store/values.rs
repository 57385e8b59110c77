//! Reading and writing what plugins keep.

use std::sync::Arc;

use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketError, StoreError};
use clawnode_proto::{
    ErrorChain, Position,
    codec::CodecError,
    limits::{PLUGIN_KEY_BYTES, PLUGIN_STORE_KEYS, PLUGIN_VALUE_BYTES},
    plugin::StoreKeys,
};

use super::name::{StoreName, ValuePlace};
use crate::plugin::PluginName;

/// Tries of a change that conflicts with other writers: each failed try means that another one
/// succeeded.
const TRIES: usize = 64;

/// The stores that a plugin was granted. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PluginStores {
    bucket: Arc<dyn Bucket>,
    plugin: PluginName,
    granted: Arc<[StoreName]>,
}

/// A value, and at which change of the cluster's bucket it came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// What was put.
    pub value: Bytes,
    /// What to expect when changing it; 0 is none's.
    pub revision: u64,
}

/// Why something was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The plugin has no such store.
    #[error(
        "`{0}` is not among the stores that were granted: a capability `store:NAME` names them"
    )]
    Denied(String),
    /// Not a key.
    #[error("`{0}` is not a key: 1 to {PLUGIN_KEY_BYTES} of a-z, A-Z, 0-9, `-`, `_`, `=`, `:`")]
    Key(String),
    /// Too long.
    #[error("a value of {0} bytes; at most {PLUGIN_VALUE_BYTES}")]
    TooLarge(usize),
    /// It is not as it was expected to be.
    #[error("it is at another revision than was expected")]
    Conflict,
    /// No room for another key.
    #[error("the store has {PLUGIN_STORE_KEYS} keys, which is all that it may have")]
    Full,
    /// Others change it all the time.
    #[error("other writers keep changing the store; try again")]
    Busy,
    /// The cluster's store does not answer, or refuses.
    #[error("the cluster's store failed; it is unknown whether anything changed")]
    Store(#[from] StoreError),
    /// What is there is not what was written.
    #[error("the keys of the store cannot be read")]
    Damaged(#[source] CodecError),
}

// === impl PluginStores ===

impl PluginStores {
    /// Those of this plugin, in this bucket.
    pub fn new(bucket: Arc<dyn Bucket>, plugin: PluginName, granted: Arc<[StoreName]>) -> Self {
        Self { bucket, plugin, granted }
    }

    /// The value of a key.
    pub async fn get(&self, store: &str, key: &str) -> Result<Option<StoredValue>, StoreFailure> {
        let place = self.place(store, key)?;
        let found = self.bucket.get(&place.value).await?;
        Ok(found.map(|entry| StoredValue { value: entry.value, revision: entry.position.0 }))
    }

    /// Sets a key, at any revision or only at `expected` (0: it has no value). Returns its new
    /// revision.
    pub async fn put(
        &self,
        store: &str,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
    ) -> Result<u64, StoreFailure> {
        let place = self.place(store, key)?;
        if value.len() > PLUGIN_VALUE_BYTES {
            return Err(StoreFailure::TooLarge(value.len()));
        }
        let value = Bytes::from(value);
        for _ in 0..TRIES {
            let at = self.at(&place, expected).await?;
            let is_new = at == Position(0);
            if is_new {
                self.note(&place, false).await?;
            }
            match self.bucket.put(&place.value, at, value.clone(), None).await {
                Ok(position) => {
                    if is_new {
                        // Who takes the key away at the same time must see that it has a value again.
                        self.note(&place, true).await?;
                    }
                    return Ok(position.0);
                }
                Err(BucketError::Conflict { .. }) if expected.is_none() => {}
                Err(BucketError::Conflict { .. }) => return Err(StoreFailure::Conflict),
                Err(BucketError::Store(error)) => return Err(error.into()),
            }
        }
        Err(StoreFailure::Busy)
    }

    /// Removes a key, at any revision or only at `expected`.
    pub async fn delete(
        &self,
        store: &str,
        key: &str,
        expected: Option<u64>,
    ) -> Result<(), StoreFailure> {
        let place = self.place(store, key)?;
        for _ in 0..TRIES {
            let at = self.at(&place, expected).await?;
            match self.bucket.delete(&place.value, at).await {
                Ok(()) => return self.forget(&place).await,
                Err(BucketError::Conflict { .. }) if expected.is_none() => {}
                Err(BucketError::Conflict { .. }) => return Err(StoreFailure::Conflict),
                Err(BucketError::Store(error)) => return Err(error.into()),
            }
        }
        Err(StoreFailure::Busy)
    }

    /// All keys of a store, in order.
    pub async fn keys(&self, store: &str) -> Result<Vec<String>, StoreFailure> {
        let keys = self.granted(store)?.keys(&self.plugin);
        Ok(self.noted(&keys).await?.1.keys.into_iter().collect())
    }

    fn granted(&self, store: &str) -> Result<&StoreName, StoreFailure> {
        let found = self.granted.iter().find(|granted| granted.is_called(store));
        found.ok_or_else(|| StoreFailure::Denied(short(store)))
    }

    fn place(&self, store: &str, key: &str) -> Result<ValuePlace, StoreFailure> {
        let place = self.granted(store)?.place(&self.plugin, key);
        place.ok_or_else(|| StoreFailure::Key(short(key)))
    }

    /// Where a change of the value expects it to be.
    async fn at(&self, place: &ValuePlace, expected: Option<u64>) -> Result<Position, StoreError> {
        if let Some(expected) = expected {
            return Ok(Position(expected));
        }
        let found = self.bucket.get(&place.value).await?;
        Ok(found.map_or(Position(0), |entry| entry.position))
    }

    /// The keys, and where they are.
    async fn noted(&self, keys: &str) -> Result<(Position, StoreKeys), StoreFailure> {
        match self.bucket.get(keys).await? {
            None => Ok((Position(0), StoreKeys::default())),
            Some(entry) => {
                let keys = StoreKeys::from_bytes(&entry.value).map_err(StoreFailure::Damaged)?;
                Ok((entry.position, keys))
            }
        }
    }

    /// Notes a key, if there is room. One that has its value already is noted in any case, and
    /// written even if it is there.
    async fn note(&self, place: &ValuePlace, has_value: bool) -> Result<(), StoreFailure> {
        for _ in 0..TRIES {
            let (position, mut noted) = self.noted(&place.keys).await?;
            let is_new = noted.keys.insert(place.key.clone());
            if !is_new && !has_value {
                return Ok(());
            }
            if noted.keys.len() > PLUGIN_STORE_KEYS && !has_value {
                return Err(StoreFailure::Full);
            }
            if self.write(place, position, &noted).await? {
                return Ok(());
            }
        }
        Err(StoreFailure::Busy)
    }

    /// Takes a key away that has no value any more.
    async fn forget(&self, place: &ValuePlace) -> Result<(), StoreFailure> {
        for _ in 0..TRIES {
            // In this order: who makes a value after the second read writes the keys after that.
            let (position, mut noted) = self.noted(&place.keys).await?;
            if !noted.keys.remove(&place.key) || self.bucket.get(&place.value).await?.is_some() {
                return Ok(());
            }
            if self.write(place, position, &noted).await? {
                return Ok(());
            }
        }
        Err(StoreFailure::Busy)
    }

    /// Writes the keys; false if another writer was faster.
    async fn write(
        &self,
        place: &ValuePlace,
        position: Position,
        noted: &StoreKeys,
    ) -> Result<bool, StoreFailure> {
        let bytes = noted.to_bytes().map_err(StoreFailure::Damaged)?;
        match self.bucket.put(&place.keys, position, bytes.into(), None).await {
            Ok(_) => Ok(true),
            Err(BucketError::Conflict { .. }) => Ok(false),
            Err(BucketError::Store(error)) => Err(error.into()),
        }
    }
}

// === impl StoreFailure ===

impl StoreFailure {
    /// The whole failure, for people.
    pub fn told(&self) -> String {
        ErrorChain(self).to_string()
    }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

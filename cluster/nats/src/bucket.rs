//! The bucket: a stream with one message for each key.
//!
//! A removed key leaves a marker for a while, so that watchers see it. All readers take a marker as
//! *absent*. But a `put` that expects no value fails at its sequence, and tries again on top of the
//! marker. Messages are published with their time to live here: the client's own key-value store
//! forgets it on top of a marker.

use std::{pin::Pin, time::Duration};

use async_nats::{HeaderMap, header::NATS_MESSAGE_TTL, jetstream::message::StreamMessage};
use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketChange, BucketEntry, BucketError, StoreError};
use clawnode_proto::{Position, subject::Prefix};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};

use super::{
    api::{Api, RequestFailure},
    foreign_messages::{OURS, is_foreign},
    journal::expecting,
    stream::{StreamReader, is_expiry_marker},
    watch,
};

/// The name of this store in errors.
const STORE: &str = "bucket";
/// The header of a removed key's marker.
const REMOVED: &str = "Clawnode-Removed";
/// How long a removed key's marker stays, in seconds.
const REMOVED_TTL: &str = "60s";
/// Tries of a `put` that expects nothing: markers may come and go meanwhile.
const TRIES: usize = 3;
/// Keys of a list that are read at the same time.
const READ_AT_ONCE: usize = 16;

/// The bucket on `JetStream`.
#[derive(Clone, Debug)]
pub(super) struct NatsBucket {
    pub(super) api: Api,
    pub(super) prefix: Prefix,
    pub(super) reader: StreamReader,
}

// === impl NatsBucket ===

impl NatsBucket {
    pub(super) fn new(api: Api, prefix: Prefix, reader: StreamReader) -> Self {
        Self { api, prefix, reader }
    }

    async fn store(
        &self,
        key: &str,
        expected: Position,
        ttl: Option<Duration>,
        value: Bytes,
    ) -> Result<Position, RequestFailure> {
        let mut headers = expecting(expected);
        headers.insert(OURS, "1");
        if let Some(ttl) = ttl {
            headers.insert(NATS_MESSAGE_TTL, whole_seconds(ttl));
        }
        self.api.publish_when_free(&self.prefix.bucket(key), headers, value).await
    }

    /// Counts a value that clawnode did not write.
    pub(super) fn look_at(&self, headers: &HeaderMap, value: &[u8], subject: &str, at: u64) {
        if is_foreign(Some(headers), value) {
            self.api.signals.met_foreign(subject, at);
        }
    }

    /// The sequence of the key's marker, if it has one: removed or expired.
    async fn marker(&self, key: &str) -> Result<Option<Position>, RequestFailure> {
        let last = self.reader.last(&self.prefix.bucket(key)).await?;
        Ok(last.filter(is_marker).map(|message| Position(message.sequence)))
    }

    /// The keys that begin with `prefix`, present or not.
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, RequestFailure> {
        let subjects = self.reader.subjects(&self.filter(prefix)).await?;
        Ok(subjects
            .keys()
            .filter_map(|subject| self.key_of(subject))
            .filter(|key| key.starts_with(prefix))
            .map(str::to_owned)
            .collect())
    }

    /// The narrowest filter for keys that begin with `prefix`; it may let more through.
    pub(super) fn filter(&self, prefix: &str) -> String {
        match prefix.rsplit_once('.') {
            Some((tokens, _)) => self.prefix.bucket(&format!("{tokens}.>")),
            None => self.prefix.buckets(),
        }
    }

    /// The key of a subject.
    pub(super) fn key_of<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject.strip_prefix(&self.prefix.bucket(""))
    }
}

#[async_trait]
impl Bucket for NatsBucket {
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError> {
        check_key(key)?;
        let last = self.reader.last(&self.prefix.bucket(key)).await.map_err(store_error)?;
        let last = last.filter(|message| !is_marker(message));
        // The reader of the value decides which is safe: "there is none" or "unknown".
        if let Some(last) = &last {
            self.look_at(&last.headers, &last.payload, &last.subject, last.sequence);
        }
        Ok(last.map(entry))
    }

    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Position, BucketError> {
        check_key(key)?;
        let mut at = expected;
        for _ in 0..TRIES {
            match self.store(key, at, ttl, value.clone()).await {
                Ok(position) => return Ok(position),
                Err(failure) if failure.is_wrong_last_sequence() => {}
                Err(failure) => return Err(store_error(failure).into()),
            }
            if expected != Position(0) {
                break;
            }
            // The read only guesses; the next store decides.
            match self.marker(key).await.map_err(store_error)? {
                Some(marker) => at = marker,
                None if at == Position(0) => break,
                None => at = Position(0),
            }
        }
        Err(BucketError::Conflict { key: key.to_owned() })
    }

    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError> {
        check_key(key)?;
        if expected == Position(0) {
            return match self.get(key).await? {
                Some(_) => Err(BucketError::Conflict { key: key.to_owned() }),
                None => Ok(()),
            };
        }
        let mut headers = expecting(expected);
        headers.insert(REMOVED, "1");
        headers.insert(NATS_MESSAGE_TTL, REMOVED_TTL);
        let subject = self.prefix.bucket(key);
        match self.api.publish_when_free(&subject, headers, Bytes::new()).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_wrong_last_sequence() => {
                Err(BucketError::Conflict { key: key.to_owned() })
            }
            Err(failure) => Err(store_error(failure).into()),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        let keys = self.keys(prefix).await.map_err(store_error)?;
        let entries: Vec<_> = stream::iter(keys)
            .map(|key| async move {
                let entry = self.get(&key).await?;
                Ok::<_, StoreError>(entry.map(|entry| (key, entry)))
            })
            .buffered(READ_AT_ONCE)
            .try_filter_map(|found| async move { Ok(found) })
            .try_collect()
            .await?;
        Ok(entries)
    }

    async fn watch(
        &self,
        prefix: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError> {
        watch::open(self.clone(), prefix.to_owned()).await.map_err(store_error)
    }
}

/// Whether a message only says that its key is absent.
pub(super) fn is_gone(headers: &HeaderMap) -> bool {
    is_expiry_marker(headers) || headers.get(REMOVED).is_some()
}

fn is_marker(message: &StreamMessage) -> bool {
    is_gone(&message.headers)
}

fn entry(message: StreamMessage) -> BucketEntry {
    BucketEntry { position: Position(message.sequence), value: message.payload }
}

/// A time to live in the server's unit, at least its least.
fn whole_seconds(ttl: Duration) -> String {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    format!("{}s", seconds.max(1))
}

/// How long a message lives, if it does not for ever.
pub(super) fn time_to_live(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(NATS_MESSAGE_TTL)?.as_str().strip_suffix('s')?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Whether the key can be the end of a subject.
fn check_key(key: &str) -> Result<(), StoreError> {
    let is_token = |token: &str| {
        !token.is_empty()
            && token
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'=' | b':'))
    };
    if key.split('.').all(is_token) {
        return Ok(());
    }
    Err(StoreError::Refused {
        store: STORE,
        detail: format!("`{key}` is not a key: tokens of a-z, A-Z, 0-9, `_-=:` between dots"),
    })
}

fn store_error(failure: RequestFailure) -> StoreError {
    failure.of_store(STORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::from_millis(10)), "1s");
        assert_eq!(whole_seconds(Duration::from_millis(1_001)), "2s");
        assert_eq!(whole_seconds(Duration::from_mins(1)), "60s");
        let mut headers = HeaderMap::new();
        assert_eq!(time_to_live(&headers), None);
        headers.insert(NATS_MESSAGE_TTL, whole_seconds(Duration::from_mins(1)));
        assert_eq!(time_to_live(&headers), Some(Duration::from_mins(1)));
    }

    #[test]
    fn keys_that_are_no_subjects_are_refused() {
        for (key, is_good) in
            [("agent.default", true), ("a", true), ("", false), ("a..b", false), ("a.*", false)]
        {
            assert_eq!(check_key(key).is_ok(), is_good, "{key}");
        }
    }
}

//! Stores that do not answer, and those with a conflicting writer.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketChange, BucketEntry, BucketError, StoreError};
use clawnode_proto::{Position, tool::ToolFailure};
use clawnode_tool::{Egress, EgressOptions};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use super::{
    Folder, call, run, said,
    stores::{keeping, on_disk, stores, swapping, text},
};

/// A bucket that does not answer.
#[derive(Debug)]
struct Stuck;

#[async_trait]
impl Bucket for Stuck {
    async fn get(&self, _: &str) -> Result<Option<BucketEntry>, StoreError> {
        std::future::pending().await
    }

    async fn put(
        &self,
        _: &str,
        _: Position,
        _: Bytes,
        _: Option<Duration>,
    ) -> Result<Position, BucketError> {
        std::future::pending().await
    }

    async fn delete(&self, _: &str, _: Position) -> Result<(), BucketError> {
        std::future::pending().await
    }

    async fn list(&self, _: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        std::future::pending().await
    }

    async fn watch(
        &self,
        _: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn waiting_for_a_store_is_part_of_a_calls_time_and_ends_with_it() {
    let folder = Folder::new();
    let plugin = folder.add("keeps", swapping(), &["store:notes"]);
    let stuck: Arc<dyn Bucket> = Arc::new(Stuck);
    let toolbox = keeping(&folder, &plugin, &stuck).await;
    let mut short = run("keeps__run");
    short.timeout = Duration::from_millis(300);
    let outcome = toolbox.execute(short, CancellationToken::new()).await;
    assert_eq!(outcome.failure, Some(ToolFailure::TimedOut), "{outcome:?}");
    let cancelled = CancellationToken::new();
    let stopping = async {
        tokio::task::yield_now().await;
        cancelled.cancel();
    };
    let running = toolbox.execute(run("keeps__run"), cancelled.clone());
    let (outcome, ()) = tokio::join!(running, stopping);
    assert_eq!(outcome.failure, Some(ToolFailure::Cancelled), "{outcome:?}");
    // With a store that answers, the same plugin keeps its values; without one it gets an error.
    let dir = tempfile::tempdir().unwrap();
    let storage = on_disk(dir.path());
    let toolbox = keeping(&folder, &plugin, &storage.bucket).await;
    for wanted in ["nothing", r#"{"a":1}"#] {
        assert_eq!(said(&call(&toolbox, "keeps__run").await), wanted);
    }
    let nowhere = folder.toolbox(&[plugin], &Egress::new(EgressOptions::default())).await;
    let outcome = call(&nowhere, "keeps__run").await;
    assert_eq!((outcome.failure, said(&outcome)), (Some(ToolFailure::Failed), "failed"));
}

/// A change by another writer just before a certain value is written.
type Deed = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// A bucket with a conflicting writer, once.
struct Crossed {
    inner: Arc<dyn Bucket>,
    deed: Mutex<Option<Deed>>,
}

impl fmt::Debug for Crossed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crossed")
    }
}

#[async_trait]
impl Bucket for Crossed {
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError> {
        self.inner.get(key).await
    }

    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Position, BucketError> {
        let deed = self.deed.lock().unwrap().take_if(|(at, _)| *at == key);
        if let Some((_, deed)) = deed {
            deed.await;
        }
        self.inner.put(key, expected, value, ttl).await
    }

    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError> {
        self.inner.delete(key, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn watch(
        &self,
        prefix: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError> {
        self.inner.watch(prefix).await
    }
}

/// A key that is made while it is taken away, and one that is taken away while it is made.
#[tokio::test]
async fn a_key_that_has_a_value_is_listed_whoever_gets_in_the_way() {
    for making in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let inner = on_disk(dir.path()).bucket;
        let other = stores(&inner, "one");
        other.put("notes", "k", "old".into(), None).await.unwrap();
        if making {
            // As a crash leaves it: the key is there, and its value is not.
            let at = inner.get("store.one.notes.k").await.unwrap().unwrap().position;
            inner.delete("store.one.notes.k", at).await.unwrap();
        }
        let deed: Deed = if making {
            let gone = async move { other.delete("notes", "k", None).await.unwrap() };
            ("store.one.notes.k", Box::pin(gone))
        } else {
            let made = async move {
                other.put("notes", "k", "new".into(), None).await.unwrap();
            };
            ("store.one.notes", Box::pin(made))
        };
        let crossed = Arc::new(Crossed { inner, deed: Mutex::new(Some(deed)) });
        let bucket: Arc<dyn Bucket> = Arc::clone(&crossed) as _;
        let store = stores(&bucket, "one");
        if making {
            store.put("notes", "k", "new".into(), None).await.unwrap();
        } else {
            store.delete("notes", "k", None).await.unwrap();
        }
        assert!(crossed.deed.lock().unwrap().is_none(), "another writer was faster");
        assert_eq!(text(&store, "notes", "k").await.as_deref(), Some("new"));
        assert_eq!(store.keys("notes").await.unwrap(), ["k"], "making: {making}");
    }
}

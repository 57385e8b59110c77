//! A node that stops is not kept by a server, whatever that waits for.

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketChange, BucketEntry, BucketError, StoreError};
use clawnode_proto::Position;
use futures_util::Stream;
use tokio::{sync::watch, time::timeout};

use super::bench::{Bench, harmful};

/// Longer than a program takes to end, and less than a store without an answer is waited for.
const SOON: Duration = Duration::from_secs(20);

/// A bucket that answers nothing.
#[derive(Debug)]
struct SilentBucket {
    /// Whether it was asked for something.
    asked: watch::Sender<bool>,
}

impl SilentBucket {
    async fn silence<T>(&self) -> T {
        self.asked.send_replace(true);
        std::future::pending().await
    }
}

#[async_trait]
impl Bucket for SilentBucket {
    async fn get(&self, _: &str) -> Result<Option<BucketEntry>, StoreError> {
        self.silence().await
    }

    async fn put(
        &self,
        _: &str,
        _: Position,
        _: Bytes,
        _: Option<Duration>,
    ) -> Result<Position, BucketError> {
        self.silence().await
    }

    async fn delete(&self, _: &str, _: Position) -> Result<(), BucketError> {
        self.silence().await
    }

    async fn list(&self, _: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        self.silence().await
    }

    async fn watch(
        &self,
        _: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError> {
        self.silence().await
    }
}

#[tokio::test]
async fn a_server_ends_though_the_list_of_its_tools_cannot_be_stored() {
    let (asked, mut is_asked) = watch::channel(false);
    let bench = Bench::on_bucket(harmful("obeys", &[]), Box::new(SilentBucket { asked }));
    // It runs, and has listed its tools.
    is_asked.wait_for(|asked| *asked).await.unwrap();
    assert!(timeout(SOON, bench.stop()).await.is_ok(), "its node does not wait for the store");
}

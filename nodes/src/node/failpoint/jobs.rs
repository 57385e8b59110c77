//! The points of a job: at the queue and at its state key.

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    Bucket, BucketChange, BucketEntry, BucketError, JobConsumer, JobDelivery, Jobs, StoreError,
};
use clawnode_proto::{
    Capability, Position,
    job::{Job, JobState},
    subject::{JOB_KEYS, MEMORY_KEYS, SWITCH_KEYS},
};
use futures_util::Stream;
use tokio::sync::RwLock;

use super::{
    point::Point,
    stores::{Armed, WithFailpoints},
};

/// Jobs with points in them. No job is delivered while one is being put: a process that dies of
/// having put one has not begun it.
#[derive(Debug)]
pub(super) struct WatchedJobs {
    pub(super) inner: Arc<dyn Jobs>,
    pub(super) armed: Arc<Armed>,
    /// Shared by who puts, alone for who takes.
    pub(super) puts: Arc<RwLock<()>>,
}

/// A consumer that waits until no job is being put.
struct FailpointJobConsumer {
    inner: Box<dyn JobConsumer>,
    puts: Arc<RwLock<()>>,
    /// What came, and waits.
    held: Option<JobDelivery>,
}

#[async_trait]
impl Jobs for WatchedJobs {
    async fn put(&self, job: &Job) -> Result<(), StoreError> {
        self.armed.chance("jobs.put");
        self.armed.pass(Point::BeforeJob);
        let _putting = self.puts.read().await;
        self.inner.put(job).await?;
        self.armed.pass(Point::AfterJob);
        Ok(())
    }

    async fn waits(&self, job: &Job) -> Result<bool, StoreError> {
        self.armed.rarely("jobs.waits");
        self.inner.waits(job).await
    }

    async fn consume(&self, capability: &Capability) -> Result<Box<dyn JobConsumer>, StoreError> {
        self.armed.rarely("jobs.consume");
        let inner = self.inner.consume(capability).await?;
        Ok(Box::new(FailpointJobConsumer { inner, puts: Arc::clone(&self.puts), held: None }))
    }

    async fn pending(&self, capability: &Capability) -> Result<u64, StoreError> {
        self.inner.pending(capability).await
    }

    async fn list(&self) -> Result<Vec<Bytes>, StoreError> {
        self.inner.list().await
    }
}

#[async_trait]
impl JobConsumer for FailpointJobConsumer {
    async fn next(&mut self) -> Result<JobDelivery, StoreError> {
        let delivery = match self.held.take() {
            Some(held) => held,
            None => self.inner.next().await?,
        };
        // Kept here, so that nothing is lost if this is dropped while it waits.
        let delivery = self.held.insert(delivery).clone();
        drop(self.puts.write().await);
        self.held = None;
        Ok(delivery)
    }

    fn set_rank(&mut self, rank: u8) {
        self.inner.set_rank(rank);
    }

    async fn rest(&mut self) {
        self.inner.rest().await;
        if let Some(held) = self.held.take() {
            // If that fails, the queue takes it back in time.
            drop(held.handle.nak(Duration::ZERO).await);
        }
    }
}

#[async_trait]
impl Bucket for WithFailpoints<dyn Bucket> {
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError> {
        if key.starts_with(JOB_KEYS) {
            self.armed.rarely("jobs.state");
        }
        self.inner.get(key).await
    }

    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Position, BucketError> {
        if key.starts_with(MEMORY_KEYS) {
            self.armed.write();
        }
        let state = key.starts_with(JOB_KEYS).then(|| JobState::from_bytes(&value).ok()).flatten();
        if state.is_some() {
            self.armed.rarely("jobs.set");
        }
        match &state {
            Some(JobState::Started { .. }) => self.armed.pass(Point::BeforeStarted),
            Some(JobState::Done { .. }) => self.armed.pass(Point::BeforeDone),
            _ => {}
        }
        let position = self.inner.put(key, expected, value, ttl).await?;
        if state.is_some() {
            self.armed.rarely("jobs.was_set");
        }
        match &state {
            Some(JobState::Started { .. }) => self.armed.pass(Point::AfterStarted),
            Some(JobState::Done { .. }) => self.armed.pass(Point::AfterDone),
            _ => {}
        }
        if key.starts_with(SWITCH_KEYS) {
            self.armed.pass(Point::AfterSwitch);
        }
        Ok(position)
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

//! The points of a job: at the queue and at its state key.

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketError, Change, Entry, JobConsumer, Jobs, StoreError};
use clawnode_proto::{
    Capability, Position,
    job::{Job, JobState},
    subject::{JOB_KEYS, LATCH_KEYS},
};
use futures_util::Stream;

use super::doors::{Point, Watched};

#[async_trait]
impl Jobs for Watched<dyn Jobs> {
    async fn put(&self, job: &Job) -> Result<(), StoreError> {
        self.armed.chance("jobs.put");
        self.armed.pass(Point::BeforeJob);
        self.inner.put(job).await?;
        self.armed.pass(Point::AfterJob);
        Ok(())
    }

    async fn consume(&self, capability: &Capability) -> Result<Box<dyn JobConsumer>, StoreError> {
        self.armed.rarely("jobs.consume");
        self.inner.consume(capability).await
    }

    async fn pending(&self, capability: &Capability) -> Result<u64, StoreError> {
        self.inner.pending(capability).await
    }

    async fn list(&self) -> Result<Vec<Bytes>, StoreError> {
        self.inner.list().await
    }
}

#[async_trait]
impl Bucket for Watched<dyn Bucket> {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
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
        if key.starts_with(LATCH_KEYS) {
            self.armed.pass(Point::AfterLatch);
        }
        Ok(position)
    }

    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError> {
        self.inner.delete(key, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn watch(
        &self,
        prefix: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = Change> + Send>>, StoreError> {
        self.inner.watch(prefix).await
    }
}

//! The simulated jobs handle: a job is delivered when a caller asks for the next one.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{AckHandle, JobConsumer, JobDelivery, Jobs, StoreError, jobs::encode};
use clawnode_proto::{Capability, job::Job};

use super::{
    JobDelivered, JobToken, StoreReply, StoreRequest,
    world_driver::{WorldClient, stray},
};

const STORE: &str = "simulated jobs";

/// Jobs of a world.
#[derive(Debug)]
pub(super) struct SimJobs(pub(super) WorldClient);

/// Takes jobs of one capability.
struct SimJobConsumer {
    client: WorldClient,
    capability: Capability,
}

/// Answers one delivery.
struct SimJobHandle {
    client: WorldClient,
    token: JobToken,
}

impl SimJobs {
    async fn all(&self) -> Result<Vec<Job>, StoreError> {
        match self.0.ask(STORE, StoreRequest::Jobs).await? {
            StoreReply::Jobs(jobs) => Ok(jobs),
            other => Err(stray(STORE, &other)),
        }
    }
}

#[async_trait]
impl Jobs for SimJobs {
    async fn put(&self, job: &Job) -> Result<(), StoreError> {
        encode(STORE, job)?;
        self.0.ask(STORE, StoreRequest::PutJob(Box::new(job.clone()))).await.map(drop)
    }

    async fn waits(&self, job: &Job) -> Result<bool, StoreError> {
        let question = StoreRequest::JobWaits(job.capability.clone(), job.id);
        match self.0.ask(STORE, question).await? {
            StoreReply::Is(waits) => Ok(waits),
            other => Err(stray(STORE, &other)),
        }
    }

    async fn consume(&self, capability: &Capability) -> Result<Box<dyn JobConsumer>, StoreError> {
        let capability = capability.clone();
        Ok(Box::new(SimJobConsumer { client: self.0.clone(), capability }))
    }

    async fn pending(&self, capability: &Capability) -> Result<u64, StoreError> {
        let all = self.all().await?;
        Ok(all.iter().filter(|job| job.capability == *capability).count() as u64)
    }

    async fn list(&self) -> Result<Vec<Bytes>, StoreError> {
        self.all().await?.iter().map(|job| encode(STORE, job)).collect()
    }
}

#[async_trait]
impl JobConsumer for SimJobConsumer {
    async fn next(&mut self) -> Result<JobDelivery, StoreError> {
        let delivered = self.client.next_job(STORE, &self.capability).await?;
        let JobDelivered { job, token, redelivered } = delivered;
        let handle = Arc::new(SimJobHandle { client: self.client.clone(), token });
        Ok(JobDelivery { job_id: job.id, bytes: encode(STORE, &job)?, redelivered, handle })
    }

    fn set_rank(&mut self, _rank: u8) {
        // This world gives jobs out in the order in which they were asked for.
    }

    /// A dropped `next` has asked for nothing any more.
    async fn rest(&mut self) {}
}

#[async_trait]
impl AckHandle for SimJobHandle {
    async fn ack(&self) -> Result<(), StoreError> {
        self.client.ask(STORE, StoreRequest::AckJob(self.token)).await.map(drop)
    }

    async fn progress(&self) -> Result<(), StoreError> {
        self.client.ask(STORE, StoreRequest::ProgressJob(self.token)).await.map(drop)
    }

    async fn nak(&self, delay: Duration) -> Result<(), StoreError> {
        self.client.ask(STORE, StoreRequest::NakJob(self.token, delay)).await.map(drop)
    }
}

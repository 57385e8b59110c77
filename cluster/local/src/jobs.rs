//! The jobs handle.
//!
//! Jobs wait in the log beside inputs, and are taken and answered like them: an acknowledgement
//! returns when it is queued, and is written with the next group. In its group, acknowledgements
//! come first. So a job that is put again after one finds its place free.
//!
//! When a caller puts or counts jobs, the store removes those that are too old to begin. So the
//! queue does not grow with jobs that no runner may take.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{AckHandle, JobConsumer, JobDelivery, Jobs, StoreError, jobs::encode};
use clawnode_proto::{Capability, EntityId, JobId, Position, job::Job};
use tokio::sync::{Notify, oneshot};
use tracing::{error, info};

use super::{
    in_flight::Popped,
    index::{Loc, keys},
    log::ReadError,
    queue::EngineOp,
    read_threads::{blocking, is_small},
    record::split_job,
    shared::{DirectoryClient, OpenDirectory},
};

/// The name of this store in errors.
pub(super) const STORE: &str = "local jobs";

/// How soon jobs are looked at again if none of them says until when it may begin.
const LOOK_AGAIN: Duration = Duration::from_hours(1);

/// Jobs in the log.
#[derive(Debug)]
pub(super) struct LocalJobs(pub(super) Arc<DirectoryClient>);

/// Takes jobs of one capability.
struct LocalJobConsumer {
    client: Arc<DirectoryClient>,
    capability: Capability,
    bell: Arc<Notify>,
}

/// Answers one delivery.
struct LocalJobHandle {
    client: Arc<DirectoryClient>,
    job: JobId,
    position: Position,
}

#[async_trait]
impl Jobs for LocalJobs {
    async fn put(&self, job: &Job) -> Result<(), StoreError> {
        self.0.forget_old_jobs();
        let bytes = encode(STORE, job)?;
        let (reply, answer) = oneshot::channel();
        let (len, capability) = (bytes.len(), job.capability.clone());
        let op = EngineOp::JobPut { job: job.id, capability, bytes, reply };
        self.0.0.ask(STORE, op, len, answer).await?.map(drop)
    }

    async fn waits(&self, job: &Job) -> Result<bool, StoreError> {
        let place = keys::place(job.id, &job.capability);
        self.0.0.look(STORE, |index| Ok(index.get(&place)?.is_some()))
    }

    async fn consume(&self, capability: &Capability) -> Result<Box<dyn JobConsumer>, StoreError> {
        let (client, capability) = (Arc::clone(&self.0), capability.clone());
        let bell = client.0.jobs().bell(&capability);
        Ok(Box::new(LocalJobConsumer { client, capability, bell }))
    }

    async fn pending(&self, capability: &Capability) -> Result<u64, StoreError> {
        self.0.forget_old_jobs();
        let shared = &self.0.0;
        shared.look(STORE, |_| {
            let jobs = shared.jobs();
            Ok(jobs.hands.iter().filter(|(_, item)| item.lane == *capability).count() as u64)
        })
    }

    async fn list(&self) -> Result<Vec<Bytes>, StoreError> {
        self.0.forget_old_jobs();
        let shared = &self.0.0;
        let is_small = shared.look(STORE, |_| {
            let jobs = shared.jobs();
            Ok(is_small(jobs.hands.iter().map(|(_, item)| item.loc)))
        })?;
        let read_all = |shared: &OpenDirectory| {
            let places: Vec<_> = shared.look(STORE, |_| {
                let jobs = shared.jobs();
                Ok(jobs.hands.iter().map(|(at, item)| (at, item.of, item.loc)).collect())
            })?;
            places.into_iter().map(|(at, job, loc)| read(shared, job, at, loc)).collect()
        };
        if is_small { read_all(shared) } else { blocking(shared, STORE, read_all).await }
    }
}

#[async_trait]
impl JobConsumer for LocalJobConsumer {
    async fn next(&mut self) -> Result<JobDelivery, StoreError> {
        let shared = &self.client.0;
        loop {
            if shared.index().is_none() {
                // Others may wait for this notification, and they must hear it too.
                self.bell.notify_one();
                return Err(shared.closed(STORE));
            }
            let popped = {
                let mut jobs = shared.jobs();
                let popped = jobs.hands.pop(&self.capability, Instant::now(), shared.ack_wait);
                jobs.ring_if_ready(&self.capability);
                popped
            };
            let Some(Popped { position, item, wake }) = popped else {
                self.bell.notified().await;
                continue;
            };
            if wake {
                shared.queue.poke();
            }
            let (client, job) = (Arc::clone(&self.client), item.of);
            let handle = Arc::new(LocalJobHandle { client, job, position });
            let bytes = match read(shared, job, position, item.loc) {
                Ok(bytes) => bytes,
                // It stays in hand until its time is over: then it is tried again.
                Err(failure) if failure.is_transient() => return Err(failure),
                Err(failure) => {
                    error!(%job, %failure, "a waiting job is damaged; it is removed");
                    handle.ack().await?;
                    return Err(failure);
                }
            };
            return Ok(JobDelivery { job_id: job, bytes, redelivered: item.seen, handle });
        }
    }

    fn set_rank(&mut self, _rank: u8) {
        // There is no other process.
    }

    /// There is never a request on its way.
    async fn rest(&mut self) {}
}

#[async_trait]
impl AckHandle for LocalJobHandle {
    async fn ack(&self) -> Result<(), StoreError> {
        self.client.0.remove_job(self.job, self.position)
    }

    async fn progress(&self) -> Result<(), StoreError> {
        self.put_off(self.client.0.ack_wait, false);
        Ok(())
    }

    async fn nak(&self, delay: Duration) -> Result<(), StoreError> {
        self.put_off(delay, true);
        Ok(())
    }
}

impl OpenDirectory {
    fn remove_job(&self, job: JobId, position: Position) -> Result<(), StoreError> {
        if self.jobs().hands.remove(position).is_none() {
            return Ok(());
        }
        self.queue
            .push_ack(as_entity(job), position)
            .map_err(|detail| StoreError::Closed { store: STORE, detail })
    }
}

impl DirectoryClient {
    /// Removes the oldest jobs that are too old to begin: no runner may take them. Jobs of older
    /// builds, which gave them no age, stay.
    fn forget_old_jobs(&self) {
        let (shared, now) = (&self.0, self.0.clock.now());
        loop {
            let oldest = shared.jobs().maybe_old(now);
            let Some(&(first, ..)) = oldest.first() else { return };
            let (mut removed, mut fresh_until) = (false, now.plus(LOOK_AGAIN));
            for (position, id, loc) in oldest {
                // A job that cannot be read is reported by the runner that takes it.
                let Ok(bytes) = read(shared, id, position, loc) else { continue };
                let Ok(job) = Job::from_bytes(&bytes) else { continue };
                let Some(until) = job.not_after else { continue };
                if now <= until {
                    fresh_until = until;
                    break;
                }
                info!(job = %id, capability = %job.capability, "no node took a job in time");
                removed = shared.remove_job(id, position).is_ok();
            }
            if !removed {
                shared.jobs().set_fresh(first, fresh_until);
                return;
            }
        }
    }
}

impl LocalJobHandle {
    fn put_off(&self, delay: Duration, always: bool) {
        let shared = &self.client.0;
        let until = Instant::now() + delay;
        let wake = shared.jobs().hands.put_off(self.position, until, always);
        if wake {
            shared.queue.poke();
        }
    }
}

/// The bytes of the job in the record at `loc`. Damage to it does not make any journal unreadable.
fn read(
    shared: &OpenDirectory,
    job: JobId,
    position: Position,
    loc: Loc,
) -> Result<Bytes, StoreError> {
    let corrupt = |detail| StoreError::Corrupt { entity: as_entity(job), position, detail };
    match shared.files.read(loc) {
        Ok((_, body)) => {
            let body = Bytes::from(body);
            let len = split_job(&body).map(|(_, job)| job.len());
            let len = len.ok_or_else(|| corrupt("a record without a job".to_owned()))?;
            Ok(body.slice(body.len() - len..))
        }
        Err(ReadError::Disk(error)) => {
            let detail = format!("cannot read the log: {error}");
            Err(StoreError::Unavailable { store: STORE, detail })
        }
        Err(ReadError::Damaged(detail)) => Err(corrupt(detail)),
    }
}

/// The id of a job where records and errors have an entity: the same bits.
pub(super) fn as_entity(job: JobId) -> EntityId {
    EntityId::from_u128(job.as_u128())
}

//! The jobs trait: what any process with a capability may do, delivered at least once.
//!
//! Contract: `put` answers after the job is durably stored. A job that waits already, delivered or
//! not, waits once: putting it again changes nothing, also if other bytes are put under its id. Once
//! it is gone, the same job may be put again, and is delivered again. An acknowledgement takes effect
//! a moment after it is given: a put in that moment may still find the job waiting, and change
//! nothing.
//!
//! A job is delivered again, any number of times, if its holder sends neither an acknowledgement nor
//! `progress` for the backend's own wait, which is at most `limits::ACK_WAIT`. An acknowledgement removes the job, also a late one by an
//! earlier holder: acks are not fenced. What a delivery means is decided by the job's state key, a
//! value of the [`Bucket`](crate::Bucket) under `subject::job_key` that changes by compare-and-set
//! only; this trait is the queue and nothing else.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{Capability, JobId, job::Job, limits::APPEND_BYTES};

use crate::{AckHandle, StoreError};

/// The highest rank of a consumer of jobs, counted from 0.
pub const JOB_RANK_MAX: u8 = 9;

/// One delivery of a job.
#[derive(Clone)]
pub struct JobDelivery {
    pub job_id: JobId,
    /// The encoded [`Job`]; the receiver decodes it, so that bad bytes lose nothing.
    pub bytes: Bytes,
    /// Whether it was delivered before, to any process, as far as the store knows.
    pub redelivered: bool,
    /// The handle for the answer.
    pub handle: Arc<dyn AckHandle>,
}

impl fmt::Debug for JobDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobDelivery")
            .field("job_id", &self.job_id)
            .field("redelivered", &self.redelivered)
            .finish_non_exhaustive()
    }
}

/// Takes jobs of one capability, one with each call of `next`. Between calls it takes none, so that
/// a busy process keeps no job from an idle one. Dropping it gives back jobs that were on their
/// way.
#[async_trait]
pub trait JobConsumer: Send {
    /// Asks for one job and waits for it. An error is transient unless it says otherwise.
    ///
    /// A caller may drop it before it is ready: no job is lost. But the job that was asked for may
    /// still come, and is then held for the next call. A caller that will not call again soon calls
    /// [`rest`](Self::rest). A job whose bytes are damaged is reported once, as
    /// [`StoreError::Corrupt`], and waits no more: its owner puts it again if it needs it.
    async fn next(&mut self) -> Result<JobDelivery, StoreError>;

    /// How many other consumers should be given a job before this one (at most [`JOB_RANK_MAX`]): of
    /// those that wait for one, the next job goes to one of the lowest rank. Holds from the next ask
    /// on: if one is under way, call [`rest`](Self::rest) first. Without meaning where one process
    /// has all jobs.
    fn set_rank(&mut self, rank: u8);

    /// Withdraws the request of a dropped `next`, and returns to the queue what it brought. The
    /// next call of `next` asks again.
    async fn rest(&mut self);
}

/// Jobs that wait, in a queue for each capability.
#[async_trait]
pub trait Jobs: Send + Sync + fmt::Debug {
    /// Stores a job durably, unless it waits already. A caller without an answer puts it again.
    async fn put(&self, job: &Job) -> Result<(), StoreError>;

    /// Whether a job waits, delivered or not: a job that was put before this call, and is not
    /// acknowledged, does.
    async fn waits(&self, job: &Job) -> Result<bool, StoreError>;

    /// Begins to take jobs of this capability, which the caller should have. Asks for no job yet.
    async fn consume(&self, capability: &Capability) -> Result<Box<dyn JobConsumer>, StoreError>;

    /// How many jobs of this capability wait, delivered or not; for people.
    async fn pending(&self, capability: &Capability) -> Result<u64, StoreError>;

    /// All jobs that wait, delivered or not, as they were encoded; reads each of them. For moving
    /// them elsewhere, and for tests: no role on the bus of a cluster with logins may.
    async fn list(&self) -> Result<Vec<Bytes>, StoreError>;
}

/// A job's bytes, if they are not too many.
pub fn encode(store: &'static str, job: &Job) -> Result<Bytes, StoreError> {
    let bytes =
        job.to_bytes().map_err(|error| StoreError::Refused { store, detail: error.to_string() })?;
    if bytes.len() > APPEND_BYTES {
        let detail = format!("{} bytes in one job, at most {APPEND_BYTES}", bytes.len());
        return Err(StoreError::Refused { store, detail });
    }
    Ok(Bytes::from(bytes))
}

//! Taking jobs from the queue of one capability, as long as there are places.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Backoff, JobConsumer, JobDelivery, Jobs, StoreError, membership::Members};
use clawnode_proto::{Capability, job::Job};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::sleep,
};
use tracing::{debug, error, warn};

use super::state::{JobRank, RunnerMessage};

/// The first and the longest wait before a queue that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How long a job that this build cannot read is left alone, for one that can.
const NOT_FOR_US: Duration = Duration::from_secs(30);

/// How often a node that waits for a job looks whether its rank is another one, at most.
const RANKED: Duration = Duration::from_secs(1);

/// Where jobs of one capability are run.
pub(super) struct CapabilitySlots {
    pub(super) capability: Capability,
    pub(super) free: Arc<Semaphore>,
    pub(super) all: usize,
    pub(super) rank: JobRank,
    pub(super) peers: watch::Receiver<Members>,
}

// === impl CapabilitySlots ===

impl CapabilitySlots {
    /// How good this node is for the next job, while one place is kept for it.
    fn rank(&self) -> u8 {
        let in_hand = self.all.saturating_sub(self.free.available_permits() + 1);
        (self.rank)(&self.capability, u32::try_from(in_hand).unwrap_or(u32::MAX))
    }

    /// Waits until this node's rank is not this one any more. Where nothing is heard of others, it
    /// stays what it is.
    async fn another_rank(&self, rank: u8) {
        let mut peers = self.peers.clone();
        while peers.changed().await.is_ok() {
            sleep(RANKED).await;
            if self.rank() != rank {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Takes jobs, one for each place; ends when the runner is gone.
pub(super) async fn take(
    jobs: Arc<dyn Jobs>,
    places: CapabilitySlots,
    notes: mpsc::Sender<RunnerMessage>,
) {
    let capability = &places.capability;
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    while !notes.is_closed() {
        let taken = match jobs.consume(capability).await {
            Ok(mut consumer) => take_from(consumer.as_mut(), &places, &notes, &mut backoff).await,
            Err(failure) => Err(failure),
        };
        match taken {
            Ok(()) => return,
            Err(failure) => {
                warn!(%capability, %failure, "jobs cannot be taken now; trying again");
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
        }
    }
}

async fn take_from(
    consumer: &mut dyn JobConsumer,
    places: &CapabilitySlots,
    notes: &mpsc::Sender<RunnerMessage>,
    backoff: &mut Backoff,
) -> Result<(), StoreError> {
    loop {
        let place = match Arc::clone(&places.free).try_acquire_owned() {
            Ok(place) => place,
            Err(_full) => {
                // Leave a requested job to a runner that has room.
                consumer.rest().await;
                let Ok(place) = Arc::clone(&places.free).acquire_owned().await else {
                    return Ok(());
                };
                place
            }
        };
        let delivery = match next(consumer, places).await {
            Ok(delivery) => delivery,
            Err(StoreError::Corrupt { detail, .. }) => {
                error!(detail, "a job was damaged; its session asks for it again");
                continue;
            }
            Err(failure) => return Err(failure),
        };
        *backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let job = match Job::from_bytes(&delivery.bytes) {
            Ok(job) => Box::new(job),
            Err(failure) => {
                warn!(job = %delivery.job_id, %failure, "a job is not readable here");
                if let Err(failure) = delivery.handle.nak(NOT_FOR_US).await {
                    debug!(%failure, "a job could not be given back");
                }
                continue;
            }
        };
        let taken = RunnerMessage::Taken { job, handle: delivery.handle, place };
        if notes.send(taken).await.is_err() {
            return Ok(());
        }
    }
}

/// The next job that this node is given, at the rank that it has now.
async fn next(
    consumer: &mut dyn JobConsumer,
    places: &CapabilitySlots,
) -> Result<JobDelivery, StoreError> {
    loop {
        let rank = places.rank();
        consumer.set_rank(rank);
        tokio::select! {
            biased;
            given = consumer.next() => return given,
            () = places.another_rank(rank) => {}
        }
        // What was asked for at the old rank is for a better node now.
        consumer.rest().await;
    }
}

//! Taking jobs from the queue of one capability, as long as there are places.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Backoff, JobConsumer, Jobs, StoreError};
use clawnode_proto::{Capability, job::Job};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, error, warn};

use super::drive::Note;

/// The first and the longest wait before a queue that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How long a job that this build cannot read is left alone, for one that can.
const NOT_FOR_US: Duration = Duration::from_secs(30);

/// Takes jobs, one for each place; ends when nobody hears of them any more.
pub(super) async fn take(
    jobs: Arc<dyn Jobs>,
    capability: Capability,
    places: Arc<Semaphore>,
    notes: mpsc::Sender<Note>,
) {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    while !notes.is_closed() {
        let taken = match jobs.consume(&capability).await {
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
    places: &Arc<Semaphore>,
    notes: &mpsc::Sender<Note>,
    backoff: &mut Backoff,
) -> Result<(), StoreError> {
    loop {
        let place = match Arc::clone(places).try_acquire_owned() {
            Ok(place) => place,
            Err(_full) => {
                // What was asked for is for whoever has room.
                consumer.rest().await;
                let Ok(place) = Arc::clone(places).acquire_owned().await else { return Ok(()) };
                place
            }
        };
        let delivery = match consumer.next().await {
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
        let taken = Note::Taken { job, handle: delivery.handle, place };
        if notes.send(taken).await.is_err() {
            return Ok(());
        }
    }
}

//! Pulling one partition for its dispatcher, at the rank that the process is placed at now.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Consumer, PeekSeen, StoreError};
use clawnode_proto::Partition;
use ractor::ActorRef;
use tokio::{sync::Semaphore, time::Instant};
use tracing::{debug, warn};

use super::handle::DispatcherMessage;
use crate::{
    driver::{Placed, WorkerContext},
    partition::PartitionInput,
};

/// Deliveries that wait for the dispatcher; beyond it nothing more is pulled.
const DELIVERIES_MAX: usize = 256;
/// How long an inbox is left alone while the process has no room for more entities.
const ROOM_AGAIN: Duration = Duration::from_millis(100);
/// How long an inbox whose consumer failed is left alone.
const CONSUME_AGAIN: Duration = Duration::from_millis(500);
/// Tries at the scan of a dispatcher that follows another; after them redelivery has found it all.
const SCANS_MAX: u32 = 60;
/// How long after a change to a worse rank it scans: by then, deliveries that were on their way
/// have come.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// How long one whose store is closed is left alone.
const CLOSED_AGAIN: Duration = Duration::from_secs(10);

/// Pulls deliveries for as long as the dispatcher lives, at the rank that it is placed; no more than
/// it has room for.
pub(super) async fn pump(
    partition: Partition,
    mut placed: Placed,
    context: Arc<WorkerContext>,
    dispatcher: ActorRef<DispatcherMessage>,
) {
    let room = Arc::new(Semaphore::new(DELIVERIES_MAX));
    loop {
        let rank = placed.peek_seen(|placed| placed.pulls_at(partition));
        let Some(rank) = rank else {
            if placed.changed().await.is_err() {
                return;
            }
            continue;
        };
        let pulled = match context.storage.inbox.consume(partition, rank).await {
            Ok(consumer) => {
                pull(partition, rank, consumer, &mut placed, &room, &context, &dispatcher).await
            }
            Err(failure) => Err(failure),
        };
        match pulled {
            Ok(Pulled::NoMore) => {}
            Ok(Pulled::Ended) => return,
            Err(failure) => {
                warn!(%partition, %failure, "inbox cannot be pulled now; trying again");
                tokio::time::sleep(again(&failure)).await;
            }
        }
    }
}

/// How a pull ended.
enum Pulled {
    /// The partition is not pulled here any more.
    NoMore,
    /// The dispatcher is gone.
    Ended,
}

/// Pulls until the partition is placed elsewhere.
async fn pull(
    partition: Partition,
    mut rank: u8,
    mut consumer: Box<dyn Consumer>,
    placed: &mut Placed,
    room: &Arc<Semaphore>,
    context: &Arc<WorkerContext>,
    dispatcher: &ActorRef<DispatcherMessage>,
) -> Result<Pulled, StoreError> {
    let mut look = None;
    loop {
        let next = async {
            while context.places.left() == 0 {
                tokio::time::sleep(ROOM_AGAIN).await;
            }
            let permit = Arc::clone(room).acquire_owned().await;
            (permit, consumer.next().await)
        };
        tokio::select! {
            changed = placed.changed() => {
                if changed.is_err() {
                    return Ok(Pulled::Ended);
                }
                let Some(now) = placed.peek_seen(|placed| placed.pulls_at(partition)) else {
                    return Ok(Pulled::NoMore);
                };
                if now != rank {
                    consumer.set_rank(now).await?;
                    // Deliveries that were on their way when better pulls were given up may be lost
                    // until their redelivery.
                    look = look.or_else(|| (now > rank).then(|| Instant::now() + LOOK_AFTER));
                    rank = now;
                }
            }
            () = at(look) => {
                look = None;
                drop(tokio::spawn(scan(partition, Arc::clone(context), dispatcher.clone())));
            }
            (permit, delivery) = next => {
                let (Ok(permit), delivery) = (permit, delivery?) else { return Ok(Pulled::Ended) };
                if dispatcher.cast(DispatcherMessage::Delivered(delivery, permit)).is_err() {
                    return Ok(Pulled::Ended);
                }
            }
        }
    }
}

/// Waits for a moment, if there is one to wait for.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Finds what waits in the partition, and rings for it.
pub(super) async fn scan(
    partition: Partition,
    context: Arc<WorkerContext>,
    dispatcher: ActorRef<DispatcherMessage>,
) {
    for _ in 0..SCANS_MAX {
        match context.storage.inbox.scan(partition).await {
            Ok(entities) => {
                if dispatcher
                    .cast(DispatcherMessage::Feed(PartitionInput::Scanned(entities)))
                    .is_err()
                {
                    debug!(%partition, "a dispatcher stopped while its inbox was scanned");
                }
                return;
            }
            Err(failure) => {
                warn!(%partition, %failure, "inbox cannot be scanned now; trying again");
                tokio::time::sleep(again(&failure)).await;
            }
        }
    }
}

/// A pull that ends while its dispatcher lives is always made again: otherwise the partition would
/// be deaf, and nothing would show it.
const fn again(failure: &StoreError) -> Duration {
    match failure {
        StoreError::Closed { .. } => CLOSED_AGAIN,
        _ => CONSUME_AGAIN,
    }
}

//! Looking after the inputs of processes that died, so that nobody waits for redelivery.

use std::{collections::BTreeSet, time::Duration};

use clawnode_actors::durable::driver::Worker;
use clawnode_cluster::{Substrate, membership::Members, placement::rank};
use clawnode_proto::{ProcessId, limits::ACK_WAIT};
use tokio::{sync::watch, time::Instant};
use tracing::{debug, info};

/// How often the partitions of the dead are scanned.
const EVERY: Duration = Duration::from_secs(1);

/// Tells the dispatchers who is dead and, for two `ACK_WAIT`s after a process was held dead and
/// after its own start, scans the partitions that this process now serves first.
pub async fn run(
    substrate: Substrate,
    me: ProcessId,
    worker: Worker,
    mut members: watch::Receiver<Members>,
) {
    let mut known = BTreeSet::new();
    // Also at the start: whoever died before it was never heard of here, so nobody declares it dead.
    let mut until = Some(Instant::now() + ACK_WAIT * 2);
    loop {
        let view = members.borrow_and_update().clone();
        if view.dead != known {
            if view.dead.difference(&known).next().is_some() {
                info!("scanning the inboxes that a dead process served");
                until = Some(Instant::now() + ACK_WAIT * 2);
            }
            known.clone_from(&view.dead);
            worker.dead(&known);
        }
        if until.is_some_and(|until| Instant::now() < until) {
            scan(&substrate, me, &worker, &view).await;
            tokio::time::sleep(EVERY).await;
        } else if members.changed().await.is_err() {
            return;
        }
    }
}

async fn scan(substrate: &Substrate, me: ProcessId, worker: &Worker, view: &Members) {
    let workers = view.workers();
    for partition in substrate.all_partitions() {
        if rank(partition, me, &workers) != 0 {
            continue;
        }
        let Some(dispatcher) = worker.dispatcher(partition) else { continue };
        match substrate.inbox.scan(partition).await {
            Ok(entities) if entities.is_empty() => {}
            Ok(entities) => dispatcher.scanned(entities),
            Err(failure) => debug!(%partition, %failure, "an inbox cannot be scanned now"),
        }
    }
}

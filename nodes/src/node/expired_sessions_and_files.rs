//! Removes sessions of requests that name no user, and uploaded files that no message names, once they are
//! old enough.

use std::{collections::BTreeSet, time::Duration};

use clawnode_actors::session::{Sessions, clients::stateless_expiry::StatelessExpiry};
use clawnode_kernel::{driver::Worker, supervise::Supervisor};
use clawnode_proto::Partition;
use tracing::{debug, info};

use crate::config::Config;

/// How long a session must have been seen at rest (10 min), beside what the clock says: a clock that is
/// set forward makes no session old.
const SEEN_FOR: Duration = Duration::from_mins(10);
/// The time between two rounds of which each takes a thousand sessions, and the longest time until all
/// sessions are gone through again.
const BETWEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Rounds within the time for which a session is kept.
const ROUNDS: u32 = 24;

/// The time between two searches for uploaded files that no message names (1 h), and before the first
/// search, so that a node that never runs for long removes them too.
const FILES_EVERY: Duration = Duration::from_hours(1);
const FILES_FIRST: Duration = Duration::from_mins(1);

/// Starts the removal of uploaded files on a worker.
pub async fn begin_files(
    supervisor: &Supervisor,
    sessions: Sessions,
    worker: &Worker,
) -> Result<(), ractor::SpawnErr> {
    let worker = worker.clone();
    let sweep = move || sweep_files(sessions.clone(), worker.clone());
    supervisor.adopt_task("worker.files", sweep).await
}

/// Removes files of the sessions that this worker serves first, for as long as it runs.
async fn sweep_files(sessions: Sessions, worker: Worker) {
    let partitions = sessions.storage().partitions;
    let mut wait = FILES_FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = FILES_EVERY;
        let firsts: BTreeSet<Partition> = worker.placement().firsts().collect();
        match sessions.sweep_files(|id| firsts.contains(&id.partition(partitions))).await {
            Ok(0) => {}
            Ok(removed) => info!(removed, "uploaded files that no message names are removed"),
            Err(failure) => debug!(%failure, "cannot go through the uploaded files now"),
        }
        match sessions.sweep_content(|id| firsts.contains(&id.partition(partitions))).await {
            Ok(0) => {}
            Ok(removed) => info!(removed, "content that no message names is removed"),
            Err(failure) => debug!(%failure, "cannot go through content without an owner now"),
        }
    }
}

/// Starts the removal of sessions on a worker, unless they are kept for ever.
pub async fn begin(
    config: &Config,
    supervisor: &Supervisor,
    sessions: Sessions,
    worker: &Worker,
) -> Result<(), ractor::SpawnErr> {
    let Some(keep) = config.session.keep_stateless else { return Ok(()) };
    let worker = worker.clone();
    let sweep = move || run(sessions.clone(), worker.clone(), keep);
    supervisor.adopt_task("worker.sweep", sweep).await
}

/// Goes through the sessions that this worker serves first, for as long as it runs.
async fn run(sessions: Sessions, worker: Worker, keep: Duration) {
    let partitions = sessions.storage().partitions;
    let mut sweep = StatelessExpiry::new(keep.min(SEEN_FOR));
    let rest = (keep / ROUNDS).clamp(BETWEEN.0, BETWEEN.1);
    loop {
        // If there are more sessions than one round takes, the next round follows soon.
        tokio::time::sleep(if sweep.is_through() { rest } else { BETWEEN.0 }).await;
        let firsts: BTreeSet<Partition> = worker.placement().firsts().collect();
        let told = sweep.round(&sessions, keep, |id| firsts.contains(&id.partition(partitions)));
        match told.await {
            Ok(0) => {}
            Ok(told) => {
                info!(told, "idle sessions of requests without a user are removed");
            }
            Err(failure) => debug!(%failure, "cannot go through the sessions now"),
        }
    }
}

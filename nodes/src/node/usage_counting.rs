//! Counting what model calls use: on the worker that is first for partition 0.

use std::time::Duration;

use clawnode_actors::{session::Sessions, usage};
use clawnode_kernel::{driver::Worker, supervise::Supervisor};
use clawnode_proto::{Partition, view::WarningView};
use tokio::time::timeout;

/// How far the counts may be behind before `status` warns.
const BEHIND: Duration = Duration::from_mins(1);
/// How long `status` waits to hear how far they are.
const ANSWER: Duration = Duration::from_millis(500);

/// Has a worker count, whenever it is first for partition 0.
pub async fn begin(
    supervisor: &Supervisor,
    sessions: &Sessions,
    worker: &Worker,
) -> Result<(), ractor::SpawnErr> {
    let (sessions, worker) = (sessions.clone(), worker.clone());
    let count = move || {
        let worker = worker.clone();
        let leads = move || worker.placement().firsts().next() == Some(Partition(0));
        usage::run(sessions.clone(), leads)
    };
    supervisor.adopt_task("worker.usage", count).await
}

/// How far the counts are behind, in milliseconds, if the store answers in time.
pub(super) async fn behind_ms(sessions: &Sessions) -> Option<u64> {
    let behind = usage::behind(sessions.storage(), sessions.now());
    timeout(ANSWER, behind).await.ok()?.ok()
}

/// Warns if model calls have not been counted for a while. A store that does not answer is another
/// warning's.
pub(super) fn warning(behind_ms: Option<u64>) -> Option<WarningView> {
    let behind = Duration::from_millis(behind_ms?);
    (behind > BEHIND).then(|| WarningView {
        name: "usage.behind".to_owned(),
        message: format!("model calls of the last {} s are not counted yet", behind.as_secs()),
        hint: "the log of the first worker says why; journals have all calls".to_owned(),
    })
}

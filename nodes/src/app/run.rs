//! A node from its start to its end.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::Health;
use clawnode_kernel::supervise::Supervisor;
use clawnode_local::LocalControl;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    args::{NodeArgs, Ready},
    open::{self, Opened},
    serve_and_drain::{self, RunningNode},
};
use crate::{
    config::Config,
    failure::{Exit, Failure},
    host,
    node::{process_state::NodeStatus, storage},
    watchdog::Watchdog,
};

/// How long a part of the start may still take once the node is asked to stop (10 s): a store that works needs less,
/// and one that does not answer must not keep the process.
const START_ENDS: Duration = Duration::from_secs(10);

/// What may end a node, and what is let go if it does not come to serve.
struct NodeEnds {
    supervisor: Supervisor,
    health: Arc<dyn Health>,
    /// The local store's word on its own health; none on NATS.
    control: Option<LocalControl>,
    node_status: Arc<NodeStatus>,
}

/// Runs a node until `stop`; returns once everything is stored and let go.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    let NodeArgs { loaded, roles, join, ready, stop } = args;
    let _watchdog = Watchdog::start(Handle::current(), Exit::Hung as i32).map_err(|error| {
        Failure::new(Exit::Failed, "internal", format!("cannot start the watchdog: {error}"))
    })?;
    warn_of_files(&loaded.config);
    let opening = open::open(loaded, roles, join, stop.clone());
    let Some(opened) = unless_stopped(&stop, opening).await else { return Ok(()) };
    let mut opened = opened?;
    let ends = NodeEnds {
        supervisor: opened.base.supervisor.clone(),
        health: Arc::clone(&opened.base.storage.health),
        control: opened.control.take(),
        node_status: Arc::clone(&opened.node_status),
    };
    let (running, told) = match unless_stopped(&stop, start(opened)).await {
        Some(Ok(started)) => started,
        ended => {
            ends.supervisor.stop().await;
            serve_and_drain::close(&*ends.health).await;
            return ended.map_or_else(|| ends.stopped(), |failed| failed.map(drop));
        }
    };
    info!(process = %told.process, url = told.url, "node serves");
    if ready.send(told).is_err() {
        info!("no caller waits for this node to be ready");
    }
    let fatal = async {
        match &ends.control {
            Some(control) => control.fatal().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {
            Box::pin(running.stop()).await;
            ends.stopped()
        }
        lost = ends.health.lost() => {
            error!(?lost, "the bus is lost; the process ends");
            Err(storage::lost(lost).into())
        }
        why = fatal => {
            error!(why, "the store has failed; the process ends");
            Err(Failure::new(Exit::Failed, "store_failed", format!("the store has failed: {why}"))
                .hint("check the disk, then start again; acknowledged messages are safe"))
        }
    }
}

impl NodeEnds {
    /// How a node has ended that was asked to stop: by a person, or because it does not fit its cluster.
    fn stopped(&self) -> Result<(), Failure> {
        self.node_status.misfit().map_or(Ok(()), |misfit| Err(misfit.into()))
    }
}

/// The result of a part of the start; nothing if the node is asked to stop meanwhile and the part does not end soon.
async fn unless_stopped<T>(stop: &CancellationToken, part: impl Future<Output = T>) -> Option<T> {
    let mut part = Box::pin(part);
    tokio::select! {
        biased;
        done = &mut part => Some(done),
        () = stop.cancelled() => {
            let done = timeout(START_ENDS, part).await.ok();
            if done.is_none() {
                warn!(most = ?START_ENDS, "the node is stopped before it serves");
            }
            done
        }
    }
}

/// A limit of open files that is too low shows only once connections and segments are many.
fn warn_of_files(config: &Config) {
    let (limit, wanted) = (host::files(), host::files_wanted(config.gateway.max_connections));
    if limit < wanted {
        warn!(limit, wanted, "few files may be open at once; raise the hard limit");
    }
}

async fn start(opened: Opened) -> Result<(RunningNode, Ready), Failure> {
    let wired = Box::pin(opened.wire()).await?;
    Box::pin(wired.serve()).await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    /// Ends after so long, by the clock of the test.
    async fn lasts(time: Duration) {
        drop(timeout(time, pending::<()>()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_waits_for_ever_does_not_outlive_a_stop() {
        let stop = CancellationToken::new();
        assert_eq!(unless_stopped(&stop, lasts(START_ENDS * 2)).await, Some(()), "no one stops it");
        let begun = Instant::now();
        let (ended, ()) = tokio::join!(unless_stopped(&stop, pending::<()>()), async {
            lasts(Duration::from_secs(1)).await;
            stop.cancel();
        });
        assert_eq!((ended, begun.elapsed()), (None, Duration::from_secs(1) + START_ENDS));
        // What is about to end is waited for, so that it stops in order.
        assert_eq!(unless_stopped(&stop, lasts(START_ENDS / 2)).await, Some(()));
    }
}

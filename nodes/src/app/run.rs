//! A node from its start to its end.

use std::sync::Arc;

use clawnode_cluster::Health;
use clawnode_kernel::supervise::Supervisor;
use clawnode_local::LocalControl;
use tokio::runtime::Handle;
use tracing::{error, info, warn};

use super::{
    args::{NodeArgs, Ready},
    open::{self, Opened},
    running::RunningNode,
};
use crate::{
    config::Config,
    failure::{Exit, Failure},
    host,
    node::{status::NodeStatus, storage},
    watchdog::Watchdog,
};

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
    let mut opened = Box::pin(open::open(loaded, roles, join, stop.clone())).await?;
    let ends = NodeEnds {
        supervisor: opened.base.supervisor.clone(),
        health: Arc::clone(&opened.base.storage.health),
        control: opened.control.take(),
        node_status: Arc::clone(&opened.node_status),
    };
    let (running, told) = match Box::pin(start(opened)).await {
        Ok(started) => started,
        Err(failure) => {
            ends.supervisor.stop().await;
            ends.health.close().await;
            return Err(failure);
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
            ends.node_status.misfit().map_or(Ok(()), |misfit| Err(misfit.into()))
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

//! The third phase: a node that serves, and its stop.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Health, Peek};
use clawnode_kernel::driver::Worker;
use clawnode_proto::{budget::AccountKey, feed::EventBody};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{args::Ready, gateway::OpenGateway, wire::Wired};
use crate::{
    failure::Failure,
    node::{
        base::NodeBase,
        embedder::Embedder,
        feed_and_tree::Operations,
        mcp_servers::McpServers,
        process_state::NodeStatus,
        tool_executors::NodeTools,
        version_check::{self, HeartbeatSource},
    },
};

/// How long calls may take to end after `node.drain` (60 s): jobs are cancelled and given up, what there is to be
/// stored of them is, and containers are removed, each for 20 s at most.
const CALLS_END: Duration = Duration::from_mins(1);
/// How long it may take to give back what budgets have left (5 s): it gives up after 3 s by itself.
const BUDGETS_LEAVE: Duration = Duration::from_secs(5);
/// How long MCP servers may take to end (30 s): each has 23 s, and then its keeper kills it.
const SERVERS_END: Duration = Duration::from_secs(30);
/// How long clients may take to go after `node.drain` (10 s).
const CLIENTS_GO: Duration = Duration::from_secs(10);
/// How long the actors of the process may take to end (15 s): what has not after 10 s is killed.
const ACTORS_END: Duration = Duration::from_secs(15);
/// How long the last messages of the process may take (10 s).
const GOODBYE: Duration = Duration::from_secs(10);
/// How long the storage backend may take to close (30 s): a disk that does not sync any more must not keep the
/// process, and what was acknowledged is synced.
const STORAGE_CLOSES: Duration = Duration::from_secs(30);

/// Everything of a node that its stop must reach.
pub(super) struct RunningNode {
    base: NodeBase,
    worker: Option<Worker>,
    gateway: Option<OpenGateway>,
    node_status: Arc<NodeStatus>,
    heartbeat_source: HeartbeatSource,
    shutdown: CancellationToken,
    operations: Operations,
    mcp: McpServers,
    tools: NodeTools,
    /// How long running calls may continue.
    drain: Duration,
}

// === impl Wired ===

impl Wired {
    /// Serves clients, if it is a gateway, and then takes its part in the cluster.
    pub(super) async fn serve(self) -> Result<(RunningNode, Ready), Failure> {
        self.node_status.embeds(Embedder::new(self.models.clone(), self.agents.clone()));
        self.node_status.searches(self.base.memory.clone());
        let mut ready = Ready::soon(self.base.process, &self.model, &self.base.storage);
        if self.base.is_worker() {
            let set = self.base.budgets.set_by_person(&AccountKey::Cluster);
            ready.banner.push(self.loaded.config.budgets.banner(set.as_deref()));
        }
        let mut gateway = None;
        if self.base.is_gateway() {
            let open = self.open_gateway().await?;
            ready.url.clone_from(&open.serving.url);
            ready.token.clone_from(&open.token);
            gateway = Some(open);
        }
        // Last: a node that cannot start must not have claimed sessions and begun calls.
        let worker = self.take_part().await?;
        let drain = self.loaded.config.node.drain;
        let Self { base, node_status, heartbeat_source, shutdown, operations, mcp, tools, .. } =
            self;
        let running = RunningNode {
            base,
            worker,
            gateway,
            node_status,
            heartbeat_source,
            shutdown,
            operations,
            mcp,
            tools,
            drain,
        };
        Ok((running, ready))
    }
}

// === impl RunningNode ===

impl RunningNode {
    /// Drains: nothing new, running calls end, every entity is handed over, everything is stored. No step waits for
    /// ever: parts have bounds of their own, and each step has one for what those do not foresee.
    pub(super) async fn stop(self) {
        info!(most = ?stop_most(self.drain), "draining");
        self.node_status.drains();
        self.shutdown.cancel();
        let runner = self.node_status.jobs().peek(Clone::clone);
        let jobs = async {
            if let Some(runner) = runner {
                runner.drain().await;
            }
            self.tools.close().await;
        };
        let sessions = async {
            if let Some(worker) = &self.worker {
                worker.drain().await;
            }
        };
        let calls = async {
            tokio::join!(jobs, sessions);
        };
        within("running calls", self.drain.saturating_add(CALLS_END), calls).await;
        // After the calls that spend it.
        within("budgets", BUDGETS_LEAVE, self.base.budgets.leave()).await;
        // After those who call them.
        within("MCP servers", SERVERS_END, self.mcp.stop()).await;
        let mut announced = None;
        if let Some(gateway) = self.gateway {
            let most = self.drain.saturating_add(CLIENTS_GO);
            within("clients", most, gateway.serving.ended()).await;
            announced = gateway.announced;
        }
        let storage = &self.base.storage;
        let left = self.operations.feed.tell_now(storage, EventBody::NodeLeft);
        within("the event that it has left", GOODBYE, left).await;
        within("actors", ACTORS_END, self.base.supervisor.stop()).await;
        let farewell = version_check::farewell(storage, &self.heartbeat_source);
        within("its last heartbeat", GOODBYE, farewell).await;
        close(&*storage.health).await;
        if let Some(announced) = announced {
            announced.remove();
        }
        info!("stopped");
    }
}

/// How long a node takes at most to stop whose running calls may continue for `drain`: the bounds of all its steps. What
/// kills a process that does not end has to wait longer, or a call may be cut off in the middle.
const fn stop_most(drain: Duration) -> Duration {
    let (calls, clients) = (drain.saturating_add(CALLS_END), drain.saturating_add(CLIENTS_GO));
    let parts = BUDGETS_LEAVE.saturating_add(SERVERS_END).saturating_add(ACTORS_END);
    let messages = GOODBYE.saturating_mul(2);
    let last = messages.saturating_add(STORAGE_CLOSES);
    calls.saturating_add(clients).saturating_add(parts).saturating_add(last)
}

/// Closes the storage backend, which may not answer any more.
pub(super) async fn close(storage: &dyn Health) {
    within("its storage", STORAGE_CLOSES, storage.close()).await;
}

/// Waits for a step of the end of a node, and goes on without it if it takes too long.
async fn within(what: &str, most: Duration, step: impl Future<Output = ()>) {
    if timeout(most, step).await.is_err() {
        warn!(what, ?most, "the node ends and does not wait any longer");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use async_trait::async_trait;
    use clawnode_cluster::Warning;
    use tokio::time::Instant;

    use super::*;
    use crate::config::options::NodeOptions;

    const UNIT: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docker/clawnode.service"));
    const COMPOSE: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docker/compose.yaml"));

    /// A storage backend whose disk takes so long over its last sync, or never ends it.
    #[derive(Debug)]
    struct SlowDisk(Option<Duration>);

    #[async_trait]
    impl Health for SlowDisk {
        fn describe(&self) -> String {
            "slow".to_owned()
        }

        async fn ready(&self) -> Result<(), String> {
            Ok(())
        }

        async fn warnings(&self) -> Vec<Warning> {
            Vec::new()
        }

        async fn close(&self) {
            match self.0 {
                Some(takes) => timeout(takes, pending()).await.unwrap_or(()),
                None => pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_backend_that_does_not_close_does_not_keep_the_process() {
        let took = async |disk| {
            let begun = Instant::now();
            close(&SlowDisk(disk)).await;
            begun.elapsed()
        };
        assert_eq!(took(None).await, STORAGE_CLOSES);
        // What is about to end is waited for, so that the next start finds it whole.
        let nearly = STORAGE_CLOSES.saturating_sub(Duration::from_secs(1));
        assert_eq!(took(Some(nearly)).await, nearly);
    }

    /// The seconds behind the only such name in a file.
    fn seconds(file: &str, name: &str) -> u64 {
        let mut found = file.lines().filter_map(|line| line.trim().strip_prefix(name));
        let (first, second) = (found.next().unwrap(), found.next());
        assert_eq!(second, None, "{name}");
        first.trim().trim_end_matches('s').parse().unwrap()
    }

    /// What packages kill a node after is longer than its slowest stop with the settings that they have.
    #[test]
    fn packages_wait_for_a_node_that_stops_slowly() {
        let most = stop_most(NodeOptions::default().drain).as_secs();
        for (file, name) in [(UNIT, "TimeoutStopSec="), (COMPOSE, "stop_grace_period:")] {
            let waits = seconds(file, name);
            assert!(waits > most, "{name} is {waits} s, and a stop takes {most} s at most");
            assert!(
                waits < 2 * most,
                "{name}: a node that hangs is not waited for longer than it helps"
            );
        }
    }
}

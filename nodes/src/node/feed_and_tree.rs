//! The parts of a node that serve operators of the cluster.

use std::sync::{Arc, OnceLock};

use clawnode_actors::agent::Agents;
use clawnode_cluster::{Feed, Storage, membership::Members};
use clawnode_kernel::supervise::Supervisor;
use clawnode_proto::node::Heartbeat;
use ractor::SpawnErr;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{event_feed::EventLog, node_change_events, tree::Roots};

/// The feed, what was heard of it, and the tree.
#[derive(Clone, Debug)]
pub struct Operations {
    /// Sends the events of this process.
    pub feed: Feed,
    /// Remembers the events of all processes.
    pub events: EventLog,
    /// The actors of this process.
    pub roots: Roots,
}

impl Operations {
    /// For a node with this `heartbeat` that ends at `stopping`.
    pub fn new(
        feed: Feed,
        heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
        supervisor: Supervisor,
        agents: Agents,
        stopping: CancellationToken,
    ) -> Self {
        let (worker, gateway) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let events = EventLog::new(heartbeat().process, stopping);
        let roots = Roots { heartbeat, supervisor, agents, worker, gateway };
        Self { feed, events, roots }
    }

    /// Begins to remember events: for a node that answers people.
    pub async fn remember(&self, storage: &Storage) -> Result<(), SpawnErr> {
        let (events, storage) = (self.events.clone(), storage.clone());
        let hear = move || events.clone().run(storage.clone());
        self.roots.supervisor.adopt_task("events.hear", hear).await
    }

    /// Begins to send events, and to answer which actors run here.
    pub async fn begin(
        &self,
        storage: &Storage,
        members: watch::Receiver<Members>,
    ) -> Result<(), SpawnErr> {
        let supervisor = &self.roots.supervisor;
        let (feed, told) = (self.feed.clone(), storage.clone());
        let tell = move || feed.clone().run(told.clone());
        supervisor.adopt_task("events.tell", tell).await?;
        let (feed, heartbeat) = (self.feed.clone(), Arc::clone(&self.roots.heartbeat));
        let see =
            move || node_change_events::run(feed.clone(), Arc::clone(&heartbeat), members.clone());
        supervisor.adopt_task("events.observe", see).await?;
        if storage.shared {
            let (roots, storage) = (self.roots.clone(), storage.clone());
            let answer = move || roots.clone().answer(storage.clone());
            supervisor.adopt_task("tree.answer", answer).await?;
        }
        Ok(())
    }
}

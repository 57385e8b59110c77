//! A node's part in the cluster: it works if it is a worker, makes itself known to the others, and
//! looks after what the dead left.

use std::sync::Arc;

use clawnode_actors::session::Sessions;
use clawnode_cluster::membership::Membership;
use clawnode_kernel::driver::{Worker, WorkerOptions, answer_requests};

use super::wire::Wired;
use crate::{
    failure::Failure,
    node::{
        budget_holder, expired_sessions_and_files, memories, partition_follower::PartitionFollower,
        probes, runaways, tool_executors, usage_counting, version_check,
    },
};

impl Wired {
    /// Begins to work, makes the node known to the others, and looks after what the dead left.
    pub(super) async fn take_part(&self) -> Result<Option<Worker>, Failure> {
        let (base, operations) = (&self.base, &self.operations);
        budget_holder::follow(base).await?;
        memories::find_meaning(base, &self.loaded, &self.models, &self.agents);
        memories::begin(base).await?;
        let worker = if base.is_worker() {
            self.take_jobs().await?;
            Some(self.take_sessions().await?)
        } else {
            self.answer_others().await?;
            None
        };
        self.stop_runaways().await?;
        self.mcp.begin(&base.supervisor).await?;
        let begun = operations.begin(&base.storage, base.members.clone());
        begun.await?;
        if base.storage.shared {
            self.join_members(worker.as_ref()).await?;
        }
        Ok(worker)
    }

    /// Runs tool calls, and keeps what they say.
    async fn take_jobs(&self) -> Result<(), Failure> {
        let (base, tools) = (&self.base, self.tools.clone());
        let rank = tool_executors::ranked(
            base.process,
            Arc::clone(&self.heartbeat_source),
            base.members.clone(),
        );
        let runner =
            tool_executors::runner(&self.loaded.config, &self.context, tools.available(), rank);
        let keep = move || tools.clone().keep();
        base.supervisor.adopt_task("worker.executors", keep).await?;
        let (models, gate) = (self.models.clone(), self.node_status.switch_gate().clone());
        let probe = move || probes::keep(models.clone(), gate.clone());
        base.supervisor.adopt_task("worker.probes", probe).await?;
        let archive = runner.archive.clone();
        let sweep = move || archive.clone().keep();
        base.supervisor.adopt_task("worker.archive", sweep).await?;
        let current = self.node_status.jobs().clone();
        let jobs = move || tool_executors::run(runner.clone(), current.clone());
        base.supervisor.adopt_task("worker.jobs", jobs).await.map_err(Failure::from)
    }

    /// Pauses agents that exceed a limit, here or with what other nodes counted.
    async fn stop_runaways(&self) -> Result<(), Failure> {
        let base = &self.base;
        let (switch_gate, agents) = (base.switch_gate.clone(), self.agents.clone());
        if base.is_gateway() || !base.storage.shared {
            let feed = self.operations.feed.clone();
            let keep = move || runaways::keep(switch_gate.clone(), agents.clone(), feed.clone());
            base.supervisor.adopt_task("agents.runaways", keep).await?;
        } else {
            let announcer = self.announcer.clone();
            let say = move || runaways::say(switch_gate.clone(), announcer.clone());
            base.supervisor.adopt_task("agents.runaways", say).await?;
        }
        if !base.storage.shared {
            // There are no other nodes.
            return Ok(());
        }
        let (switch_gate, me, members) =
            (base.switch_gate.clone(), base.process, base.members.clone());
        let hear = move || runaways::hear(switch_gate.clone(), me, members.clone());
        base.supervisor.adopt_task("agents.counts", hear).await.map_err(Failure::from)
    }

    /// Owns sessions, counts what their calls use, and removes those that are not needed.
    async fn take_sessions(&self) -> Result<Worker, Failure> {
        let (base, config) = (&self.base, &self.loaded.config);
        let options = WorkerOptions { drain_grace: config.node.drain };
        let context = Arc::clone(&self.context);
        let sessions = Sessions::new(base.storage.clone(), Arc::clone(&context.clock));
        let sessions = sessions.writing(Arc::clone(&self.agreed));
        let frames = Arc::new(self.hub.clone());
        let orders = Arc::clone(&self.node_status);
        let spawned = Worker::spawn(context, frames, orders, options, &base.supervisor);
        let worker = spawned.await?;
        budget_holder::begin(base).await?;
        self.operations.roots.worker.get_or_init(|| worker.clone());
        usage_counting::begin(&base.supervisor, &sessions, &worker).await?;
        expired_sessions_and_files::begin_files(&base.supervisor, sessions.clone(), &worker)
            .await?;
        expired_sessions_and_files::begin(config, &base.supervisor, sessions, &worker).await?;
        Ok(worker)
    }

    /// Without a worker, answers what other nodes ask of this process.
    async fn answer_others(&self) -> Result<(), Failure> {
        let (context, frames) = (Arc::clone(&self.context), Arc::new(self.hub.clone()));
        let orders = Arc::clone(&self.node_status);
        let answers =
            move || answer_requests(Arc::clone(&context), None, frames.clone(), orders.clone());
        self.base.supervisor.adopt_task("node.requests", answers).await.map_err(Failure::from)
    }

    /// Watches the other processes, greets them, and follows them on behalf of the worker.
    async fn join_members(&self, worker: Option<&Worker>) -> Result<(), Failure> {
        let base = &self.base;
        let part = Membership {
            storage: base.storage.clone(),
            me: base.process,
            options: self.loaded.config.cluster.membership(),
            clock: Arc::clone(&self.cluster_clock),
            heartbeat: Arc::clone(&self.heartbeat_source),
            view: self.view.clone(),
            announcer: self.announcer.clone(),
        };
        let part = move || part.clone().run();
        base.supervisor.adopt_task("membership", part).await?;
        let (heartbeat_source, announcer) =
            (Arc::clone(&self.heartbeat_source), self.announcer.clone());
        let (node_status, heard) = (Arc::clone(&self.node_status), base.members.clone());
        let agreed = Arc::clone(&self.agreed);
        let greet = move || {
            let (heartbeat_source, node_status) =
                (Arc::clone(&heartbeat_source), Arc::clone(&node_status));
            version_check::run(
                announcer.clone(),
                heartbeat_source,
                node_status,
                Arc::clone(&agreed),
                heard.clone(),
            )
        };
        base.supervisor.adopt_task("node.greet", greet).await?;
        if let Some(worker) = worker {
            let follow = PartitionFollower {
                storage: base.storage.clone(),
                me: base.process,
                worker: worker.clone(),
                gauges: self.gauges.clone(),
                members: base.members.clone(),
            };
            let follow = move || follow.clone().run();
            base.supervisor.adopt_task("worker.follow", follow).await?;
        }
        Ok(())
    }
}

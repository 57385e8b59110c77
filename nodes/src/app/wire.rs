//! The second phase: every part is made, and knows those that it needs.

use std::sync::{
    Arc, OnceLock, RwLock,
    atomic::{AtomicU16, AtomicU64},
};

use clawnode_actors::{
    agent::Agents,
    session::{FrameHub, RunnerParts, clients::bindings::Routes},
};
use clawnode_budget::holder::HolderHandle;
use clawnode_cluster::{
    Feed, Peek,
    membership::{Announcer, ClusterClock, Members},
};
use clawnode_kernel::{
    MachineOptions,
    driver::{ActiveEntities, Lacks, Probations, WorkerContext},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::open::Opened;
use crate::{
    config::LoadedConfig,
    failure::Failure,
    node::{
        agents_and_models::ConfiguredAgents,
        base::NodeBase,
        current_models::CurrentModels,
        feed_and_tree::Operations,
        kinds,
        mcp_servers::McpServers,
        memories, panic,
        process_load::Gauges,
        process_state::NodeStatus,
        reload::Reloaded,
        tool_executors::{self, NodeTools, ToolParts},
        version_check::{self, HeartbeatParts, HeartbeatSource},
    },
    telemetry,
};

/// A node whose parts are made and know each other; nothing is served yet.
pub(super) struct Wired {
    pub(super) loaded: Arc<LoadedConfig>,
    pub(super) base: NodeBase,
    pub(super) node_status: Arc<NodeStatus>,
    pub(super) cluster_clock: Arc<ClusterClock>,
    /// Where `base.members` comes from.
    pub(super) view: watch::Sender<Members>,
    /// Makes the node speak at once.
    pub(super) announcer: Announcer,
    pub(super) agents: Agents,
    /// Which agent answers where.
    pub(super) routes: Arc<RwLock<Routes>>,
    /// The providers as the configuration has them now.
    pub(super) models: CurrentModels,
    /// The default model, and why that one.
    pub(super) model: String,
    pub(super) mcp: McpServers,
    pub(super) tools: NodeTools,
    /// The frames of the turns that run here.
    pub(super) hub: FrameHub,
    /// What all sessions of the process share.
    pub(super) context: Arc<WorkerContext>,
    /// How busy the process is.
    pub(super) gauges: Gauges,
    /// Where clients reach it, once it serves.
    pub(super) reached: Arc<OnceLock<String>>,
    /// What it says of itself.
    pub(super) heartbeat_source: HeartbeatSource,
    /// The newest version of inputs that all nodes can read.
    pub(super) agreed: Arc<AtomicU16>,
    /// Cancelled when nothing new is to begin.
    pub(super) shutdown: CancellationToken,
    /// What serves operators.
    pub(super) operations: Operations,
}

// === impl Opened ===

impl Opened {
    /// Makes every part, and asks the cluster whether the node fits.
    pub(super) async fn wire(self) -> Result<Wired, Failure> {
        let Self { loaded, base, answering, node_status, cluster_clock, view, control: _ } = self;
        let config = &loaded.config;
        let mcp = McpServers::open(&loaded, &base).await?;
        let agents = mcp.pins().peek(|pins| answering.agents.with_mcp(config, pins));
        let agents = panic::agents(agents, &base, config.cluster.lost_after).await?;
        let (skills, routes) = (answering.shelf(), Arc::new(RwLock::new(answering.routes)));
        let models = CurrentModels::new(answering.models, answering.embeddings);
        let (plugins, hooks, hub) = (answering.plugins, answering.hooks, FrameHub::default());
        let parts = ToolParts { plugins: &plugins, hooks: &hooks, mcp: &mcp, skills: &skills };
        let tools = Box::pin(tool_executors::open(&loaded, &base, parts)).await?;
        let runner_parts = RunnerParts {
            storage: base.storage.clone(),
            agents: agents.clone(),
            hooks: hooks.clone(),
            models: Arc::new(models.clone()),
            available: tools.available(),
            job_wait: config.tools.job_wait,
            peers: base.members.clone(),
            memory: memories::recall_store(&base),
            skills: skills.clone(),
            hub: hub.clone(),
            clock: Arc::clone(&base.clock),
            link: Arc::new(telemetry::set_parent),
            feed: Feed::new(base.process, config.node.name.clone(), Arc::clone(&base.clock)),
            budgets: base.budgets.clone(),
        };
        let context = Arc::new(context(&loaded, &base, &node_status, &runner_parts).await?);
        let (gauges, reached) = (Gauges::default(), Arc::new(OnceLock::new()));
        let heartbeat_source = version_check::heartbeat_source(HeartbeatParts {
            node: config.node.name.clone(),
            roles: base.roles.clone(),
            context: Arc::clone(&context),
            agents: agents.clone(),
            models: models.clone(),
            available: tools.available(),
            hosts: mcp.hosts(),
            node_status: Arc::clone(&node_status),
            gauges: gauges.clone(),
            reached: Arc::clone(&reached),
        });
        version_check::join(&base.storage, &heartbeat_source, &cluster_clock).await?;
        let follows = reloaded(&agents, &routes, &models, parts, &base.budgets, answering.agents);
        follow_load(&base, &agents, &gauges, &hub).await?;
        follow_files(&base, &loaded, &node_status, follows).await?;
        let (shutdown, heartbeat) = (CancellationToken::new(), Arc::clone(&heartbeat_source));
        let operations = operations(&base, runner_parts.feed, heartbeat, &agents, &shutdown);
        Ok(Wired {
            loaded,
            base,
            node_status,
            cluster_clock,
            view,
            announcer: Announcer::default(),
            agents,
            routes,
            models,
            model: format!("{} ({})", answering.choice.model, answering.choice.why),
            mcp,
            tools,
            hub,
            agreed: Arc::new(AtomicU16::new(context.speaks.newest)),
            context,
            gauges,
            reached,
            heartbeat_source,
            shutdown,
            operations,
        })
    }
}

/// What operators do here.
fn operations(
    base: &NodeBase,
    feed: Feed,
    heartbeat: HeartbeatSource,
    agents: &Agents,
    shutdown: &CancellationToken,
) -> Operations {
    Operations::new(feed, heartbeat, base.supervisor.clone(), agents.clone(), shutdown.clone())
}

/// What follows the configuration's files.
fn reloaded(
    agents: &Agents,
    routes: &Arc<RwLock<Routes>>,
    models: &CurrentModels,
    ToolParts { plugins, hooks, mcp, skills }: ToolParts<'_>,
    budgets: &HolderHandle,
    known: ConfiguredAgents,
) -> Reloaded {
    let (agents, routes, models) = (agents.clone(), Arc::clone(routes), models.clone());
    let pins = mcp.pins();
    let (plugins, hooks, skills) = (plugins.clone(), hooks.clone(), skills.clone());
    let budgets = budgets.clone();
    Reloaded { agents, routes, models, pins, plugins, hooks, skills, budgets, known }
}

/// What all entities of the process share.
async fn context(
    loaded: &LoadedConfig,
    base: &NodeBase,
    node_status: &NodeStatus,
    runner_parts: &RunnerParts,
) -> Result<WorkerContext, Failure> {
    let clock = Arc::clone(&base.clock);
    #[cfg(feature = "test-util")]
    let clock = crate::node::failpoint::clock(clock, loaded.env());
    Ok(WorkerContext {
        process: base.process,
        storage: base.storage.clone(),
        clock,
        kinds: kinds::served(base, runner_parts, machine_options(loaded)).await?,
        version: version_check::version(loaded.env())?,
        activations: AtomicU64::new(1),
        resident: AtomicU64::new(0),
        speaks: version_check::speaks(loaded.env())?,
        peers: base.members.clone(),
        lacks: Lacks::default(),
        probations: Probations::default(),
        places: ActiveEntities::new(loaded.config.session.max_active),
        cordoned: Arc::clone(node_status.cordoned()),
    })
}

fn machine_options(loaded: &LoadedConfig) -> MachineOptions {
    let config = &loaded.config;
    MachineOptions {
        #[cfg(feature = "test-util")]
        hides: version_check::hides(loaded.env()),
        passivate_after: config.session.passivate_after,
        snapshot_every: u64::from(config.session.snapshot_every),
        ..MachineOptions::default()
    }
}

/// Follows how busy the node is.
async fn follow_load(
    base: &NodeBase,
    agents: &Agents,
    gauges: &Gauges,
    hub: &FrameHub,
) -> Result<(), Failure> {
    let (agents, gauges, hub) = (agents.clone(), gauges.clone(), hub.clone());
    let look = move || gauges.clone().look(agents.clone(), hub.clone());
    base.supervisor.adopt_task("node.load", look).await.map_err(Failure::from)
}

/// Follows the configuration's files.
async fn follow_files(
    base: &NodeBase,
    loaded: &LoadedConfig,
    node_status: &Arc<NodeStatus>,
    reloaded: Reloaded,
) -> Result<(), Failure> {
    let (watched, node_status) = (loaded.clone(), Arc::clone(node_status));
    let reload = move || reloaded.clone().follow(watched.clone(), Arc::clone(&node_status));
    base.supervisor.adopt_task("config.follow", reload).await.map_err(Failure::from)
}

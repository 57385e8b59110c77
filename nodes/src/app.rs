//! The composition root: from settings to a running node. The only file that knows every part.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock, RwLock,
        atomic::{AtomicU16, AtomicU64},
    },
};

use clawnode_actors::{
    durable::{
        MachineOptions,
        driver::{
            Context, Kinds, Lacks, Places, Probations, Worker, WorkerOptions, answer_requests,
        },
    },
    session::{FrameHub, Session, SessionRunner, Sessions},
    supervise::Supervisor,
};
use clawnode_cluster::{
    Clock, Feed, Peek, Substrate,
    membership::{Announcer, ClusterClock, Members, Membership},
};
use clawnode_gateway::Serving;
use clawnode_proto::{ProcessId, feed::EventBody, node::NodeRole};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

#[cfg(feature = "nats")]
use crate::bus::name;
use crate::{
    config::{Config, Loaded},
    failure::{Exit, Failure},
    host,
    local::{NodeFile, Secret, ensure_token},
    node::{
        backend::NodeBackend,
        greet::{self, Saying},
        ground, hooks,
        load::Gauges,
        mcp::McpServers,
        models::{Answering, CurrentModels, answering},
        operate::Operations,
        overview::Node,
        panic::{self, Switch},
        plugins::Plugins,
        reload::Reloaded,
        scan::Follow,
        serving::{advertised, gateway_options, refused},
        standing::Standing,
        sweep,
        tools::{self, NodeTools},
        usage,
    },
    telemetry,
    watchdog::Watchdog,
};

/// What a node is told.
#[derive(Debug)]
pub struct NodeArgs {
    /// Its settings; `reload` reads them again.
    pub loaded: Loaded,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// A join token, if the node is to join a cluster.
    pub join: Option<Secret>,
    /// Told once, when it serves. Dropped unsent if it cannot.
    pub ready: oneshot::Sender<Ready>,
    /// Cancelled when it is to drain and end.
    pub stop: CancellationToken,
}

/// What a node says once it serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where: `http://127.0.0.1:3100`; empty without a gateway.
    pub url: String,
    /// Its process id.
    pub process: ProcessId,
    /// The token that it asks for; `None` with `no_auth`.
    pub token: Option<Secret>,
    /// Which model answers by default, and why that one.
    pub model: String,
    /// What a person is told at the start, line by line.
    pub banner: Vec<String>,
}

/// Everything of a node that its stop must reach.
struct Running {
    worker: Option<Worker>,
    serving: Option<Serving>,
    supervisor: Supervisor,
    substrate: Substrate,
    standing: Arc<Standing>,
    saying: Saying,
    announcer: Announcer,
    node_file: Option<(NodeFile, PathBuf)>,
    shutdown: CancellationToken,
    operations: Operations,
    mcp: McpServers,
    tools: NodeTools,
}

/// Runs a node until `stop`; returns once everything is stored and let go.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    let NodeArgs { loaded, roles, join, ready, stop } = args;
    let _watchdog = Watchdog::start(Handle::current()).map_err(|error| {
        Failure::new(Exit::Failed, "internal", format!("cannot start the watchdog: {error}"))
    })?;
    warn_of_files(&loaded.config);
    let cluster_clock = Arc::new(ClusterClock::default());
    let clock: Arc<dyn Clock> = Arc::clone(&cluster_clock) as _;
    let process = ProcessId::from_u128(ulid::Ulid::generate().0);
    let hooks = hooks::open(&loaded)?;
    let plugins = Plugins::load(&loaded.config).await;
    let (answering, ground) = tokio::try_join!(
        answering(&loaded.config, loaded.env(), &clock, (plugins, hooks)),
        ground::open(&loaded, (process, &roles), join.as_ref(), &clock)
    )?;
    hooks::remember(&loaded);
    let control = ground.control;
    let substrate = ground.substrate;
    #[cfg(feature = "test-util")]
    let substrate = crate::node::failpoint::arm(substrate, loaded.env())?;
    let latch = (panic::open(&substrate).await?, Arc::clone(&substrate.bucket));
    let supervisor = Supervisor::spawn().await.map_err(unspawned)?;
    #[cfg(feature = "nats")]
    let mut loaded = loaded;
    #[cfg(feature = "nats")]
    if let Err(failure) = name::begin(&mut loaded, (process, &substrate), &supervisor).await {
        supervisor.stop().await;
        substrate.health.close().await;
        return Err(failure.into());
    }
    let standing = Standing::new(stop.clone(), &loaded.config.node, latch);
    let health = Arc::clone(&substrate.health);
    let on = (process, substrate.clone(), supervisor.clone(), Arc::clone(&standing));
    let started = start(&loaded, &roles, answering, on, (cluster_clock, clock));
    let (running, told) = match Box::pin(started).await {
        Ok(started) => started,
        Err(failure) => {
            supervisor.stop().await;
            substrate.health.close().await;
            return Err(failure);
        }
    };
    info!(process = %told.process, url = told.url, "node serves");
    if ready.send(told).is_err() {
        info!("no caller waits for this node to be ready");
    }
    let fatal = async {
        match &control {
            Some(control) => control.fatal().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {
            Box::pin(running.stop()).await;
            standing.misfit().map_or(Ok(()), |misfit| Err(misfit.into()))
        }
        lost = health.lost() => {
            error!(?lost, "the bus is lost; the process ends");
            Err(ground::lost(lost).into())
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

async fn start(
    loaded: &Loaded,
    roles: &[NodeRole],
    answering: Answering,
    (process, substrate, supervisor, standing): (ProcessId, Substrate, Supervisor, Arc<Standing>),
    (cluster_clock, clock): (Arc<ClusterClock>, Arc<dyn Clock>),
) -> Result<(Running, Ready), Failure> {
    let config = &loaded.config;
    let (tell, members) = watch::channel(Members::default());
    let on = (process, &clock, members.clone(), standing.door());
    let mcp = McpServers::open((config, loaded.env(), roles), &substrate, on).await?;
    let agents = mcp.pins().peek(|pins| answering.agents(config, pins));
    let parts = (&supervisor, &substrate, standing.door());
    let agents = panic::agents(agents, parts, config.cluster.lost_after).await;
    let agents = agents.map_err(unspawned)?;
    let routes = Arc::new(RwLock::new(answering.routes));
    let models = CurrentModels::new(answering.models);
    let feed = Feed::new(process, config.node.name.clone(), Arc::clone(&clock));
    let (hub, on) = (FrameHub::default(), (process, &substrate, &members, standing.door()));
    let tools = tools::open(loaded, on, (&answering.plugins, &answering.hooks, &mcp), &clock);
    let tools = Box::pin(tools).await?;
    let runner = SessionRunner::new(
        substrate.clone(),
        agents.clone(),
        (Arc::new(models.clone()), tools.available(), config.tools.job_wait),
        members.clone(),
        hub.clone(),
        Arc::clone(&clock),
        (Arc::new(telemetry::set_parent), feed.clone(), answering.hooks.clone()),
    );
    let on = (process, substrate.clone(), Arc::clone(&clock));
    let of = (members.clone(), &*standing);
    let context = Arc::new(context((loaded, roles), on, (runner, &supervisor), of).await?);
    let (gauges, reached) = (Gauges::default(), Arc::new(OnceLock::new()));
    let (able, of) = ((&tools.available(), mcp.hosts()), (&standing, &gauges, &reached));
    let saying = greet::saying(config, roles, &context, &agents, able, of);
    greet::join(&substrate, &saying, &cluster_clock).await?;
    let (pins, kept) = (mcp.pins(), agents.clone());
    let (plugins, hooks) = (answering.plugins, answering.hooks);
    let reloaded = Reloaded { agents: kept, routes: routes.clone(), models, pins, plugins, hooks };
    look_after(&supervisor, loaded, reloaded, (&gauges, &hub, &standing)).await?;
    let model = format!("{} ({})", answering.choice.model, answering.choice.why);
    let agreed = Arc::new(AtomicU16::new(context.speaks.newest));
    let shutdown = CancellationToken::new();
    let own = (supervisor.clone(), agents.clone());
    let operations = Operations::new(feed, Arc::clone(&saying), own, shutdown.clone());
    let mut running = Running {
        worker: None,
        serving: None,
        supervisor,
        substrate: substrate.clone(),
        standing,
        saying: Arc::clone(&saying),
        announcer: Announcer::default(),
        node_file: None,
        shutdown: shutdown.clone(),
        operations: operations.clone(),
        mcp: mcp.clone(),
        tools,
    };
    let mut ready = Ready::soon(process, &model, &substrate);
    if roles.contains(&NodeRole::Gateway) {
        let mcp = mcp.door(members.clone(), Arc::clone(&saying));
        let node = Node::new(&context, saying, model, members.clone(), &operations);
        let sessions = Sessions::new(substrate.clone(), Arc::clone(&clock));
        let sessions = sessions.writing(Arc::clone(&agreed));
        let switch = Switch::new(&substrate, running.standing.door(), &operations.feed);
        let backend = NodeBackend::new(sessions, agents, routes, (node, switch, mcp));
        let to = (&mut running, &mut ready, &*reached);
        open_gateway(loaded, Arc::new(backend), clock, to).await?;
        running.serving.iter().for_each(|serving| gauges.count(serving.clients()));
    }
    // Last: a node that cannot start must not have claimed sessions and begun calls.
    let (parts, of) = ((context, Arc::new(hub), gauges), (tell, members, cluster_clock));
    take_part(&mut running, (config, roles), parts, agreed, of).await?;
    Ok((running, ready))
}

/// What all sessions of the process share.
async fn context(
    (loaded, roles): (&Loaded, &[NodeRole]),
    (process, substrate, clock): (ProcessId, Substrate, Arc<dyn Clock>),
    (runner, supervisor): (SessionRunner, &Supervisor),
    (peers, standing): (watch::Receiver<Members>, &Standing),
) -> Result<Context, Failure> {
    if substrate.shared && roles.contains(&NodeRole::Worker) {
        let follow = runner.clone();
        let follow = move || follow.clone().follow_runners();
        supervisor.adopt_task("worker.awaited", follow).await.map_err(unspawned)?;
    }
    #[cfg(feature = "test-util")]
    let clock = crate::node::failpoint::clock(clock, loaded.env());
    Ok(Context {
        process,
        substrate,
        clock,
        kinds: Kinds::default().with::<Session>(Arc::new(runner), machine_options(loaded)),
        version: greet::version(loaded.env())?,
        activations: AtomicU64::new(1),
        resident: AtomicU64::new(0),
        speaks: greet::speaks(loaded.env())?,
        peers,
        lacks: Lacks::default(),
        probations: Probations::default(),
        places: Places::new(loaded.config.session.max_active),
        cordoned: Arc::clone(standing.cordoned()),
    })
}

/// Follows the configuration's files, and how busy the node is.
async fn look_after(
    supervisor: &Supervisor,
    loaded: &Loaded,
    reloaded: Reloaded,
    (gauges, hub, standing): (&Gauges, &FrameHub, &Arc<Standing>),
) -> Result<(), Failure> {
    let (agents, gauges, hub) = (reloaded.agents.clone(), gauges.clone(), hub.clone());
    let look = move || gauges.clone().look(agents.clone(), hub.clone());
    supervisor.adopt_task("node.load", look).await.map_err(unspawned)?;
    let (watched, standing) = (loaded.clone(), Arc::clone(standing));
    let reload = move || reloaded.clone().follow(watched.clone(), Arc::clone(&standing));
    supervisor.adopt_task("config.follow", reload).await.map_err(unspawned)
}

/// Serves clients, and says in the data directory where.
async fn open_gateway(
    loaded: &Loaded,
    backend: Arc<NodeBackend>,
    clock: Arc<dyn Clock>,
    (running, ready, reached): (&mut Running, &mut Ready, &OnceLock<String>),
) -> Result<(), Failure> {
    let remembering = running.operations.remember(&running.substrate);
    remembering.await.map_err(unspawned)?;
    let token = token(loaded)?;
    let options = gateway_options(&loaded.config, token.as_ref(), clock);
    let stop = running.shutdown.clone();
    let serving = clawnode_gateway::serve(options, backend, stop).await.map_err(|e| refused(&e))?;
    ready.url.clone_from(&serving.url);
    running.operations.roots.gateway.get_or_init(|| serving.url.clone());
    // Set once, here.
    drop(advertised(&loaded.config, &serving.url).map(|url| reached.set(url)));
    ready.token = token;
    let dir = loaded.config.node.data_dir.clone();
    let process = ready.process;
    let (url, socket) = (serving.url.clone(), serving.socket.clone());
    let file = NodeFile { url, socket, pid: std::process::id(), process };
    match std::fs::create_dir_all(&dir).and_then(|()| file.write(&dir)) {
        Ok(()) => running.node_file = Some((file, dir)),
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            warn!(url = serving.url, "the disk is full: commands find this node by `--url` only");
        }
        Err(error) => {
            let message = format!("cannot write into `{}`: {error}", dir.display());
            return Err(Failure::new(Exit::Failed, "data_dir_unusable", message)
                .hint("name another directory with `--data-dir`"));
        }
    }
    running.serving = Some(serving);
    Ok(())
}

/// Begins to work, makes the node known to the others, and looks after what the dead left.
async fn take_part(
    running: &mut Running,
    (config, roles): (&Config, &[NodeRole]),
    (context, hub, gauges): (Arc<Context>, Arc<FrameHub>, Gauges),
    agreed: Arc<AtomicU16>,
    (tell, members, clock): (watch::Sender<Members>, watch::Receiver<Members>, Arc<ClusterClock>),
) -> Result<(), Failure> {
    let (me, supervisor) = (context.process, running.supervisor.clone());
    let (ground, standing) = (running.substrate.clone(), Arc::clone(&running.standing));
    if roles.contains(&NodeRole::Worker) {
        let options = WorkerOptions { drain_grace: config.node.drain };
        let tools = running.tools.clone();
        let rank = tools::ranked(me, Arc::clone(&running.saying), members.clone());
        let runner = tools::runner(config, &context, tools.available(), rank);
        let keep = move || tools.clone().keep();
        supervisor.adopt_task("worker.executors", keep).await.map_err(unspawned)?;
        let archive = runner.archive.clone();
        let sweep = move || archive.clone().keep();
        supervisor.adopt_task("worker.archive", sweep).await.map_err(unspawned)?;
        let current = standing.jobs().clone();
        let jobs = move || tools::run(runner.clone(), current.clone());
        supervisor.adopt_task("worker.jobs", jobs).await.map_err(unspawned)?;
        let sessions = Sessions::new(ground.clone(), Arc::clone(&context.clock));
        let sessions = sessions.writing(Arc::clone(&agreed));
        let spawned = Worker::spawn(context, (hub, standing.clone()), options, &supervisor);
        let worker = spawned.await.map_err(unspawned)?;
        running.operations.roots.worker.get_or_init(|| worker.clone());
        usage::begin(&supervisor, &sessions, &worker).await.map_err(unspawned)?;
        sweep::begin(config, &supervisor, sessions, &worker).await.map_err(unspawned)?;
        running.worker = Some(worker);
    } else {
        let answers =
            move || answer_requests(Arc::clone(&context), None, (hub.clone(), standing.clone()));
        supervisor.adopt_task("node.requests", answers).await.map_err(unspawned)?;
    }
    running.mcp.begin(&supervisor).await.map_err(unspawned)?;
    let begun = running.operations.begin(&ground, members.clone());
    begun.await.map_err(unspawned)?;
    if !ground.shared {
        return Ok(());
    }
    let (heartbeat, announcer) = (Arc::clone(&running.saying), running.announcer.clone());
    let (substrate, options) = (ground.clone(), config.cluster.membership());
    let part = Membership { substrate, me, options, clock, heartbeat, view: tell, announcer };
    let part = move || part.clone().run();
    supervisor.adopt_task("membership", part).await.map_err(unspawned)?;
    let (saying, announcer) = (Arc::clone(&running.saying), running.announcer.clone());
    let (standing, heard) = (Arc::clone(&running.standing), members.clone());
    let greet = move || {
        let (saying, standing) = (Arc::clone(&saying), Arc::clone(&standing));
        greet::run(announcer.clone(), saying, standing, Arc::clone(&agreed), heard.clone())
    };
    supervisor.adopt_task("node.greet", greet).await.map_err(unspawned)?;
    if let Some(worker) = running.worker.clone() {
        let follow = Follow { substrate: ground, me, worker, gauges, members };
        let follow = move || follow.clone().run();
        supervisor.adopt_task("worker.follow", follow).await.map_err(unspawned)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn unspawned(error: ractor::SpawnErr) -> Failure {
    Failure::new(Exit::Failed, "internal", format!("an actor cannot be started: {error}"))
}

// === impl Ready ===

impl Ready {
    /// Of a node that does not serve yet.
    fn soon(process: ProcessId, model: &str, substrate: &Substrate) -> Self {
        let ground = substrate.health.describe();
        Self {
            url: String::new(),
            process,
            token: None,
            banner: vec![
                format!("clawnode {} on {ground}", env!("CARGO_PKG_VERSION")),
                format!("model {model}"),
            ],
            model: model.to_owned(),
        }
    }
}

// === impl Running ===

impl Running {
    /// Drains: nothing new, running calls end, every entity is handed over, everything is stored.
    async fn stop(self) {
        info!("draining");
        self.standing.drains();
        self.shutdown.cancel();
        let runner = self.standing.jobs().peek(Clone::clone);
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
        tokio::join!(jobs, sessions);
        // After those who call them.
        self.mcp.stop().await;
        if let Some(serving) = self.serving {
            serving.ended().await;
        }
        self.operations.feed.tell_now(&self.substrate, EventBody::NodeLeft).await;
        self.supervisor.stop().await;
        greet::farewell(&self.substrate, &self.saying).await;
        self.substrate.health.close().await;
        if let Some((file, dir)) = self.node_file
            && let Err(error) = file.remove(&dir)
        {
            warn!(%error, "cannot remove the file with the node's address");
        }
        info!("stopped");
    }
}

fn machine_options(loaded: &Loaded) -> MachineOptions {
    let config = &loaded.config;
    MachineOptions {
        #[cfg(feature = "test-util")]
        hides: greet::hides(loaded.env()),
        passivate_after: config.session.passivate_after,
        snapshot_every: u64::from(config.session.snapshot_every),
        ..MachineOptions::default()
    }
}

fn token(loaded: &Loaded) -> Result<Option<Secret>, Failure> {
    if loaded.config.gateway.no_auth {
        return Ok(None);
    }
    if let Some(token) = &loaded.token {
        return Ok(Some(token.clone()));
    }
    let dir = &loaded.config.node.data_dir;
    std::fs::create_dir_all(dir).map_err(|error| {
        let message = format!("cannot make `{}`: {error}", dir.display());
        Failure::new(Exit::Failed, "data_dir_unusable", message)
            .hint("name another directory with `--data-dir`")
    })?;
    Ok(Some(ensure_token(dir)?))
}

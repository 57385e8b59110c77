//! The composition root: from settings to a running node. The only file that knows every part.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock, RwLock,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
};

use clawnode_actors::{
    agent::Agents,
    durable::{
        MachineOptions,
        driver::{Context, Lacks, Worker, WorkerOptions, answer_requests},
    },
    session::{FrameHub, Session, SessionRunner, Sessions, route::Routes},
    supervise::Supervisor,
};
use clawnode_cluster::{
    Clock, Feed, Substrate, SystemClock,
    membership::{Announcer, Members, Membership},
};
use clawnode_proto::{ErrorChain, ProcessId, feed::EventBody, node::NodeRole};
use secrecy::SecretString;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    client::{NodeFile, ensure_token},
    config::{Config, Loaded, Secret},
    failure::{Exit, Failure},
    gateway::{self, GatewayOptions, ServeError, Serving, TlsFiles},
    node::{
        backend::NodeBackend,
        greet::{self, Saying},
        ground,
        load::Gauges,
        models::{Answering, CurrentModels, answering},
        operate::Operations,
        overview::Node,
        reload,
        scan::Follow,
        standing::Standing,
        tools::{self, NodeTools},
    },
    telemetry,
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
}

/// Runs a node until `stop`; returns once everything is stored and let go.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    let NodeArgs { loaded, roles, join, ready, stop } = args;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let process = ProcessId::from_u128(ulid::Ulid::generate().0);
    let (answering, ground) = tokio::try_join!(
        answering(&loaded.config, loaded.env(), &clock),
        ground::open(&loaded, (process, &roles), join.as_ref(), &clock)
    )?;
    let control = ground.control;
    let substrate = ground.substrate;
    #[cfg(feature = "test-util")]
    let substrate = crate::node::failpoint::arm(substrate, loaded.env())?;
    #[cfg(feature = "nats")]
    let mut loaded = loaded;
    #[cfg(feature = "nats")]
    if let Err(failure) = crate::bus::name::settle(&mut loaded, &substrate).await {
        substrate.health.close().await;
        return Err(failure);
    }
    let supervisor = Supervisor::spawn().await.map_err(unspawned)?;
    let standing = Standing::new(stop.clone(), &loaded.config.node);
    let health = Arc::clone(&substrate.health);
    let on = (process, substrate.clone(), supervisor.clone(), Arc::clone(&standing));
    let (running, told) = match Box::pin(start(&loaded, &roles, answering, on, clock)).await {
        Ok(started) => started,
        Err(failure) => {
            supervisor.stop().await;
            substrate.health.close().await;
            return Err(failure);
        }
    };
    info!(process = %told.process, url = told.url, "node serves");
    if ready.send(told).is_err() {
        info!("nobody waits for this node to be ready");
    }
    let fatal = async {
        match &control {
            Some(control) => control.fatal().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {
            running.stop().await;
            standing.misfit().map_or(Ok(()), Err)
        }
        lost = health.lost() => {
            error!(?lost, "the bus is lost; the process ends");
            Err(ground::lost(lost))
        }
        why = fatal => {
            error!(why, "the store has failed; the process ends");
            Err(Failure::new(Exit::Failed, "store_failed", format!("the store has failed: {why}"))
                .hint("look at the disk, then start again: what was answered is safe"))
        }
    }
}

async fn start(
    loaded: &Loaded,
    roles: &[NodeRole],
    answering: Answering,
    (process, substrate, supervisor, standing): (ProcessId, Substrate, Supervisor, Arc<Standing>),
    clock: Arc<dyn Clock>,
) -> Result<(Running, Ready), Failure> {
    let config = &loaded.config;
    let bucket = Arc::clone(&substrate.bucket);
    let agents = Agents::spawn(answering.agents, bucket, supervisor.clone());
    let agents = agents.await.map_err(unspawned)?;
    let routes = Arc::new(RwLock::new(answering.routes));
    let models = CurrentModels::new(answering.models);
    let feed = Feed::new(process, config.node.name.clone(), Arc::clone(&clock));
    let hub = FrameHub::default();
    let (tell, members) = watch::channel(Members::default());
    let tools = tools::open(config, loaded.env(), &clock).await?;
    let runner = SessionRunner::new(
        substrate.clone(),
        agents.clone(),
        (Arc::new(models.clone()), tools.toolbox.clone(), config.tools.job_wait),
        members.clone(),
        hub.clone(),
        Arc::clone(&clock),
        (Arc::new(telemetry::set_parent), feed.clone()),
    );
    let on = (process, substrate.clone(), Arc::clone(&clock));
    let context = Arc::new(context(loaded, on, runner, (members.clone(), &standing))?);
    let gauges = Gauges::default();
    let reached = Arc::new(OnceLock::new());
    let saying =
        greet::saying(config, roles, &context, &agents, &tools, (&standing, &gauges, &reached));
    greet::join(&substrate, &saying).await?;
    let again = (agents.clone(), routes.clone(), models);
    look_after(&supervisor, loaded, again, (&gauges, &hub)).await?;

    let model = format!("{} ({})", answering.choice.model, answering.choice.why);
    let shutdown = CancellationToken::new();
    let agreed = Arc::new(AtomicU16::new(context.speaks.newest));
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
    };
    let mut ready = Ready::soon(process, &model, &substrate);
    if roles.contains(&NodeRole::Gateway) {
        let resident = Arc::clone(&context);
        let node = Node {
            process,
            heartbeat: saying,
            model,
            members: members.clone(),
            resident: Arc::new(move || resident.resident.load(Ordering::Relaxed)),
            events: operations.events.clone(),
            roots: operations.roots.clone(),
        };
        let sessions = Sessions::new(substrate.clone(), Arc::clone(&clock));
        let sessions = sessions.writing(Arc::clone(&agreed));
        let backend = Arc::new(NodeBackend::new(sessions, agents, routes, node));
        open_gateway(loaded, backend, clock, (&mut running, &mut ready, &reached)).await?;
        running.serving.iter().for_each(|serving| gauges.count(serving.clients()));
    }
    // Last: a node that cannot start must not have claimed sessions and begun calls.
    let parts = (context, Arc::new(hub), gauges, tools);
    take_part(&mut running, (config, roles), parts, agreed, (tell, members)).await?;
    Ok((running, ready))
}

/// What all sessions of the process share.
fn context(
    loaded: &Loaded,
    (process, substrate, clock): (ProcessId, Substrate, Arc<dyn Clock>),
    runner: SessionRunner,
    (peers, standing): (watch::Receiver<Members>, &Standing),
) -> Result<Context<Session>, Failure> {
    Ok(Context {
        process,
        substrate,
        clock,
        runner: Arc::new(runner),
        machine: machine_options(loaded),
        activations: AtomicU64::new(1),
        resident: AtomicU64::new(0),
        speaks: greet::speaks(loaded.env())?,
        peers,
        lacks: Lacks::default(),
        cordoned: Arc::clone(standing.cordoned()),
    })
}

/// Follows the configuration's files, and how busy the node is.
async fn look_after(
    supervisor: &Supervisor,
    loaded: &Loaded,
    again: (Agents, Arc<RwLock<Routes>>, CurrentModels),
    (gauges, hub): (&Gauges, &FrameHub),
) -> Result<(), Failure> {
    let (agents, gauges, hub) = (again.0.clone(), gauges.clone(), hub.clone());
    let look = move || gauges.clone().look(agents.clone(), hub.clone());
    supervisor.adopt_task("node.load", look).await.map_err(unspawned)?;
    let watched = loaded.clone();
    let reload = move || reload::follow_files(watched.clone(), again.clone());
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
    let serving = gateway::serve(options, backend, stop).await.map_err(|e| refused(&e))?;
    ready.url.clone_from(&serving.url);
    running.operations.roots.gateway.get_or_init(|| serving.url.clone());
    // Set once, here.
    drop(advertised(&loaded.config, &serving.url).map(|url| reached.set(url)));
    ready.token = token;
    let dir = loaded.config.node.data_dir.clone();
    let process = ready.process;
    let file = NodeFile { url: serving.url.clone(), pid: std::process::id(), process };
    std::fs::create_dir_all(&dir).and_then(|()| file.write(&dir)).map_err(|error| {
        Failure::new(
            Exit::Failed,
            "data_dir_unusable",
            format!("cannot write into `{}`: {error}", dir.display()),
        )
        .hint("name another directory with `--data-dir`")
    })?;
    running.node_file = Some((file, dir));
    running.serving = Some(serving);
    Ok(())
}

/// Begins to work, makes the node known to the others, and looks after what the dead left.
async fn take_part(
    running: &mut Running,
    (config, roles): (&Config, &[NodeRole]),
    (context, hub, gauges, tools): (Arc<Context<Session>>, Arc<FrameHub>, Gauges, NodeTools),
    agreed: Arc<AtomicU16>,
    (tell, members): (watch::Sender<Members>, watch::Receiver<Members>),
) -> Result<(), Failure> {
    let (me, supervisor) = (context.process, running.supervisor.clone());
    let (ground, standing) = (running.substrate.clone(), Arc::clone(&running.standing));
    if roles.contains(&NodeRole::Worker) {
        let options = WorkerOptions { drain_grace: config.node.drain };
        let runner = tools::runner(config, &context, tools);
        let current = standing.jobs().clone();
        let jobs = move || tools::run(runner.clone(), current.clone());
        supervisor.adopt_task("worker.jobs", jobs).await.map_err(unspawned)?;
        let spawned = Worker::spawn(context, (hub, standing.clone()), options, &supervisor);
        let worker = spawned.await.map_err(unspawned)?;
        running.operations.roots.worker.get_or_init(|| worker.clone());
        running.worker = Some(worker);
    } else {
        let answers =
            move || answer_requests(Arc::clone(&context), None, (hub.clone(), standing.clone()));
        supervisor.adopt_task("node.requests", answers).await.map_err(unspawned)?;
    }
    let begun = running.operations.begin(&ground, members.clone());
    begun.await.map_err(unspawned)?;
    if !ground.shared {
        return Ok(());
    }
    let (heartbeat, announcer) = (Arc::clone(&running.saying), running.announcer.clone());
    let (substrate, options) = (ground.clone(), config.cluster.membership());
    let part = Membership { substrate, me, options, heartbeat, view: tell, announcer };
    let part = move || part.clone().run();
    supervisor.adopt_task("membership", part).await.map_err(unspawned)?;
    let (saying, announcer) = (Arc::clone(&running.saying), running.announcer.clone());
    let (standing, heard) = (Arc::clone(&running.standing), members.clone());
    let greet = move || {
        let (saying, standing) = (Arc::clone(&saying), Arc::clone(&standing));
        greet::run(announcer.clone(), saying, standing, Arc::clone(&agreed), heard.clone())
    };
    supervisor.adopt_task("node.greet", greet).await.map_err(unspawned)?;
    #[cfg(feature = "nats")]
    {
        let (ground, name) = (ground.clone(), config.node.name.clone());
        let answer = move || crate::bus::name::answer(ground.clone(), name.clone(), me);
        supervisor.adopt_task("name", answer).await.map_err(unspawned)?;
    }
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
        let runner = self.standing.jobs().borrow().clone();
        let jobs = async {
            if let Some(runner) = runner {
                runner.drain().await;
            }
        };
        let sessions = async {
            if let Some(worker) = &self.worker {
                worker.drain().await;
            }
        };
        tokio::join!(jobs, sessions);
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
            warn!(%error, "the node's address was left behind");
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

fn gateway_options(
    config: &Config,
    token: Option<&Secret>,
    clock: Arc<dyn Clock>,
) -> GatewayOptions {
    let it = &config.gateway;
    let tls = match (&it.tls_cert, &it.tls_key) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    let connections = usize::try_from(it.max_connections).unwrap_or(usize::MAX);
    let defaults = GatewayOptions::default();
    GatewayOptions {
        listen: it.listen,
        token: token.map(|token| SecretString::from(token.expose().to_owned())),
        tls,
        plain_http: it.plain_http,
        allowed_hosts: it.hosts.clone(),
        allowed_origins: it.origins.clone(),
        connections: connections.try_into().unwrap_or(defaults.connections),
        drain: config.node.drain,
        clock,
        adopt_trace: telemetry::adopt,
        ..defaults
    }
}

fn refused(error: &ServeError) -> Failure {
    let message = ErrorChain(error).to_string();
    match error {
        ServeError::Bind { .. } => Failure::new(Exit::Failed, "listen_failed", message)
            .hint("name a free address with `--listen 127.0.0.1:0`; is another node running?"),
        ServeError::TokenRequired { .. }
        | ServeError::TlsRequired { .. }
        | ServeError::EmptyToken
        | ServeError::AllowList { .. }
        | ServeError::Tls { .. } => Failure::new(Exit::Config, "config_invalid", message),
    }
}

/// Where clients reach a gateway that serves at `url`, as far as it can tell.
fn advertised(config: &Config, url: &str) -> Option<String> {
    let it = &config.gateway;
    let own = || (!it.listen.ip().is_unspecified()).then(|| url.to_owned());
    it.advertise.clone().or_else(own)
}

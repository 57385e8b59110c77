//! The composition root: from settings to a running node. The only file that knows every part.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use clawnode_actors::{
    agent::Agents,
    durable::{
        MachineOptions,
        driver::{Context, Worker, WorkerOptions},
    },
    session::{FrameHub, Session, SessionRunner, Sessions, route::Routes},
    supervise::Supervisor,
};
use clawnode_cluster::{Clock, Substrate, SystemClock, membership};
use clawnode_proto::{
    ErrorChain, ProcessId,
    envelope::VERSIONS,
    node::{Heartbeat, Load, NodeRole, VersionRange},
};
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
        backend::{Node, NodeBackend},
        ground,
        models::{Answering, CurrentModels, answering},
        scan,
    },
    telemetry,
};

/// How often the configuration's files are looked at for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

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
    draining: Arc<AtomicBool>,
    node_file: Option<(NodeFile, PathBuf)>,
    shutdown: CancellationToken,
}

/// Runs a node until `stop`; returns once everything is stored and let go.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    let NodeArgs { mut loaded, roles, join, ready, stop } = args;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (answering, ground) = tokio::try_join!(
        answering(&loaded.config, loaded.env(), &clock),
        ground::open(&loaded, &roles, join.as_ref(), &clock)
    )?;
    let control = ground.control;
    let substrate = ground.substrate;
    #[cfg(feature = "test-util")]
    let substrate = crate::node::failpoint::arm(substrate, loaded.env())?;
    #[cfg(feature = "nats")]
    if let Err(failure) = crate::bus::name::settle(&mut loaded, &substrate).await {
        substrate.health.close().await;
        return Err(failure);
    }
    let supervisor = Supervisor::spawn().await.map_err(unspawned)?;
    let health = Arc::clone(&substrate.health);
    let on = (substrate.clone(), supervisor.clone());
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
            Ok(())
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
    (substrate, supervisor): (Substrate, Supervisor),
    clock: Arc<dyn Clock>,
) -> Result<(Running, Ready), Failure> {
    let config = &loaded.config;
    let process = ProcessId::from_u128(ulid::Ulid::generate().0);
    let bucket = Arc::clone(&substrate.bucket);
    let agents =
        Agents::spawn(answering.agents, bucket, supervisor.clone()).await.map_err(unspawned)?;
    let routes = Arc::new(RwLock::new(answering.routes));
    let models = CurrentModels::new(answering.models);
    let hub = FrameHub::default();
    let runner = SessionRunner::new(
        substrate.clone(),
        agents.clone(),
        Arc::new(models.clone()),
        hub.clone(),
        Arc::clone(&clock),
        Arc::new(telemetry::set_parent),
    );
    let context: Arc<Context<Session>> = Arc::new(Context {
        process,
        substrate: substrate.clone(),
        clock: Arc::clone(&clock),
        runner: Arc::new(runner),
        machine: machine_options(config),
        activations: AtomicU64::new(1),
        resident: AtomicU64::new(0),
    });
    let draining = Arc::new(AtomicBool::new(false));
    let heartbeat = heartbeat(config, roles, &context, &agents, &draining);
    let (tell, members) = watch::channel(membership::Members::default());
    let (watched, again) = (loaded.clone(), (agents.clone(), routes.clone(), models));
    let reload = move || follow_files(watched.clone(), again.clone());
    supervisor.adopt_task("config.follow", reload).await.map_err(unspawned)?;

    let model = format!("{} ({})", answering.choice.model, answering.choice.why);
    let shutdown = CancellationToken::new();
    let mut running = Running {
        worker: None,
        serving: None,
        supervisor,
        substrate: substrate.clone(),
        draining,
        node_file: None,
        shutdown: shutdown.clone(),
    };
    let mut ready = Ready {
        url: String::new(),
        process,
        token: None,
        banner: vec![
            format!("clawnode {} on {}", env!("CARGO_PKG_VERSION"), substrate.health.describe()),
            format!("model {model}"),
        ],
        model: model.clone(),
    };
    if roles.contains(&NodeRole::Gateway) {
        let resident = Arc::clone(&context);
        let node = Node {
            process,
            heartbeat: Arc::clone(&heartbeat),
            model,
            members: members.clone(),
            resident: Arc::new(move || resident.resident.load(Ordering::Relaxed)),
        };
        let sessions = Sessions::new(substrate.clone(), Arc::clone(&clock));
        let backend = Arc::new(NodeBackend::new(sessions, agents, routes, node));
        open_gateway(loaded, backend, shutdown, clock, (&mut running, &mut ready)).await?;
    }
    // Last: a node that cannot start must not have claimed sessions and begun calls.
    let parts = (context, Arc::new(hub));
    take_part(&mut running, (config, roles), parts, heartbeat, (tell, members)).await?;
    Ok((running, ready))
}

/// Serves clients, and says in the data directory where.
async fn open_gateway(
    loaded: &Loaded,
    backend: Arc<NodeBackend>,
    shutdown: CancellationToken,
    clock: Arc<dyn Clock>,
    (running, ready): (&mut Running, &mut Ready),
) -> Result<(), Failure> {
    let token = token(loaded)?;
    let options = gateway_options(&loaded.config, token.as_ref(), clock);
    let serving = gateway::serve(options, backend, shutdown).await.map_err(|e| refused(&e))?;
    ready.url.clone_from(&serving.url);
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
    (context, hub): (Arc<Context<Session>>, Arc<FrameHub>),
    heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    (tell, members): (watch::Sender<membership::Members>, watch::Receiver<membership::Members>),
) -> Result<(), Failure> {
    let (process, supervisor) = (context.process, &running.supervisor);
    if roles.contains(&NodeRole::Worker) {
        let options = WorkerOptions { drain_grace: config.node.drain, ..WorkerOptions::default() };
        let spawned = Worker::spawn(context, hub, options, supervisor);
        running.worker = Some(spawned.await.map_err(unspawned)?);
    }
    if !running.substrate.shared {
        return Ok(());
    }
    let ground = running.substrate.clone();
    let beat =
        move || membership::run(ground.clone(), process, Arc::clone(&heartbeat), tell.clone());
    supervisor.adopt_task("membership", beat).await.map_err(unspawned)?;
    #[cfg(feature = "nats")]
    {
        let (ground, name) = (running.substrate.clone(), config.node.name.clone());
        let answer = move || crate::bus::name::answer(ground.clone(), name.clone(), process);
        supervisor.adopt_task("name", answer).await.map_err(unspawned)?;
    }
    if let Some(worker) = running.worker.clone() {
        let ground = running.substrate.clone();
        let scan = move || scan::run(ground.clone(), process, worker.clone(), members.clone());
        supervisor.adopt_task("worker.scan", scan).await.map_err(unspawned)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn unspawned(error: ractor::SpawnErr) -> Failure {
    Failure::new(Exit::Failed, "internal", format!("an actor cannot be started: {error}"))
}

// === impl Running ===

impl Running {
    /// Drains: nothing new, running calls end, every entity is handed over, everything is stored.
    async fn stop(self) {
        info!("draining");
        self.draining.store(true, Ordering::Relaxed);
        self.shutdown.cancel();
        if let Some(worker) = &self.worker {
            worker.drain().await;
        }
        if let Some(serving) = self.serving {
            serving.ended().await;
        }
        self.supervisor.stop().await;
        self.substrate.health.close().await;
        if let Some((file, dir)) = self.node_file
            && let Err(error) = file.remove(&dir)
        {
            warn!(%error, "the node's address was left behind");
        }
        info!("stopped");
    }
}

fn machine_options(config: &Config) -> MachineOptions {
    MachineOptions {
        passivate_after: config.session.passivate_after,
        snapshot_every: u64::from(config.session.snapshot_every),
        ..MachineOptions::default()
    }
}

fn heartbeat(
    config: &Config,
    roles: &[NodeRole],
    context: &Arc<Context<Session>>,
    agents: &Agents,
    draining: &Arc<AtomicBool>,
) -> Arc<dyn Fn() -> Heartbeat + Send + Sync> {
    let node = config.node.name.clone();
    let roles = roles.to_vec();
    let (context, agents) = (Arc::clone(context), agents.clone());
    let draining = Arc::clone(draining);
    let started = context.clock.now();
    Arc::new(move || Heartbeat {
        process: context.process,
        node: node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        roles: roles.clone(),
        started,
        draining: draining.load(Ordering::Relaxed),
        entities: context.resident.load(Ordering::Relaxed),
        config: agents.digest(),
        cordoned: false,
        speaks: VersionRange { oldest: *VERSIONS.start(), newest: *VERSIONS.end() },
        capabilities: BTreeSet::new(),
        load: Load::default(),
        shed: 0,
        first_of: 0,
    })
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

/// Reads the configuration again when one of its files has changed. What does not read is
/// reported, and the old settings stay.
async fn follow_files(
    loaded: Loaded,
    (agents, routes, models): (Agents, Arc<RwLock<Routes>>, CurrentModels),
) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut current = loaded;
    let mut seen = changed_at(&current);
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        let now = changed_at(&current);
        if now == seen {
            continue;
        }
        seen = now;
        let again = match current.reload() {
            Ok(again) => again,
            Err(error) => {
                warn!(error = %ErrorChain(&error), "the configuration does not read; the old one stays");
                continue;
            }
        };
        match answering(&again.config, again.env(), &clock).await {
            Ok(answering) => {
                // Before the agents that name them.
                models.replace(answering.models);
                if let Err(error) = agents.reload(answering.agents).await {
                    warn!(%error, "an agent cannot be started");
                }
                *routes.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    answering.routes;
                current = again;
                info!("agents, providers and bindings were read again");
            }
            Err(failure) => {
                warn!(%failure, "the configuration is not valid; the old one stays");
            }
        }
    }
}

fn changed_at(loaded: &Loaded) -> Vec<Option<SystemTime>> {
    let souls = loaded.config.agents.values().filter_map(|agent| agent.soul.as_ref());
    let files = loaded.file.iter().chain(souls);
    files.map(|path| std::fs::metadata(path).and_then(|about| about.modified()).ok()).collect()
}

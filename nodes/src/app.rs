//! The composition root: from settings to a running node. The only file that knows every part.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, RwLock,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
};

use clawnode_actors::{
    agent::Agents,
    durable::{
        MachineOptions,
        driver::{Context, Lacks, Worker, WorkerOptions, answer_requests},
    },
    session::{FrameHub, Session, SessionRunner, Sessions},
    supervise::Supervisor,
};
use clawnode_cluster::{Clock, Substrate, SystemClock, local, membership};
use clawnode_proto::{
    ErrorChain, ProcessId,
    node::{Heartbeat, Load, NodeRole},
};
use secrecy::SecretString;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    cli::offline::{BackupView, Offline, RepairView},
    client::{NodeFile, ensure_token},
    config::{Config, Loaded, Secret},
    failure::{Exit, Failure},
    gateway::{self, GatewayOptions, ServeError, Serving, TlsFiles},
    node::{
        backend::{Node, NodeBackend},
        backup,
        greet::{self, Saying},
        ground,
        models::{Answering, CurrentModels, answering},
        offline::Directory,
        reload, scan,
        standing::Standing,
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
    node_file: Option<(NodeFile, PathBuf)>,
    shutdown: CancellationToken,
}

/// Runs a node until `stop`; returns once everything is stored and let go.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    let NodeArgs { loaded, roles, ready, stop } = args;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (answering, ground) = tokio::try_join!(
        answering(&loaded.config, loaded.env(), &clock),
        ground::open(&loaded, &clock)
    )?;
    let control = ground.control;
    let substrate = ground.substrate;
    #[cfg(feature = "test-util")]
    let substrate = crate::node::failpoint::arm(substrate, loaded.env())?;
    let supervisor = Supervisor::spawn().await.map_err(unspawned)?;
    let standing = Standing::new(stop.clone());
    let on = (substrate.clone(), supervisor.clone(), Arc::clone(&standing));
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
    (substrate, supervisor, standing): (Substrate, Supervisor, Arc<Standing>),
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
    let (tell, members) = watch::channel(membership::Members::default());
    let context: Arc<Context<Session>> = Arc::new(Context {
        process,
        substrate: substrate.clone(),
        clock: Arc::clone(&clock),
        runner: Arc::new(runner),
        machine: machine_options(loaded),
        activations: AtomicU64::new(1),
        resident: AtomicU64::new(0),
        speaks: greet::speaks(loaded.env())?,
        peers: members.clone(),
        lacks: Lacks::default(),
        cordoned: Arc::clone(standing.cordoned()),
    });
    let saying = saying(config, roles, &context, &agents, &standing);
    greet::join(&substrate, &saying).await?;
    let (watched, again) = (loaded.clone(), (agents.clone(), routes.clone(), models));
    let reload = move || reload::follow_files(watched.clone(), again.clone());
    supervisor.adopt_task("config.follow", reload).await.map_err(unspawned)?;

    let model = format!("{} ({})", answering.choice.model, answering.choice.why);
    let shutdown = CancellationToken::new();
    let agreed = Arc::new(AtomicU16::new(context.speaks.newest));
    let mut running = Running {
        worker: None,
        serving: None,
        supervisor,
        substrate: substrate.clone(),
        standing,
        saying: Arc::clone(&saying),
        node_file: None,
        shutdown: shutdown.clone(),
    };
    let mut ready = announcement(process, &model, &substrate);
    if roles.contains(&NodeRole::Gateway) {
        let resident = Arc::clone(&context);
        let node = Node {
            process,
            heartbeat: saying,
            model,
            members: members.clone(),
            resident: Arc::new(move || resident.resident.load(Ordering::Relaxed)),
        };
        let sessions = Sessions::new(substrate.clone(), Arc::clone(&clock));
        let sessions = sessions.writing(Arc::clone(&agreed));
        let backend = Arc::new(NodeBackend::new(sessions, agents, routes, node));
        open_gateway(loaded, backend, shutdown, clock, (&mut running, &mut ready)).await?;
    }
    // Last: a node that cannot start must not have claimed sessions and begun calls.
    let parts = (context, Arc::new(hub));
    take_part(&mut running, (config, roles), parts, agreed, (tell, members)).await?;
    Ok((running, ready))
}

/// What a node says once it serves, as far as it is known before.
fn announcement(process: ProcessId, model: &str, substrate: &Substrate) -> Ready {
    Ready {
        url: String::new(),
        process,
        token: None,
        banner: vec![
            format!("clawnode {} on {}", env!("CARGO_PKG_VERSION"), substrate.health.describe()),
            format!("model {model}"),
        ],
        model: model.to_owned(),
    }
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
    agreed: Arc<AtomicU16>,
    (tell, members): (watch::Sender<membership::Members>, watch::Receiver<membership::Members>),
) -> Result<(), Failure> {
    let (process, supervisor) = (context.process, running.supervisor.clone());
    let (ground, standing) = (running.substrate.clone(), Arc::clone(&running.standing));
    if roles.contains(&NodeRole::Worker) {
        let options = WorkerOptions { drain_grace: config.node.drain, ..WorkerOptions::default() };
        let spawned = Worker::spawn(context, (hub, standing.clone()), options, &supervisor);
        running.worker = Some(spawned.await.map_err(unspawned)?);
    } else {
        let answers =
            move || answer_requests(Arc::clone(&context), None, (hub.clone(), standing.clone()));
        supervisor.adopt_task("node.requests", answers).await.map_err(unspawned)?;
    }
    if !ground.shared {
        return Ok(());
    }
    let (on, saying) = (ground.clone(), Arc::clone(&running.saying));
    let beat = move || membership::run(on.clone(), process, Arc::clone(&saying), tell.clone());
    supervisor.adopt_task("membership", beat).await.map_err(unspawned)?;
    let (on, saying) = (ground.clone(), Arc::clone(&running.saying));
    let (standing, heard) = (Arc::clone(&running.standing), members.clone());
    let greet = move || {
        let (saying, standing) = (Arc::clone(&saying), Arc::clone(&standing));
        greet::run(on.clone(), saying, standing, Arc::clone(&agreed), heard.clone())
    };
    supervisor.adopt_task("node.greet", greet).await.map_err(unspawned)?;
    if let Some(worker) = running.worker.clone() {
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
        self.standing.drains();
        self.shutdown.cancel();
        if let Some(worker) = &self.worker {
            worker.drain().await;
        }
        if let Some(serving) = self.serving {
            serving.ended().await;
        }
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

fn saying(
    config: &Config,
    roles: &[NodeRole],
    context: &Arc<Context<Session>>,
    agents: &Agents,
    standing: &Arc<Standing>,
) -> Saying {
    let node = config.node.name.clone();
    let roles = roles.to_vec();
    let (context, agents) = (Arc::clone(context), agents.clone());
    let standing = Arc::clone(standing);
    let started = context.clock.now();
    let knows = context.machine.known::<Session>();
    Arc::new(move || Heartbeat {
        process: context.process,
        node: node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        roles: roles.clone(),
        started,
        draining: standing.draining(),
        entities: context.resident.load(Ordering::Relaxed),
        config: agents.digest(),
        cordoned: standing.cordoned().load(Ordering::Relaxed),
        speaks: context.speaks,
        capabilities: BTreeSet::new(),
        load: Load::default(),
        shed: 0,
        first_of: 0,
        knows: knows.clone(),
        lacks: context.lacks.told(),
        leaving: false,
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

/// Opens the data directory for reading, where no node runs.
pub async fn open_read_only(config: &Config) -> Result<Box<dyn Offline>, Failure> {
    Ok(Box::new(Directory::open(config).await?))
}

/// Looks for damage in the data directory, and repairs it if `apply`.
pub async fn repair(config: &Config, apply: bool) -> Result<RepairView, Failure> {
    let dir = config.node.data_dir.clone();
    let looked =
        tokio::task::spawn_blocking(
            move || {
                if apply { local::repair(&dir) } else { local::inspect(&dir) }
            },
        );
    let report = looked
        .await
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))?
        .map_err(|error| ground::refused(&error))?;
    let mut findings: Vec<String> = report
        .spans
        .iter()
        .map(|span| {
            format!(
                "`{}` at offset {}: {} bytes hold no readable record; a copy goes to `{}`",
                span.file.display(),
                span.offset,
                span.len,
                span.kept.display()
            )
        })
        .collect();
    findings.extend(report.damaged_entities.iter().map(|entity| {
        format!("`{entity}` has a damaged record and is refused until it is restored or deleted")
    }));
    Ok(RepairView { findings, applied: apply })
}

/// Writes the data directory to `file`, which must not exist.
pub async fn backup(config: &Config, file: &Path) -> Result<BackupView, Failure> {
    // Open, it is held shared: no node can start while it is read.
    let directory = Directory::open(config).await?;
    let sessions = directory.all().await?.len() as u64;
    let (dir, file) = (config.node.data_dir.clone(), file.to_owned());
    tokio::task::spawn_blocking(move || backup::write(&dir, &file, sessions))
        .await
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))?
}

/// Fills the data directory, which must be empty, from `file`.
pub async fn restore(config: &Config, file: &Path) -> Result<BackupView, Failure> {
    let (dir, from) = (config.node.data_dir.clone(), file.to_owned());
    let bytes = tokio::task::spawn_blocking(move || backup::read(&from, &dir))
        .await
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))??;
    let sessions = Directory::open(config).await?.all().await?.len() as u64;
    Ok(BackupView { file: file.display().to_string(), bytes, sessions })
}

//! The executors of tools that run on this node, and what runs its jobs. `agent_tools` says which tools agents get.

use std::{error::Error, fs::DirBuilder, os::unix::fs::DirBuilderExt as _, sync::Arc};

use clawnode_actors::{
    hook::Hooks,
    runner::{JobRank, JobRunner, RunnerContext, RunnerOptions},
};
use clawnode_cluster::{Peek, membership::Members};
#[cfg(feature = "ssh")]
use clawnode_executors::ssh;
use clawnode_executors::{
    Basics, HttpFetch, Ledger, MemoryTools, SkillTools, Workspace,
    sandbox::{Commands, ContainerOwner, Docker, ProcessOptions, Processes, Steps},
};
use clawnode_kernel::driver::WorkerContext;
use clawnode_proto::{ErrorChain, ProcessId};
use clawnode_tool::{
    Archive, ArchiveContext, ArchiveOptions, Available, Egress, Executor, Executors,
    skill::SkillShelf,
};
use tokio::sync::watch;
use tracing::debug;

use super::{
    base::NodeBase,
    mcp_servers::{McpServers, OWN},
    plugins::NodePlugins,
    scheduler,
    version_check::HeartbeatSource,
};
use crate::{
    config::{Config, Env, LoadedConfig},
    start_error::StartError,
    telemetry,
};

/// The command of this program that makes it a step between a node and a command.
pub const SANDBOXED_EXEC: &str = "sandboxed-exec";

/// The executors of a node.
#[derive(Clone, Debug)]
pub struct NodeTools {
    executors: Executors,
    docker: Docker,
}

// === impl NodeTools ===

impl NodeTools {
    /// The tools that can run now; notifies of each change.
    pub fn available(&self) -> watch::Receiver<Available> {
        self.executors.available()
    }

    /// Probes the executors; never ends.
    pub async fn keep(self) {
        tokio::join!(self.executors.keep(), self.docker.keep());
    }

    /// Ends everything outside this process. No tool runs after it.
    pub async fn close(&self) {
        self.executors.close();
        Box::pin(self.docker.close()).await;
    }
}

/// Tools whose runs a test counts.
#[cfg(feature = "test-util")]
pub(super) fn counted(env: &Env) -> Option<Arc<dyn Executor>> {
    super::crash_test_tools::RunCounter::of(env)
        .map(|effects| Arc::new(effects) as Arc<dyn Executor>)
}

#[cfg(not(feature = "test-util"))]
pub(super) const fn counted(_env: &Env) -> Option<Arc<dyn Executor>> {
    None
}

/// The sources of tools besides the executors that every node has.
#[derive(Clone, Copy, Debug)]
pub struct ToolParts<'a> {
    /// The plugins of this node.
    pub plugins: &'a NodePlugins,
    /// The hooks of this node, which report how they fare.
    pub hooks: &'a Hooks,
    /// The MCP servers of this node.
    pub mcp: &'a McpServers,
    /// The skills of its agents.
    pub skills: &'a SkillShelf,
}

/// Makes the executors of this node, and probes them.
pub async fn open(
    loaded: &LoadedConfig,
    base: &NodeBase,
    ToolParts { plugins, hooks, mcp, skills }: ToolParts<'_>,
) -> Result<NodeTools, StartError> {
    let (config, env, switch_gate) = (&loaded.config, loaded.env(), &base.switch_gate);
    skills.keep_in(super::skills::places(loaded));
    let mut executors: Vec<Arc<dyn Executor>> = vec![
        Arc::new(Basics::new(Arc::clone(&base.clock))),
        Arc::new(Ledger),
        Arc::new(MemoryTools),
        Arc::new(SkillTools::new(skills.clone(), config.node.name.clone())),
        Arc::new(HttpFetch::new(Egress::new(config.egress.clone()).behind(switch_gate.clone()))),
    ];
    if let Some(options) = &config.workspace {
        let root = options.root.display();
        let failed = |error: &(dyn Error + 'static)| {
            let what = format!("`workspace.root` (`{root}`): {}", ErrorChain(error));
            StartError::config("config_invalid", what).hint("make the directory, or name another")
        };
        // What agents write is for the user of this node alone, unless they say otherwise.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&options.root);
        made.map_err(|error| failed(&error))?;
        let workspace = Workspace::open(options).map_err(|error| failed(&error))?;
        executors.push(Arc::new(workspace));
    }
    plugins.sweep();
    executors.extend(plugins.behind(switch_gate).keeping(&base.storage.bucket).executors());
    executors.extend(mcp.executors());
    let docker = containers(config, base);
    executors.extend(commands(config, &docker));
    executors.extend(hosts(config, base));
    executors.extend(counted(env));
    let executors = Executors::open(executors, switch_gate.clone())
        .await
        .map_err(|error| StartError::failed("internal", error.to_string()))?;
    plugins.report_to(executors.providers());
    hooks.report_to(executors.providers());
    Ok(NodeTools { executors, docker })
}

/// Containers on the account of this process; it knows those of the dead of its cluster.
fn containers(config: &Config, base: &NodeBase) -> Docker {
    let storage = &base.storage;
    // A cluster without a name is identified by its storage.
    let cluster = storage.health.cluster().unwrap_or_else(|| storage.health.describe());
    let owner = ContainerOwner::new(&format!("{} {cluster}", config.cluster.prefix), base.process);
    let (shared, members) = (storage.shared, base.members.clone());
    // No other process can be alive if the storage is not shared.
    let is_dead = move |process| !shared || members.peek(|members| members.holds_dead(process));
    Docker::new(config.sandbox.docker.clone(), owner, Arc::new(is_dead))
}

/// The executor of agents' commands, if any agent has one.
fn commands(config: &Config, docker: &Docker) -> impl Iterator<Item = Arc<dyn Executor>> {
    let options = &config.sandbox;
    let root = config.workspace.as_ref().map(|workspace| workspace.root.clone());
    let docker = Commands::in_docker(options, docker.clone(), root.clone());
    let has_processes = options.has_processes();
    let processes = has_processes.then(|| processes(options.process.clone()).in_groups());
    let processes = processes.map(|limits| Commands::in_processes(options, limits, root));
    let found = [Some(docker), processes].into_iter().flatten();
    found.map(|commands| Arc::new(commands) as Arc<dyn Executor>)
}

/// Commands as processes of this host, which this program shuts in.
pub fn processes(options: ProcessOptions) -> Processes {
    Processes::new(options).walled_by(Steps { binary: OWN.into(), command: SANDBOXED_EXEC.into() })
}

/// The archive of the jobs that run here.
fn archive(config: &Config, context: &WorkerContext) -> Archive {
    Archive::new(ArchiveContext {
        process: context.process,
        node: config.node.name.clone(),
        storage: context.storage.clone(),
        clock: Arc::clone(&context.clock),
        peers: context.peers.clone(),
        options: ArchiveOptions { keep: config.tools.keep_jobs },
    })
}

/// The other hosts on which commands are run.
#[cfg(feature = "ssh")]
fn hosts(config: &Config, base: &NodeBase) -> Vec<Arc<dyn Executor>> {
    let (bucket, node) = (Arc::clone(&base.storage.bucket), config.node.name.clone());
    let context = ssh::SshContext::new(bucket, node, Arc::clone(&base.clock));
    let hosts = config.ssh_hosts.iter();
    hosts.map(|host| Arc::new(ssh::SshHost::new(host.clone(), context.clone())) as _).collect()
}

/// Without SSH commands on other hosts are left to nodes that have it.
#[cfg(not(feature = "ssh"))]
fn hosts(config: &Config, _: &NodeBase) -> Vec<Arc<dyn Executor>> {
    for host in &config.ssh_hosts {
        let why = "this build has no `ssh`: build it with `--features full`";
        tracing::warn!(host = %host.name, why, "this node runs no commands on the host");
    }
    Vec::new()
}

/// How good this process is for a job, compared with the others that it knows.
pub fn ranked(
    me: ProcessId,
    heartbeat_source: HeartbeatSource,
    members: watch::Receiver<Members>,
) -> JobRank {
    Arc::new(move |capability, in_hand| {
        if members.peek(|members| members.alive.iter().all(|one| one.process == me)) {
            return 0;
        }
        let own = heartbeat_source();
        members.peek(|members| scheduler::rank(own, members.alive.iter(), capability, in_hand))
    })
}

/// Runs the jobs that this node can run.
pub fn runner(
    config: &Config,
    context: &WorkerContext,
    available: watch::Receiver<Available>,
    rank: JobRank,
) -> RunnerContext {
    RunnerContext {
        process: context.process,
        storage: context.storage.clone(),
        clock: Arc::clone(&context.clock),
        available,
        peers: context.peers.clone(),
        archive: archive(config, context),
        options: RunnerOptions {
            max_jobs: usize::try_from(config.tools.max_jobs).unwrap_or(usize::MAX),
            drain_grace: config.node.drain,
        },
        begun: Arc::default(),
        link: Arc::new(telemetry::set_parent),
        rank,
    }
}

/// Runs the jobs that this node can, until it is drained; the handle to the runner that is at work is
/// in `current`.
pub async fn run(context: RunnerContext, current: watch::Sender<Option<JobRunner>>) {
    let capabilities = context.available.peek(|available| available.capabilities.clone());
    debug!(?capabilities, "this node takes tool calls of these kinds");
    let (runner, work) = JobRunner::new(context);
    current.send_replace(Some(runner.clone()));
    work.await;
    if runner.is_draining() {
        // Who ends is started again, and would take what others should have.
        std::future::pending::<()>().await;
    }
}

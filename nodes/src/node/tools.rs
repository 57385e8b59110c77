//! The tools of this node: what agents may be given, and what is run here.

use std::sync::Arc;

use clawnode_actors::{
    durable::driver::Context,
    session::Session,
    tool::{
        Basics, Egress, Executor, HttpFetch, JobRunner, RunnerContext, RunnerOptions, Toolbox,
        Workspace, WorkspaceOptions, schema, workspace,
    },
};
use clawnode_cluster::Clock;
use clawnode_proto::{
    AgentName, Capability, ErrorChain, ToolName,
    limits::{AGENT_TOOLS, TOOL_SPECS_BYTES},
    tool::ToolSpec,
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    config::{Config, Env},
    failure::{Exit, Failure},
};

/// What a node has of tools.
#[derive(Clone, Debug)]
pub struct NodeTools {
    /// What runs here.
    pub toolbox: Toolbox,
    /// What others may ask of this node: what it has was probed.
    pub capabilities: Vec<Capability>,
}

/// All tools that an agent may be given, whichever node runs them.
pub fn catalogue(config: &Config, env: &Env, clock: &Arc<dyn Clock>) -> Vec<ToolSpec> {
    let mut specs = Basics::new(Arc::clone(clock)).tools();
    specs.extend(HttpFetch::new(Egress::new(config.egress.clone())).tools());
    let elsewhere = WorkspaceOptions::new(std::path::PathBuf::new());
    specs.extend(workspace::specs(config.workspace.as_ref().unwrap_or(&elsewhere)));
    specs.extend(counted(env).into_iter().flat_map(|executor| executor.tools()));
    specs
}

/// Tools whose runs a test counts.
#[cfg(feature = "test-util")]
fn counted(env: &Env) -> Option<Arc<dyn Executor>> {
    super::effects::Effects::of(env).map(|effects| Arc::new(effects) as Arc<dyn Executor>)
}

#[cfg(not(feature = "test-util"))]
const fn counted(_env: &Env) -> Option<Arc<dyn Executor>> {
    None
}

/// The tools of an agent by their names.
pub fn chosen(
    catalogue: &[ToolSpec],
    agent: &AgentName,
    names: &[ToolName],
) -> Result<Vec<ToolSpec>, Failure> {
    let invalid = |what: String| {
        Failure::new(Exit::Config, "config_invalid", format!("`agents.{agent}.tools`: {what}"))
    };
    if names.len() > AGENT_TOOLS {
        return Err(invalid(format!("{} tools, at most {AGENT_TOOLS}", names.len())));
    }
    let mut specs: Vec<ToolSpec> = Vec::new();
    for name in names {
        if specs.iter().any(|spec| spec.name == *name) {
            return Err(invalid(format!("`{name}` is there twice")).hint("remove one of them"));
        }
        let Some(spec) = catalogue.iter().find(|spec| spec.name == *name) else {
            let known: Vec<&str> = catalogue.iter().map(|spec| spec.name.as_str()).collect();
            return Err(invalid(format!("there is no tool `{name}`"))
                .hint(format!("name one of: {}", known.join(", "))));
        };
        if let Err(error) = schema::check(spec) {
            return Err(invalid(format!("`{name}`: {}", ErrorChain(&error))));
        }
        specs.push(spec.clone());
    }
    let bytes: usize = specs.iter().map(|it| it.description.len() + it.input_schema.len()).sum();
    if bytes > TOOL_SPECS_BYTES {
        let what = format!("their descriptions have {bytes} bytes, at most {TOOL_SPECS_BYTES}");
        return Err(invalid(what).hint("give the agent fewer tools"));
    }
    Ok(specs)
}

/// Makes what this node runs tools with, and probes it.
pub async fn open(
    config: &Config,
    env: &Env,
    clock: &Arc<dyn Clock>,
) -> Result<NodeTools, Failure> {
    let mut executors: Vec<Arc<dyn Executor>> = vec![
        Arc::new(Basics::new(Arc::clone(clock))),
        Arc::new(HttpFetch::new(Egress::new(config.egress.clone()))),
    ];
    if let Some(options) = &config.workspace {
        let workspace = Workspace::open(options).map_err(|error| {
            let what = format!("`workspace.root`: {}", ErrorChain(&error));
            Failure::new(Exit::Config, "config_invalid", what)
                .hint("make the directory, or name another")
        })?;
        executors.push(Arc::new(workspace));
    }
    executors.extend(counted(env));
    let mut capabilities: Vec<Capability> = Vec::new();
    for executor in &executors {
        let needed: Vec<Capability> =
            executor.tools().into_iter().filter_map(|spec| spec.capability).collect();
        match executor.health_check().await {
            Ok(()) => capabilities.extend(needed),
            Err(why) if needed.is_empty() => warn!(why, "a tool cannot be run here"),
            Err(why) => warn!(why, ?needed, "this node takes no such tool calls"),
        }
    }
    capabilities.sort_unstable();
    capabilities.dedup();
    let toolbox = Toolbox::new(executors)
        .map_err(|error| Failure::new(Exit::Failed, "internal", error.to_string()))?;
    Ok(NodeTools { toolbox, capabilities })
}

/// What runs the jobs that this node can.
pub fn runner(config: &Config, context: &Context<Session>, tools: NodeTools) -> RunnerContext {
    RunnerContext {
        process: context.process,
        substrate: context.substrate.clone(),
        clock: Arc::clone(&context.clock),
        toolbox: tools.toolbox,
        capabilities: tools.capabilities,
        peers: context.peers.clone(),
        options: RunnerOptions {
            max_jobs: usize::try_from(config.tools.max_jobs).unwrap_or(usize::MAX),
            drain_grace: config.node.drain,
        },
        begun: Arc::default(),
    }
}

/// Runs the jobs that this node can, until it is drained; the door to the runner that is at work is
/// in `current`.
pub async fn run(context: RunnerContext, current: watch::Sender<Option<JobRunner>>) {
    info!(capabilities = ?context.capabilities, "tool calls of these kinds are taken");
    let (runner, work) = JobRunner::new(context);
    current.send_replace(Some(runner.clone()));
    work.await;
    if runner.is_draining() {
        // Who ends is started again, and would take what others should have.
        std::future::pending::<()>().await;
    }
}

//! Which tools an agent gets: those that its configuration names, of all that there are.

use std::sync::Arc;

use clawnode_cluster::Clock;
use clawnode_executors::{
    Basics, HttpFetch, Ledger, MemoryTools, SkillTools, WorkspaceOptions, memory_tools, sandbox,
    ssh, workspace,
};
use clawnode_proto::{
    AgentName, ErrorChain, ToolName,
    id::KeyPart,
    limits::{AGENT_TOOLS, TOOL_SPECS_BYTES},
    tool::ToolSpec,
};
use clawnode_tool::{Egress, Executor as _, schema, skill::SkillShelf};

use super::{plugins::NodePlugins, tool_executors::counted};
use crate::{
    config::{Config, Env, nearest},
    start_error::StartError,
};

/// All tools that an agent may be given, whichever node runs them.
pub(super) fn catalogue(
    config: &Config,
    env: &Env,
    clock: &Arc<dyn Clock>,
    plugins: &NodePlugins,
) -> Vec<ToolSpec> {
    let mut specs = Basics::new(Arc::clone(clock)).tools();
    specs.extend(Ledger.tools());
    specs.extend(MemoryTools.tools());
    specs.extend(SkillTools::new(SkillShelf::default(), config.node.name.clone()).tools());
    specs.extend(HttpFetch::new(Egress::new(config.egress.clone())).tools());
    let elsewhere = WorkspaceOptions::new(std::path::PathBuf::new());
    specs.extend(workspace::specs(config.workspace.as_ref().unwrap_or(&elsewhere)));
    specs.extend(plugins.executors().into_iter().flat_map(|executor| executor.tools()));
    specs.extend(sandbox::specs(&config.sandbox));
    specs.extend(ssh::specs(&config.ssh_hosts));
    specs.extend(counted(env).into_iter().flat_map(|executor| executor.tools()));
    specs
}

/// The tools of an agent by their names.
pub(super) fn chosen(
    catalogue: &[ToolSpec],
    agent: &AgentName,
    names: &[ToolName],
) -> Result<Vec<ToolSpec>, StartError> {
    let invalid = |what: String| {
        StartError::config("config_invalid", format!("`agents.{agent}.tools`: {what}"))
    };
    if names.len() > AGENT_TOOLS {
        return Err(invalid(format!("{} tools, at most {AGENT_TOOLS}", names.len())));
    }
    let mut specs: Vec<ToolSpec> = Vec::new();
    for name in names {
        if specs.iter().any(|spec| spec.name == *name) {
            return Err(invalid(format!("`{name}` is listed twice")).hint("remove one of them"));
        }
        let Some(spec) = catalogue.iter().find(|spec| spec.name == *name) else {
            let known: Vec<&str> = catalogue.iter().map(|spec| spec.name.as_str()).collect();
            let near = nearest(name.as_str(), known.iter().copied());
            let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let hint = format!("{meant}{}name one of: {}", section_of(name), known.join(", "));
            return Err(invalid(format!("there is no tool `{name}`")).hint(hint));
        };
        if let Err(error) = schema::check(spec) {
            return Err(invalid(format!("`{name}`: {}", ErrorChain(&error))));
        }
        specs.push(spec.clone());
    }
    let bytes: usize =
        specs.iter().map(|spec| spec.description.len() + spec.input_schema.len()).sum();
    if bytes > TOOL_SPECS_BYTES {
        let what = format!("their descriptions have {bytes} bytes, at most {TOOL_SPECS_BYTES}");
        return Err(invalid(what).hint("give the agent fewer tools"));
    }
    Ok(specs)
}

/// The tools of memories as an agent that has these shared ones may call them (MEM-1).
pub(super) fn narrow(specs: &mut [ToolSpec], shared: &[KeyPart]) {
    for own in memory_tools(shared) {
        let is_it = |spec: &&mut ToolSpec| spec.name == own.name && spec.capability.is_none();
        if let Some(spec) = specs.iter_mut().find(is_it) {
            *spec = own;
        }
    }
}

/// Where a tool would be configured that is called so.
fn section_of(tool: &ToolName) -> String {
    match tool.as_str().strip_prefix("ssh_") {
        Some(host) => {
            format!("give the host a section `[[ssh_hosts]]` with `name = \"{host}\"`, or ")
        }
        None => "give a command of your own a section `[sandbox.tools.NAME]`, or ".to_owned(),
    }
}

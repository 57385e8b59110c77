//! `tools`: the tools of agents, and whether they can be called now.

use std::collections::BTreeSet;

use clap::Subcommand;
use clawnode_proto::{
    AgentName,
    agents::{AgentToolView, MissingToolView},
    api::{AgentParams, Nothing, calls},
    provider::ProviderStatus,
};
use serde::Serialize;

use super::{
    command_context::CliContext,
    output::{Output, Tone, brief, clean, span},
};
use crate::failure::{Exit, Failure};

/// What `tools --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  clawnode tools list
  clawnode tools list --agent ops
  clawnode tools list --json | jq -r '.agents[].tools[] | select(.status == \"unhealthy\") | .name'";

/// Characters of a description in a table.
const SHORT: usize = 60;

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum ToolsCommand {
    /// List the tools of agents, and whether a node takes their calls now
    List {
        /// Only tools of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
    },
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct ToolsOutput {
    agents: Vec<OfAgent>,
}

#[derive(Debug, Serialize)]
struct OfAgent {
    agent: AgentName,
    tools: Vec<AgentToolView>,
    /// What its configuration names, and its model is not given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingToolView>,
}

/// `tools`.
pub(super) async fn run(command: ToolsCommand, context: &CliContext) -> Result<Exit, Failure> {
    let ToolsCommand::List { agent } = command;
    let names: Vec<AgentName> = if let Some(agent) = agent {
        vec![agent]
    } else {
        let list = context.call(calls::AgentsList, &Nothing {}).await?;
        list.agents.into_iter().map(|agent| agent.agent).collect()
    };
    let mut agents = Vec::new();
    for agent in names {
        let params = AgentParams { agent: agent.to_string() };
        let detail = context.call(calls::AgentsShow, &params).await?;
        agents.push(OfAgent { agent, tools: detail.tools, missing: detail.missing });
    }
    let (out, listing) = (context.out, ToolsOutput { agents });
    out.document(&listing, |listing| human(out, &listing.agents))?;
    Ok(Exit::Ok)
}

fn human(out: Output, agents: &[OfAgent]) -> String {
    let mut parts = Vec::new();
    for agent in agents {
        parts.push(if agent.tools.is_empty() && agent.missing.is_empty() {
            format!("`{}` has no tools", agent.agent)
        } else {
            format!("`{}`\n{}", agent.agent, table(out, &agent.tools, &agent.missing))
        });
    }
    let tools = agents.iter().flat_map(|agent| &agent.tools);
    let missing = agents.iter().flat_map(|agent| &agent.missing);
    parts.extend(reasons(out, tools, missing));
    parts.join("\n")
}

/// One row a tool, and one a tool or server whose tools the model is not given.
pub(super) fn table(out: Output, tools: &[AgentToolView], missing: &[MissingToolView]) -> String {
    let head = ["tool", "state", "runs on", "class", "risk", "timeout", "description"];
    let row = |tool: &AgentToolView| {
        let class = serde_json::to_value(tool.class).ok();
        vec![
            tool.name.to_string(),
            tool.status.as_str().to_owned(),
            tool.capability.as_ref().map_or_else(|| "any worker".to_owned(), ToString::to_string),
            class.and_then(|class| Some(class.as_str()?.to_owned())).unwrap_or_default(),
            tool.risk.as_str().to_owned(),
            span(u64::from(tool.timeout_ms)),
            brief(&tool.description, SHORT),
        ]
    };
    let nothing = |missing: &MissingToolView| {
        let mut row = vec![clean(&missing.name), "missing".to_owned()];
        row.resize(head.len(), String::new());
        row
    };
    out.table(&head, tools.iter().map(row).chain(missing.iter().map(nothing)))
}

/// Why tools cannot be called, each reason once.
pub(super) fn reasons<'a>(
    out: Output,
    tools: impl Iterator<Item = &'a AgentToolView>,
    missing: impl Iterator<Item = &'a MissingToolView>,
) -> Vec<String> {
    let bad = tools.filter(|tool| tool.status == ProviderStatus::Unhealthy);
    let whys = bad.filter_map(|tool| tool.error.as_deref());
    let whys: BTreeSet<&str> = whys.chain(missing.map(|missing| missing.error.as_str())).collect();
    whys.into_iter().map(|why| out.paint(Tone::Bad, &clean(why))).collect()
}

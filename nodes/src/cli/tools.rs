//! `tools`: the tools of agents, and whether they can be called now.

use std::collections::BTreeSet;

use clap::Subcommand;
use clawnode_proto::{
    AgentName,
    agents::{AgentDetail, AgentList, AgentToolView},
    api::Method,
    provider::ProviderStatus,
};
use serde::Serialize;
use serde_json::json;

use super::{
    agents::params,
    context::Context,
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

/// `tools`.
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
struct Listing {
    agents: Vec<OfAgent>,
}

#[derive(Debug, Serialize)]
struct OfAgent {
    agent: AgentName,
    tools: Vec<AgentToolView>,
}

/// `tools`.
pub(super) async fn run(command: ToolsCommand, context: &Context) -> Result<Exit, Failure> {
    let ToolsCommand::List { agent } = command;
    let names: Vec<AgentName> = if let Some(agent) = agent {
        vec![agent]
    } else {
        let list: AgentList = context.call(Method::AgentsList, json!({})).await?;
        list.agents.into_iter().map(|it| it.agent).collect()
    };
    let mut agents = Vec::new();
    for agent in names {
        let detail: AgentDetail = context.call(Method::AgentsShow, params(&agent)).await?;
        agents.push(OfAgent { agent, tools: detail.tools });
    }
    let (out, listing) = (context.out, Listing { agents });
    out.document(&listing, |listing| human(out, &listing.agents))?;
    Ok(Exit::Ok)
}

fn human(out: Output, agents: &[OfAgent]) -> String {
    let mut parts = Vec::new();
    for it in agents {
        let tools = &it.tools;
        parts.push(if tools.is_empty() {
            format!("`{}` has no tools", it.agent)
        } else {
            format!("`{}`\n{}", it.agent, table(out, tools.iter()))
        });
    }
    let all = agents.iter().flat_map(|it| &it.tools);
    parts.extend(reasons(out, all.filter(|it| it.status == ProviderStatus::Unhealthy)));
    parts.join("\n")
}

/// One row a tool.
pub(super) fn table<'a>(out: Output, tools: impl Iterator<Item = &'a AgentToolView>) -> String {
    let head = ["tool", "state", "runs on", "class", "risk", "timeout", "description"];
    let row = |it: &AgentToolView| {
        let class = serde_json::to_value(it.class).ok();
        vec![
            it.name.to_string(),
            it.status.as_str().to_owned(),
            it.capability.as_ref().map_or_else(|| "any worker".to_owned(), ToString::to_string),
            class.and_then(|class| Some(class.as_str()?.to_owned())).unwrap_or_default(),
            it.risk.as_str().to_owned(),
            span(u64::from(it.timeout_ms)),
            brief(&it.description, SHORT),
        ]
    };
    out.table(&head, tools.map(row))
}

/// Why tools cannot be called, each reason once.
pub(super) fn reasons<'a>(
    out: Output,
    bad: impl Iterator<Item = &'a AgentToolView>,
) -> Vec<String> {
    let whys: BTreeSet<&str> = bad.filter_map(|it| it.error.as_deref()).collect();
    whys.into_iter().map(|why| out.paint(Tone::Bad, &clean(why))).collect()
}

//! `agents`: who answers, and whether they may.

use clap::Subcommand;
use clawnode_proto::{
    AgentName,
    api::{AgentParams, Method},
    view::{AgentList, AgentView},
};
use serde_json::json;

use super::{context::Context, output::Output};
use crate::failure::{Exit, Failure};

/// `agents`.
#[derive(Debug, Subcommand)]
pub(super) enum AgentsCommand {
    /// List all agents
    List,
    /// Show one agent
    Show {
        /// Its name
        agent: AgentName,
    },
    /// Stop an agent from starting turns, on every node; running turns end
    Pause {
        /// Its name
        agent: AgentName,
    },
    /// Let an agent start turns again
    Resume {
        /// Its name
        agent: AgentName,
    },
}

/// `agents`.
pub(super) async fn run(command: AgentsCommand, context: &Context) -> Result<Exit, Failure> {
    let out = context.out;
    let (method, agent) = match command {
        AgentsCommand::List => {
            let list: AgentList = context.call(Method::AgentsList, json!({})).await?;
            out.document(&list, |list| table(out, &list.agents))?;
            return Ok(Exit::Ok);
        }
        AgentsCommand::Show { agent } => (Method::AgentsShow, agent),
        AgentsCommand::Pause { agent } => (Method::AgentsPause, agent),
        AgentsCommand::Resume { agent } => (Method::AgentsResume, agent),
    };
    let params = json!(AgentParams { agent: agent.to_string() });
    let view: AgentView = context.call(method, params).await?;
    out.document(&view, |view| table(out, std::slice::from_ref(view)))?;
    Ok(Exit::Ok)
}

fn table(out: Output, agents: &[AgentView]) -> String {
    let head = ["agent", "model", "state", "running", "waiting", "most", "steps", "system"];
    let row = |it: &AgentView| {
        vec![
            it.agent.to_string(),
            it.model.to_string(),
            match (&it.stopped, it.paused) {
                (Some(_), _) => "stopped".to_owned(),
                (None, true) => "paused".to_owned(),
                (None, false) => "active".to_owned(),
            },
            it.running.to_string(),
            it.waiting.to_string(),
            it.max_turns.to_string(),
            it.step_limit.to_string(),
            it.system.clone(),
        ]
    };
    out.table(&head, agents.iter().map(row))
}

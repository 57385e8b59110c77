//! `mcp`: MCP servers, their tools, and which descriptions of tools are approved.

use clap::Subcommand;
use clawnode_proto::{
    McpServerName, NodeName,
    api::{McpApprove, McpParams, Nothing, calls},
    mcp::{McpServerView, McpText, McpToolState, McpToolView},
    provider::ProviderStatus,
};

use super::{
    command_context::CliContext,
    output::{Output, Tone, brief, clean, exact},
};
use crate::failure::{Exit, Failure};

/// Characters of a description in a table.
const SHORT: usize = 60;

/// What `mcp --help` ends with.
const EXAMPLES: &str = "\
Examples:
  clawnode mcp list
  clawnode mcp show files
  clawnode mcp approve files
  clawnode mcp approve files --tool read_text_file";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum McpCommand {
    /// List the servers: their state, and how many of their tools are approved
    List,
    /// Show a server's tools, and descriptions that differ from the approved ones
    Show {
        /// The server's name
        server: McpServerName,
    },
    /// Approve the current descriptions of a server's tools
    Approve {
        /// The server's name
        server: McpServerName,
        /// Only this tool
        #[arg(long)]
        tool: Option<String>,
        /// Approve only if the tool's description has this digest, as `show` prints it
        #[arg(long, requires = "tool")]
        digest: Option<String>,
    },
}

/// `mcp`.
pub(super) async fn run(command: McpCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        McpCommand::List => {
            let list = context.call(calls::McpList, &Nothing {}).await?;
            out.document(&list, |list| servers(out, &list.servers))?;
        }
        McpCommand::Show { server } => {
            let params = McpParams { server: server.to_string() };
            let view = context.call(calls::McpShow, &params).await?;
            out.document(&view, |view| shown(out, view))?;
        }
        McpCommand::Approve { server, tool, digest } => {
            let params = McpApprove { server: server.to_string(), tool, digest };
            let view = context.call(calls::McpApprove, &params).await?;
            out.document(&view, |view| tools(out, &view.tools))?;
        }
    }
    Ok(Exit::Ok)
}

fn servers(out: Output, servers: &[McpServerView]) -> String {
    if servers.is_empty() {
        return "no MCP server is configured: add `[[mcp_servers]]` to the configuration"
            .to_owned();
    }
    let head =
        ["server", "state", "runs on", "configured on", "approved", "changed", "new", "gone"];
    let row = |view: &McpServerView| {
        let names = |nodes: &[NodeName]| {
            nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let count =
            |state| view.tools.iter().filter(|tool| tool.state == state).count().to_string();
        vec![
            view.server.to_string(),
            view.status.map_or("not configured", ProviderStatus::as_str).to_owned(),
            view.running.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            names(&view.hosts),
            count(McpToolState::Approved),
            count(McpToolState::Changed),
            count(McpToolState::New),
            count(McpToolState::Gone),
        ]
    };
    let mut lines = vec![out.table(&head, servers.iter().map(row))];
    lines.extend(servers.iter().filter_map(|server| down(out, server)));
    lines.join("\n")
}

/// Why a server cannot be called.
fn down(out: Output, view: &McpServerView) -> Option<String> {
    let why = view.error.as_deref()?;
    Some(out.paint(Tone::Bad, &clean(&format!("{}: {why}", view.server))))
}

fn tools(out: Output, tools: &[McpToolView]) -> String {
    let head = ["tool", "state", "class", "risk", "description"];
    let row = |tool: &McpToolView| {
        let text = tool.approved.as_ref().or(tool.listed.as_ref());
        let class = serde_json::to_value(tool.class).ok();
        vec![
            tool.name.to_string(),
            tool.state.as_str().to_owned(),
            class.and_then(|class| Some(class.as_str()?.to_owned())).unwrap_or_default(),
            tool.risk.as_str().to_owned(),
            text.map(|text| brief(&text.description, SHORT)).unwrap_or_default(),
        ]
    };
    out.table(&head, tools.iter().map(row))
}

/// All tools; those that need a decision in full.
fn shown(out: Output, view: &McpServerView) -> String {
    let mut parts = Vec::from_iter(down(out, view));
    parts.push(tools(out, &view.tools));
    for tool in &view.tools {
        let Some(listed) = &tool.listed else { continue };
        let head = match tool.state {
            McpToolState::New => format!("{} is new; its description is:", tool.name),
            _ => format!("{} has changed; the approved description was:", tool.name),
        };
        parts.push(format!("\n{}", out.paint(Tone::Bad, &head)));
        if let Some(approved) = &tool.approved {
            parts.push(words(approved));
            parts.push(out.paint(Tone::Bad, "the description now is:"));
        }
        parts.push(words(listed));
        let (server, name) = (&view.server, exact(&tool.tool));
        let digest = listed.digest;
        parts.push(format!("clawnode mcp approve {server} --tool {name} --digest {digest}"));
    }
    parts.join("\n")
}

/// A server's full text about a tool, which a person reads before approving it.
fn words(text: &McpText) -> String {
    format!("  {}\n  {}", exact(&text.description), exact(&text.input_schema))
}

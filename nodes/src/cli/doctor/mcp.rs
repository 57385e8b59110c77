//! The check of how much of this host the programs of MCP servers see.

use std::{process::Stdio, time::Duration};

use clawnode_tool::orphaned_processes::{NOT_HIDDEN, keeper_arguments};
use tokio::{process::Command, time::timeout};

use super::Check;
use crate::{
    config::Config,
    node::mcp_servers::{KEEPER, OWN},
};

const NAME: &str = "mcp.data_dir";
/// How long a program that says its version may take.
const WAIT: Duration = Duration::from_secs(5);

/// Whether the data directory is kept from them, by trying it with a program that only says its
/// version.
pub(super) async fn check(config: &Config) -> Option<Check> {
    let is_hidden_from = |options: &&crate::config::mcp::McpServerOptions| {
        options.command.is_some() && options.hide_data_dir
    };
    config.mcp_servers.iter().find(is_hidden_from)?;
    let shown = config.node.data_dir.display();
    if rustix::process::geteuid().is_root() {
        let found = format!(
            "programs of MCP servers run as root, like the node: they can undo what hides \
             `{shown}` from them"
        );
        return Some(Check::yellow(NAME, found, "run the node as a user other than root"));
    }
    // Any directory tells whether it can be done.
    let there = config.node.data_dir.ancestors().find(|folder| folder.is_dir())?;
    let line = keeper_arguments(std::process::id(), Some(there), OWN, &["--version".to_owned()]);
    let mut keeper = Command::new(OWN);
    keeper.arg(KEEPER).args(line).stdin(Stdio::null()).kill_on_drop(true);
    let said = match timeout(WAIT, keeper.output()).await {
        Ok(Ok(said)) => String::from_utf8_lossy(&said.stderr).into_owned(),
        Ok(Err(error)) => format!("{NOT_HIDDEN}: {error}"),
        Err(_elapsed) => format!("{NOT_HIDDEN}: it takes too long"),
    };
    Some(match said.lines().find(|line| line.starts_with(NOT_HIDDEN)) {
        None => Check::green(NAME, format!("programs of MCP servers cannot see `{shown}`")),
        Some(why) => {
            let found = format!("programs of MCP servers can read `{shown}`: {why}");
            Check::yellow(
                NAME,
                found,
                "allow user namespaces (`user.max_user_namespaces`, AppArmor)",
            )
        }
    })
}

//! `cluster init`.

use clap::Args;
use clawnode_nats::auth::BusServer;
use serde_json::json;

use super::shared::DirArgs;
use crate::{
    bus::operator::Operator,
    cli::command_context::CliContext,
    failure::{Exit, Failure},
};

/// Examples of `cluster init`.
const EXAMPLES: &str = "\
Examples:
  clawnode cluster init                                       one server on this host
  clawnode cluster init --server n1=10.0.0.1:4222 --server n2=10.0.0.2:4222 --server n3=10.0.0.3:4222

Each server needs two ports: one for clients and one for the other servers. The second is the first
plus 2000, unless you set it: --server n1=10.0.0.1:4222/5222";
/// The server that is made if none is named.
const ALONE: &str = "nats=127.0.0.1:4222";
/// Servers of one cluster; `JetStream` votes among an odd few.
const SERVERS_MOST: usize = 9;

/// `cluster init`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct InitArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// A NATS server, with the address that nodes and other servers use; with three, one may fail
    #[arg(long, value_name = "NAME=HOST:PORT[/ROUTE_PORT]")]
    pub server: Vec<BusServer>,
    /// The name of the cluster
    #[arg(long, value_name = "NAME", default_value = "clawnode")]
    pub cluster: String,
}

/// `cluster init`.
pub(super) fn run(args: InitArgs, context: &CliContext) -> Result<Exit, Failure> {
    let dir = args.dir.path(context);
    let mut servers = args.server;
    if servers.is_empty() {
        servers.extend(ALONE.parse::<BusServer>().ok());
    }
    check(&args.cluster, &servers)?;
    let prefix = &context.loaded.config.cluster.prefix;
    let operator = Operator::init(&dir, &args.cluster, prefix, servers)?;
    let folders: Vec<String> = operator
        .servers()
        .iter()
        .map(|server| operator.folder(server).display().to_string())
        .collect();
    let document = json!({
        "dir": dir.display().to_string(),
        "cluster": args.cluster,
        "account": operator.authority().account_id(),
        "servers": folders,
    });
    context.out.document(&document, |_| next_steps(&dir.display().to_string(), &operator))?;
    Ok(Exit::Ok)
}

fn check(cluster: &str, servers: &[BusServer]) -> Result<(), Failure> {
    let usage =
        |message: String, hint: &str| Err(Failure::new(Exit::Usage, "usage", message).hint(hint));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if cluster.is_empty() || cluster.len() > 64 || !cluster.chars().all(plain) {
        let message = format!("`{cluster}` is not a valid cluster name");
        return usage(message, "use 1 to 64 of a-z, A-Z, 0-9, `-`, `_`");
    }
    if servers.len() == 2 || servers.len() > SERVERS_MOST {
        let message = format!("{} servers do not form a reliable majority", servers.len());
        return usage(message, "name one server, or three, of which one may fail");
    }
    for (at, server) in servers.iter().enumerate() {
        let twin = |other: &BusServer| other.name == server.name || other.collides(server);
        if servers.iter().take(at).any(twin) {
            return usage(
                format!("server `{server}` has the name or a port of an earlier server"),
                "give each its own name and ports; the second port is the first plus 2000, unless \
                 `NAME=HOST:PORT/ROUTE_PORT` sets it",
            );
        }
    }
    Ok(())
}

/// What to type now.
fn next_steps(dir: &str, operator: &Operator) -> String {
    let mut lines = vec![
        format!("The keys of the cluster are in `{dir}`: keep a copy, and keep both secret."),
        String::new(),
        "1. Start the servers, each on its host, in its folder (copy the folder there):".to_owned(),
    ];
    for server in operator.servers() {
        let folder = operator.folder(server).display().to_string();
        lines.push(format!("     cd {folder} && nats-server -c nats.conf"));
    }
    lines.extend([
        String::new(),
        "2. Make a token for each node; it can be used once, within an hour:".to_owned(),
        format!("     clawnode cluster join-token --role gateway --dir {dir}"),
        format!("     clawnode cluster join-token --role worker --dir {dir}"),
        String::new(),
        "3. Start each node on its host with its token:".to_owned(),
        "     CLAWNODE_JOIN=TOKEN clawnode --role worker".to_owned(),
    ]);
    lines.join("\n")
}

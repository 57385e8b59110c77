//! The shape of the command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clawnode_proto::{llm::ModelRef, node::NodeRole, subject::Prefix};

#[cfg(feature = "tui")]
use super::top;
use super::{
    agents, approvals, backup, chat, config, doctor, events, execute, hooks, import, jobs, journal,
    mcp, node, panic, parked, providers, quarantine, sessions, tools, tree, up, verify,
};
use crate::config::Flag;

/// What `--help` ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   it was tried and failed
  2   the command line is wrong
  69  the node, or a server that it needs, cannot be reached
  70  the node hung, and ended itself; start it again
  77  refused: the token is missing or wrong, or this is not allowed
  78  the configuration is wrong

Examples:
  clawnode up --chat                       start a node and talk to it
  echo 'hello' | clawnode up --chat        the same, scripted
  clawnode --role gateway --nats nats://127.0.0.1:4222
  clawnode sessions list --json
  clawnode nodes -o wide
  clawnode events --follow
  clawnode config show";

/// What `status --help` ends with.
const STATUS_EXAMPLES: &str = "\
Examples:
  clawnode status
  clawnode status -o wide
  clawnode status -o json | jq '.warnings[].name'";

/// What `nodes --help` ends with.
const NODES_EXAMPLES: &str = "\
Examples:
  clawnode nodes
  clawnode nodes -o wide
  clawnode nodes -o json | jq -r '.nodes[] | select(.draining) | .node'";

/// What `partitions --help` ends with.
const PARTITIONS_EXAMPLES: &str = "\
Examples:
  clawnode partitions
  clawnode partitions -o wide
  clawnode partitions -o json | jq '[.partitions[].waiting] | add'";

/// Durable virtual actors for AI agents, over NATS.
#[derive(Debug, Parser)]
#[command(name = "clawnode", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(
    subcommand_required = false,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(super) struct Cli {
    /// Be a node that holds client connections (gateway), owns sessions (worker), or both
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROLE")]
    pub role: Vec<Role>,
    #[command(flatten)]
    pub join: up::JoinArgs,
    #[command(flatten)]
    pub flags: GlobalFlags,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags that every command takes.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(super) struct GlobalFlags {
    /// Read this configuration file instead of the usual one
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep everything in this directory
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Serve clients on this address
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Share work with other nodes over these NATS servers
    #[arg(long, global = true, value_name = "URL")]
    // Text, so that a wrong one, which may hold a password, is not quoted: settings judge it.
    pub nats: Option<String>,
    /// Begin all NATS subjects with this
    #[arg(long, global = true, value_name = "NAME")]
    pub prefix: Option<Prefix>,
    /// Let the agent `default` use this model
    #[arg(long, global = true, value_name = "PROVIDER/MODEL")]
    pub model: Option<ModelRef>,
    /// Ask clients for no token (on loopback only)
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub no_auth: bool,
    /// Serve TLS with this certificate chain
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve beyond loopback without TLS, because a proxy in front has it
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub plain_http: bool,
    /// Speak to the node at this address, not to this machine's own; of several (comma-separated),
    /// to whichever answers
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Read the node's token from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON: documents to standard output, errors and logs to standard error
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub json: bool,
    /// Print documents so: as tables, with more columns, or as JSON (as `--json`)
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub output: Option<Format>,
    /// Log this much to standard error: error, warn, info, debug, trace, or a filter
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<String>,
}

/// How documents are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    // For people.
    Table,
    // For people with wide screens.
    Wide,
    // For programs.
    Json,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Role {
    // Holds client connections.
    Gateway,
    // Owns sessions.
    Worker,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Start a node that does everything, and set up what it needs
    Up(up::UpArgs),
    /// Start a node with chosen roles, as one of a cluster
    Run(up::RunArgs),
    /// Talk to an agent at the terminal
    Chat(chat::ChatArgs),
    /// Show the node and the cluster
    #[command(after_help = STATUS_EXAMPLES)]
    Status,
    /// List the nodes of the cluster, with what they do and how busy they are
    #[command(after_help = NODES_EXAMPLES)]
    Nodes,
    /// List what runs tools on each node, and who serves models, with how they fare
    #[command(after_help = providers::EXAMPLES)]
    Providers,
    /// Show which node would be chosen for calls of some tools, and why
    Diagnose(providers::DiagnoseArgs),
    /// List the partitions: who serves them, in which order, and what waits in them
    #[command(after_help = PARTITIONS_EXAMPLES)]
    Partitions,
    /// Show what every process of the cluster runs, as a tree
    Tree(tree::TreeArgs),
    /// Show what happened in the cluster lately, and follow what happens
    Events(events::EventsArgs),
    /// Watch nodes, sessions, throughput and latencies at the terminal
    #[cfg(feature = "tui")]
    Top(top::TopArgs),
    /// List, show, follow, export and delete sessions
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List, show, put back in service and drop sessions that are out of service
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// List inputs that were put aside, because nobody can serve them
    Parked(parked::ParkedArgs),
    /// List, show, pause and resume agents
    #[command(subcommand)]
    Agents(agents::AgentsCommand),
    /// List, show, approve and deny tool calls that wait for a person
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// List and show jobs: what tool calls said and made, wherever they ran
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Run the steps of a plan without a model, show how far they are, and cancel them
    Execute(execute::ExecuteArgs),
    /// Stop what agents do, on every node at once, until that is cleared
    #[command(after_help = panic::EXAMPLES)]
    Panic(panic::PanicArgs),
    /// List the tools of agents, and whether their calls can be run now
    #[command(subcommand)]
    Tools(tools::ToolsCommand),
    /// List and show MCP servers, and approve what they say of their tools
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// List the programs that judge model calls and tool calls on this machine
    #[command(subcommand)]
    Hooks(hooks::HooksCommand),
    /// Drain, cordon and uncordon a node of a cluster
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show, verify, replay and repair journals
    #[command(subcommand)]
    Journal(journal::JournalCommand),
    /// Write everything in the data directory to a file
    Backup(backup::BackupArgs),
    /// Fill an empty data directory from a backup
    Restore(backup::RestoreArgs),
    /// Move the sessions of a data directory into a cluster
    Import(import::ImportArgs),
    /// Make the keys of a cluster, let hosts join it, and revoke what they were given
    #[cfg(feature = "nats")]
    #[command(subcommand)]
    Cluster(super::cluster::ClusterCommand),
    /// Look for what keeps a node from working, and say what to do about it
    Doctor(doctor::DoctorArgs),
    /// Show and check the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Do harm to a cluster made for it, and judge what is left
    #[command(hide = true)]
    Verify(verify::VerifyArgs),
}

impl From<Role> for NodeRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Gateway => Self::Gateway,
            Role::Worker => Self::Worker,
        }
    }
}

impl GlobalFlags {
    /// Whether documents and errors are JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json || self.output == Some(Format::Json)
    }

    /// Whether tables have all their columns.
    pub(super) fn is_wide(&self) -> bool {
        self.output == Some(Format::Wide)
    }

    /// The settings that were made on the command line.
    pub(super) fn settings(&self) -> Vec<Flag> {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let on = |flag: bool| flag.then(|| "true".to_owned());
        let all: [(_, &[&str], _); 10] = [
            ("--data-dir", &["node", "data_dir"], self.data_dir.as_ref().map(path)),
            ("--listen", &["gateway", "listen"], self.listen.map(|it| it.to_string())),
            ("--nats", &["cluster", "nats"], self.nats.clone()),
            ("--prefix", &["cluster", "prefix"], self.prefix.as_ref().map(ToString::to_string)),
            (
                "--model",
                &["agents", "default", "model"],
                self.model.as_ref().map(ToString::to_string),
            ),
            ("--no-auth", &["gateway", "no_auth"], on(self.no_auth)),
            ("--tls-cert", &["gateway", "tls_cert"], self.tls_cert.as_ref().map(path)),
            ("--tls-key", &["gateway", "tls_key"], self.tls_key.as_ref().map(path)),
            ("--plain-http", &["gateway", "plain_http"], on(self.plain_http)),
            ("--log", &["telemetry", "log"], self.log.clone()),
        ];
        all.into_iter()
            .filter_map(|(name, path, value)| Some(Flag { name, path, value: value? }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

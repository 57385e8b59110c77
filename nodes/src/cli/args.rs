//! The shape of the command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clawnode_proto::{llm::ModelRef, node::NodeRole, subject::Prefix};

#[cfg(feature = "tui")]
use super::top;
use super::{
    agents, approvals, backup, chat, config, doctor, events, execute, guide, hooks, import, jobs,
    journal, manual, mcp, models, node, panic, parked, providers, quarantine, sessions, tools,
    tree, up, usage, verify,
};
use crate::config::Flag;

/// What `--help` ends with.
const AFTER: &str = "\
Exit codes:
  0   success
  1   the command failed
  2   the command line is wrong
  69  the node, or a server that it needs, cannot be reached
  70  the node hung and ended itself; start it again
  77  refused: the token is missing or wrong, or the operation is not allowed
  78  the configuration is wrong

Examples:
  clawnode up --chat                       start a node and talk to it
  echo 'hello' | clawnode up --chat        the same, scripted
  clawnode --role gateway --nats nats://127.0.0.1:4222
  clawnode sessions list --json
  clawnode nodes -o wide
  clawnode events --follow
  clawnode config show
  clawnode help models                     how to do something; `clawnode help` lists topics";

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

/// What `usage --help` ends with.
const USAGE_EXAMPLES: &str = "\
The first worker of the cluster counts model calls from the journals, some seconds after they end.
Days are in UTC; usage is kept for 100 of them.

Examples:
  clawnode usage
  clawnode usage --by agent --since 7d
  clawnode usage --by user --since 2026-11-01 --json";

/// Runs AI agents whose work survives crashes, on one machine or many.
#[derive(Debug, Parser)]
#[command(name = "clawnode", version, after_help = AFTER, max_term_width = 100)]
#[command(
    subcommand_required = false,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(super) struct Cli {
    /// Start a node with these roles, as `clawnode run` does: gateway (serves clients), worker (owns
    /// sessions), or both
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROLE")]
    pub role: Vec<RoleArg>,
    #[command(flatten)]
    pub join: up::JoinArgs,
    #[command(flatten)]
    pub flags: GlobalFlags,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Settings. Every command takes them, so that a script may set them once; the help of each shows
/// those that it uses ([`super::shape`]).
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(super) struct GlobalFlags {
    /// Read this configuration file instead of the default one
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use this data directory
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Serve clients on this address
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Join the other nodes over these NATS servers
    #[arg(long, global = true, value_name = "URL")]
    // Text, so that a wrong one, which may hold a password, is not quoted: settings judge it.
    pub nats: Option<String>,
    /// Prefix of all NATS subjects
    #[arg(long, global = true, value_name = "NAME")]
    pub prefix: Option<Prefix>,
    /// Model of the agent `default`
    #[arg(long, global = true, value_name = "PROVIDER/MODEL")]
    pub model: Option<ModelRef>,
    /// Serve clients without a token (on loopback addresses only)
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub no_auth: bool,
    /// Serve TLS with this certificate chain
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve beyond loopback without TLS, because a proxy in front provides TLS
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub plain_http: bool,
    /// Use the node at this address, not the one on this machine; from several comma-separated
    /// addresses, use the first that answers
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Read the node's token from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON: documents to standard output, errors and logs to standard error
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub json: bool,
    /// Format of documents: a table, a table with more columns, or JSON (same as `--json`)
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub output: Option<Format>,
    /// Level of the log on standard error: error, warn, info, debug, trace, or a filter
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
pub(super) enum RoleArg {
    // Serves clients.
    Gateway,
    // Owns sessions.
    Worker,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Start a node with all roles, and set up what it needs
    Up(up::UpArgs),
    /// Start a node with chosen roles, as part of a cluster
    Run(up::RunArgs),
    /// Talk to an agent in the terminal
    Chat(chat::ChatArgs),
    /// Show the node and the cluster
    #[command(after_help = STATUS_EXAMPLES)]
    Status,
    /// List the nodes of the cluster: their roles, state and load
    #[command(after_help = NODES_EXAMPLES)]
    Nodes,
    /// List the health of model providers, and of everything that runs tools on each node
    #[command(after_help = providers::EXAMPLES)]
    Providers,
    /// Show which node would run calls of some tools, and why
    Diagnose(providers::DiagnoseArgs),
    /// List the partitions: the nodes that serve them, in order, and the inputs that wait
    #[command(after_help = PARTITIONS_EXAMPLES)]
    Partitions,
    /// Show the model calls and tokens of each day, agent, user or model
    #[command(after_help = USAGE_EXAMPLES)]
    Usage(usage::UsageArgs),
    /// Show the tasks of every process of the cluster as a tree
    Tree(tree::TreeArgs),
    /// Show recent events of the cluster, and follow new ones
    Events(events::EventsArgs),
    /// Watch nodes, sessions, throughput and latencies in the terminal
    #[cfg(feature = "tui")]
    Top(top::TopArgs),
    /// List, show, follow, export and delete sessions
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List, show, restore and delete sessions that are out of service
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// List inputs that were set aside because no node can process them
    Parked(parked::ParkedArgs),
    /// List, show, pause and resume agents
    #[command(subcommand)]
    Agents(agents::AgentsCommand),
    /// List and show what is known of models, and test one with a real call
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// List, show, approve and deny tool calls that wait for a person
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// List and show jobs: the output and files of tool calls, on any node
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Run the steps of a plan without a model; show and cancel executions
    Execute(execute::ExecuteArgs),
    /// Stop agents on every node at once, until the stop is cleared
    #[command(after_help = panic::EXAMPLES)]
    Panic(panic::PanicArgs),
    /// List the tools of agents, and whether they can be called now
    #[command(subcommand)]
    Tools(tools::ToolsCommand),
    /// List and show MCP servers, and approve the descriptions of their tools
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
    /// Restore a backup into an empty data directory
    Restore(backup::RestoreArgs),
    /// Move the sessions of a data directory into a cluster
    Import(import::ImportArgs),
    /// Create the keys of a cluster, let hosts join, and revoke credentials
    #[cfg(feature = "nats")]
    #[command(subcommand)]
    Cluster(super::cluster::ClusterCommand),
    /// Check this machine, its configuration and its node, and say how to fix problems
    Doctor(doctor::DoctorArgs),
    /// Show and check the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Explain a topic or a command
    Help(guide::HelpArgs),
    /// Print the version
    #[command(after_help = "Examples:\n  clawnode version")]
    Version,
    /// Print a script that completes commands in a shell
    Completions(manual::CompletionsArgs),
    /// Write man pages
    Man(manual::ManArgs),
    /// Inject faults into a test cluster, and check the result
    #[command(hide = true)]
    Verify(verify::VerifyArgs),
}

impl From<RoleArg> for NodeRole {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Gateway => Self::Gateway,
            RoleArg::Worker => Self::Worker,
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

//! The shape of the command line.

use clap::{Parser, Subcommand};

#[cfg(feature = "tui")]
use super::top;
use super::{
    agents, approvals, backup, budget, chat, config, doctor, events, execute, feedback,
    flags::{GlobalFlags, RoleArg},
    help, hooks, import, jobs, journal, ledger, man_pages, mcp, memory, models, node, panic,
    parked, providers, quarantine, sessions, skills, tools, tree, up, usage, verify,
};

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
    Usage(usage::UsageArgs),
    /// Limit what is spent; show what is spent, by whom, and what waits
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Show what agents remember; add, forget, export and import points
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
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
    /// List, show, pause and resume agents, and show what they have done
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
    /// List, show, check, pack and install the skills on this machine
    #[command(subcommand)]
    Skills(skills::SkillsCommand),
    /// Drain, cordon and uncordon a node of a cluster
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show, verify, replay and repair journals
    #[command(subcommand)]
    Journal(journal::JournalCommand),
    /// Show what the agent of a session wrote down while it worked
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Say what you think of a turn, or show what people said of the turns of a session
    Feedback(feedback::FeedbackArgs),
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
    Help(help::HelpArgs),
    /// Print the version
    #[command(after_help = "Examples:\n  clawnode version")]
    Version,
    /// Print a script that completes commands in a shell
    Completions(man_pages::CompletionsArgs),
    /// Write man pages
    Man(man_pages::ManArgs),
    /// Inject faults into a test cluster, and check the result
    #[command(hide = true)]
    Verify(verify::VerifyArgs),
}

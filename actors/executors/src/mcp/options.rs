//! What is configured of an MCP server.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clawnode_proto::{
    McpServerName,
    tool::{EffectClass, Risk},
};
use clawnode_tool::Egress;
use secrecy::SecretString;

/// An MCP server.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Its name: what the names of its tools begin with.
    pub name: McpServerName,
    /// How it is reached.
    pub transport: McpTransport,
    /// Who approves what it says of its tools.
    pub pin: PinPolicy,
    /// What is known of single tools, by the server's own names for them. What a server hints at
    /// itself is not trusted.
    pub tools: BTreeMap<String, ToolOverride>,
    /// How long it may take to start, greet and list its tools (default 30 s: some are fetched when
    /// they are started first). More waits longer for one that hangs.
    pub start_timeout: Duration,
    /// How long one call may take (default 1 min).
    pub call_timeout: Duration,
    /// The first wait before it is started again (default 1 s); doubles...
    pub restart_first: Duration,
    /// ...up to this (default 1 min). More spares a machine where it cannot start, less has it back
    /// sooner once it can.
    pub restart_most: Duration,
}

/// How an MCP server is reached.
#[derive(Clone, Debug)]
pub enum McpTransport {
    /// A program of this host, by its standard streams.
    Stdio(StdioOptions),
    /// A service, by streamable HTTP.
    Http(HttpOptions),
}

/// A service that is an MCP server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Where it is. A person has configured it, so it may be in a private network.
    pub url: SecretString,
    /// What is sent with each request, beside what the protocol says.
    pub headers: BTreeMap<String, SecretString>,
    /// The way there.
    pub egress: Egress,
}

/// A program that is an MCP server.
#[derive(Clone, Debug)]
pub struct StdioOptions {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub command: String,
    /// Its arguments, as they are: no shell reads them.
    pub args: Vec<String>,
    /// Its environment beside what every program needs. Nothing else of the node's is given to it.
    pub env: BTreeMap<String, SecretString>,
    /// Where it is run (default: a folder of its own in the node's data directory).
    pub cwd: PathBuf,
    /// What it is not shown: the node's data directory.
    pub hidden: Option<PathBuf>,
    /// What of the node's own environment it is given: what every program needs (`PATH`, `HOME`).
    pub base_env: BTreeMap<String, String>,
    /// The program that is the keeper, and what makes it so.
    pub keeper: (PathBuf, String),
}

/// Who approves what a server says of its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PinPolicy {
    /// What it says first is approved; what it says otherwise later is not.
    #[default]
    FirstUse,
    /// A person approves everything.
    Ask,
}

/// What is known of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOverride {
    /// What running it twice does (default `once`).
    pub class: Option<EffectClass>,
    /// How much harm it can do (default `WRITE`).
    pub risk: Option<Risk>,
    /// How long one call may take.
    pub timeout: Option<Duration>,
    /// Of class `check`: the server's own name for the tool that tells whether a call of this one
    /// has happened.
    pub probe: Option<String>,
}

// === impl McpOptions ===

impl McpOptions {
    /// A server of this name, with the defaults.
    pub fn new(name: McpServerName, transport: McpTransport) -> Self {
        Self {
            name,
            transport,
            pin: PinPolicy::default(),
            tools: BTreeMap::new(),
            start_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_mins(1),
            restart_first: Duration::from_secs(1),
            restart_most: Duration::from_mins(1),
        }
    }
}

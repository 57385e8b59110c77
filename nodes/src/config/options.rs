//! Every setting, in the order of the file. Each default is stated here, with its reason.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clawnode_cluster::membership::MembershipOptions;
use clawnode_executors::{
    SandboxOptions, WorkspaceOptions, plugin::PluginOptions, ssh::SshHostOptions,
};
use clawnode_proto::{AgentName, NodeName, limits, subject::Prefix};
use clawnode_tool::EgressOptions;
use serde::{Deserialize, Serialize};

use super::{
    agents::{AgentSection, BindingSection, ProviderSection},
    budgets::BudgetsSection,
    mcp::McpServerOptions,
    memory::MemorySection,
    models::{EmbeddingsSection, ModelSection},
    prices::PriceSection,
    secret::ServerUrl,
    skills::SkillsSection,
    tools::ToolsOptions,
    units::{self, ByteSize},
};

/// All settings of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[node]`: this process.
    pub node: NodeOptions,
    /// `[gateway]`: what clients connect to.
    pub gateway: GatewaySection,
    /// `[cluster]`: what nodes share.
    pub cluster: ClusterOptions,
    /// `[session]`: how sessions live.
    pub session: SessionOptions,
    /// `[telemetry]`: what is exported about the work.
    pub telemetry: TelemetryOptions,
    /// `[tools]`: how this node runs tool calls.
    pub tools: ToolsOptions,
    /// `[egress]`: how far tools reach out of the cluster.
    pub egress: EgressOptions,
    /// `[workspace]`: where agents' files are. A node without it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceOptions>,
    /// `[[mcp_servers]]`: servers whose tools agents may be given.
    pub mcp_servers: Vec<McpServerOptions>,
    /// `[[plugins]]`: tools that others wrote, as WebAssembly components. A node without one of
    /// these files goes without that plugin.
    pub plugins: Vec<PluginOptions>,
    /// `[hooks]`: programs that judge model calls and tool calls.
    pub hooks: HooksOptions,
    /// `[skills]`: instructions that agents read when they need them.
    pub skills: SkillsSection,
    /// `[[ssh_hosts]]`: other hosts on which agents may run commands. A build without `ssh` leaves
    /// that to nodes that have it.
    pub ssh_hosts: Vec<SshHostOptions>,
    /// `[sandbox]`: where agents' commands run.
    pub sandbox: SandboxOptions,
    /// `[providers.NAME]`: who serves models. Empty: found from the environment.
    pub providers: BTreeMap<String, ProviderSection>,
    /// `[models."PROVIDER/PATTERN"]`: what is to be known of models.
    pub models: BTreeMap<String, ModelSection>,
    /// `[prices."PROVIDER/PATTERN"]`: what models cost.
    pub prices: BTreeMap<String, PriceSection>,
    /// `[embeddings]`: which models clients may ask for the vectors of texts.
    pub embeddings: EmbeddingsSection,
    /// `[memory]`: the store that finds what memories and conversations say.
    pub memory: MemorySection,
    /// `[budgets]`: what may be spent.
    pub budgets: BudgetsSection,
    /// `[agents.NAME]`: who answers. Without one there is `default`.
    pub agents: BTreeMap<AgentName, AgentSection>,
    /// `[[bindings]]`: which agent answers where; the most specific binding wins (peer, guild,
    /// team, account, channel), and `default` answers where none fits.
    pub bindings: Vec<BindingSection>,
}

/// `[node]`: this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeOptions {
    /// What people call it; for display only. The host's name unless set.
    pub name: NodeName,
    /// Where everything is kept. `$XDG_DATA_HOME/clawnode` unless set.
    pub data_dir: PathBuf,
    /// How long running model calls may take to end when the node stops; 30 s is longer than most
    /// replies and shorter than what service managers wait. Less loses more calls (they are made
    /// again), more delays a restart.
    #[serde(with = "units::duration")]
    pub drain: Duration,
}

/// `[gateway]`: what clients connect to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySection {
    /// One listener for everything. Beyond loopback it needs TLS or `plain_http`.
    #[serde(with = "units::address")]
    pub listen: SocketAddr,
    /// Where clients reach this gateway, as an address that other gateways may tell them. Unless
    /// set: the listen address, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Values of `Origin` that browsers may send, besides the gateway's own address.
    pub origins: Vec<String>,
    /// Values of `Host` that are answered, besides loopback names and the listen address.
    pub hosts: Vec<String>,
    /// Certificate chain, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Serve without TLS beyond loopback, because a proxy in front has it.
    pub plain_http: bool,
    /// Ask for no token; on loopback only.
    pub no_auth: bool,
    /// Open connections at once (4,096), or as many as the limit of open files allows if that is
    /// fewer. At most 512 of them may not have shown the token yet: one more takes the place of the
    /// oldest of the address that has most of those.
    pub max_connections: u32,
    /// Bytes of one user message, at most 1 MiB.
    pub message_size: ByteSize,
    /// Bytes that wait for one WebSocket or stream of events whose client does not read (4 MiB, 64
    /// KiB at least). Then the client gets `lagged`, and continues from its cursor once it reads
    /// again. Less spends less memory on slow clients; more rides out longer pauses.
    pub max_unread: ByteSize,
    /// How long `/v1/chat/completions` waits for a person's approval of a tool call if the answer is not
    /// streamed (60 s). Then it answers `approval_pending`; the turn waits on.
    #[serde(with = "units::duration")]
    pub approval_patience: Duration,
}

/// `[cluster]`: what nodes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterOptions {
    /// The NATS servers, comma-separated. Without it one process keeps everything in its data
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nats: Option<ServerUrl>,
    /// A NATS credentials file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// Certificates, PEM, of who may sign those of the NATS servers. With it TLS is required, and
    /// only these are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// What all subjects and streams begin with, so that clusters can share servers.
    #[serde(with = "units::text")]
    pub prefix: Prefix,
    /// Partitions, fixed when the cluster is born: 256 on NATS, 16 in one process, at most 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u16>,
    /// Copies of each stream (1, 3 or 5). Unless set: 3 where there are three servers, else 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u8>,
    /// A credentials file of the servers' system account. With it nodes hear at once when the
    /// connection of another one ends; without it they find out by asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sys_credentials: Option<PathBuf>,
    /// How often a node says that it is alive (1 s). Less delays what others know of it, more
    /// costs messages.
    #[serde(with = "units::duration")]
    pub heartbeat: Duration,
    /// Silence after which a node is held dead (6 s), at least three heartbeats. Less takes over
    /// sooner from a frozen one, and robs one that is only slow.
    #[serde(with = "units::duration")]
    pub dead_after: Duration,
    /// How often workers ask each other whether they are there (250 ms). Less notices a kill
    /// sooner and costs requests.
    #[serde(with = "units::duration")]
    pub probe_every: Duration,
    /// After how long a process that did not answer is asked again, and then held dead (300 ms).
    /// Less may declare one dead that only connects again.
    #[serde(with = "units::duration")]
    pub probe_again: Duration,
    /// How long a node may be out of touch with the store before it stops its model calls and tools
    /// by itself, because it could not hear that an operator stops them (10 s). Less stops a cut-off
    /// node sooner, and interrupts more when the servers only restart.
    #[serde(with = "units::duration")]
    pub lost_after: Duration,
}

/// `[hooks]`: programs that judge model calls and tool calls. What they are marked with is beside
/// each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksOptions {
    /// The folder that they are in. Unless set: `hooks`, beside the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
}

/// `[session]`: how sessions live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionOptions {
    /// How long an idle session stays in memory (60 s). Less saves memory, more saves reads.
    #[serde(with = "units::duration")]
    pub passivate_after: Duration,
    /// Events after which the journal is shortened by a snapshot, if it has grown as large as the
    /// session's state by then (200); after ten times as many it always is. Less shortens loading,
    /// more writes less.
    pub snapshot_every: u32,
    /// Sessions that one worker has in hand, nearly (20,000, about 450 MB if they are small). Beyond
    /// it messages wait in their inboxes. Less saves memory, more serves more of them at once.
    pub max_active: u32,
    /// How long the session of a request to OpenAI's API is kept that names no `user` (1 day after the
    /// last that happened in it); `forever` keeps them. One with an open turn never goes. Less gives
    /// back room sooner, more lets people look at what was said for longer.
    #[serde(with = "units::keep")]
    pub keep_stateless: Option<Duration>,
}

/// `[telemetry]`: what is exported about the work. Traces are exported under the standard `OTEL_*`
/// variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryOptions {
    /// What is logged to standard error, as `tracing` filters say it: `info`, `clawnode=debug`.
    pub log: String,
    /// In what form.
    pub format: LogFormat,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { name: super::paths::node_name(None), data_dir: PathBuf::new(), drain: DRAIN }
    }
}

/// See [`NodeOptions::drain`].
const DRAIN: Duration = Duration::from_secs(30);
/// See [`ClusterOptions::lost_after`].
const LOST_AFTER: Duration = Duration::from_secs(10);
/// See [`GatewayOptions::listen`].
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3100);
/// See [`GatewayOptions::max_connections`].
const MAX_CONNECTIONS: u32 = 4_096;

/// See [`GatewayOptions::max_unread`].
const MAX_UNREAD: u64 = 4 << 20;
/// See [`GatewaySection::approval_patience`].
const APPROVAL_PATIENCE: Duration = Duration::from_mins(1);

impl Default for GatewaySection {
    fn default() -> Self {
        Self {
            listen: LISTEN,
            advertise: None,
            origins: Vec::new(),
            hosts: Vec::new(),
            tls_cert: None,
            tls_key: None,
            plain_http: false,
            no_auth: false,
            max_connections: MAX_CONNECTIONS,
            message_size: ByteSize(limits::MESSAGE_BYTES as u64),
            max_unread: ByteSize(MAX_UNREAD),
            approval_patience: APPROVAL_PATIENCE,
        }
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        let times = MembershipOptions::default();
        Self {
            nats: None,
            credentials: None,
            ca: None,
            prefix: Prefix::default(),
            partitions: None,
            replicas: None,
            sys_credentials: None,
            heartbeat: times.heartbeat,
            dead_after: times.dead_after,
            probe_every: times.probe_every,
            probe_again: times.probe_again,
            lost_after: LOST_AFTER,
        }
    }
}

impl ClusterOptions {
    /// How nodes watch each other.
    pub fn membership(&self) -> MembershipOptions {
        MembershipOptions {
            heartbeat: self.heartbeat,
            dead_after: self.dead_after,
            probe_every: self.probe_every,
            probe_again: self.probe_again,
            ..MembershipOptions::default()
        }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            passivate_after: Duration::from_mins(1),
            snapshot_every: 200,
            max_active: 20_000,
            keep_stateless: Some(Duration::from_hours(24)),
        }
    }
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self { log: "info".to_owned(), format: LogFormat::default() }
    }
}

impl GatewaySection {
    /// The scheme that clients use.
    pub const fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }
}

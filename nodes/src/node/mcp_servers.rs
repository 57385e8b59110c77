//! The MCP servers of this node, and the pins of all servers of the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use clawnode_cluster::{BucketError, Peek, Storage, membership::Members};
use clawnode_executors::mcp::{
    self, ApproveError, HttpOptions, McpContext, McpOptions, McpServer, McpTools, McpTransport,
    PinPolicy, Pins, StdioOptions, ToolOverride,
};
use clawnode_kernel::supervise::Supervisor;
use clawnode_proto::{
    AgentName, Capability, ErrorBody, ErrorChain, ErrorCode, McpServerName,
    agents::MissingToolView,
    limits::{AGENT_TOOLS, TOOL_SPECS_BYTES},
    mcp::{McpList, McpServerView},
    node::Heartbeat,
    provider::ProviderStatus,
    tool::ToolSpec,
};
use clawnode_tool::{Egress, Executor, schema};
use futures_util::future::join_all;
use ractor::SpawnErr;
use secrecy::SecretString;
use tokio::sync::watch;
use tracing::warn;

use super::{base::NodeBase, health};
use crate::{
    config::{
        Config, Env, LoadedConfig,
        mcp::{McpPin, McpServerOptions, McpToolOptions},
        tools::ToolSelection,
    },
    secret::Secret,
    start_error::StartError,
};

/// The command of this program that makes it the keeper of an MCP server, or of a hook.
pub const KEEPER: &str = "mcp-keeper";
/// This program, also after its file was replaced.
pub const OWN: &str = "/proc/self/exe";
/// Where MCP servers run, in the data directory.
const FOLDER: &str = "mcp";
/// Bytes of a file with a variable's value (64 KiB).
const VALUE_BYTES: u64 = 64 << 10;
/// What a program is given of this node's environment: what it needs to find its files and to speak
/// to people.
const BASE: [&str; 8] = ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"];
/// Where programs are looked for if the node itself does not know.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The MCP servers of this node, and the approved tools of all.
#[derive(Clone, Debug)]
pub struct McpServers {
    servers: Vec<McpServer>,
    storage: Storage,
    pins: watch::Sender<Pins>,
}

/// Answers people's requests about MCP servers.
#[derive(Clone)]
pub struct McpRequests {
    storage: Storage,
    pins: watch::Receiver<Pins>,
    members: watch::Receiver<Members>,
    heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
}

// === impl McpServers ===

impl McpServers {
    /// Those that are configured, if this node is a worker; not run yet.
    pub async fn open(loaded: &LoadedConfig, base: &NodeBase) -> Result<Self, StartError> {
        let (config, env, storage) = (&loaded.config, loaded.env(), &base.storage);
        let known = mcp::load(&*storage.bucket).await.unwrap_or_else(|error| {
            let error = ErrorChain(&error);
            warn!(%error, "cannot read the approved tools of MCP servers yet");
            Pins::default()
        });
        let pins = watch::Sender::new(known);
        let mut servers = Vec::new();
        if base.is_worker() {
            for server in &config.mcp_servers {
                let context = McpContext {
                    bucket: Arc::clone(&storage.bucket),
                    clock: Arc::clone(&base.clock),
                    node: config.node.name.clone(),
                    process: base.process,
                    shared: storage.shared,
                    peers: base.members.clone(),
                    pins: pins.subscribe(),
                    switch_gate: base.switch_gate.clone(),
                };
                servers.push(McpServer::new(options(server, config, env)?, context));
            }
        }
        Ok(Self { servers, storage: storage.clone(), pins })
    }

    /// The approved tools; notifies of each change.
    pub fn pins(&self) -> watch::Receiver<Pins> {
        self.pins.subscribe()
    }

    /// The executors of their tools on this node.
    pub fn executors(&self) -> impl Iterator<Item = Arc<dyn Executor>> {
        self.servers.iter().map(|server| Arc::new(McpTools::new(server.clone())) as Arc<_>)
    }

    /// The servers that this node could run, for other nodes.
    pub fn hosts(&self) -> BTreeSet<Capability> {
        self.servers.iter().map(|server| Capability::of_mcp_host(server.name())).collect()
    }

    /// Follows the approved tools, and runs the servers that this node has to run.
    pub async fn begin(&self, supervisor: &Supervisor) -> Result<(), SpawnErr> {
        let (bucket, pins) = (Arc::clone(&self.storage.bucket), self.pins.clone());
        let follow = move || mcp::follow(Arc::clone(&bucket), pins.clone());
        supervisor.adopt_task("mcp.follow", follow).await?;
        for server in &self.servers {
            let name = format!("mcp.{}", server.name());
            let server = server.clone();
            supervisor.adopt_task(name, move || server.clone().run()).await?;
        }
        Ok(())
    }

    /// Ends all that run; returns once nothing of them is left.
    pub async fn stop(&self) {
        join_all(self.servers.iter().map(McpServer::stop)).await;
    }

    /// Answers people's requests.
    pub fn switch_gate(
        &self,
        members: watch::Receiver<Members>,
        heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    ) -> McpRequests {
        McpRequests { storage: self.storage.clone(), pins: self.pins(), members, heartbeat }
    }
}

// === impl McpRequests ===

impl McpRequests {
    /// Answers `mcp.list`.
    pub fn list(&self) -> McpList {
        let (pins, alive) = (self.pins.peek(Clone::clone), self.alive());
        let mut names: BTreeSet<McpServerName> =
            pins.servers().map(|(server, _)| server.clone()).collect();
        names.extend(alive.iter().flat_map(configured));
        let view = |server: McpServerName| {
            let known = pins.of(&server).cloned();
            let mut view = McpServerView::new(server, known.as_ref());
            stand(&mut view, &alive);
            view
        };
        McpList { servers: names.into_iter().map(view).collect() }
    }

    /// Answers `mcp.show`.
    pub fn show(&self, server: &McpServerName) -> Result<McpServerView, ErrorBody> {
        let known = self.list().servers.into_iter().find(|view| view.server == *server);
        known.ok_or_else(|| unknown(server))
    }

    /// Answers `mcp.approve`; returns once that is stored.
    pub async fn approve(
        &self,
        server: &McpServerName,
        tool: Option<&str>,
        digest: Option<&str>,
    ) -> Result<McpServerView, ErrorBody> {
        let bucket = &*self.storage.bucket;
        let approved = mcp::approve(bucket, server, tool, digest).await;
        let pins = approved.map_err(|error| {
            let message = ErrorChain(&error).to_string();
            match error {
                ApproveError::UnknownServer(_) => unknown(server),
                ApproveError::UnknownTool { .. } => ErrorBody::new(ErrorCode::NotFound, message)
                    .hint(format!("`clawnode mcp show {server}` shows its tools")),
                ApproveError::Differs { .. } => ErrorBody::new(ErrorCode::Conflict, message)
                    .hint(format!("look at it again with `clawnode mcp show {server}`")),
                ApproveError::Bucket(BucketError::Conflict { .. } | BucketError::Store(_)) => {
                    ErrorBody::new(ErrorCode::Unavailable, message).hint("try again")
                }
            }
        })?;
        let alive = self.alive();
        let mut view = McpServerView::new(server.clone(), Some(&pins));
        stand(&mut view, &alive);
        Ok(view)
    }

    fn alive(&self) -> Vec<Heartbeat> {
        let own = (self.heartbeat)();
        self.members.peek(|members| super::node_and_partition_views::alive(own, members))
    }
}

impl std::fmt::Debug for McpRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpRequests").finish_non_exhaustive()
    }
}

/// Says which nodes have it, and which runs it.
fn stand(view: &mut McpServerView, alive: &[Heartbeat]) {
    let (host, runs) = (Capability::of_mcp_host(&view.server), Capability::of_mcp(&view.server));
    let with = |what: &Capability| {
        let them = alive.iter().filter(|one| one.capabilities.contains(what));
        them.map(|one| one.node.clone()).collect::<Vec<_>>()
    };
    view.hosts = with(&host);
    view.running = with(&runs).into_iter().next();
    if let Some((status, error)) = health::of_mcp(alive, &view.server) {
        (view.status, view.error) = (Some(status), error);
    }
}

/// The servers that a node could run.
fn configured(node: &Heartbeat) -> Vec<McpServerName> {
    let server = |capability: &Capability| {
        capability.as_str().strip_prefix("mcp.")?.strip_suffix(":host")?.parse().ok()
    };
    node.capabilities.iter().filter_map(server).collect()
}

fn unknown(server: &McpServerName) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("there is no MCP server `{server}`"))
        .hint("`clawnode mcp list` shows the servers that are configured or were seen")
}

/// The tools of an agent: `specs`, and those of MCP servers that it chooses and that are approved.
/// A server that was never seen, or that has too many tools, stops no node and no agent.
pub fn with_tools(
    mut specs: Vec<ToolSpec>,
    agent: &AgentName,
    choices: &[ToolSelection],
    pins: &Pins,
) -> Vec<ToolSpec> {
    let known = pins.specs();
    let mut bytes: usize = specs.iter().map(size).sum();
    for choice in choices {
        for spec in known.iter().filter(|spec| is_chosen(choice, spec)) {
            if specs.iter().any(|other| other.name == spec.name) {
                continue;
            }
            let name = &spec.name;
            if let Err(error) = schema::check(spec) {
                let error = ErrorChain(&error);
                warn!(%agent, tool = %name, %error, "the agent does not get this tool");
            } else if specs.len() == AGENT_TOOLS || bytes + size(spec) > TOOL_SPECS_BYTES {
                warn!(%agent, tool = %name, "the agent has too many tools; this one is left out");
            } else {
                bytes += size(spec);
                specs.push(spec.clone());
            }
        }
    }
    specs
}

/// The choices that name tools of MCP servers and brought the agent none.
pub fn missing(choices: &[ToolSelection], specs: &[ToolSpec]) -> Vec<String> {
    let lacks = |choice: &&ToolSelection| {
        server_of(choice).is_some() && !specs.iter().any(|spec| is_chosen(choice, spec))
    };
    choices.iter().filter(lacks).map(ToString::to_string).collect()
}

/// Such a choice, and why it brings the agent nothing.
pub fn missing_view(alive: &[Heartbeat], choice: String) -> MissingToolView {
    let server = choice.parse().ok().and_then(|choice| server_of(&choice));
    let error = server.map_or_else(String::new, |server| match health::of_mcp(alive, &server) {
        None => format!("no node has an MCP server `{server}` in its configuration"),
        Some((ProviderStatus::Healthy, _)) => format!(
            "MCP server `{server}` has no such tool, or none that is approved: `clawnode mcp show \
             {server}`"
        ),
        Some((_, why)) => {
            format!(
                "MCP server `{server}`: {}",
                why.as_deref().unwrap_or("it has not answered yet")
            )
        }
    });
    MissingToolView { name: choice, error }
}

fn is_chosen(choice: &ToolSelection, spec: &ToolSpec) -> bool {
    match choice {
        ToolSelection::One(name) => spec.name == *name,
        ToolSelection::All(server) => spec.name.mcp_server().as_ref() == Some(server),
    }
}

/// The MCP server whose tools a choice names.
fn server_of(choice: &ToolSelection) -> Option<McpServerName> {
    match choice {
        ToolSelection::One(name) => name.mcp_server(),
        ToolSelection::All(server) => Some(server.clone()),
    }
}

const fn size(spec: &ToolSpec) -> usize {
    spec.description.len() + spec.input_schema.len()
}

/// Refuses a server whose variables cannot be read, as the start of a worker would.
pub fn check(config: &Config, env: &Env) -> Result<(), StartError> {
    config.mcp_servers.iter().try_for_each(|server| options(server, config, env).map(drop))
}

/// The settings of a server, with the values of its variables.
fn options(
    server: &McpServerOptions,
    config: &Config,
    env: &Env,
) -> Result<McpOptions, StartError> {
    let headers = ValueSources {
        plain: &server.headers,
        variables: &server.header_vars,
        files: &server.header_files,
    };
    let variables =
        ValueSources { plain: &server.env, variables: &server.env_vars, files: &server.env_files };
    let transport = match &server.url {
        Some(url) => McpTransport::Http(HttpOptions {
            url: SecretString::from(url.expose().to_owned()),
            headers: values(server, env, "header", headers)?,
            egress: Egress::new(config.egress.clone()),
        }),
        None => McpTransport::Stdio(StdioOptions {
            command: server.command.clone().unwrap_or_default(),
            args: server.args.clone(),
            env: values(server, env, "env", variables)?,
            cwd: server.cwd.clone().map_or_else(|| folder(server, config), Ok)?,
            hidden: server.hide_data_dir.then(|| data_dir(config)),
            base_env: base_env(env),
            keeper: (OWN.into(), KEEPER.to_owned()),
        }),
    };
    let known = |tool: &McpToolOptions| ToolOverride {
        class: tool.class,
        risk: tool.risk,
        timeout: tool.timeout,
        probe: tool.probe.clone(),
    };
    Ok(McpOptions {
        pin: match server.pin {
            McpPin::FirstUse => PinPolicy::FirstUse,
            McpPin::Ask => PinPolicy::Ask,
        },
        tools: server.tools.iter().map(|(name, tool)| (name.clone(), known(tool))).collect(),
        start_timeout: server.start_timeout,
        call_timeout: server.call_timeout,
        restart_first: server.restart_first,
        restart_most: server.restart_most,
        ..McpOptions::new(server.name.clone(), transport)
    })
}

/// The data directory, whatever the current one of a program is.
fn data_dir(config: &Config) -> PathBuf {
    let dir = &config.node.data_dir;
    std::path::absolute(dir).unwrap_or_else(|_gone| dir.clone())
}

/// Where a program runs for which nothing else is said: a folder of its own, so that no relative name
/// leads to anything of the node's.
fn folder(server: &McpServerOptions, config: &Config) -> Result<PathBuf, StartError> {
    let folder = data_dir(config).join(FOLDER).join(server.name.as_str());
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| {
        let what = format!("cannot make `{}`: {error}", folder.display());
        let hint =
            format!("set `cwd` of the MCP server `{}`, or correct the directory", server.name);
        StartError::failed("data_dir_unusable", what).hint(hint)
    })?;
    Ok(folder)
}

/// The variables of this node's environment that a program gets.
fn base_env(env: &Env) -> BTreeMap<String, String> {
    let known =
        BASE.iter().filter_map(|name| Some(((*name).to_owned(), env.get(name)?.to_owned())));
    let mut base: BTreeMap<String, String> = known.collect();
    base.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
    base
}

/// Settings by the name of the variable or header that they are for.
type Named<T> = BTreeMap<String, T>;

/// The sources of values, by the header or variable that they are for.
#[derive(Clone, Copy)]
struct ValueSources<'a> {
    /// They stand in the configuration.
    plain: &'a Named<Secret>,
    /// The names of variables of this node.
    variables: &'a Named<String>,
    files: &'a Named<PathBuf>,
}

/// Values that stand in the configuration, in variables of this node, and in files.
fn values(
    server: &McpServerOptions,
    env: &Env,
    what: &str,
    sources: ValueSources<'_>,
) -> Result<BTreeMap<String, SecretString>, StartError> {
    let invalid = |key: &str, why: String| {
        let message = format!("`mcp_servers` `{}`, `{what}_{key}`: {why}", server.name);
        StartError::config("config_invalid", message)
    };
    let mut values: BTreeMap<String, SecretString> =
        sources.plain.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    for (name, variable) in sources.variables {
        let value = env.get(variable).ok_or_else(|| {
            invalid("vars", format!("the variable `{variable}` is not set"))
                .hint("set it where this node is started, or remove the line")
        })?;
        values.insert(name.clone(), SecretString::from(value.to_owned()));
    }
    for (name, path) in sources.files {
        let value = read(path).map_err(|error| {
            invalid("files", format!("cannot read `{}`: {error}", path.display()))
                .hint("correct the path, which is relative to the configuration file")
        })?;
        values.insert(name.clone(), value);
    }
    Ok(values)
}

fn text(secret: &Secret) -> SecretString {
    SecretString::from(secret.expose().to_owned())
}

/// The value in a file, without the line's end behind it.
fn read(path: &Path) -> std::io::Result<SecretString> {
    let mut text = String::new();
    fs::File::open(path)?.take(VALUE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > VALUE_BYTES {
        return Err(std::io::Error::other(format!("it has more than {VALUE_BYTES} bytes")));
    }
    if text.contains('\0') {
        return Err(std::io::Error::other("it contains a NUL byte"));
    }
    Ok(SecretString::from(text.trim_end_matches(['\r', '\n']).to_owned()))
}

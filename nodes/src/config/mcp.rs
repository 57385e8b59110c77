//! Settings of MCP servers.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clawnode_proto::{
    McpServerName,
    tool::{EffectClass, Risk},
};
use serde::{Deserialize, Serialize};

use super::{
    secret::{self, ServerUrl},
    units,
};
use crate::secret::Secret;

/// `[[mcp_servers]]`: a server whose tools agents may be given, as `NAME__TOOL` or `NAME__*`. One of
/// the workers that have it configured runs it, for all of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerOptions {
    /// Its name: what the names of its tools begin with. Letters, digits, `-` and single `_`.
    pub name: McpServerName,
    /// The program that is the server: a path, or a name that is looked for in `PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Instead of a program: where the server is, by streamable HTTP. It may be in a private network;
    /// redirects are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<ServerUrl>,
    /// Headers of each request to `url`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
    /// Headers whose values are in variables of this node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_vars: BTreeMap<String, String>,
    /// Headers whose values are in files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_files: BTreeMap<String, PathBuf>,
    /// Its arguments. No shell reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(serialize_with = "secret::shown_arguments")]
    pub args: Vec<String>,
    /// Variables of its environment, beside `PATH`, `HOME` and the like. It is given no other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Secret>,
    /// Variables whose values are in variables of this node: `TOKEN = "GITHUB_TOKEN"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    /// Variables whose values are in files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_files: BTreeMap<String, PathBuf>,
    /// Where it is run. A folder of its own in the data directory unless set (`mcp/NAME`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Whether it is kept from the node's data directory (true): it finds that empty but for its own
    /// `cwd`. It takes user namespaces where the node is not root. Programs that make namespaces of
    /// their own with the help of others (rootless Podman) may need false.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub hide_data_dir: bool,
    /// Who approves what it says of its tools: `first_use` takes what it says first, `ask` waits for
    /// `clawnode mcp approve`. What it says otherwise later always waits for that.
    #[serde(default)]
    pub pin: McpPin,
    /// What is known of single tools, by the server's own names. What it hints at is not trusted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, McpToolOptions>,
    /// How long it may take to start and to list its tools (30 s: some are downloaded first).
    #[serde(default = "start_timeout", with = "units::duration")]
    pub start_timeout: Duration,
    /// How long one call may take (1 min).
    #[serde(default = "call_timeout", with = "units::duration")]
    pub call_timeout: Duration,
    /// The first wait before it is started again after it ended (1 s). It doubles...
    #[serde(default = "restart_first", with = "units::duration")]
    pub restart_first: Duration,
    /// ...up to this (1 min). More spares the machine, less has it back sooner.
    #[serde(default = "restart_most", with = "units::duration")]
    pub restart_most: Duration,
}

/// Who approves what a server says of its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPin {
    /// What it says first is approved.
    #[default]
    FirstUse,
    /// A person approves everything.
    Ask,
}

/// `[mcp_servers.tools.TOOL]`: what is known of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpToolOptions {
    /// What running it twice does: `safe`, `idempotent`, `check` or `once` (`once`). If a crash
    /// interrupts a call that is `once`, it is reported and never made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<EffectClass>,
    /// How much harm it can do: `READ_ONLY`, `WRITE` or `ADMIN` (`WRITE`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// How long one call may take (`call_timeout`).
    #[serde(skip_serializing_if = "Option::is_none", with = "units::maybe_duration")]
    pub timeout: Option<Duration>,
    /// Of class `check`: the server's tool that tells whether a call has happened whose node died. It
    /// is called with the same arguments and idempotency key, and answers with a JSON object:
    /// `{"happened":true,"result":"…"}`, or `{"happened":false}`, by which the call is made again.
    /// Anything else tells nothing: the call is uncertain then, as one of class `once`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
}

const fn yes() -> bool {
    true
}

const fn start_timeout() -> Duration {
    Duration::from_secs(30)
}

const fn call_timeout() -> Duration {
    Duration::from_mins(1)
}

const fn restart_first() -> Duration {
    Duration::from_secs(1)
}

const fn restart_most() -> Duration {
    Duration::from_mins(1)
}

/// What is wrong with a server.
pub(super) struct McpServerFault {
    /// Which one, from 0.
    pub(super) server: usize,
    pub(super) key: String,
    pub(super) what: String,
    pub(super) hint: &'static str,
}

/// The first thing that is wrong with these servers, if anything is.
pub(super) fn check(servers: &[McpServerOptions]) -> Option<McpServerFault> {
    for (at, options) in servers.iter().enumerate() {
        if servers.iter().take(at).any(|other| other.name == options.name) {
            let what = format!("two MCP servers are called `{}`", options.name);
            let hint = "give one of them another name";
            return Some(McpServerFault { server: at, key: "name".to_owned(), what, hint });
        }
        if let Some((key, what, hint)) = one(options) {
            return Some(McpServerFault { server: at, key: key.to_owned(), what, hint });
        }
    }
    None
}

/// Which key, what is wrong with it, and what to do.
type McpSettingError = (&'static str, String, &'static str);

fn one(server: &McpServerOptions) -> Option<McpSettingError> {
    let wrong = match (&server.command, &server.url) {
        (Some(command), None) => program(server, command),
        (None, Some(_)) => service(server),
        _ => {
            let what = format!("`{}` must have exactly one of `command` and `url`", server.name);
            Some(("name", what, "set `command` to a program, or `url` to an address"))
        }
    };
    wrong.or_else(|| times(server))
}

/// What is wrong with a server that is a program.
fn program(server: &McpServerOptions, command: &str) -> Option<McpSettingError> {
    let has_nul = |text: &str| text.contains('\0');
    if command.is_empty() || has_nul(command) || server.args.iter().any(|arg| has_nul(arg)) {
        let what = format!("`{}` has no command that can run", server.name);
        return Some(("command", what, "name a program, and its arguments in `args`"));
    }
    if !(server.headers.is_empty()
        && server.header_vars.is_empty()
        && server.header_files.is_empty())
    {
        let what = format!("`{}` is a program, which takes no headers", server.name);
        return Some(("headers", what, "use `env`, `env_vars` or `env_files`"));
    }
    let names =
        names([&mut server.env.keys(), &mut server.env_vars.keys(), &mut server.env_files.keys()]);
    if names.windows(2).any(|pair| pair.first() == pair.last()) {
        let what = "a variable is set in two of `env`, `env_vars` and `env_files`".to_owned();
        return Some(("env", what, "set it once"));
    }
    let is_wrong = |name: &&&String| name.is_empty() || name.contains(['=', '\0']);
    if let Some(name) = names.iter().find(is_wrong) {
        let what = format!("`{name}` cannot be the name of a variable");
        return Some(("env", what, "use letters, digits and `_`"));
    }
    if server.env.values().any(|value| has_nul(value.expose())) {
        let what = "the value of a variable contains a NUL".to_owned();
        return Some(("env", what, "remove it: no program can read it"));
    }
    None
}

/// What is wrong with a server that is a service.
fn service(server: &McpServerOptions) -> Option<McpSettingError> {
    let of_program = !(server.args.is_empty()
        && server.env.is_empty()
        && server.env_vars.is_empty()
        && server.env_files.is_empty()
        && server.cwd.is_none());
    if of_program {
        let what =
            format!("`{}` is a service, which has no arguments and no environment", server.name);
        return Some(("url", what, "use `headers`, `header_vars` or `header_files`"));
    }
    if !server.url.iter().all(|url| is_http(url.expose())) {
        let what = format!("the `url` of `{}` is not like `https://host/mcp`", server.name);
        return Some(("url", what, "use `http://` or `https://`, and put secrets in `headers`"));
    }
    let names = names([
        &mut server.headers.keys(),
        &mut server.header_vars.keys(),
        &mut server.header_files.keys(),
    ]);
    let is_wrong = |name: &&&String| http::HeaderName::try_from(name.as_str()).is_err();
    if let Some(name) = names.iter().find(is_wrong) {
        let what = format!("`{name}` cannot be the name of a header");
        return Some(("headers", what, "use letters, digits and `-`"));
    }
    if names.windows(2).any(|pair| pair.first() == pair.last()) {
        let what = "a header is set in two of `headers`, `header_vars` and `header_files`";
        return Some(("headers", what.to_owned(), "set it once"));
    }
    None
}

/// All of these names, in order.
fn names<'a>(lists: [&mut dyn Iterator<Item = &'a String>; 3]) -> Vec<&'a String> {
    let mut names: Vec<&String> = lists.into_iter().flatten().collect();
    names.sort_unstable();
    names
}

fn times(server: &McpServerOptions) -> Option<McpSettingError> {
    for (key, time) in [
        ("start_timeout", server.start_timeout),
        ("call_timeout", server.call_timeout),
        ("restart_first", server.restart_first),
    ] {
        if time.is_zero() {
            return Some((key, "it is zero".to_owned(), "write a duration such as `10s`"));
        }
    }
    if server.restart_most < server.restart_first {
        let what = "it is less than `restart_first`".to_owned();
        return Some(("restart_most", what, "write the same duration, or a longer one"));
    }
    for (tool, known) in &server.tools {
        let is_check = known.class == Some(EffectClass::Check);
        if is_check && known.probe.is_none() {
            let what = format!("`{tool}` is of class `check`, but has no probe");
            return Some(("tools", what, "name its `probe`, or write another class"));
        }
        if !is_check && known.probe.is_some() {
            let what = format!("the probe of `{tool}` is never called: its class is not `check`");
            return Some(("tools", what, "write `class = \"check\"`, or remove the probe"));
        }
        if known.timeout.is_some_and(|timeout| timeout.is_zero()) {
            let what = format!("the timeout of `{tool}` is zero");
            return Some(("tools", what, "write a duration such as `10s`"));
        }
    }
    None
}

/// Whether clients could use this address, and nothing in it is a secret.
pub(super) fn is_http(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.authority().is_some_and(|authority| {
                !authority.host().is_empty() && !authority.as_str().contains('@')
            })
    })
}

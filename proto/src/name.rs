//! Names that people and programs choose, and the keys made of them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::id::{Digest, EntityId, JobId, Kind, ParseIdError, ProcessId, TimerId};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:literal, $expected:literal, $allowed:expr $(, $whole:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The longest it may be, in bytes.
            pub const MAX: usize = $max;

            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let allowed: fn(char) -> bool = $allowed;
                let fits = !text.is_empty()
                    && text.len() <= Self::MAX
                    && text.chars().all(allowed)
                    $(&& { let whole: fn(&str) -> bool = $whole; whole(text) })?;
                if !fits {
                    return Err(ParseIdError::new(text, $expected));
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name!(
    /// An agent's name in the configuration.
    AgentName, 64, "an agent name: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
);
name!(
    /// What people call a node; not unique over time, so never used to fence.
    NodeName, 64, "a node name: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
);
name!(
    /// Something that only some nodes can do, as they announce it: `session`.
    Capability, 64, "a capability: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`, `:`",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':')
);
name!(
    /// What a model calls a tool; one of an MCP server is `server__tool`.
    ToolName, 64, "a tool name: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
);
name!(
    /// An MCP server's name in the configuration. Without `__` it is distinguished from the tool in
    /// `server__tool`, whatever the tool is called.
    McpServerName, 32,
    "an MCP server's name: 1 to 32 of a-z, A-Z, 0-9, `-`, `_`, without `__`, and no `_` at an end",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
    |text| !text.contains("__") && !text.starts_with('_') && !text.ends_with('_')
);
name!(
    /// What the file of a hook is called; hooks are asked in the order of their names.
    HookName, 64, "a hook's name: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
);
name!(
    /// A host's name in the configuration, to which agents' commands may go over SSH.
    SshHostName, 32,
    "an SSH host's name: 1 to 32 of a-z, A-Z, 0-9, `-`, `_`, without `__`, and no `_` at an end",
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
    |text| !text.contains("__") && !text.starts_with('_') && !text.ends_with('_')
);
name!(
    /// What a client calls one request, so that sending it again is harmless.
    IdempotencyKey, 256, "an idempotency key: 1 to 256 bytes without control characters",
    |c| !c.is_control()
);
name!(
    /// One part of a session key.
    KeyPart, 256, "a part of a session key: 1 to 256 bytes without `:` and control characters",
    |c| c != ':' && !c.is_control()
);

impl Capability {
    /// Running the tools of this MCP server.
    pub fn of_mcp(server: &McpServerName) -> Self {
        Self(format!("mcp.{server}"))
    }

    /// Running commands on this host.
    pub fn of_ssh(host: &SshHostName) -> Self {
        Self(format!("ssh.{host}"))
    }

    /// Having this MCP server configured; who runs it is chosen among those.
    pub fn of_mcp_host(server: &McpServerName) -> Self {
        Self(format!("mcp.{server}:host"))
    }

    /// The plugin whose tools these are, if it is one.
    pub fn plugin(&self) -> Option<&str> {
        self.0.strip_prefix("wasm.")
    }

    /// What a worker needs for it, for people. Absent if every worker has it.
    pub fn takes(&self) -> Option<String> {
        let kind = self.0.split_once('.').unwrap_or((&self.0, ""));
        Some(match kind {
            ("docker", "") => "a Docker engine that answers".to_owned(),
            ("process", "") => "`bwrap`, and a kernel that lets it isolate".to_owned(),
            ("workspace", "") => "`[workspace]`".to_owned(),
            ("mcp", name) => format!("`{name}` among its `[[mcp_servers]]`"),
            ("ssh", name) => {
                format!("`{name}` among its `[[ssh_hosts]]`, and a build with `--features full`")
            }
            ("wasm", name) => {
                format!("`{name}` among its `[[plugins]]`, and a build with `--features full`")
            }
            _ => return None,
        })
    }
}

impl ToolName {
    /// What a model calls a tool of an MCP server.
    pub fn of_mcp(server: &McpServerName, tool: &str) -> Result<Self, ParseIdError> {
        format!("{server}__{tool}").parse()
    }

    /// What a model calls running a command on a host.
    pub fn of_ssh(host: &SshHostName) -> Self {
        Self(format!("ssh_{host}"))
    }

    /// The MCP server whose tool this is, if it can be one.
    pub fn mcp_server(&self) -> Option<McpServerName> {
        let (server, tool) = self.0.split_once("__")?;
        if tool.is_empty() { None } else { server.parse().ok() }
    }
}

impl KeyPart {
    /// A part with this text, as far as it may have it.
    pub(crate) fn of_text(text: &str) -> Self {
        Self(text.chars().filter(|c| *c != ':' && !c.is_control()).take(Self::MAX / 4).collect())
    }
}

impl IdempotencyKey {
    /// What an order of this name about the state behind `about` is called: a repeat is the same.
    pub fn of_order(name: &'static str, about: Digest) -> Self {
        Self(format!("order:{name}:{about}"))
    }

    /// What the result of a job is called: there is one.
    pub fn of_job(job: JobId) -> Self {
        Self(format!("job:{job}"))
    }

    /// What a message of a process is called, by the process's own number for it.
    pub fn of_process(process: ProcessId, number: u64) -> Self {
        Self(format!("process:{process}:{number}"))
    }

    /// What the firing of a timer is called that is set once.
    pub fn of_timer(timer: TimerId) -> Self {
        Self(format!("timer:{timer}"))
    }
}

/// Separates a peer from their conversation in the last part of a session's key.
pub const CONVERSATION: char = '~';

/// A session's readable key, `{agent_id}:{channel}:{account}:{peer}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = "default:web:bot:ada")
)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey {
    /// The agent that answers.
    pub agent: AgentName,
    /// Where the message came in: `cli`, `api`, `telegram`, ...
    pub channel: KeyPart,
    /// Our side of the channel: a bot, a workspace, `default`.
    pub account: KeyPart,
    /// The other side: a user, a room.
    pub peer: KeyPart,
}

impl SessionKey {
    /// The id of the session entity with this key.
    pub fn entity(&self) -> EntityId {
        EntityId::derive(Kind::SESSION, &self.to_string())
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.agent, self.channel, self.account, self.peer)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl FromStr for SessionKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let malformed = || ParseIdError::new(text, "a session key `agent:channel:account:peer`");
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(malformed);
        let key = Self {
            agent: next()?.parse()?,
            channel: next()?.parse()?,
            account: next()?.parse()?,
            peer: next()?.parse()?,
        };
        if parts.next().is_some() { Err(malformed()) } else { Ok(key) }
    }
}

impl TryFrom<String> for SessionKey {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<SessionKey> for String {
    fn from(key: SessionKey) -> Self {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_of_an_mcp_server_is_told_apart_in_one_way() {
        for good in ["fs", "my_server", "a-b", "A1"] {
            let server: McpServerName = good.parse().unwrap();
            for tool in ["read", "_read", "__x", "a__b"] {
                let name = ToolName::of_mcp(&server, tool).unwrap();
                assert_eq!(name.mcp_server(), Some(server.clone()), "{name}");
            }
        }
        for bad in ["", "a__b", "_a", "a_", "a.b", "a b", &"a".repeat(33)] {
            assert!(bad.parse::<McpServerName>().is_err(), "{bad}");
        }
        let server: McpServerName = "fs".parse().unwrap();
        for bad in ["a.b", "a/b", "", &"x".repeat(61), "é"] {
            let made = ToolName::of_mcp(&server, bad).ok().and_then(|name| name.mcp_server());
            assert_eq!(made, None, "{bad}");
        }
        for none in ["calculate", "http_fetch", "__x", "x__"] {
            assert_eq!(none.parse::<ToolName>().unwrap().mcp_server(), None, "{none}");
        }
    }
}

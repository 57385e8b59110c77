//! MCP servers: the approved descriptions of their tools, and how the API shows them.
//!
//! A server describes its own tools, and may describe them differently tomorrow. A model sees the
//! **approved** description of a tool, and calls are compared with it ([`McpPins`], one value of
//! the bucket for each server). The API shows the server's present description beside it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    id::{Capability, Digest, McpServerName, NodeName},
    name::ToolName,
    provider::ProviderStatus,
    timestamp::Timestamp,
    tool::{EffectClass, Risk, ToolSpec},
};

/// What the cluster knows of an MCP server's tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpPins {
    /// Tools as they were approved, by the server's own names for them.
    pub approved: BTreeMap<String, ToolSpec>,
    /// Tools as the server has them now.
    pub listed: BTreeMap<String, ToolSpec>,
    /// Which node asked the server last.
    pub node: NodeName,
    /// When its answer last changed, by that node's clock; for people only.
    pub at: Timestamp,
}

/// The state of a tool of an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum McpToolState {
    /// Approved, and not changed since.
    Approved,
    /// The description has changed since it was approved. The tool does not run.
    Changed,
    /// Not approved yet. Agents do not get it.
    New,
    /// Approved, but the server no longer has it.
    Gone,
}

/// What of a tool is approved: its description and its schema.
pub fn mcp_digest(spec: &ToolSpec) -> Digest {
    let (name, description) = (spec.name.as_str(), &spec.description);
    // Lengths stand before the texts, so that no two tools are one text.
    let head = format!("{}\0{}\0", name.len(), description.len());
    Digest::of(format!("{head}{name}{description}{}", spec.input_schema).as_bytes())
}

impl McpPins {
    /// The state of a tool, by the server's own name for it; `None` if it is unknown.
    pub fn state(&self, tool: &str) -> Option<McpToolState> {
        match (self.approved.get(tool), self.listed.get(tool)) {
            (Some(approved), Some(listed)) if mcp_digest(approved) == mcp_digest(listed) => {
                Some(McpToolState::Approved)
            }
            (Some(_), Some(_)) => Some(McpToolState::Changed),
            (None, Some(_)) => Some(McpToolState::New),
            (Some(_), None) => Some(McpToolState::Gone),
            (None, None) => None,
        }
    }

    /// Tools that may be offered, by the server's own names. A tool under another server's name, or
    /// one that asks for something else to be run, was not written by this program and does not
    /// count.
    pub fn offered(
        &self,
        server: &McpServerName,
    ) -> impl Iterator<Item = (&String, &ToolSpec)> + use<'_> {
        let (server, capability) = (server.clone(), Capability::of_mcp(server));
        self.approved.iter().filter(move |(tool, spec)| {
            let named = ToolName::of_mcp(&server, tool).is_ok_and(|name| name == spec.name);
            named && spec.capability.as_ref() == Some(&capability)
        })
    }
}

impl McpToolState {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Changed => "changed",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// Answer of `mcp.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpList {
    /// The servers that a node configures or that have approved tools, by name.
    pub servers: Vec<McpServerView>,
}

/// An MCP server, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpServerView {
    /// The name of the server.
    pub server: McpServerName,
    /// The nodes that configure it.
    pub hosts: Vec<NodeName>,
    /// The node that runs it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<NodeName>,
    /// Whether its tools can be called. Absent if no living node configures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ProviderStatus>,
    /// Why the tools of the server cannot be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its tools, by name.
    pub tools: Vec<McpToolView>,
    /// When its descriptions last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<Timestamp>,
}

/// A tool of an MCP server, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpToolView {
    /// The server's name for the tool.
    pub tool: String,
    /// The model's name for the tool.
    pub name: ToolName,
    /// Whether the tool is approved.
    pub state: McpToolState,
    /// Whether a call may run twice.
    pub class: EffectClass,
    /// How much harm the tool can do.
    pub risk: Risk,
    /// The approved description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<McpText>,
    /// The present description, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<McpText>,
}

/// The description of a tool by its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpText {
    /// The digest of all of it. Approve it to approve exactly this.
    pub digest: Digest,
    /// What the tool does.
    pub description: String,
    /// The JSON Schema of the arguments, as JSON text.
    pub input_schema: String,
}

impl McpServerView {
    /// Of a server of which this is known.
    pub fn new(server: McpServerName, pins: Option<&McpPins>) -> Self {
        let mut tools = Vec::new();
        if let Some(pins) = pins {
            let mut names: Vec<&String> = pins.approved.keys().chain(pins.listed.keys()).collect();
            names.sort_unstable();
            names.dedup();
            tools.extend(names.into_iter().filter_map(|tool| McpToolView::new(tool, pins)));
        }
        let listed_at = pins.map(|pins| pins.at);
        let (hosts, running, status, error) = (Vec::new(), None, None, None);
        Self { server, hosts, running, status, error, tools, listed_at }
    }
}

impl McpToolView {
    fn new(tool: &str, pins: &McpPins) -> Option<Self> {
        let state = pins.state(tool)?;
        let (approved, listed) = (pins.approved.get(tool), pins.listed.get(tool));
        let spec = approved.or(listed)?;
        let differs = matches!(state, McpToolState::Changed | McpToolState::New);
        Some(Self {
            tool: tool.to_owned(),
            name: spec.name.clone(),
            state,
            class: spec.class,
            risk: spec.risk,
            approved: approved.map(McpText::new),
            listed: listed.filter(|_| differs).map(McpText::new),
        })
    }
}

impl McpText {
    fn new(spec: &ToolSpec) -> Self {
        Self {
            digest: mcp_digest(spec),
            description: spec.description.clone(),
            input_schema: spec.input_schema.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, description: &str) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: description.to_owned(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            class: EffectClass::Once,
            risk: Risk::Write,
            capability: Some("mcp.fs".parse().unwrap()),
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    fn pins(approved: &[(&str, ToolSpec)], listed: &[(&str, ToolSpec)]) -> McpPins {
        let map = |them: &[(&str, ToolSpec)]| {
            them.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect()
        };
        let node = "n".parse().unwrap();
        McpPins { approved: map(approved), listed: map(listed), node, at: Timestamp(1) }
    }

    #[test]
    fn a_tool_stands_as_it_was_approved_or_does_not() {
        let (old, new) = (spec("fs__read", "reads"), spec("fs__read", "reads, and sends"));
        let other =
            ToolSpec { input_schema: r#"{"type":"object","x":1}"#.to_owned(), ..old.clone() };
        let harmless = ToolSpec { risk: Risk::ReadOnly, timeout_ms: 5, ..old.clone() };
        for (approved, listed, state) in [
            (Some(&old), Some(&old), Some(McpToolState::Approved)),
            (Some(&old), Some(&harmless), Some(McpToolState::Approved)),
            (Some(&old), Some(&new), Some(McpToolState::Changed)),
            (Some(&old), Some(&other), Some(McpToolState::Changed)),
            (None, Some(&new), Some(McpToolState::New)),
            (Some(&old), None, Some(McpToolState::Gone)),
            (None, None, None),
        ] {
            let one = |tool: Option<&ToolSpec>| tool.map(|tool| ("read", tool.clone()));
            let pins = pins(
                &one(approved).into_iter().collect::<Vec<_>>(),
                &one(listed).into_iter().collect::<Vec<_>>(),
            );
            assert_eq!(pins.state("read"), state);
        }
    }

    #[test]
    fn what_stands_under_another_name_is_not_offered() {
        let fs: McpServerName = "fs".parse().unwrap();
        let right = spec("fs__read", "");
        let shadow = spec("calculate", "");
        let foreign = spec("git__read", "");
        let beside = ToolSpec { capability: None, ..spec("fs__beside", "") };
        let pins = pins(
            &[("read", right), ("calculate", shadow), ("other", foreign), ("beside", beside)],
            &[],
        );
        let names: Vec<&str> = pins.offered(&fs).map(|(tool, _)| tool.as_str()).collect();
        assert_eq!(names, ["read"]);
    }
}

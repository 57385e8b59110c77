//! What a plugin is called.

use std::{fmt, str::FromStr};

use clawnode_proto::{Capability, ToolName};
use serde::{Deserialize, Serialize};

/// Most bytes of a name: with it, `__` and a tool's own name a model's name for the tool fits.
const NAME_BYTES: usize = 32;

/// A plugin's name. It has no `__`, so `plugin__tool` splits into plugin and tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginName(String);

/// A text that is no plugin's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a plugin's name: 1 to 32 of a-z, A-Z, 0-9, `-`, `_`, without `__`, and no `_` \
     at an end"
)]
pub struct ParsePluginNameError(String);

impl PluginName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a model calls a tool of it; `None` if the two together are no name.
    pub fn tool(&self, tool: &str) -> Option<ToolName> {
        if tool.is_empty() { None } else { format!("{self}__{tool}").parse().ok() }
    }

    /// The tool's own name, if it is one of this plugin's.
    pub fn own<'a>(&self, tool: &'a ToolName) -> Option<&'a str> {
        tool.as_str().strip_prefix(self.as_str())?.strip_prefix("__")
    }

    /// What a node can do that has loaded it.
    pub fn capability(&self) -> Option<Capability> {
        format!("wasm.{self}").parse().ok()
    }
}

impl FromStr for PluginName {
    type Err = ParsePluginNameError;

    fn from_str(text: &str) -> Result<Self, ParsePluginNameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let fits = !text.is_empty()
            && text.len() <= NAME_BYTES
            && text.chars().all(allowed)
            && !text.contains("__")
            && !text.starts_with('_')
            && !text.ends_with('_');
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParsePluginNameError(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for PluginName {
    type Error = ParsePluginNameError;

    fn try_from(text: String) -> Result<Self, ParsePluginNameError> {
        text.parse()
    }
}

impl From<PluginName> for String {
    fn from(name: PluginName) -> Self {
        name.0
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_of_a_plugin_is_told_apart_in_one_way() {
        let plugin: PluginName = "my_echo".parse().unwrap();
        let tool = plugin.tool("_say__it").unwrap();
        assert_eq!(tool.as_str(), "my_echo___say__it");
        assert_eq!(plugin.own(&tool), Some("_say__it"));
        let other: PluginName = "my".parse().unwrap();
        assert_eq!(other.own(&tool), None);
        assert_eq!(plugin.capability().unwrap().as_str(), "wasm.my_echo");
        for bad in ["", "a.b", "é", &"x".repeat(60)] {
            assert_eq!(plugin.tool(bad), None, "{bad}");
        }
        for bad in ["", "a__b", "_a", "a_", "a.b", "../a", &"a".repeat(33)] {
            assert!(bad.parse::<PluginName>().is_err(), "{bad}");
        }
    }
}

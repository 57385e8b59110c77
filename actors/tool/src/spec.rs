//! How a built-in tool is described.

use std::time::Duration;

use clawnode_proto::{
    Capability, ToolName,
    tool::{EffectClass, Risk, ToolSpec},
};
use serde_json::Value;

/// A built-in tool, in constants.
#[derive(Debug)]
pub struct BuiltIn {
    pub name: &'static str,
    pub description: &'static str,
    pub input: Value,
    pub class: EffectClass,
    pub risk: Risk,
    pub capability: Option<&'static str>,
    pub timeout: Duration,
}

impl BuiltIn {
    #[expect(clippy::expect_used, reason = "constants that are names; every one has a test")]
    pub fn spec(self) -> ToolSpec {
        let name: ToolName = self.name.parse().expect("a tool name");
        let capability: Option<Capability> =
            self.capability.map(|text| text.parse().expect("a capability"));
        ToolSpec {
            name,
            description: self.description.to_owned(),
            input_schema: self.input.to_string(),
            class: self.class,
            risk: self.risk,
            capability,
            timeout_ms: u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX),
            pin: None,
            time: None,
        }
    }
}

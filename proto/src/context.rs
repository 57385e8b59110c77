//! How an agent's requests are assembled.

use serde::{Deserialize, Serialize};

/// The rules by which requests of a session are assembled, beside an agent's settings for them.
///
/// They are journaled with the agent's configuration. Where they are absent, the rules of version 1 hold: the newest
/// whole turns that fit into the model's window. Every build keeps the rules of every version, so that the same
/// journal gives the same requests for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextSettings {
    /// The version of the rules.
    pub rules: ContextRules,
    /// When a request is bounded.
    pub mode: ContextMode,
    /// How many tokens a bounded request may have beside the running turn.
    pub tokens: u32,
    /// How many of the newest turns a bounded request shows in full, if they fit.
    pub recent_turns: u32,
}

/// The version of the rules of assembly. A build that does not know a version cannot read the configuration, and
/// leaves its session to a newer build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ContextRules {
    /// Version 2: a session keeps its last 16 turns only.
    #[serde(rename = "2")]
    V2,
    /// Version 3: a session keeps the turns that a request may still show.
    #[serde(rename = "3")]
    V3,
}

/// When a request is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ContextMode {
    /// Once the conversation is long.
    Auto,
    /// Always.
    Bounded,
}

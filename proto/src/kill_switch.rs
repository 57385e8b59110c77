//! The kill switch: what operators have stopped, until an operator says that it may go on.
//!
//! One record for each scope, in the bucket, changed by compare-and-set alone. A record is never
//! removed to clear a kill switch: it is replaced by one that says so, so that of two views the one with
//! the later position is right.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    id::{AgentName, NodeName, ParseIdError, ProcessId, SwitchId},
    limits::SWITCH_TEXT,
    name::ToolName,
    subject::SWITCH_KEYS,
    timestamp::Timestamp,
};

/// How long the record of a cleared kill switch stays: longer than a process is out of touch and lives.
pub const CLEARED_TTL: Duration = Duration::from_hours(30 * 24);

/// What a kill switch stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(example = "tool:exec"))]
#[serde(try_from = "String", into = "String")]
pub enum SwitchScope {
    /// All model calls, all tools, and new messages: `all`.
    All,
    /// All that reaches other machines for an agent, except model calls: `egress`.
    Egress,
    /// One tool, for every caller: `tool:NAME`.
    Tool(ToolName),
    /// One agent, with its model calls and tools: `agent:NAME`.
    Agent(AgentName),
}

/// A kill switch that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KillSwitch {
    /// The id. A scope that is stopped again has another one.
    pub id: SwitchId,
    /// What it stops.
    pub scope: SwitchScope,
    /// The credential that set it, and its host.
    pub by: String,
    /// When it was set, by the clock of the node that set it.
    pub at: Timestamp,
    /// The operator's reason. A longer text is cut (`SWITCH_TEXT`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What the bucket has of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SwitchRecord {
    /// It is on.
    Set {
        /// Since when, and why.
        #[serde(rename = "latch")]
        switch: KillSwitch,
    },
    /// It is off.
    Cleared {
        /// The kill switch that was on.
        #[serde(rename = "latch")]
        switch: KillSwitch,
        /// Whose credential cleared it, and where.
        by: String,
        /// When, by that node's clock.
        at: Timestamp,
    },
}

/// How one process acknowledged a kill switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchAck {
    /// One of those that were alive when the kill switch was set or cleared.
    pub process: ProcessId,
    /// The name of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// After how many milliseconds it had stopped and cancelled everything. Absent without an
    /// acknowledgement in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_ms: Option<u64>,
    /// How long it took until the last stopped work ended on the node, in milliseconds. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_ms: Option<u64>,
    /// What still ran when it last reported.
    #[serde(default)]
    pub running: u32,
    /// Why it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Answer of `panic` and of `panic.clear`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PanicView {
    /// The kill switch.
    #[serde(rename = "latch")]
    pub switch: KillSwitch,
    /// Whether it is set now.
    pub on: bool,
    /// Whether the kill switch was already in this state.
    #[serde(default)]
    pub already: bool,
    /// The answers of all processes, by name. One that did not answer stops as soon as it reaches the
    /// store again, or by itself if it does not.
    pub nodes: Vec<SwitchAck>,
}

/// Answer of `panic.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchList {
    /// The kill switches that are set.
    #[serde(rename = "latches")]
    pub switches: Vec<KillSwitch>,
}

// === impl SwitchScope ===

impl SwitchScope {
    /// Where the bucket has its record.
    pub fn key(&self) -> String {
        match self {
            Self::All => format!("{SWITCH_KEYS}all"),
            Self::Egress => format!("{SWITCH_KEYS}egress"),
            Self::Tool(tool) => format!("{SWITCH_KEYS}tool.{tool}"),
            Self::Agent(agent) => format!("{SWITCH_KEYS}agent.{agent}"),
        }
    }

    /// The scope whose record is there; `None` for a key that no scope has.
    pub fn of_key(key: &str) -> Option<Self> {
        let text = key.strip_prefix(SWITCH_KEYS)?.replacen('.', ":", 1);
        text.parse().ok().filter(|scope: &Self| scope.key() == key)
    }

    /// What people read is stopped.
    pub fn stopped(&self) -> String {
        match self {
            Self::All => "everything".to_owned(),
            Self::Egress => "all that reaches out of the cluster".to_owned(),
            Self::Tool(tool) => format!("tool `{tool}`"),
            Self::Agent(agent) => format!("agent `{agent}`"),
        }
    }
}

impl fmt::Display for SwitchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Egress => f.write_str("egress"),
            Self::Tool(tool) => write!(f, "tool:{tool}"),
            Self::Agent(agent) => write!(f, "agent:{agent}"),
        }
    }
}

impl FromStr for SwitchScope {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            None if text == "egress" => Ok(Self::Egress),
            Some(("tool", name)) => name.parse().map(Self::Tool),
            Some(("agent", name)) => name.parse().map(Self::Agent),
            _ => Err(ParseIdError::new(text, "`all`, `egress`, `tool:NAME` or `agent:NAME`")),
        }
    }
}

impl TryFrom<String> for SwitchScope {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<SwitchScope> for String {
    fn from(scope: SwitchScope) -> Self {
        scope.to_string()
    }
}

// === impl KillSwitch ===

impl fmt::Display for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was stopped by {}", self.scope.stopped(), self.by)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        Ok(())
    }
}

// === impl SwitchRecord ===

impl SwitchRecord {
    /// The kill switch that it is about.
    pub const fn switch(&self) -> &KillSwitch {
        match self {
            Self::Set { switch } | Self::Cleared { switch, .. } => switch,
        }
    }

    /// Whether it is on.
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::Set { .. })
    }
}

/// An operator's words as a kill switch may carry them: one line, bounded.
pub fn reason(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(SWITCH_TEXT).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["all", "egress", "tool:web__fetch", "agent:ops.main"] {
            assert_eq!(text.parse::<SwitchScope>().unwrap().to_string(), text);
        }
        for text in ["", "ALL", "tool", "tool:", "tool:a b", "agent:a:b", "tenant:x", "all:x"] {
            assert!(text.parse::<SwitchScope>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_scope_has_a_record_of_its_own() {
        let key = |text: &str| text.parse::<SwitchScope>().unwrap().key();
        assert_eq!(key("all"), "latch.all");
        assert_eq!(key("tool:all"), "latch.tool.all");
        assert_eq!(key("agent:all"), "latch.agent.all");
    }

    #[test]
    fn a_reason_is_one_bounded_line() {
        assert_eq!(reason(" it\nruns away\u{1b} "), "it runs away ");
        assert_eq!(reason(&"x".repeat(10_000)).len(), SWITCH_TEXT);
    }
}

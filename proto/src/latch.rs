//! The latch: what operators have stopped, until somebody says that it may go on.
//!
//! One record for each scope, in the bucket, changed by compare-and-set alone. A record is never
//! removed to clear a latch: it is replaced by one that says so, so that of two views the one with
//! the later position is right.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    id::{AgentName, LatchId, NodeName, ParseIdError, ProcessId},
    limits::LATCH_TEXT,
    name::ToolName,
    subject::LATCH_KEYS,
    timestamp::Timestamp,
};

/// How long the record of a cleared latch stays: longer than a process is out of touch and lives.
pub const CLEARED_TTL: Duration = Duration::from_hours(30 * 24);

/// What a latch stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub enum LatchScope {
    /// All model calls, all tools, and new messages: `all`.
    All,
    /// Whatever reaches for other machines on an agent's behalf, but for model calls: `egress`.
    Egress,
    /// One tool, whoever calls it: `tool:NAME`.
    Tool(ToolName),
    /// One agent, its model calls and its tools: `agent:NAME`.
    Agent(AgentName),
}

/// One latch that is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latch {
    /// Which; a scope that is latched again has another.
    pub id: LatchId,
    /// What it stops.
    pub scope: LatchScope,
    /// Whose credential set it, and where.
    pub by: String,
    /// When, by that node's clock.
    pub at: Timestamp,
    /// Why, in the operator's words; at most [`LATCH_TEXT`] characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What the bucket has of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LatchRecord {
    /// It is on.
    Set {
        /// Since when, and why.
        latch: Latch,
    },
    /// It is off.
    Cleared {
        /// The latch that was on.
        latch: Latch,
        /// Whose credential cleared it, and where.
        by: String,
        /// When, by that node's clock.
        at: Timestamp,
    },
}

/// How one process took a latch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatchAck {
    /// Which process.
    pub process: ProcessId,
    /// What people call it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// After how many milliseconds it began nothing more and had cancelled what ran; absent if it
    /// did not say so in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_ms: Option<u64>,
    /// After how many milliseconds nothing of the scope ran there any more; absent if that was not
    /// so in time, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_ms: Option<u64>,
    /// What of the scope still ran when it was asked last.
    #[serde(default)]
    pub running: u32,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Answer of `panic` and of `panic.clear`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PanicView {
    /// The latch that is on, or was.
    pub latch: Latch,
    /// Whether it is on now.
    pub on: bool,
    /// Whether it was so before.
    #[serde(default)]
    pub already: bool,
    /// How each process took it, in name order. Whoever did not acknowledge it takes it as soon as
    /// it sees the store again, and stops by itself if it does not.
    pub nodes: Vec<LatchAck>,
}

/// Answer of `panic.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatchList {
    /// The latches that are on.
    pub latches: Vec<Latch>,
}

// === impl LatchScope ===

impl LatchScope {
    /// Where the bucket has its record.
    pub fn key(&self) -> String {
        match self {
            Self::All => format!("{LATCH_KEYS}all"),
            Self::Egress => format!("{LATCH_KEYS}egress"),
            Self::Tool(tool) => format!("{LATCH_KEYS}tool.{tool}"),
            Self::Agent(agent) => format!("{LATCH_KEYS}agent.{agent}"),
        }
    }

    /// The scope whose record is there; `None` for a key that no scope has.
    pub fn of_key(key: &str) -> Option<Self> {
        let text = key.strip_prefix(LATCH_KEYS)?.replacen('.', ":", 1);
        text.parse().ok().filter(|scope: &Self| scope.key() == key)
    }

    /// What people are told is stopped.
    pub fn stopped(&self) -> String {
        match self {
            Self::All => "everything".to_owned(),
            Self::Egress => "all that reaches out of the cluster".to_owned(),
            Self::Tool(tool) => format!("tool `{tool}`"),
            Self::Agent(agent) => format!("agent `{agent}`"),
        }
    }
}

impl fmt::Display for LatchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Egress => f.write_str("egress"),
            Self::Tool(tool) => write!(f, "tool:{tool}"),
            Self::Agent(agent) => write!(f, "agent:{agent}"),
        }
    }
}

impl FromStr for LatchScope {
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

impl TryFrom<String> for LatchScope {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<LatchScope> for String {
    fn from(scope: LatchScope) -> Self {
        scope.to_string()
    }
}

// === impl Latch ===

impl fmt::Display for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was stopped by {}", self.scope.stopped(), self.by)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        Ok(())
    }
}

// === impl LatchRecord ===

impl LatchRecord {
    /// The latch that it is about.
    pub const fn latch(&self) -> &Latch {
        match self {
            Self::Set { latch } | Self::Cleared { latch, .. } => latch,
        }
    }

    /// Whether it is on.
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::Set { .. })
    }
}

/// An operator's words as a latch may carry them: one line, bounded.
pub fn reason(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(LATCH_TEXT).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["all", "egress", "tool:web__fetch", "agent:ops.main"] {
            assert_eq!(text.parse::<LatchScope>().unwrap().to_string(), text);
        }
        for text in ["", "ALL", "tool", "tool:", "tool:a b", "agent:a:b", "tenant:x", "all:x"] {
            assert!(text.parse::<LatchScope>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_scope_has_a_record_of_its_own() {
        let key = |text: &str| text.parse::<LatchScope>().unwrap().key();
        assert_eq!(key("all"), "latch.all");
        assert_eq!(key("tool:all"), "latch.tool.all");
        assert_eq!(key("agent:all"), "latch.agent.all");
    }

    #[test]
    fn a_reason_is_one_bounded_line() {
        assert_eq!(reason(" it\nruns away\u{1b} "), "it runs away ");
        assert_eq!(reason(&"x".repeat(10_000)).len(), LATCH_TEXT);
    }
}

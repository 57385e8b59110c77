//! The work ledger of a session: what its agent wrote down while it worked.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, TurnId},
    timestamp::Timestamp,
};

/// The tool that writes an entry.
pub const LEDGER_APPEND: &str = "ledger_append";
/// The tool that reads entries.
pub const LEDGER_READ: &str = "ledger_read";

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// What the agent is going to do.
    Plan,
    /// What it found out.
    Finding,
    /// What it decided, and why.
    Decision,
    /// What it has done. The entry takes the place of the model calls before it.
    Step,
    /// What went wrong.
    Error,
    /// Anything else.
    Note,
}

/// An entry of a session's work ledger. It is in the append that records the result of its tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerEntry {
    /// The turn in which the agent wrote it.
    pub turn: TurnId,
    /// The tool call that wrote it.
    pub call: CallId,
    /// Its number in the ledger, from 1.
    pub number: u64,
    /// What it is about.
    #[serde(rename = "type")]
    pub entry: EntryType,
    /// Its text.
    pub text: String,
}

/// Parameters of `ledger.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LedgerShow {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// Only entries of this type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryType>,
    /// Only so many of the newest entries, 1 to 1,000. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u32>,
    /// Only entries before the one of this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// Answer of `ledger.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerView {
    /// Its readable key.
    pub session: String,
    /// How many entries the ledger has.
    pub total: u64,
    /// The entries that were asked for, oldest first.
    pub entries: Vec<LedgerRow>,
}

/// An entry, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerRow {
    /// Its number in the ledger, from 1.
    pub number: u64,
    /// What it is about.
    #[serde(rename = "type")]
    pub entry: EntryType,
    /// Its text.
    pub text: String,
    /// The turn that wrote it.
    pub turn: TurnId,
    /// The tool call that wrote it.
    pub call: CallId,
    /// When it was written.
    pub at: Timestamp,
}

// === impl EntryType ===

impl EntryType {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Plan, Self::Finding, Self::Decision, Self::Step, Self::Error, Self::Note];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Finding => "finding",
            Self::Decision => "decision",
            Self::Step => "step",
            Self::Error => "error",
            Self::Note => "note",
        }
    }
}

impl FromStr for EntryType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(|one| format!("`{}`", one.as_str()));
            format!("`{text}` is not one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_named_alike_in_json_and_on_a_command_line() {
        for entry in EntryType::ALL {
            assert_eq!(serde_json::to_value(entry).unwrap(), entry.as_str());
            assert_eq!(entry.as_str().parse(), Ok(entry));
        }
        assert!("Step".parse::<EntryType>().unwrap_err().contains("`finding`, `decision`"));
    }
}

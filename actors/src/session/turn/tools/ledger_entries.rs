//! The work ledger of a session: what a state keeps of it, and how calls of its tools end. Pure.
//!
//! No executor runs these tools: what they do follows from the session's state. A call that rules, people and hooks
//! allow is begun, written down and ended by one append (`tool_asked`, `ledger_entry`, `tool_done`). A crash leaves all
//! three or none, so an entry is written once.

use std::collections::VecDeque;

use clawnode_proto::{
    CallId, TurnId,
    hook::HookTrail,
    ledger::{EntryType, LEDGER_APPEND, LEDGER_READ, LedgerEntry, LedgerRow},
    limits::{LEDGER_BYTES, LEDGER_CALLS, LEDGER_ENTRIES, LEDGER_ENTRY_CHARS, LEDGER_READ_BYTES},
    session::{SessionEvent, ToolAsked, ToolDone},
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Entries that `ledger_read` shows, unless it is asked for another number.
const READ_ENTRIES: usize = 20;

/// What a state keeps of a work ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLedger {
    /// How many entries were written.
    pub total: u64,
    /// The newest ones, oldest first.
    pub entries: VecDeque<LedgerRow>,
}

/// The entry that a tool call wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryMark {
    /// Its number in the ledger.
    pub number: u64,
    /// What it is about.
    pub entry: EntryType,
}

/// A call of a ledger's tool that may run.
#[derive(Clone, Copy, Debug)]
pub(super) struct LedgerCall<'a> {
    pub(in crate::session::turn) turn: TurnId,
    pub(in crate::session::turn) call: CallId,
    pub(in crate::session::turn) spec: &'a ToolSpec,
    pub(in crate::session::turn) arguments: &'a str,
    /// Calls of these tools that come before it in its reply.
    pub(in crate::session::turn) earlier: usize,
}

/// Arguments of `ledger_append`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::session::turn) struct AppendArguments {
    /// What the entry is about.
    #[serde(rename = "type")]
    pub(in crate::session::turn) entry: EntryType,
    /// Its text.
    pub(in crate::session::turn) text: String,
}

/// What a model may ask of `ledger_read`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerReadArguments {
    #[serde(rename = "type")]
    entry: Option<EntryType>,
    last_n: Option<usize>,
}

/// Whether the session itself ends calls of this tool. A tool of that name which needs a node is another one.
pub(super) fn is_of_ledger(spec: &ToolSpec) -> bool {
    spec.capability.is_none() && matches!(spec.name.as_str(), LEDGER_APPEND | LEDGER_READ)
}

/// Whether an agent with these tools can write into a ledger.
pub(in crate::session::turn) fn can_write(tools: &[ToolSpec]) -> bool {
    tools.iter().any(|spec| is_of_ledger(spec) && spec.name.as_str() == LEDGER_APPEND)
}

/// Arguments as the tool takes them, or what is wrong with them.
pub(in crate::session::turn) fn read_arguments<T: DeserializeOwned>(
    arguments: &str,
) -> Result<T, String> {
    // No arguments are an empty object, as for every tool.
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(arguments).map_err(|error| error.to_string())
}

// === impl SessionLedger ===

impl SessionLedger {
    /// Nothing was ever written.
    pub(in crate::session::turn) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Takes the next entry. The oldest ones go that there is no room for.
    pub(in crate::session::turn) fn push(&mut self, row: LedgerRow) {
        self.total = row.number;
        self.entries.push_back(row);
        let mut bytes: usize = self.entries.iter().map(|row| row.text.len()).sum();
        while self.entries.len() > LEDGER_ENTRIES
            || (bytes > LEDGER_BYTES && self.entries.len() > 1)
        {
            let oldest = self.entries.pop_front();
            bytes = bytes.saturating_sub(oldest.map_or(0, |row| row.text.len()));
        }
    }

    /// How a call of its tools begins and ends, all at once.
    pub(super) fn decide(&self, ledger_call: LedgerCall<'_>) -> Vec<SessionEvent> {
        let LedgerCall { turn, call, spec, arguments, earlier } = ledger_call;
        let done = |outcome| {
            let (outcome, hooks) = (Some(outcome), HookTrail::default());
            SessionEvent::from(ToolDone { turn, call, outcome, hooks })
        };
        if earlier >= LEDGER_CALLS {
            let why = format!(
                "one reply may make {LEDGER_CALLS} calls of the ledger, and this is one more"
            );
            return vec![done(ToolOutcome::failed(ToolFailure::Refused, why))];
        }
        let asked = ToolAsked { turn, call, tool: spec.name.clone(), by_client: false };
        let mut events = vec![SessionEvent::from(asked)];
        let outcome = if spec.name.as_str() == LEDGER_APPEND {
            self.next_entry(turn, call, arguments).map(|entry| {
                let told = format!("written as entry {}", entry.number);
                events.push(entry.into());
                told
            })
        } else {
            read_arguments(arguments).map(|wanted| self.read(&wanted))
        };
        events.push(done(match outcome {
            Ok(told) => ToolOutcome::done(told),
            Err(why) => ToolOutcome::failed(ToolFailure::Invalid, why),
        }));
        events
    }

    /// The entry that a call writes, or why it writes none.
    fn next_entry(
        &self,
        turn: TurnId,
        call: CallId,
        arguments: &str,
    ) -> Result<LedgerEntry, String> {
        let AppendArguments { entry, text } = read_arguments(arguments)?;
        let chars = text.chars().count();
        if text.trim().is_empty() {
            return Err("the text is empty; say in it what is to be remembered".to_owned());
        }
        if chars > LEDGER_ENTRY_CHARS {
            return Err(format!(
                "the text has {chars} characters, at most {LEDGER_ENTRY_CHARS}; shorten it, or \
                 write two entries"
            ));
        }
        Ok(LedgerEntry { turn, call, number: self.total.saturating_add(1), entry, text })
    }

    /// What `ledger_read` answers.
    fn read(&self, wanted: &LedgerReadArguments) -> String {
        let fits = |row: &&LedgerRow| wanted.entry.is_none_or(|entry| row.entry == entry);
        let most = wanted.last_n.unwrap_or(READ_ENTRIES);
        let (mut lines, mut bytes) = (Vec::new(), 0_usize);
        for row in self.entries.iter().rev().filter(fits).take(most) {
            let line = line(row.number, row.entry, &row.text);
            bytes = bytes.saturating_add(line.len() + 1);
            if bytes > LEDGER_READ_BYTES && !lines.is_empty() {
                break;
            }
            lines.push(line);
        }
        let all = self.entries.iter().filter(fits).count();
        let of_type = wanted.entry.map(|entry| format!(" of type `{}`", entry.as_str()));
        let of_type = of_type.unwrap_or_default();
        let mut told = if lines.is_empty() {
            format!("no entries{of_type}")
        } else {
            format!("{} of {all} entries{of_type}, oldest first", lines.len())
        };
        if self.total > self.entries.len() as u64 {
            told.push_str("; older ones are kept for people only");
        }
        lines.push(told);
        lines.reverse();
        lines.join("\n")
    }
}

/// An entry as a model reads it.
pub(in crate::session::turn) fn line(number: u64, entry: EntryType, text: &str) -> String {
    format!("#{number} {}: {text}", entry.as_str())
}

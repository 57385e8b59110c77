//! Blocks of a turn: what a model is shown of its own work once it has written down what it did. Pure.
//!
//! An entry of type `step` closes a block: the model calls since the block before, with all that their tools said.
//! From the next call on the model is shown the block's entries in its place, and the ids of its calls. What people
//! said meanwhile stays, in its order. People are always shown everything.
//!
//! Entries of other types close no block while there is room. Once a request of the running turn would fill 80 % of the
//! window, its newest entry closes one, whatever its type.
//!
//! The journal has the entry (`ledger_entry`), and with each call the newest one that closed a block for want of room
//! (`model_begun`), so a journal without them gives the same requests as ever (CTX-1).
//!
//! Invariant
//! - LED-1 what is not closed is shown as it happened. A reply that wrote a step and asked for something else besides is
//!   not closed by it: the model has not seen those results yet.

use std::{borrow::Cow, ops::Range};

use clawnode_kernel::Violation;
use clawnode_proto::{
    Head,
    context_view::ContextStub,
    ledger::{EntryType, LedgerEntry, LedgerRow},
    llm::{Message, Role},
    tool::ToolSpec,
};

use super::super::{
    state::{SessionState, Step, Turn},
    tools::ledger_entries::{AppendArguments, EntryMark, can_write, line, read_arguments},
    tools::tool_calls::ToolCall,
};
use super::{dropping::FULL_PERCENT, token_estimate::tokens};

/// Model calls without an entry after which the model is reminded that it can write one.
const NUDGE_STEPS: usize = 8;
/// Characters of the entries of a block that take its place, beside the one that closed it.
const STUB_CHARS: usize = 4_000;
/// For less of a window, no block is closed for want of room while a request fits: one in so many. Providers would have
/// to read again what follows, and the model would lose what it has just read.
const CLOSED_SHARE: u64 = 8;
/// Ids of calls that are named in the place of a block.
const STUB_CALLS: usize = 32;
/// The reminder. Journals have its digest: other words are other rules.
const NUDGE: &str = "[You have made 8 calls without writing into your work ledger. Call \
                     `ledger_append` with type `step` and what you did and found out: from then on \
                     you read that in place of these calls. Write down all that you still need.]";

/// Model calls of a turn that are shown as entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClosedBlock {
    /// Their places in the turn.
    pub(in crate::session::turn) calls: Range<usize>,
    /// The place of the reply that closed it. It is the last one of them, or comes after it.
    closed_by: usize,
    /// The number of the entry that closed it.
    entry: u64,
}

// === impl SessionState ===

impl SessionState {
    /// Takes an entry that a tool call of the running turn writes.
    pub(in crate::session::turn) fn written(
        &mut self,
        head: &Head,
        ledger_entry: &LedgerEntry,
    ) -> Result<(), Violation> {
        let LedgerEntry { turn, call, number, entry, ref text } = *ledger_entry;
        if self.running().is_none_or(|running| running.id != turn) {
            return Err(Violation(format!("`{turn}` is not the running turn (SES-2)")));
        }
        let before = self.ledger.total;
        if number != before.saturating_add(1) {
            return Err(Violation(format!("entry {number} of a ledger follows entry {before}")));
        }
        let tool = self.waiting_tool(call)?;
        if tool.asked.is_none() || tool.entry.is_some() {
            let text = format!("`{call}` writes an entry before it begins, or a second one");
            return Err(Violation(text));
        }
        tool.entry = Some(EntryMark { number, entry });
        if entry == EntryType::Step {
            // Requests do not begin any more with what a provider counted.
            self.prefix = None;
        }
        self.ledger.push(LedgerRow { number, entry, text: text.clone(), turn, call, at: head.ts });
        Ok(())
    }
}

// === impl Turn ===

impl Turn {
    /// The blocks that are closed, oldest first.
    pub(super) fn blocks(&self) -> Vec<ClosedBlock> {
        self.blocks_if(self.closes_upto)
    }

    /// Those that were closed if this entry closed one, too.
    fn blocks_if(&self, closes_upto: Option<u64>) -> Vec<ClosedBlock> {
        let (mut blocks, mut first) = (Vec::new(), 0);
        for (index, step) in self.steps.iter().enumerate() {
            let Some(entry) = step.closes(closes_upto) else { continue };
            let end = if step.only_writes() { index.saturating_add(1) } else { index };
            if end > first {
                blocks.push(ClosedBlock { calls: first..end, closed_by: index, entry });
            }
            first = end;
        }
        let is_over = |block: &ClosedBlock| {
            self.steps.get(block.calls.clone()).is_some_and(|steps| steps.iter().all(Step::is_over))
        };
        debug_assert!(blocks.iter().all(is_over), "LED-1");
        blocks
    }

    /// The newest entry, if it closes calls that no block has.
    pub(super) fn closable(&self) -> Option<u64> {
        let tools = self.steps.iter().flat_map(|step| &step.tools);
        let newest = tools.filter_map(|tool| tool.entry).map(|mark| mark.number).max()?;
        let closed = |upto| self.blocks_if(upto).last().map_or(0, |block| block.calls.end);
        (closed(Some(newest)) > closed(self.closes_upto)).then_some(newest)
    }

    /// The turn as it is shown if this is the newest entry that closed a block for want of room.
    pub(in crate::session::turn) fn closed_upto(&self, entry: Option<u64>) -> Cow<'_, Self> {
        if entry == self.closes_upto {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self { closes_upto: entry, ..self.clone() })
    }

    /// The same for this entry, if that is worth it: otherwise its request has so many tokens, `own` of them beside
    /// earlier turns, where the window has so many and the request may have so many of these. All are as they seem.
    pub(super) fn closed_for(
        &self,
        entry: u64,
        own: u64,
        size: u64,
        window: u64,
        room: u64,
    ) -> Option<Cow<'_, Self>> {
        let is_full = own >= window.saturating_mul(FULL_PERCENT) / 100;
        if !is_full && size <= room {
            return None;
        }
        let closed = self.closed_upto(Some(entry));
        let saved = tokens(&self.messages()).saturating_sub(tokens(&closed.messages()));
        let is_worth_it = saved > 0 && (size > room || saved >= window / CLOSED_SHARE);
        is_worth_it.then_some(closed)
    }

    /// The same, for people.
    pub(in crate::session::turn) fn stubs(&self) -> Vec<ContextStub> {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let stub = |block: ClosedBlock| ContextStub {
            calls: (number(block.calls.start).saturating_add(1), number(block.calls.end)),
            entry: block.entry,
        };
        self.blocks().into_iter().map(stub).collect()
    }

    /// What the model reads in the place of a block.
    pub(super) fn stub(&self, block: &ClosedBlock) -> Message {
        let steps = self.steps.get(block.calls.clone()).unwrap_or_default();
        let closing = self.steps.get(block.closed_by);
        let is_within = block.calls.contains(&block.closed_by);
        let writers = steps.iter().chain(closing.filter(|_| !is_within));
        let mut chars = 0_usize;
        let (mut lines, mut more) = (Vec::new(), 0_usize);
        // The newest first: what has no room is what was written long ago.
        let written: Vec<&ToolCall> = writers.flat_map(|step| &step.tools).collect();
        for (mark, tool) in written.iter().rev().filter_map(|tool| Some((tool.entry?, *tool))) {
            let Some(text) = tool.written() else { continue };
            if mark.number != block.entry {
                chars = chars.saturating_add(text.chars().count());
                if chars > STUB_CHARS {
                    more += 1;
                    continue;
                }
            }
            lines.push(line(mark.number, mark.entry, &text));
        }
        if more > 0 {
            lines.push(format!("({more} more: `ledger_read` shows them)"));
        }
        let calls = if steps.len() == 1 { "call" } else { "calls" };
        lines.push(format!(
            "[Your work ledger, in place of {} {calls} that you made in this turn:]",
            steps.len()
        ));
        lines.reverse();
        lines.extend(named_calls(steps));
        Message::text(Role::User, lines.join("\n"))
    }

    /// What reminds the model of its ledger with the next call, if it is time for that: once in a block.
    pub(in crate::session::turn) fn nudge(&self, tools: &[ToolSpec]) -> Option<Message> {
        if !self.begins_call() || !can_write(tools) {
            return None;
        }
        let writes = |step: &Step| step.tools.iter().any(|tool| tool.entry.is_some());
        let since = self.steps.iter().rposition(writes).map_or(0, |at| at.saturating_add(1));
        let block = self.steps.iter().rposition(|step| step.closes(self.closes_upto).is_some());
        let was_nudged = |at: &u32| block.is_none_or(|block| *at as usize > block);
        let is_due = self.steps.len().saturating_sub(since) >= NUDGE_STEPS
            && !self.nudges.iter().any(was_nudged);
        is_due.then(Self::reminder)
    }

    /// The reminder, which a call was shown first.
    pub(super) fn reminder() -> Message {
        Message::text(Role::User, NUDGE)
    }
}

// === impl Step ===

impl Step {
    /// The entry of this reply that closes a block: one of type `step`, or this one.
    fn closes(&self, closes_upto: Option<u64>) -> Option<u64> {
        let marks = self.tools.iter().filter_map(|tool| tool.entry);
        let closes =
            |mark: &EntryMark| mark.entry == EntryType::Step || Some(mark.number) == closes_upto;
        marks.filter(closes).map(|mark| mark.number).next_back()
    }

    /// Whether this reply did nothing but write entries.
    fn only_writes(&self) -> bool {
        self.tools.iter().all(|tool| tool.entry.is_some() && tool.end.is_some())
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// The text of the entry that it wrote.
    fn written(&self) -> Option<String> {
        read_arguments::<AppendArguments>(self.arguments()).ok().map(|arguments| arguments.text)
    }
}

/// The tools that calls asked for, and their ids.
fn named_calls(steps: &[Step]) -> Option<String> {
    let tools = steps.iter().flat_map(|step| &step.tools).filter(|tool| tool.entry.is_none());
    let tools: Vec<&ToolCall> = tools.collect();
    let name = |tool: &&ToolCall| {
        let name: String = tool.using.name.chars().take(80).collect();
        format!("{name} {}", tool.call)
    };
    let named: Vec<String> = tools.iter().take(STUB_CALLS).map(name).collect();
    let more = tools.len().saturating_sub(named.len());
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("Calls: {}{more}", named.join(", ")))
}

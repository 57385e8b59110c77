//! Tool calls of a reply while they arrive, within bounds.
//!
//! What a model writes is kept exactly as it is; whether a call makes sense is for the session to
//! judge. What goes beyond a bound is left out in a way that shows: arguments that were cut are no
//! JSON object any more, and one call more than a session runs is kept, so that it sees that there
//! were more.

use clawnode_proto::{
    limits::{REPLY_TOOLS, TOOL_ARGUMENTS_BYTES},
    llm::StopReason,
    tool::ToolUse,
};

use super::http::AttemptFailure;

/// Bytes of a call's id, and of its tool's name (256): far over any vendor's, and longer than a
/// tool's name may be, so a name that was cut names no tool.
pub(super) const NAME_BYTES: usize = 256;
/// Calls that are kept of one reply.
pub(super) const MOST: usize = REPLY_TOOLS + 1;

/// How much of its bounds the tool calls of one reply have used.
#[derive(Debug, Default)]
pub(super) struct ToolUseBounds {
    calls: usize,
    bytes: usize,
}

/// A call whose parts still arrive.
#[derive(Debug)]
pub(super) struct Growing {
    /// Which call of the reply it is, from 0.
    nth: usize,
    tool_use: ToolUse,
    /// Whether anything of its arguments came, kept or not.
    begun: bool,
}

// === impl ToolUseBounds ===

impl ToolUseBounds {
    /// How many calls there are.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Bytes of the arguments of all calls so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a call; `None` if there are enough.
    pub(super) fn open(&mut self) -> Option<Growing> {
        if self.calls == MOST {
            return None;
        }
        let tool_use = ToolUse { id: String::new(), name: String::new(), arguments: String::new() };
        let nth = self.calls;
        self.calls += 1;
        Some(Growing { nth, tool_use, begun: false })
    }

    /// More of the arguments of `call`, as far as there is room.
    pub(super) fn argue(&mut self, call: &mut Growing, more: &str) {
        call.begun |= !more.is_empty();
        let arguments = &mut call.tool_use.arguments;
        let most = arguments.len() + (TOOL_ARGUMENTS_BYTES - self.bytes);
        let kept = push(arguments, more, most);
        // After a cut nothing else may follow: it would close the gap.
        self.bytes = if kept < more.len() { TOOL_ARGUMENTS_BYTES } else { self.bytes + kept };
    }
}

// === impl Growing ===

impl Growing {
    /// Its id, if it has none yet.
    pub(super) fn identify(&mut self, id: &str) {
        if self.tool_use.id.is_empty() {
            push(&mut self.tool_use.id, id, NAME_BYTES);
        }
    }

    /// More of its tool's name.
    pub(super) fn name(&mut self, more: &str) {
        push(&mut self.tool_use.name, more, NAME_BYTES);
    }

    /// Whether this is its id.
    pub(super) fn is(&self, id: &str) -> bool {
        self.tool_use.id == kept(id)
    }

    /// Whether it has an id.
    pub(super) fn is_identified(&self) -> bool {
        !self.tool_use.id.is_empty()
    }

    /// Whether its tool has a name.
    pub(super) fn is_named(&self) -> bool {
        !self.tool_use.name.is_empty()
    }

    /// Whether anything of its arguments came.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// The call, as whole as it is. Where the server gives no ids it gets one of ours.
    pub(super) fn done(mut self) -> ToolUse {
        if self.tool_use.id.is_empty() {
            self.tool_use.id = format!("call_{}", self.nth);
        }
        self.tool_use
    }
}

/// Appends as much of `more` as keeps `text` within `most` bytes; returns how much that is.
fn push(text: &mut String, more: &str, most: usize) -> usize {
    let kept = more.floor_char_boundary(most.saturating_sub(text.len()));
    text.push_str(more.get(..kept).unwrap_or_default());
    kept
}

/// As much of an id as is kept.
fn kept(id: &str) -> &str {
    id.get(..id.floor_char_boundary(NAME_BYTES)).unwrap_or_default()
}

/// Why a model stopped that made so many calls: some servers call it the end of the turn.
pub(super) fn stop_with(calls: usize, stop: StopReason) -> Result<StopReason, AttemptFailure> {
    match stop {
        StopReason::ToolUse if calls == 0 => {
            Err(AttemptFailure::broken("the model waits for tool results, but called no tool"))
        }
        StopReason::EndTurn if calls > 0 => Ok(StopReason::ToolUse),
        stop => Ok(stop),
    }
}

pub(super) fn unasked_tool() -> AttemptFailure {
    AttemptFailure::broken("the model called a tool, but none was offered")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_more_than_is_run_is_kept() {
        let mut room = ToolUseBounds::default();
        let kept = (0..100).filter_map(|_| room.open()).count();
        assert_eq!((kept, room.calls()), (REPLY_TOOLS + 1, REPLY_TOOLS + 1));
    }

    #[test]
    fn arguments_are_cut_for_good_and_at_a_character() {
        let mut room = ToolUseBounds::default();
        let (mut one, mut two) = (room.open().unwrap(), room.open().unwrap());
        room.argue(&mut one, &"a".repeat(TOOL_ARGUMENTS_BYTES - 3));
        room.argue(&mut two, "🦀");
        room.argue(&mut two, "x");
        room.argue(&mut one, "x");
        assert!(two.is_begun(), "what was cut had begun");
        assert_eq!(two.done().arguments, "", "nothing fits into the gap after a cut");
        assert_eq!(one.done().arguments.len(), TOOL_ARGUMENTS_BYTES - 3);
    }

    #[test]
    fn names_and_ids_are_bounded() {
        let mut room = ToolUseBounds::default();
        let long = "é".repeat(200);
        let mut call = room.open().unwrap();
        for part in [&long, &long, "x"] {
            call.identify(part);
            call.name(part);
        }
        assert!(call.is(&long));
        let call = call.done();
        assert_eq!((call.id.len(), call.name.len()), (NAME_BYTES, NAME_BYTES));
        assert!(long.starts_with(&call.id), "the first id is its id");
        assert_eq!(room.open().unwrap().done().id, "call_1");
    }

    #[test]
    fn the_end_of_a_turn_with_calls_waits_for_tools() {
        let stop = |calls, stop| stop_with(calls, stop).ok();
        assert_eq!(stop(1, StopReason::EndTurn), Some(StopReason::ToolUse));
        assert_eq!(stop(0, StopReason::EndTurn), Some(StopReason::EndTurn));
        assert_eq!(stop(2, StopReason::MaxTokens), Some(StopReason::MaxTokens));
        assert_eq!(stop(0, StopReason::ToolUse), None);
    }
}

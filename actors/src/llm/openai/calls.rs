//! How the tool calls of a reply on `OpenAI`'s wire come together from their pieces.
//!
//! The inventor numbers calls and names each in its first piece. Compatible servers leave out the
//! numbers, or the ids, or number all calls 0; what there is tells the pieces apart.

use clawnode_proto::tool::ToolUse;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::llm::tool_uses::{Growing, ToolUseBounds};

/// A piece of a call.
#[derive(Deserialize)]
pub(super) struct Fragment {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
    /// What the provider wants back with the call; Gemini has its thought signatures in it.
    extra_content: Option<Box<RawValue>>,
}

/// A piece of a call; all there was before there could be several calls.
#[derive(Deserialize)]
pub(super) struct FunctionDelta {
    name: Option<String>,
    /// Text; some servers send the object itself.
    arguments: Option<Value>,
}

/// The calls of one reply.
#[derive(Default)]
pub(super) struct CallDeltas {
    room: ToolUseBounds,
    made: Vec<CallDelta>,
    /// Where the last piece went; `None` if it was left out.
    last: Option<usize>,
}

/// One of them.
struct CallDelta {
    index: Option<u32>,
    call: Growing,
    extra: Option<Box<RawValue>>,
}

// === impl Fragment ===

impl From<FunctionDelta> for Fragment {
    fn from(function: FunctionDelta) -> Self {
        Self { index: None, id: None, function: Some(function), extra_content: None }
    }
}

// === impl CallDeltas ===

impl CallDeltas {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.room.calls()
    }

    /// Bytes of their arguments so far.
    pub(super) fn argued(&self) -> usize {
        self.room.bytes()
    }

    /// The pieces of one chunk.
    pub(super) fn grow(&mut self, fragments: Vec<Fragment>) {
        for (nth, fragment) in fragments.into_iter().enumerate() {
            self.piece(fragment, nth == 0);
        }
    }

    /// Calls that are each whole.
    pub(super) fn whole(&mut self, calls: Vec<Fragment>) {
        for call in calls {
            self.open(None);
            self.add(call);
        }
    }

    /// All of them, as whole as they are, each with what the provider wants back with it.
    pub(super) fn done(&mut self) -> impl Iterator<Item = (Option<Box<RawValue>>, ToolUse)> {
        std::mem::take(&mut self.made).into_iter().map(|made| (made.extra, made.call.done()))
    }

    fn piece(&mut self, fragment: Fragment, first: bool) {
        match self.find(&fragment, first) {
            Some(at) => self.last = Some(at),
            None => self.open(fragment.index),
        }
        self.add(fragment);
    }

    /// The call that a piece belongs to, if it is not the first of its own.
    fn find(&self, fragment: &Fragment, first: bool) -> Option<usize> {
        let id = fragment.id.as_deref().unwrap_or_default();
        let name = fragment.function.as_ref().and_then(|function| function.name.as_deref());
        let is_named = name.is_some_and(|name| !name.is_empty());
        match (fragment.index, id) {
            (Some(_), _) => {
                let at = self.made.iter().rposition(|made| made.index == fragment.index)?;
                let call = &self.made.get(at)?.call;
                // Some servers give all calls one number, each with an id and a name of its own.
                let other = !id.is_empty() && call.is_identified() && !call.is(id);
                (!(other && is_named && call.is_named())).then_some(at)
            }
            (None, "") => {
                let at = self.last?;
                let call = &self.made.get(at)?.call;
                // A name cannot go on after the arguments have begun.
                (!(is_named && (call.is_begun() || !first))).then_some(at)
            }
            (None, id) => self.made.iter().rposition(|made| made.call.is(id)),
        }
    }

    fn open(&mut self, index: Option<u32>) {
        let call = self.room.open();
        self.last = call.is_some().then_some(self.made.len());
        self.made.extend(call.map(|call| CallDelta { index, call, extra: None }));
    }

    fn add(&mut self, fragment: Fragment) {
        let Some(made) = self.last.and_then(|at| self.made.get_mut(at)) else { return };
        let call = &mut made.call;
        made.extra = made.extra.take().or(fragment.extra_content);
        call.identify(fragment.id.as_deref().unwrap_or_default());
        let Some(FunctionDelta { name, arguments }) = fragment.function else { return };
        call.name(name.as_deref().unwrap_or_default());
        match arguments {
            Some(Value::String(text)) => self.room.argue(call, &text),
            None | Some(Value::Null) => {}
            Some(other) => self.room.argue(call, &other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The calls that chunks with these pieces make.
    fn calls(chunks: Value) -> Vec<(String, String, String)> {
        let mut calls = CallDeltas::default();
        for chunk in serde_json::from_value::<Vec<Vec<Fragment>>>(chunks).unwrap() {
            calls.grow(chunk);
        }
        let tuple = |ToolUse { id, name, arguments }| (id, name, arguments);
        calls.done().map(|(_, call)| tuple(call)).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn numbered_pieces_come_together_in_any_order() {
        let made = calls(json!([
            [{"index": 0, "id": "a", "function": {"name": "ge", "arguments": ""}}],
            [{"index": 1, "id": "b", "function": {"name": "put"}}],
            [{"index": 0, "function": {"name": "t", "arguments": "{\"x\""}}],
            [
                {"index": 1, "function": {"arguments": "{"}},
                {"index": 0, "id": "a", "function": {"arguments": ":1}"}},
            ],
            [{"index": 1, "id": null, "function": {"name": null, "arguments": "}"}}],
        ]));
        assert_eq!(made, [call("a", "get", r#"{"x":1}"#), call("b", "put", "{}")]);
    }

    #[test]
    fn calls_without_numbers_are_told_apart_by_their_ids() {
        let made = calls(json!([
            [{"id": "a", "function": {"name": "get", "arguments": "{"}}],
            [{"function": {"arguments": "}"}}],
            [{"id": "b", "function": {"name": "get", "arguments": "{}"}}],
            [{"id": "a", "function": {"arguments": " "}}],
        ]));
        assert_eq!(made, [call("a", "get", "{} "), call("b", "get", "{}")]);
    }

    #[test]
    fn calls_without_numbers_and_ids_begin_with_a_name() {
        let made = calls(json!([
            [{"function": {"name": "g"}}],
            [{"function": {"name": "et", "arguments": {"x": 1}}}],
            [{"function": {"name": "put", "arguments": ""}}, {"function": {"name": "del"}}],
        ]));
        let made_up = [
            call("call_0", "get", r#"{"x":1}"#),
            call("call_1", "put", ""),
            call("call_2", "del", ""),
        ];
        assert_eq!(made, made_up);
    }

    #[test]
    fn one_number_for_all_calls_does_not_mix_them() {
        let made = calls(json!([
            [{"index": 0, "id": "a", "function": {"name": "get", "arguments": "{}"}}],
            [{"index": 0, "id": "b", "function": {"name": "put", "arguments": "{\"x\":"}}],
            [{"index": 0, "function": {"arguments": "1}"}}],
        ]));
        assert_eq!(made, [call("a", "get", "{}"), call("b", "put", r#"{"x":1}"#)]);
    }

    #[test]
    fn equal_ids_are_kept_where_numbers_differ() {
        let made = calls(json!([
            [{"index": 0, "id": "a", "function": {"name": "get", "arguments": "{}"}}],
            [{"index": 1, "id": "a", "function": {"name": "get", "arguments": "{}"}}],
        ]));
        assert_eq!(made, [call("a", "get", "{}"), call("a", "get", "{}")]);
    }

    #[test]
    fn pieces_of_calls_that_are_too_many_go_nowhere() {
        let numbered = |index: u32| json!([{"index": index, "id": format!("c{index}"), "function": {"name": "get"}}]);
        let mut chunks: Vec<Value> = (0..100).map(numbered).collect();
        chunks.push(json!([{"function": {"arguments": "x"}}]));
        chunks.push(json!([{"index": 99, "function": {"arguments": "x"}}]));
        let made = calls(Value::Array(chunks));
        assert_eq!(made.len(), crate::llm::tool_uses::MOST);
        assert!(made.iter().all(|(_, _, arguments)| arguments.is_empty()), "{made:?}");
    }
}

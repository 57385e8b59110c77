//! The output of a response, and the events that tell of it: pure.
//!
//! The events follow from what was said, and from nothing else. The gateway sends text in words, however it
//! came, so that frames as they come, frames that are recalled and the journal all make the same list. The
//! number of an event has two parts: its place in that list, and a check of all that was said up to it. A
//! client that names a number gets the events after its place, or learns that what was said before is not the
//! same any more.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId,
    client_tool::ClientCalls,
    frame::{ApprovalRequest, ToolFinished, ToolStarted},
    llm::Usage,
};
use serde_json::{Value, json};

use super::{
    event_number::{EventCheck, EventNumber},
    response_object::{OWN_SERVER, ResponseLabel, Status},
};

/// Characters of a word at most: some languages write without spaces.
const WORD_CHARS: usize = 32;

/// The events for the client, in order.
pub(super) type Events = Vec<(&'static str, Value)>;

/// The output so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Composer {
    items: Vec<Value>,
    /// The last item, until it is closed.
    open: Option<ItemInProgress>,
    /// Tools of the agent that were asked for.
    started: BTreeMap<CallId, ToolStarted>,
    usage: Usage,
    /// Events that there were.
    count: u64,
    check: EventCheck,
    /// The last event that its client has.
    told: Option<EventNumber>,
    /// What its client has is not what there is.
    is_other: bool,
}

#[derive(Clone, Debug)]
struct ItemInProgress {
    kind: OpenKind,
    id: String,
    text: String,
    /// How many bytes of the text the events have so far.
    told: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenKind {
    Message,
    Reasoning,
}

/// The events of an item that is whole at once, by their names.
struct ItemEvents {
    /// Before its arguments.
    begins: Option<&'static str>,
    delta: &'static str,
    done: &'static str,
    /// After its arguments.
    ends: Option<&'static str>,
}

// === impl Composer ===

impl Composer {
    /// One whose client has all events up to this one.
    pub(super) fn after(told: Option<EventNumber>) -> Self {
        Self { told, ..Self::default() }
    }

    /// The last event that its client has.
    pub(super) const fn told(&self) -> Option<EventNumber> {
        self.told
    }

    /// This earlier output, to compose again from here. The client still has the later events up to `now`.
    pub(super) fn before(&self, now: &Self) -> Self {
        Self { told: now.told, usage: now.usage, is_other: now.is_other, ..self.clone() }
    }

    /// Whether its client has what there is not.
    pub(super) const fn is_other(&self) -> bool {
        self.is_other
    }

    /// Whether its client has events that are still to come again.
    pub(super) fn is_behind(&self) -> bool {
        self.told.is_some_and(|told| told.place() >= self.count)
    }

    pub(super) const fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(super) fn add_usage(&mut self, usage: Usage) {
        self.usage = self.usage.plus(usage);
    }

    /// All items. The last one may still be in progress.
    pub(super) fn output(&self) -> Vec<Value> {
        let mut items = self.items.clone();
        if let (Some(open), Some(last)) = (&self.open, items.last_mut()) {
            *last = open.item("in_progress");
        }
        items
    }

    /// All texts of it, one after the other.
    pub(super) fn text(&self) -> String {
        let done = self.items.iter().filter_map(|item| item["content"][0]["text"].as_str());
        let open = self.open.as_ref().filter(|open| open.kind == OpenKind::Message);
        done.chain(open.map(|open| open.text.as_str())).collect()
    }

    /// Whether all that was said since is thoughts.
    pub(super) fn has_only_thought_since(&self, earlier: &Self) -> bool {
        let fresh = self.items.get(earlier.items.len()..).unwrap_or_default();
        !fresh.is_empty() && fresh.iter().all(|item| item["type"] == "reasoning")
    }

    /// The beginning.
    pub(super) fn begin(&mut self, label: &ResponseLabel, out: &mut Events) {
        for kind in ["response.created", "response.in_progress"] {
            let response = label.response(&Status::InProgress, Vec::new(), &self.usage);
            self.tell(kind, json!({"response": response}), out);
        }
    }

    /// More of the reply.
    pub(super) fn say(&mut self, label: &ResponseLabel, text: &str, out: &mut Events) {
        self.grow(OpenKind::Message, label, text, out);
    }

    /// More of the model's thoughts.
    pub(super) fn think(&mut self, label: &ResponseLabel, text: &str, out: &mut Events) {
        self.grow(OpenKind::Reasoning, label, text, out);
    }

    /// A tool of the agent or of the client is asked for.
    pub(super) fn start(&mut self, started: ToolStarted) {
        self.started.insert(started.id, started);
    }

    /// A person is asked.
    pub(super) fn ask(
        &mut self,
        label: &ResponseLabel,
        request: &ApprovalRequest,
        out: &mut Events,
    ) {
        self.close("completed", out);
        self.check.add("approval", &request.id.to_string());
        let response = label.response(&Status::InProgress, self.output(), &self.usage);
        let more = json!({"response": response, "clawnode": {"approval": request}});
        self.tell("response.in_progress", more, out);
    }

    /// A tool of the agent has run. One that was asked for before this response is no part of it.
    pub(super) fn ran(&mut self, label: &ResponseLabel, finished: &ToolFinished, out: &mut Events) {
        let Some(started) = self.started.remove(&finished.id) else { return };
        self.close("completed", out);
        let (server, name) = started.name.split_once("__").unwrap_or((OWN_SERVER, &started.name));
        let item = |status: &str, arguments: &str, output: Option<&str>, error: Option<&str>| {
            json!({
                "id": label.id.item("mcp", started.id),
                "type": "mcp_call",
                "server_label": server,
                "name": name,
                "arguments": arguments,
                "output": output,
                "error": error,
                "approval_request_id": null,
                "status": status,
            })
        };
        let (content, failure) = (finished.content.as_str(), finished.failure.as_deref());
        let failed = failure.map(|failure| format!("{failure}: {content}"));
        let whole = match &failed {
            None => item("completed", &started.arguments, Some(content), None),
            Some(failed) => item("failed", &started.arguments, None, Some(failed)),
        };
        self.check.add(&started.name, &started.arguments);
        self.check.add(failure.unwrap_or_default(), content);
        let end = match failed {
            None => "response.mcp_call.completed",
            Some(_) => "response.mcp_call.failed",
        };
        let added = item("in_progress", "", None, None);
        let events = ItemEvents {
            begins: Some("response.mcp_call.in_progress"),
            delta: "response.mcp_call_arguments.delta",
            done: "response.mcp_call_arguments.done",
            ends: Some(end),
        };
        self.item(&added, whole, &started.arguments, &events, out);
    }

    /// The client is to run tools.
    pub(super) fn call(&mut self, label: &ResponseLabel, calls: &ClientCalls, out: &mut Events) {
        self.close("completed", out);
        for call in &calls.calls {
            let item = |status: &str, arguments: &str| {
                json!({
                    "id": label.id.item("fc", call.id),
                    "type": "function_call",
                    "call_id": label.call_id(call.id),
                    "name": call.name,
                    "arguments": arguments,
                    "status": status,
                })
            };
            self.check.add(&call.name, &call.arguments);
            let (added, whole) = (item("in_progress", ""), item("completed", &call.arguments));
            let events = ItemEvents {
                begins: None,
                delta: "response.function_call_arguments.delta",
                done: "response.function_call_arguments.done",
                ends: None,
            };
            self.item(&added, whole, &call.arguments, &events, out);
        }
    }

    pub(super) fn end(&mut self, label: &ResponseLabel, status: &Status, out: &mut Events) {
        let of_items = if status.name() == "completed" { "completed" } else { "incomplete" };
        self.close(of_items, out);
        let response = label.response(status, self.output(), &self.usage);
        self.tell(status.event(), json!({"response": response}), out);
    }

    /// An event after all others, which has no place among them.
    pub(super) fn error(&self, code: &str, message: &str) -> (&'static str, Value) {
        let last = self.told.map_or(0, EventNumber::to_u64);
        let error = json!({
            "type": "error",
            "code": code,
            "message": message,
            "param": null,
            "sequence_number": last.saturating_add(1),
        });
        ("error", error)
    }

    /// Closes the open item, because the model begins again.
    pub(super) fn break_off(&mut self, out: &mut Events) {
        self.close("incomplete", out);
    }

    fn grow(&mut self, kind: OpenKind, label: &ResponseLabel, text: &str, out: &mut Events) {
        if text.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.kind != kind) {
            self.close("completed", out);
        }
        if self.open.is_none() {
            self.open = Some(ItemInProgress::new(kind, label, self.items.len()));
            self.opened(out);
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
        self.tell_words(false, out);
    }

    fn opened(&mut self, out: &mut Events) {
        let Some(open) = &self.open else { return };
        let (at, id) = (self.items.len(), open.id.clone());
        let (added, part) = match open.kind {
            OpenKind::Message => ("response.content_part.added", part("")),
            OpenKind::Reasoning => ("response.reasoning_summary_part.added", summary("")),
        };
        let empty = open.added();
        self.items.push(empty.clone());
        self.tell("response.output_item.added", json!({"output_index": at, "item": empty}), out);
        let place = open_place(added, at, &id);
        self.tell(added, with(place, "part", part), out);
    }

    /// Tells whole words, or at the end what is left.
    fn tell_words(&mut self, is_end: bool, out: &mut Events) {
        let at = self.items.len().saturating_sub(1);
        while let Some(open) = &mut self.open {
            let rest = open.text.get(open.told..).unwrap_or_default();
            let Some(length) = word(rest).or((is_end && !rest.is_empty()).then_some(rest.len()))
            else {
                return;
            };
            let delta = rest.get(..length).unwrap_or(rest).to_owned();
            open.told += delta.len();
            let (kind, id) = (open.kind.delta(), open.id.clone());
            self.check.add(kind, &delta);
            let mut event = with(open_place(kind, at, &id), "delta", json!(delta));
            if kind == "response.output_text.delta" {
                event = with(event, "logprobs", json!([]));
            }
            self.tell(kind, event, out);
        }
    }

    fn close(&mut self, status: &str, out: &mut Events) {
        self.tell_words(true, out);
        let Some(open) = self.open.take() else { return };
        let at = self.items.len().saturating_sub(1);
        let [text, done] = open.kind.ends();
        let part = match open.kind {
            OpenKind::Message => part(&open.text),
            OpenKind::Reasoning => summary(&open.text),
        };
        let mut event = with(open_place(text, at, &open.id), "text", json!(open.text));
        if open.kind == OpenKind::Message {
            event = with(event, "logprobs", json!([]));
        }
        self.tell(text, event, out);
        self.tell(done, with(open_place(done, at, &open.id), "part", part), out);
        let item = open.item(status);
        if let Some(last) = self.items.last_mut() {
            last.clone_from(&item);
        }
        self.tell("response.output_item.done", json!({"output_index": at, "item": item}), out);
    }

    /// Tells an item that is whole at once.
    fn item(
        &mut self,
        added: &Value,
        whole: Value,
        arguments: &str,
        events: &ItemEvents,
        out: &mut Events,
    ) {
        let ItemEvents { begins, delta, done, ends } = *events;
        let at = self.items.len();
        let place = json!({"output_index": at, "item_id": added["id"]});
        self.tell("response.output_item.added", json!({"output_index": at, "item": added}), out);
        if let Some(begins) = begins {
            self.tell(begins, place.clone(), out);
        }
        self.tell(delta, with(place.clone(), "delta", json!(arguments)), out);
        self.tell(done, with(place.clone(), "arguments", json!(arguments)), out);
        if let Some(ends) = ends {
            self.tell(ends, place, out);
        }
        self.tell("response.output_item.done", json!({"output_index": at, "item": whole}), out);
        self.items.push(whole);
    }

    /// Tells an event, unless its client has it.
    fn tell(&mut self, kind: &'static str, event: Value, out: &mut Events) {
        let number = EventNumber::new(self.count, &self.check);
        self.count += 1;
        if let Some(told) = self.told {
            if number.place() == told.place() {
                self.is_other |= number != told;
            }
            if number.place() <= told.place() {
                return;
            }
        }
        if self.is_other {
            return;
        }
        self.told = Some(number);
        let event = with(event, "type", json!(kind));
        out.push((kind, with(event, "sequence_number", json!(number.to_u64()))));
    }
}

// === impl ItemInProgress ===

impl ItemInProgress {
    fn new(kind: OpenKind, label: &ResponseLabel, index: usize) -> Self {
        let prefix = match kind {
            OpenKind::Message => "msg",
            OpenKind::Reasoning => "rs",
        };
        let id = label.id.item(prefix, index);
        Self { kind, id, text: String::new(), told: 0 }
    }

    /// The item as its first event shows it: without any content.
    fn added(&self) -> Value {
        let list = match self.kind {
            OpenKind::Message => "content",
            OpenKind::Reasoning => "summary",
        };
        with(self.item("in_progress"), list, json!([]))
    }

    fn item(&self, status: &str) -> Value {
        match self.kind {
            OpenKind::Message => json!({
                "id": self.id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [part(&self.text)],
            }),
            OpenKind::Reasoning => json!({
                "id": self.id,
                "type": "reasoning",
                "status": status,
                "summary": [summary(&self.text)],
            }),
        }
    }
}

// === impl OpenKind ===

impl OpenKind {
    const fn delta(self) -> &'static str {
        match self {
            Self::Message => "response.output_text.delta",
            Self::Reasoning => "response.reasoning_summary_text.delta",
        }
    }

    /// The ends of its text and of its part.
    const fn ends(self) -> [&'static str; 2] {
        match self {
            Self::Message => ["response.output_text.done", "response.content_part.done"],
            Self::Reasoning => {
                ["response.reasoning_summary_text.done", "response.reasoning_summary_part.done"]
            }
        }
    }
}

/// Where the first word of a text ends, if it does: after a space, or after so many characters.
fn word(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().enumerate();
    let (_, (at, c)) =
        chars.find(|(count, (_, c))| c.is_whitespace() || count + 1 == WORD_CHARS)?;
    Some(at + c.len_utf8())
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// Where an event belongs that is about a part of an item.
fn open_place(kind: &str, at: usize, id: &str) -> Value {
    let part = if kind.contains("reasoning") { "summary_index" } else { "content_index" };
    json!({"output_index": at, "item_id": id, (part): 0})
}

fn with(mut event: Value, name: &str, value: Value) -> Value {
    if let Value::Object(fields) = &mut event {
        fields.insert(name.to_owned(), value);
    }
    event
}

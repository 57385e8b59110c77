//! What is written on the Responses wire: items that open, grow and close.

use serde_json::{Value, json};

use super::writer::Writer;
use crate::model::{script::ToolCall, thoughts::seal};

/// A reasoning item.
pub(in crate::model) fn reasoning(
    index: usize,
    thoughts: usize,
    text: &str,
    is_shown: bool,
) -> Value {
    let summary =
        if is_shown { json!([{"type": "summary_text", "text": text}]) } else { json!([]) };
    json!({
        "id": format!("rs_{index}"), "type": "reasoning", "summary": summary,
        "encrypted_content": seal(index, thoughts, text),
    })
}

pub(in crate::model) fn message(index: usize, text: &str) -> Value {
    json!({
        "id": format!("msg_{index}"), "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    })
}

/// A tool call.
pub(in crate::model) fn function_call(id: &str, call: &ToolCall) -> Value {
    json!({
        "id": format!("fc_{id}"), "type": "function_call", "status": "completed", "call_id": id,
        "name": call.name, "arguments": call.arguments,
    })
}

/// A response with these items.
pub(in crate::model) fn response(
    model: &str,
    output: &[Value],
    stop: &str,
    usage: Option<(u64, u64)>,
) -> Value {
    let details = match stop {
        "completed" | "in_progress" => Value::Null,
        reason => json!({"reason": reason}),
    };
    let status = match stop {
        "completed" | "in_progress" => stop,
        _ => "incomplete",
    };
    let usage = usage.map(|(input, output)| {
        json!({
            "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        })
    });
    json!({
        "id": "resp_scripted", "object": "response", "created_at": 1_700_000_000, "status": status,
        "model": model, "output": output, "error": null, "incomplete_details": details,
        "store": false, "usage": usage,
    })
}

impl Writer<'_> {
    /// An event with its number.
    pub(super) fn response_event(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.events.into();
        self.events += 1;
        self.event(kind, &data);
    }

    pub(super) fn begin_response(&mut self) {
        let begun = response(&self.asked.model, &[], "in_progress", None);
        self.response_event("response.created", json!({"response": begun}));
    }

    pub(super) fn text_of_item(&mut self, text: &str) {
        self.open_message();
        self.item.push_str(text);
        self.delta_of_item(
            "response.output_text.delta",
            &json!({"content_index": 0, "delta": text}),
        );
    }

    pub(super) fn refuse(&mut self, text: &str) {
        self.open_message();
        self.item.push_str(text);
        self.delta_of_item("response.refusal.delta", &json!({"content_index": 0, "delta": text}));
    }

    fn open_message(&mut self) {
        let message = json!({
            "id": format!("msg_{}", self.blocks), "type": "message", "status": "in_progress",
            "role": "assistant", "content": [],
        });
        self.open_item("message", &message);
    }

    pub(super) fn reason(&mut self, text: &str) {
        let item = json!({"id": format!("rs_{}", self.blocks), "type": "reasoning", "summary": []});
        self.open_item("reasoning", &item);
        self.item.push_str(text);
        let delta = json!({"summary_index": 0, "delta": text});
        self.delta_of_item("response.reasoning_summary_text.delta", &delta);
    }

    /// Reasoning of which nothing is shown.
    pub(super) fn reason_in_secret(&mut self, data: &str) {
        self.close_item();
        let item = json!({"id": format!("rs_{}", self.blocks), "type": "reasoning", "summary": []});
        self.open_item("secret", &item);
        self.item.push_str(data);
        self.close_item();
    }

    /// Each call an item; one after the other, or all open at a time.
    pub(super) fn items_of_tools(&mut self, calls: &[ToolCall], interleaved: bool) {
        self.close_item();
        let named: Vec<(String, &ToolCall)> =
            calls.iter().map(|call| (self.next_id(call), call)).collect();
        let groups: Vec<&[(String, &ToolCall)]> =
            if interleaved { vec![&named[..]] } else { named.chunks(1).collect() };
        for group in groups {
            for ((id, call), index) in group.iter().zip(self.blocks..) {
                let mut item = function_call(id, call);
                (item["arguments"], item["status"]) = ("".into(), "in_progress".into());
                let added = json!({"output_index": index, "item": item});
                self.response_event("response.output_item.added", added);
            }
            let rounds = group.iter().map(|(_, call)| call.pieces().len()).max().unwrap_or(0);
            for round in 0..rounds {
                for ((_, call), index) in group.iter().zip(self.blocks..) {
                    if let Some(piece) = call.pieces().get(round) {
                        let delta = json!({"output_index": index, "delta": piece});
                        self.response_event("response.function_call_arguments.delta", delta);
                    }
                }
            }
            for (id, call) in group {
                self.end_call(self.blocks, id, call);
                self.blocks += 1;
            }
        }
    }

    fn end_call(&mut self, index: u32, id: &str, call: &ToolCall) {
        let done = json!({"output_index": index, "arguments": call.arguments, "name": call.name});
        self.response_event("response.function_call_arguments.done", done);
        let item = function_call(id, call);
        self.response_event(
            "response.output_item.done",
            json!({"output_index": index, "item": item}),
        );
    }

    pub(super) fn end_response(&mut self, stop: &str) {
        self.close_item();
        let usage = self.reply.usage.then_some((self.asked.words, self.tokens));
        let mut ended = response(&self.asked.model, &[], stop, usage);
        ended["usage"] =
            self.reply.reported(ended["usage"].take(), ("input_tokens", "output_tokens"));
        let kind = if stop == "completed" { "response.completed" } else { "response.incomplete" };
        self.response_event(kind, json!({"response": ended}));
    }

    /// Opens an item of a kind, unless it is the open one.
    fn open_item(&mut self, kind: &'static str, item: &Value) {
        if self.open == Some(kind) {
            return;
        }
        self.close_item();
        self.open = Some(kind);
        let added = json!({"output_index": self.blocks, "item": item});
        self.response_event("response.output_item.added", added);
        if kind == "reasoning" {
            let part = json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
            self.delta_of_item("response.reasoning_summary_part.added", &part);
        }
    }

    fn delta_of_item(&mut self, kind: &str, delta: &Value) {
        let mut delta = delta.clone();
        delta["output_index"] = self.blocks.into();
        self.response_event(kind, delta);
    }

    fn close_item(&mut self) {
        let (index, text) = (self.blocks as usize, std::mem::take(&mut self.item));
        let item = match self.open.take() {
            None => return,
            Some("message") => message(index, &text),
            Some(kind) => reasoning(index, self.thoughts, &text, kind == "reasoning"),
        };
        let done = json!({"output_index": index, "item": item});
        self.response_event("response.output_item.done", done);
        self.blocks += 1;
    }
}

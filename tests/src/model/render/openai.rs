//! Tool calls and thoughts on `OpenAI`'s wire.

use serde_json::{Value, json};

use super::writer::Writer;
use crate::model::{
    details::{details, pieces},
    script::ToolCall,
};

impl Writer<'_> {
    pub(super) fn chunks_of_tools(&mut self, calls: &[ToolCall], interleaved: bool) {
        // Which round a piece comes in, then which call it is of.
        let mut pieces: Vec<(usize, usize, Value)> = Vec::new();
        for call in calls {
            let index = self.calls;
            let round = |nth| if interleaved { nth } else { 0 };
            let function = json!({"name": call.name, "arguments": ""});
            let id = self.next_id(call);
            let first = json!({"index": index, "id": id, "type": "function", "function": function});
            pieces.push((0, index, first));
            for (nth, piece) in call.pieces().into_iter().enumerate() {
                let more = json!({"index": index, "function": {"arguments": piece}});
                pieces.push((round(nth + 1), index, more));
            }
        }
        // Stable, so the pieces of one call stay in order.
        pieces.sort_by_key(|(round, index, _)| (*round, *index));
        for (_, _, piece) in pieces {
            self.chunk(&json!({"tool_calls": [piece]}), None);
        }
    }

    /// A piece of a thought. With `reasoning_details`, the last piece of an entry has no words.
    pub(super) fn think_on_openai(&mut self, text: &str) {
        if !self.reply.details {
            return self.chunk(&json!({"reasoning_content": text}), None);
        }
        let Some(entry) = self.open_detail() else { return };
        let [words, signature] = pieces(&entry, text);
        self.thought.push_str(text);
        self.chunk(&json!({"reasoning": text, "reasoning_details": [words]}), None);
        if entry["text"] == self.thought.as_str() {
            self.chunk(&json!({"reasoning": null, "reasoning_details": [signature]}), None);
            self.thought.clear();
            self.blocks += 1;
        }
    }

    /// A sealed thought, which no client can read.
    pub(super) fn redact_on_openai(&mut self) {
        let Some(entry) = self.open_detail() else { return };
        self.chunk(&json!({"reasoning": null, "reasoning_details": [entry]}), None);
        self.blocks += 1;
    }

    /// The entry that is written now.
    fn open_detail(&self) -> Option<Value> {
        details(&self.reply.steps).into_iter().nth(self.blocks as usize)
    }
}

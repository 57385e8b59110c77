//! What is written on Ollama's wire: a line each.

use serde_json::{Value, json};

use super::writer::Writer;
use crate::model::script::ToolCall;

impl Writer<'_> {
    /// A line with a part of the message.
    pub(super) fn line(&mut self, message: &Value) {
        let mut message = message.clone();
        message["role"] = "assistant".into();
        self.whole_line(&message.to_string());
    }

    fn whole_line(&mut self, message: &str) {
        let model = json!(self.asked.model);
        let line = format!(
            r#"{{"model":{model},"created_at":"2026-01-01T00:00:00Z","message":{message},"done":false}}"#
        );
        self.frame(line.as_bytes());
    }

    /// Each call whole, as the model wrote its arguments; all in one line, or a line each.
    pub(super) fn lines_of_tools(&mut self, calls: &[ToolCall], together: bool) {
        let mut written = Vec::new();
        for (nth, call) in calls.iter().enumerate() {
            let (id, name) = (json!(self.next_id(call)), json!(call.name));
            let arguments = &call.arguments;
            written.push(format!(
                r#"{{"id":{id},"function":{{"index":{nth},"name":{name},"arguments":{arguments}}}}}"#
            ));
        }
        let lines = if together { vec![written.join(",")] } else { written };
        for calls in lines {
            self.whole_line(&format!(
                r#"{{"role":"assistant","content":"","tool_calls":[{calls}]}}"#
            ));
        }
    }

    pub(super) fn end_ollama(&mut self, stop: &str) {
        let mut last = json!({
            "model": self.asked.model, "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": stop,
            "total_duration": 3, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1,
        });
        if self.reply.usage {
            last["prompt_eval_count"] = self.asked.words.into();
            last["eval_count"] = self.tokens.into();
            last = self.reply.reported(last, ("prompt_eval_count", "eval_count"));
        }
        self.event("", &last);
    }
}

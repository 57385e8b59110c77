//! What is written on Gemini's wire: a response an event, each with more parts.

use serde_json::{Value, json};

use super::writer::Writer;
use crate::model::{script::ToolCall, thoughts::sign_part};

/// A call as a part; the first of a reply has the signature of all.
pub(in crate::model) fn call_part(id: &str, call: &ToolCall, is_first: bool) -> String {
    let arguments = &call.arguments;
    let signature = if is_first {
        let args: Value = serde_json::from_str(arguments).unwrap_or_default();
        let signature = json!(sign_part(&[id, &call.name, &args.to_string()]));
        format!(r#","thoughtSignature":{signature}"#)
    } else {
        String::new()
    };
    let (id, name) = (json!(id), json!(call.name));
    format!(r#"{{"functionCall":{{"id":{id},"name":{name},"args":{arguments}}}{signature}}}"#)
}

/// What follows the text of a reply that has thought: an empty part with the signature of the text.
pub(in crate::model) fn last_part(said: &str) -> String {
    json!({"text": "", "thoughtSignature": sign_part(&[said])}).to_string()
}

impl Writer<'_> {
    /// A response with these parts.
    pub(super) fn parts_of_gemini(&mut self, parts: &[String], ending: Option<&str>) {
        let (parts, model) = (parts.join(","), json!(self.asked.model));
        let mut candidate =
            format!(r#"{{"content":{{"parts":[{parts}],"role":"model"}},"index":0"#);
        let mut usage = String::new();
        if let Some(reason) = ending {
            let reason = json!(reason);
            candidate = format!(r#"{candidate},"finishReason":{reason}"#);
            if self.reply.usage {
                let (input, output) = (self.asked.words, self.tokens);
                let all = input + output;
                let counted = json!({
                    "promptTokenCount": input, "candidatesTokenCount": output,
                    "totalTokenCount": all,
                });
                let fields = ("promptTokenCount", "candidatesTokenCount");
                usage = format!(r#","usageMetadata":{}"#, self.reply.reported(counted, fields));
            }
        }
        let chunk = format!(
            r#"{{"candidates":[{candidate}}}]{usage},"modelVersion":{model},"responseId":"r"}}"#
        );
        self.frame(chunk.as_bytes());
    }

    /// Each call whole; all in one response, or one each.
    pub(super) fn parts_of_tools(&mut self, calls: &[ToolCall], together: bool) {
        let mut parts = Vec::new();
        for call in calls {
            let is_first = self.calls == 0;
            let id = self.next_id(call);
            parts.push(call_part(&id, call, is_first));
        }
        if together {
            self.parts_of_gemini(&parts, None);
        } else {
            for part in parts {
                self.parts_of_gemini(&[part], None);
            }
        }
    }

    pub(super) fn end_gemini(&mut self, stop: &str) {
        let is_signed = self.thoughts > 0 && self.calls == 0;
        let last = if is_signed { vec![last_part(&self.said)] } else { Vec::new() };
        self.parts_of_gemini(&last, Some(stop));
    }
}

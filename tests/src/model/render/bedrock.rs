//! What is written on Bedrock's wire: blocks as Anthropic's, in messages of Amazon's event stream.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::writer::Writer;
use crate::model::{
    cache::PromptTokens,
    check::Asked,
    event_stream,
    script::ToolCall,
    thoughts::{seal, sign},
};

/// The exception for a status, as its header has it.
pub(super) const fn exception(status: u16) -> &'static str {
    match status {
        401 | 403 => "UnrecognizedClientException",
        404 => "ResourceNotFoundException",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        500.. => "InternalServerException",
        _ => "ValidationException",
    }
}

pub(in crate::model) fn usage(asked: &Asked, output: u64) -> Value {
    let PromptTokens { read, written, .. } = asked.cached;
    json!({
        "inputTokens": asked.words - read - written, "outputTokens": output,
        "totalTokens": asked.words + output,
        "cacheReadInputTokens": read, "cacheWriteInputTokens": written,
    })
}

/// A block of Anthropic's as this wire has it.
pub(in crate::model) fn block(block: &Value) -> Value {
    match block["type"].as_str() {
        Some("thinking") => {
            let (text, signature) = (&block["thinking"], &block["signature"]);
            json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
        }
        Some("redacted_thinking") => {
            let data = STANDARD.encode(block["data"].as_str().unwrap_or_default());
            json!({"reasoningContent": {"redactedContent": data}})
        }
        Some("tool_use") => {
            let (id, name, input) = (&block["id"], &block["name"], &block["input"]);
            json!({"toolUse": {"toolUseId": id, "name": name, "input": input}})
        }
        _ => json!({"text": block["text"]}),
    }
}

impl Writer<'_> {
    /// An event; the padding is the vendor's own, against those who count bytes.
    pub(super) fn message_of_bedrock(&mut self, name: &str, data: &Value) {
        let mut data = data.clone();
        data["p"] = "abcdefgh".into();
        self.raw(&event_stream::event(name, data.to_string().as_bytes()));
    }

    pub(super) fn exception_of_bedrock(&mut self, kind: &str, message: &str) {
        let body = json!({"message": message}).to_string();
        self.raw(&event_stream::exception(kind, body.as_bytes()));
    }

    /// A piece of a block of a kind, which is opened unless it is the open one.
    pub(super) fn piece_of_bedrock(&mut self, kind: &'static str, delta: &Value) {
        if self.open != Some(kind) {
            self.close_bedrock();
            self.open = Some(kind);
        }
        let event = json!({"contentBlockIndex": self.blocks, "delta": delta});
        self.message_of_bedrock("contentBlockDelta", &event);
    }

    pub(super) fn think_on_bedrock(&mut self, text: &str) {
        self.piece_of_bedrock("thinking", &json!({"reasoningContent": {"text": text}}));
        self.thought.push_str(text);
    }

    pub(super) fn redact_on_bedrock(&mut self, data: &str) {
        self.close_bedrock();
        let data = STANDARD.encode(seal(self.blocks as usize, self.thoughts, data));
        let delta = json!({"reasoningContent": {"redactedContent": data}});
        self.piece_of_bedrock("redacted", &delta);
        self.close_bedrock();
    }

    pub(super) fn tools_of_bedrock(&mut self, calls: &[ToolCall]) {
        for call in calls {
            self.close_bedrock();
            let tool = json!({"toolUseId": self.next_id(call), "name": call.name});
            let start = json!({"contentBlockIndex": self.blocks, "start": {"toolUse": tool}});
            self.message_of_bedrock("contentBlockStart", &start);
            self.open = Some("tool_use");
            self.piece_of_bedrock("tool_use", &json!({"toolUse": {"input": ""}}));
            for piece in call.pieces() {
                self.piece_of_bedrock("tool_use", &json!({"toolUse": {"input": piece}}));
            }
        }
    }

    fn close_bedrock(&mut self) {
        if self.open == Some("thinking") {
            let thought = std::mem::take(&mut self.thought);
            let signature = sign(self.blocks as usize, self.thoughts, &thought);
            let delta = json!({"reasoningContent": {"signature": signature}});
            self.piece_of_bedrock("thinking", &delta);
        }
        if self.open.take().is_some() {
            let stop = json!({"contentBlockIndex": self.blocks});
            self.message_of_bedrock("contentBlockStop", &stop);
            self.blocks += 1;
        }
    }

    pub(super) fn end_bedrock(&mut self, stop: &str) {
        self.close_bedrock();
        self.message_of_bedrock("messageStop", &json!({"stopReason": stop}));
        let mut metadata = json!({"metrics": {"latencyMs": 1}});
        if self.reply.usage {
            let usage = usage(self.asked, self.tokens);
            metadata["usage"] = self.reply.reported(usage, ("inputTokens", "outputTokens"));
        }
        self.message_of_bedrock("metadata", &metadata);
    }
}

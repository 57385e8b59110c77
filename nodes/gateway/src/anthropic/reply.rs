//! Says a reply in the words of the Messages API, whole or as a stream.
//!
//! The signature of a thought is the id of its turn: the provider's own stays in the journal of the turn,
//! which sends it back.

use axum::response::Response;
use clawnode_proto::{
    EntityId, ErrorBody, FrameKey, TurnId,
    client_tool::{ClientCall, ClientCalls},
    frame::ApprovalRequest,
    llm::Usage,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::{
    error::{AnthropicError, json as text_of},
    openai::{
        reply::{FinishReason, OpenAiReply},
        stream::{StreamWords, at},
        tools::handed_id,
    },
};

/// What all that is said of one message has in common.
#[derive(Debug)]
pub(super) struct MessageLabel {
    pub(super) turn: TurnId,
    pub(super) session: EntityId,
    pub(super) model: String,
    /// The texts at which the model was to stop.
    pub(super) stops: Vec<String>,
}

/// The words of a stream.
#[derive(Debug)]
pub(super) struct MessageWords {
    label: MessageLabel,
    /// The block that is open.
    open: Option<BlockKind>,
    /// The place of the open block, or of the next.
    index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
}

#[derive(Serialize)]
struct AnthropicReply<'a> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<AnthropicReplyBlock<'a>>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    usage: MessageUsage,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicReplyBlock<'a> {
    Thinking { thinking: &'a str, signature: String },
    Text { text: &'a str },
    ToolUse { id: String, name: &'a str, input: Value },
}

#[derive(Clone, Copy, Serialize)]
struct MessageUsage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
    /// Left out if no provider counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens_details: Option<ThinkingTokens>,
}

#[derive(Clone, Copy, Serialize)]
struct ThinkingTokens {
    thinking_tokens: u64,
}

// === impl MessageLabel ===

impl MessageLabel {
    /// The whole message.
    pub(super) fn whole(
        &self,
        reply: &OpenAiReply,
        end: Result<FinishReason, &ClientCalls>,
    ) -> String {
        let mut content = Vec::new();
        if !reply.thought().is_empty() {
            let signature = self.signature();
            content.push(AnthropicReplyBlock::Thinking { thinking: reply.thought(), signature });
        }
        if !reply.text().is_empty() {
            content.push(AnthropicReplyBlock::Text { text: reply.text() });
        }
        let (reason, calls) = match end {
            Ok(reason) => (reason, &[][..]),
            Err(calls) => (FinishReason::ToolCalls, calls.calls.as_slice()),
        };
        content.extend(calls.iter().map(|call| self.called(call)));
        let (stop_reason, stop_sequence) = self.stop(reason, reply);
        text_of(&AnthropicReply {
            content,
            stop_reason: Some(stop_reason),
            stop_sequence,
            ..self.message(MessageUsage::from(reply.usage()))
        })
    }

    fn message(&self, usage: MessageUsage) -> AnthropicReply<'_> {
        AnthropicReply {
            id: format!("msg_{}", self.turn),
            r#type: "message",
            role: "assistant",
            model: &self.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage,
        }
    }

    fn called<'a>(&self, call: &'a ClientCall) -> AnthropicReplyBlock<'a> {
        // The arguments were judged by the tool's schema.
        let input = serde_json::from_str(&call.arguments);
        let input = input.unwrap_or_else(|_no_json| Value::Object(Map::new()));
        AnthropicReplyBlock::ToolUse {
            id: handed_id(call.id, self.session),
            name: &call.name,
            input,
        }
    }

    fn signature(&self) -> String {
        self.turn.to_string()
    }

    /// Why the reply ends, and at which text, where only one can be meant.
    fn stop(&self, reason: FinishReason, reply: &OpenAiReply) -> (&'static str, Option<&str>) {
        match reason {
            FinishReason::Stop if reply.is_at_stop() => {
                let only = self.stops.first().filter(|_| self.stops.len() == 1);
                ("stop_sequence", only.map(String::as_str))
            }
            FinishReason::Stop => ("end_turn", None),
            FinishReason::Length => ("max_tokens", None),
            FinishReason::ContentFilter => ("refusal", None),
            FinishReason::ToolCalls => ("tool_use", None),
        }
    }
}

// === impl MessageWords ===

impl MessageWords {
    pub(super) const fn new(label: MessageLabel) -> Self {
        Self { label, open: None, index: 0 }
    }

    /// Makes a block of this kind the open one.
    fn block(&mut self, kind: BlockKind, out: &mut String) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        let block = match kind {
            BlockKind::Text => json!({"type": "text", "text": ""}),
            BlockKind::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        };
        self.start(&block, out);
        self.open = Some(kind);
    }

    fn start(&self, block: &Value, out: &mut String) {
        let index = self.index;
        event(out, &json!({"type": "content_block_start", "index": index, "content_block": block}));
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        let index = self.index;
        event(out, &json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn stop(&mut self, out: &mut String) {
        event(out, &json!({"type": "content_block_stop", "index": self.index}));
        self.index += 1;
    }

    fn close(&mut self, out: &mut String) {
        let Some(kind) = self.open.take() else { return };
        if kind == BlockKind::Thinking {
            let signature = self.label.signature();
            self.delta(&json!({"type": "signature_delta", "signature": signature}), out);
        }
        self.stop(out);
    }

    fn end(&mut self, reason: FinishReason, reply: &OpenAiReply, out: &mut String) {
        self.close(out);
        let (stop_reason, stop_sequence) = self.label.stop(reason, reply);
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": stop_sequence});
        let usage = MessageUsage::from(reply.usage());
        event(out, &json!({"type": "message_delta", "delta": delta, "usage": usage}));
        event(out, &json!({"type": "message_stop"}));
    }
}

impl StreamWords for MessageWords {
    fn open(&mut self, out: &mut String) {
        // What was used is known at the end.
        let message = self.label.message(MessageUsage::from(&Usage::default()));
        event(out, &json!({"type": "message_start", "message": message}));
    }

    fn text(&mut self, text: &str, cursor: Option<FrameKey>, out: &mut String) {
        self.block(BlockKind::Text, out);
        at(out, cursor);
        self.delta(&json!({"type": "text_delta", "text": text}), out);
    }

    fn thought(&mut self, text: &str, cursor: Option<FrameKey>, out: &mut String) {
        self.block(BlockKind::Thinking, out);
        at(out, cursor);
        self.delta(&json!({"type": "thinking_delta", "thinking": text}), out);
    }

    /// Clients of this protocol leave out pings, with whatever is in them.
    fn asks(&mut self, request: &ApprovalRequest, out: &mut String) {
        event(out, &json!({"type": "ping", "clawnode": {"approval": request}}));
    }

    fn keep_alive(&mut self, out: &mut String) {
        event(out, &json!({"type": "ping"}));
    }

    fn called(&mut self, calls: &ClientCalls, reply: &OpenAiReply, out: &mut String) {
        self.close(out);
        for call in &calls.calls {
            let (id, name) = (handed_id(call.id, self.label.session), &call.name);
            self.start(&json!({"type": "tool_use", "id": id, "name": name, "input": {}}), out);
            let arguments = &call.arguments;
            self.delta(&json!({"type": "input_json_delta", "partial_json": arguments}), out);
            self.stop(out);
        }
        self.end(FinishReason::ToolCalls, reply, out);
    }

    fn finished(&mut self, reason: FinishReason, reply: &OpenAiReply, out: &mut String) {
        self.end(reason, reply, out);
    }

    fn failed(&mut self, error: ErrorBody, out: &mut String) {
        named(out, "error", &AnthropicError::from(error).to_json());
    }

    fn refusal(error: ErrorBody, ended: bool) -> Response {
        let error = AnthropicError::from(error);
        if ended { error.respond_ended() } else { error.respond() }
    }
}

/// A server-sent event, named by its type.
fn event(out: &mut String, data: &Value) {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    named(out, name, &text_of(data));
}

fn named(out: &mut String, name: &str, data: &str) {
    out.push_str("event: ");
    out.push_str(name);
    out.push_str("\ndata: ");
    out.push_str(data);
    out.push_str("\n\n");
}

// === impl MessageUsage ===

impl From<&Usage> for MessageUsage {
    /// This protocol counts what came from the cache, or went into it, apart.
    fn from(usage: &Usage) -> Self {
        let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
        Self {
            input_tokens: usage.input_tokens.saturating_sub(cached),
            cache_creation_input_tokens: usage.cache_write_tokens,
            cache_read_input_tokens: usage.cache_read_tokens,
            output_tokens: usage.output_tokens,
            output_tokens_details: Some(usage.reasoning_tokens)
                .filter(|tokens| *tokens > 0)
                .map(|thinking_tokens| ThinkingTokens { thinking_tokens }),
        }
    }
}

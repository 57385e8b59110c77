//! A reply in the bytes of a wire: what all wires have, and the two that were there first.

use serde_json::{Value, json};

use super::errors::error;
use crate::model::{
    book::WireName,
    cache::PromptTokens,
    check::Asked,
    event_stream,
    script::{self, Reply, Step, ToolCall},
    thoughts::{seal, sign},
};

/// A placeholder for a time of as many digits.
pub(in crate::model) const NO_TIME: &str = "0000000000000000000";

/// Where reports on Anthropic's wire have their tokens.
const ANTHROPIC: (&str, &str) = ("input_tokens", "output_tokens");

/// What the body does next.
#[derive(Debug)]
pub(in crate::model) enum Part {
    /// Writes.
    Bytes(Vec<u8>),
    /// Writes, with the time instead of [`NO_TIME`].
    Timed(Vec<u8>),
    /// Lets what was written out before it goes on.
    Flush,
    Delay(u64),
    Gate(String),
    Stall,
    Cut,
}

/// Writes one reply.
pub(super) struct Writer<'a> {
    pub(super) wire: WireName,
    /// Which request it answers.
    pub(super) seq: u64,
    pub(super) asked: &'a Asked,
    pub(super) reply: &'a Reply,
    pub(super) parts: Vec<Part>,
    /// Anthropic's open block, and how many there were.
    pub(super) open: Option<&'static str>,
    pub(super) blocks: u32,
    /// What the open block has thought.
    pub(super) thought: String,
    /// How many blocks of thoughts there are in all.
    pub(super) thoughts: usize,
    /// Tool calls made.
    pub(super) calls: usize,
    /// Pieces said, which this server counts as tokens.
    pub(super) tokens: u64,
    /// All text so far, and that of the open item.
    pub(super) said: String,
    pub(super) item: String,
    /// Events so far.
    pub(super) events: u64,
}

/// The parts of a streamed reply to request `seq`.
pub(in crate::model) fn stream(
    wire: WireName,
    seq: u64,
    asked: &Asked,
    reply: &Reply,
) -> Vec<Part> {
    let mut writer = Writer {
        wire,
        seq,
        asked,
        reply,
        parts: Vec::new(),
        open: None,
        blocks: 0,
        thought: String::new(),
        thoughts: script::thoughts(&reply.steps),
        calls: 0,
        tokens: 0,
        said: String::new(),
        item: String::new(),
        events: 0,
    };
    writer.begin();
    for step in &reply.steps {
        writer.step(step);
    }
    if reply.end {
        writer.end();
    }
    if reply.chunk > 0 {
        writer.split(0, reply.chunk);
    }
    writer.parts
}

/// The id of the `nth` call in the answer to request `seq`.
pub(in crate::model) fn id(wire: WireName, seq: u64, nth: usize, call: &ToolCall) -> String {
    let prefix = match wire {
        WireName::Anthropic => "toolu",
        WireName::Openai | WireName::OpenaiResponses | WireName::Ollama => "call",
        WireName::Gemini => "fc",
        WireName::Bedrock => "tooluse",
    };
    call.id.clone().unwrap_or_else(|| format!("{prefix}_{seq}_{nth}"))
}

pub(in crate::model) fn said(step: &Step) -> Option<&str> {
    match step {
        Step::Text { text } | Step::Split { text } | Step::Refusal { text } => Some(text),
        _ => None,
    }
}

pub(in crate::model) fn called(step: &Step) -> &[ToolCall] {
    match step {
        Step::Tools { calls, .. } => calls,
        _ => &[],
    }
}

pub(in crate::model) fn stop(wire: WireName, reply: &Reply) -> &str {
    let calls = reply.steps.iter().any(|step| !called(step).is_empty());
    reply.stop.as_deref().unwrap_or(match (wire, reply.cut_off, calls) {
        (WireName::Anthropic | WireName::Bedrock, true, _) => "max_tokens",
        (WireName::Anthropic | WireName::Bedrock, false, true) => "tool_use",
        (WireName::Anthropic | WireName::Bedrock, false, false) => "end_turn",
        (WireName::Openai | WireName::Ollama, true, _) => "length",
        (WireName::Openai, false, true) => "tool_calls",
        (WireName::Openai, false, false) | (WireName::Ollama, false, _) => "stop",
        (WireName::OpenaiResponses, true, _) => "max_output_tokens",
        (WireName::OpenaiResponses, false, _) => "completed",
        (WireName::Gemini, true, _) => "MAX_TOKENS",
        (WireName::Gemini, false, _) => "STOP",
    })
}

pub(in crate::model) fn anthropic_usage(asked: &Asked, output: u64) -> Value {
    let PromptTokens { read, written, .. } = asked.cached;
    json!({
        "input_tokens": asked.words - read - written, "output_tokens": output,
        "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
    })
}

pub(in crate::model) fn openai_usage(asked: &Asked, output: u64) -> Value {
    let input = asked.words;
    json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": asked.cached.read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    })
}

// === impl Writer ===

impl Writer<'_> {
    fn begin(&mut self) {
        match self.wire {
            WireName::Anthropic => {
                let usage = self.reply.usage.then(|| anthropic_usage(self.asked, 1));
                let mut message = json!({
                    "id": "msg_scripted", "type": "message", "role": "assistant", "content": [],
                    "model": self.asked.model, "stop_reason": null, "stop_sequence": null,
                });
                if let Some(usage) = usage {
                    message["usage"] = self.reply.reported(usage, ANTHROPIC);
                }
                self.event("message_start", &json!({"type": "message_start", "message": message}));
            }
            WireName::Openai => {
                self.chunk(&json!({"role": "assistant", "content": "", "refusal": null}), None);
            }
            WireName::OpenaiResponses => self.begin_response(),
            WireName::Gemini | WireName::Ollama => {}
            WireName::Bedrock => self.event("messageStart", &json!({"role": "assistant"})),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Text { text } => self.text(text),
            Step::Split { text } => {
                self.parts.push(Part::Flush);
                let before = self.parts.len();
                self.text(text);
                self.split(before, 1);
            }
            Step::Thinking { text } => self.thinking(text),
            Step::Redacted { data } => self.redacted(data),
            Step::Refusal { text } => match self.wire {
                WireName::Anthropic | WireName::Gemini | WireName::Ollama | WireName::Bedrock => {
                    self.text(text);
                }
                WireName::Openai => self.chunk(&json!({"refusal": text}), None),
                WireName::OpenaiResponses => self.refuse(text),
            },
            Step::Tools { calls, interleaved } => match self.wire {
                WireName::Anthropic => self.blocks_of_tools(calls),
                WireName::Openai => self.chunks_of_tools(calls, *interleaved),
                WireName::OpenaiResponses => self.items_of_tools(calls, *interleaved),
                WireName::Gemini => self.parts_of_tools(calls, *interleaved),
                WireName::Ollama => self.lines_of_tools(calls, *interleaved),
                WireName::Bedrock => self.tools_of_bedrock(calls),
            },
            Step::Ping => self.ping(),
            Step::Unknown => self.novelty(),
            Step::Clock => {
                self.text(&format!(" @{NO_TIME}"));
                // Bedrock's CRCs are of the bytes as they are.
                if self.wire == WireName::Bedrock {
                    return;
                }
                if let Some(Part::Bytes(bytes)) = self.parts.pop() {
                    self.parts.push(Part::Timed(bytes));
                }
            }
            Step::Flush => self.parts.push(Part::Flush),
            Step::Delay { ms } => self.parts.push(Part::Delay(*ms)),
            Step::Gate { name } => self.parts.push(Part::Gate(name.clone())),
            Step::Stall => self.parts.push(Part::Stall),
            Step::Cut => self.parts.extend([Part::Flush, Part::Cut]),
            Step::Error { kind, message } if self.wire == WireName::Bedrock => {
                self.exception_of_bedrock(kind, message);
            }
            Step::Error { kind, message } => {
                let body = match self.wire {
                    WireName::OpenaiResponses => {
                        json!({"type": "error", "code": kind, "message": message, "param": null})
                    }
                    wire => error(wire, kind, message),
                };
                self.event("error", &body);
            }
            Step::BadJson => self.frame(b"{\"type\":"),
            Step::BadShape => self.frame(b"[1]"),
            Step::Garble => self.frame(b"\xff\xfe"),
            Step::Raw { text } => self.raw(text.as_bytes()),
        }
    }

    fn ping(&mut self) {
        match self.wire {
            WireName::Anthropic => self.event("ping", &json!({"type": "ping"})),
            WireName::Openai | WireName::Gemini => self.raw(b": processing\n\n"),
            WireName::OpenaiResponses => self.response_event("response.in_progress", json!({})),
            WireName::Ollama => self.raw(b"\n"),
            WireName::Bedrock => self.event("initial-response", &json!({})),
        }
    }

    fn novelty(&mut self) {
        match self.wire {
            WireName::Anthropic => {
                self.event("novelty", &json!({"type": "novelty", "index": "x"}));
            }
            WireName::Openai => self.chunk(&json!({"novelty": {"deep": []}}), None),
            WireName::OpenaiResponses => {
                self.response_event("response.novelty", json!({"output_index": "x"}));
            }
            WireName::Gemini => {
                self.event("", &json!({"candidates": [], "novelty": {"deep": []}}));
            }
            WireName::Ollama => {
                self.event("", &json!({"message": {"role": "assistant"}, "novelty": []}));
            }
            WireName::Bedrock => self.event("novelty", &json!({"contentBlockIndex": "x"})),
        }
    }

    fn end(&mut self) {
        let stop = stop(self.wire, self.reply).to_owned();
        match self.wire {
            WireName::Anthropic => {
                self.close();
                let mut delta = json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": stop, "stop_sequence": null},
                });
                if self.reply.usage {
                    let usage = json!({"output_tokens": self.tokens});
                    delta["usage"] = self.reply.reported(usage, ANTHROPIC);
                }
                self.event("message_delta", &delta);
                self.event("message_stop", &json!({"type": "message_stop"}));
            }
            WireName::Openai => {
                self.chunk(&json!({}), Some(&stop));
                if self.reply.usage && self.asked.usage {
                    let usage = openai_usage(self.asked, self.tokens);
                    let mut chunk = self.envelope();
                    chunk["choices"] = json!([]);
                    let fields = ("prompt_tokens", "completion_tokens");
                    chunk["usage"] = self.reply.reported(usage, fields);
                    self.event("", &chunk);
                }
                self.raw(b"data: [DONE]\n\n");
            }
            WireName::OpenaiResponses => self.end_response(&stop),
            WireName::Gemini => self.end_gemini(&stop),
            WireName::Ollama => self.end_ollama(&stop),
            WireName::Bedrock => self.end_bedrock(&stop),
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.tokens += 1;
        self.said.push_str(text);
        match self.wire {
            WireName::Anthropic => {
                self.open("text", &json!({"type": "text", "text": ""}));
                self.delta(&json!({"type": "text_delta", "text": text}));
            }
            WireName::Openai => self.chunk(&json!({"content": text}), None),
            WireName::OpenaiResponses => self.text_of_item(text),
            WireName::Gemini => self.parts_of_gemini(&[json!({"text": text}).to_string()], None),
            WireName::Ollama => self.line(&json!({"content": text})),
            WireName::Bedrock => self.piece_of_bedrock("text", &json!({"text": text})),
        }
    }

    fn thinking(&mut self, text: &str) {
        match self.wire {
            WireName::Anthropic => {
                self.open("thinking", &json!({"type": "thinking", "thinking": ""}));
                self.delta(&json!({"type": "thinking_delta", "thinking": text}));
                self.thought.push_str(text);
            }
            WireName::Openai => self.think_on_openai(text),
            WireName::OpenaiResponses => self.reason(text),
            WireName::Gemini => {
                let part = json!({"text": text, "thought": true}).to_string();
                self.parts_of_gemini(&[part], None);
            }
            WireName::Ollama => self.line(&json!({"content": "", "thinking": text})),
            WireName::Bedrock => self.think_on_bedrock(text),
        }
    }

    fn redacted(&mut self, data: &str) {
        if self.wire == WireName::OpenaiResponses {
            self.reason_in_secret(data);
        }
        if self.wire == WireName::Bedrock {
            self.redact_on_bedrock(data);
        }
        if self.wire == WireName::Openai && self.reply.details {
            self.redact_on_openai();
        }
        if self.wire == WireName::Anthropic {
            self.close();
            let data = seal(self.blocks as usize, self.thoughts, data);
            self.open("redacted_thinking", &json!({"type": "redacted_thinking", "data": data}));
            self.close();
        }
    }

    fn blocks_of_tools(&mut self, calls: &[ToolCall]) {
        for call in calls {
            self.close();
            let id = self.next_id(call);
            let block = json!({"type": "tool_use", "id": id, "name": call.name, "input": {}});
            self.open("tool_use", &block);
            self.delta(&json!({"type": "input_json_delta", "partial_json": ""}));
            for piece in call.pieces() {
                self.delta(&json!({"type": "input_json_delta", "partial_json": piece}));
            }
        }
    }

    pub(super) fn next_id(&mut self, call: &ToolCall) -> String {
        let id = id(self.wire, self.seq, self.calls, call);
        self.calls += 1;
        self.tokens += 1;
        id
    }

    /// Opens a block of a kind, unless it is the open one.
    fn open(&mut self, kind: &'static str, block: &Value) {
        if self.open == Some(kind) {
            return;
        }
        self.close();
        self.open = Some(kind);
        let start = json!({
            "type": "content_block_start", "index": self.blocks, "content_block": block,
        });
        self.event("content_block_start", &start);
    }

    fn delta(&mut self, delta: &Value) {
        let event = json!({"type": "content_block_delta", "index": self.blocks, "delta": delta});
        self.event("content_block_delta", &event);
    }

    fn close(&mut self) {
        if self.open == Some("thinking") {
            let thought = std::mem::take(&mut self.thought);
            let signature = sign(self.blocks as usize, self.thoughts, &thought);
            self.delta(&json!({"type": "signature_delta", "signature": signature}));
        }
        if self.open.take().is_some() {
            let stop = json!({"type": "content_block_stop", "index": self.blocks});
            self.event("content_block_stop", &stop);
            self.blocks += 1;
        }
    }

    pub(super) fn chunk(&mut self, delta: &Value, finish: Option<&str>) {
        let mut chunk = self.envelope();
        chunk["choices"] =
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        if self.asked.usage {
            chunk["usage"] = Value::Null;
        }
        self.event("", &chunk);
    }

    fn envelope(&self) -> Value {
        json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk",
            "created": 1_700_000_000, "model": self.asked.model, "system_fingerprint": null,
        })
    }

    pub(super) fn event(&mut self, name: &str, data: &Value) {
        if self.wire == WireName::Bedrock {
            return self.message_of_bedrock(name, data);
        }
        let is_named = matches!(self.wire, WireName::Anthropic | WireName::OpenaiResponses);
        if is_named && !name.is_empty() {
            self.raw(format!("event: {name}\n").as_bytes());
        }
        self.frame(data.to_string().as_bytes());
    }

    /// Data as an event of the wire.
    pub(super) fn frame(&mut self, data: &[u8]) {
        if self.wire == WireName::Bedrock {
            return self.raw(&event_stream::event("contentBlockDelta", data));
        }
        let (before, after) = match self.wire {
            WireName::Ollama => (&b""[..], &b"\n"[..]),
            _ => (&b"data: "[..], &b"\n\n"[..]),
        };
        self.raw(&[before, data, after].concat());
    }

    /// Appends to what is written in one go.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        let bytes = if self.reply.crlf && self.wire != WireName::Bedrock {
            let text: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            text.join(&b"\r\n"[..])
        } else {
            bytes.to_vec()
        };
        match self.parts.last_mut() {
            Some(Part::Bytes(last)) => last.extend_from_slice(&bytes),
            _ => self.parts.push(Part::Bytes(bytes)),
        }
    }

    /// Writes what came since `before` so many bytes at a time.
    fn split(&mut self, before: usize, size: usize) {
        for part in self.parts.split_off(before) {
            match part {
                Part::Bytes(bytes) => {
                    for chunk in bytes.chunks(size) {
                        self.parts.extend([Part::Bytes(chunk.to_vec()), Part::Flush]);
                    }
                }
                other => self.parts.push(other),
            }
        }
    }
}

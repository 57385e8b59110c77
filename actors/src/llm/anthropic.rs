//! Anthropic's Messages API.
//!
//! The decoder holds the stream to its grammar (`message_start`, blocks that open, grow and close,
//! `message_delta`, `message_stop`) and skips kinds of events, blocks and deltas that it does not
//! know, as the vendor asks of clients. Thinking is not part of the reply.

use std::collections::BTreeMap;

use clawnode_proto::llm::{FailureClass, ModelFailure, Role, StopReason, Usage};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{
    ModelRequest, PlainMessage,
    call::{Decoder, Dialect, Piece, headers, sensitive},
    http::{Fault, Prepared},
    options::BaseUrl,
    prompt::alternate,
    sse::Event,
    tell::Finish,
};

/// The version of the API that this file speaks.
const VERSION: &str = "2023-06-01";
/// Names of events that are read; others are skipped unread.
const KNOWN: [&str; 8] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];

/// The wire.
#[derive(Debug)]
pub(super) struct Anthropic {
    pub(super) base: BaseUrl,
    pub(super) key: Option<SecretString>,
    /// For requests that set no limit; the API needs one.
    pub(super) max_tokens: u32,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    system: &'a str,
    messages: Vec<Said<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
}

#[derive(Serialize)]
struct Said<'a> {
    role: Role,
    content: &'a str,
}

// === impl Anthropic ===

impl Dialect for Anthropic {
    fn provider(&self) -> &'static str {
        "anthropic"
    }

    fn prepare(&self, request: ModelRequest) -> Result<Prepared, ModelFailure> {
        let messages = alternate(request.messages)?;
        let body = Body {
            model: &request.model,
            max_tokens: request.sampling.max_tokens.unwrap_or(self.max_tokens),
            system: request.system.trim(),
            messages: messages.iter().map(Said::from).collect(),
            stream: true,
            temperature: request.sampling.temperature,
            stop_sequences: &request.sampling.stop,
        };
        let mut headers = headers(&request.idempotency_key);
        headers.insert("anthropic-version", reqwest::header::HeaderValue::from_static(VERSION));
        if let Some(key) = self.key.as_ref().and_then(|key| sensitive(key.expose_secret())) {
            headers.insert("x-api-key", key);
        }
        // Some people write the base with its `/v1`, as the other wire has it.
        let path = if self.base.ends_in("v1") { "messages" } else { "v1/messages" };
        let body = serde_json::to_vec(&body).map_err(|error| ModelFailure {
            class: FailureClass::Rejected,
            message: format!("not sent: {error}"),
            status: None,
        })?;
        Ok(Prepared { url: self.base.join(path), headers, body: body.into() })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Reader::default())
    }
}

impl<'a> From<&'a PlainMessage> for Said<'a> {
    fn from(message: &'a PlainMessage) -> Self {
        Self { role: message.role, content: &message.text }
    }
}

// === the reply ===

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told {
    MessageStart {
        message: Started,
    },
    ContentBlockStart {
        index: u32,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u32,
        delta: Delta,
    },
    ContentBlockStop {
        index: u32,
    },
    MessageDelta {
        delta: Ending,
        usage: Option<Counts>,
    },
    MessageStop,
    Ping,
    Error {
        error: Trouble,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Started {
    model: String,
    usage: Option<Counts>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking,
    RedactedThinking,
    ToolUse,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking,
    #[serde(rename = "signature_delta")]
    Signature,
    #[serde(rename = "input_json_delta")]
    InputJson,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Ending {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Trouble {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct WholeReply {
    model: String,
    content: Vec<Block>,
    stop_reason: Option<String>,
    usage: Option<Counts>,
}

/// Token counts; each report holds the ones it knows, cumulative.
#[derive(Clone, Copy, Default, Deserialize)]
struct Counts {
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_write: Option<u64>,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: Option<u64>,
}

/// What an open block holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    /// Thinking, or something newer than this build.
    Other,
}

/// Reads one reply.
#[derive(Default)]
pub(super) struct Reader {
    model: Option<String>,
    /// Every block of the message by index; `None` once it is closed.
    blocks: BTreeMap<u32, Option<Open>>,
    counts: Counts,
    stop: Option<StopReason>,
}

impl Decoder for Reader {
    fn event(&mut self, event: &Event, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if !event.name.is_empty() && !KNOWN.contains(&event.name.as_str()) {
            return Ok(());
        }
        let told: Told = serde_json::from_str(&event.data).map_err(Fault::broken)?;
        match told {
            Told::Ping | Told::Unknown => Ok(()),
            Told::Error { error } => Err(self.trouble(error)),
            Told::MessageStart { message } => self.start(message, pieces),
            _ if self.model.is_none() => Err(Fault::broken("an event before `message_start`")),
            Told::ContentBlockStart { index, content_block } => {
                self.open(index, content_block, pieces)
            }
            Told::ContentBlockDelta { index, delta } => self.grow(index, delta, pieces),
            Told::ContentBlockStop { index } => self.close(index),
            Told::MessageDelta { delta, usage } => self.ending(delta, usage, pieces),
            Told::MessageStop => self.end(pieces),
        }
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        let reply: WholeReply = serde_json::from_slice(body).map_err(Fault::broken)?;
        for block in reply.content {
            match block {
                Block::Text { text } => push_text(text, pieces),
                Block::ToolUse => return Err(unasked_tool()),
                Block::Thinking | Block::RedactedThinking | Block::Unknown => {}
            }
        }
        let Some(reason) = reply.stop_reason else {
            return Err(Fault::broken("a reply without a stop reason"));
        };
        let (stop, model) = (stop_reason(reason)?, reply.model);
        let usage = reply.usage.unwrap_or_default().usage();
        pieces.push(Piece::End(Finish { stop, usage, model }));
        Ok(())
    }
}

impl Reader {
    fn start(&mut self, message: Started, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if self.model.is_some() {
            return Err(Fault::broken("a second `message_start`"));
        }
        self.model = Some(message.model);
        self.count(message.usage, pieces);
        Ok(())
    }

    fn open(&mut self, index: u32, block: Block, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if self.stop.is_some() {
            return Err(Fault::broken("a block after the stop reason"));
        }
        let open = match block {
            Block::Text { text } => {
                push_text(text, pieces);
                Open::Text
            }
            Block::ToolUse => return Err(unasked_tool()),
            Block::Thinking | Block::RedactedThinking | Block::Unknown => Open::Other,
        };
        match self.blocks.insert(index, Some(open)) {
            None => Ok(()),
            Some(_) => Err(Fault::broken("two blocks with one index")),
        }
    }

    fn grow(&mut self, index: u32, delta: Delta, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        let Some(Some(open)) = self.blocks.get(&index) else {
            return Err(Fault::broken("more of a block that is not open"));
        };
        match (open, delta) {
            (Open::Text, Delta::Text { text }) => push_text(text, pieces),
            (Open::Text, Delta::Thinking | Delta::Signature | Delta::InputJson) => {
                return Err(Fault::broken("something else within a block of text"));
            }
            (Open::Text, Delta::Unknown) | (Open::Other, _) => {}
        }
        Ok(())
    }

    fn close(&mut self, index: u32) -> Result<(), Fault> {
        match self.blocks.get_mut(&index) {
            Some(block @ Some(_)) => {
                *block = None;
                Ok(())
            }
            Some(None) | None => Err(Fault::broken("an end of a block that is not open")),
        }
    }

    fn ending(
        &mut self,
        delta: Ending,
        usage: Option<Counts>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        if let Some(reason) = delta.stop_reason {
            self.stop = Some(stop_reason(reason)?);
        }
        self.count(usage, pieces);
        Ok(())
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if self.blocks.values().any(Option::is_some) {
            return Err(Fault::broken("`message_stop` within a block"));
        }
        let Some(stop) = self.stop.take() else {
            return Err(Fault::broken("`message_stop` without a stop reason"));
        };
        let model = self.model.take().unwrap_or_default();
        pieces.push(Piece::End(Finish { stop, usage: self.counts.usage(), model }));
        Ok(())
    }

    fn count(&mut self, counts: Option<Counts>, pieces: &mut Vec<Piece>) {
        if let Some(new) = counts {
            self.counts = Counts {
                input: new.input.or(self.counts.input),
                output: new.output.or(self.counts.output),
                cache_write: new.cache_write.or(self.counts.cache_write),
                cache_read: new.cache_read.or(self.counts.cache_read),
            };
            pieces.push(Piece::Usage(self.counts.usage()));
        }
    }

    /// An error event: the provider gives up. Before `message_start` it may be tried again.
    fn trouble(&self, error: Trouble) -> Fault {
        let class = match error.kind.as_str() {
            "overloaded_error" | "api_error" => FailureClass::Overloaded,
            "rate_limit_error" => FailureClass::RateLimited,
            "timeout_error" => FailureClass::Timeout,
            "authentication_error" | "permission_error" => FailureClass::Unauthorized,
            "invalid_request_error" | "not_found_error" | "request_too_large" | "billing_error" => {
                FailureClass::Rejected
            }
            _ => FailureClass::BrokenStream,
        };
        let passes = matches!(
            class,
            FailureClass::Overloaded | FailureClass::RateLimited | FailureClass::Timeout
        );
        let message = if error.message.trim().is_empty() { error.kind } else { error.message };
        Fault::last(class, message).again(passes && self.model.is_none())
    }
}

impl Counts {
    fn usage(&self) -> Usage {
        let cache_read_tokens = self.cache_read.unwrap_or(0);
        let cache_write_tokens = self.cache_write.unwrap_or(0);
        // The wire counts cached tokens apart; `Usage` counts them in.
        let input = self.input.unwrap_or(0);
        Usage {
            input_tokens: input
                .saturating_add(cache_read_tokens)
                .saturating_add(cache_write_tokens),
            output_tokens: self.output.unwrap_or(0),
            cache_read_tokens,
            cache_write_tokens,
        }
    }
}

fn push_text(text: String, pieces: &mut Vec<Piece>) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

fn stop_reason(reason: String) -> Result<StopReason, Fault> {
    Ok(match reason.as_str() {
        "end_turn" => StopReason::EndTurn,
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::StopSequence,
        "refusal" => StopReason::Refusal,
        "tool_use" => return Err(unasked_tool()),
        _ => StopReason::Other { reason },
    })
}

fn unasked_tool() -> Fault {
    Fault::broken("the model asks for a tool, and none was offered")
}

//! What a reply says on Anthropic's wire.
//!
//! The decoder holds the stream to its grammar (`message_start`, blocks that open, grow and close,
//! `message_delta`, `message_stop`) and skips kinds of events, blocks and deltas that it does not
//! know, as the vendor asks of clients. Thinking is shown as it comes, and whole once its block closes.

use std::collections::BTreeMap;

use clawnode_proto::llm::{FailureClass, StopReason, Usage};
use serde_json::Value;

use super::events::{
    AnthropicCounts, AnthropicErrorBody, AnthropicEvent, BlockDelta, MessageEnding, MessageStart,
    ReplyBlock, WholeReply,
};
use crate::llm::{
    Item,
    blocks::push_bounded,
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    http::AttemptFailure,
    sse::SseEvent,
    tool_uses::{Growing, ToolUseBounds, stop_with, unasked_tool},
};

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

/// What an open block holds.
enum OpenBlock {
    Text,
    /// A tool call, and the arguments that it began with: these are an empty object, and the real
    /// ones follow.
    Tool(Growing, Value),
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(String),
    /// One tool call too many, or something newer than this build.
    Other,
}

/// Reads one reply.
#[derive(Default)]
pub(in crate::llm) struct AnthropicReader {
    /// Whether tools were offered.
    offers: bool,
    model: Option<String>,
    /// Every block of the message by index; `None` once it is closed.
    blocks: BTreeMap<u32, Option<OpenBlock>>,
    room: ToolUseBounds,
    /// The last call, if it has closed without arguments: that is how this wire writes a call
    /// without any, and also how it writes a call that was cut off before them. The stop reason
    /// tells which.
    bare: Option<Growing>,
    counts: AnthropicCounts,
    /// Whether the tokens of the whole reply are reported: what it begins with is only the first of them.
    is_counted: bool,
    stop: Option<StopReason>,
}

impl Decoder for AnthropicReader {
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if !event.name.is_empty() && !KNOWN.contains(&event.name.as_str()) {
            return Ok(());
        }
        let told: AnthropicEvent =
            serde_json::from_str(&event.data).map_err(AttemptFailure::broken)?;
        match told {
            AnthropicEvent::Ping | AnthropicEvent::Unknown => Ok(()),
            AnthropicEvent::Error { error } => Err(Self::trouble(error)),
            AnthropicEvent::MessageStart { message } => self.start(message, pieces),
            _ if self.model.is_none() => {
                Err(AttemptFailure::broken("an event before `message_start`"))
            }
            AnthropicEvent::ContentBlockStart { index, content_block } => {
                self.open(index, content_block, pieces)
            }
            AnthropicEvent::ContentBlockDelta { index, delta } => self.grow(index, delta, pieces),
            AnthropicEvent::ContentBlockStop { index } => self.close(index, pieces),
            AnthropicEvent::MessageDelta { delta, usage } => self.ending(delta, usage, pieces),
            AnthropicEvent::MessageStop => self.end(pieces),
        }
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let reply: WholeReply = serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        let Some(reason) = reply.stop_reason else {
            return Err(AttemptFailure::broken("a reply without a stop reason"));
        };
        let stop = self.stop_reason(reason)?;
        let last = reply.content.len().saturating_sub(1);
        for (nth, block) in reply.content.into_iter().enumerate() {
            match block {
                ReplyBlock::Text { text } => push_text(text, pieces),
                ReplyBlock::ToolUse { .. } if !self.offers => return Err(unasked_tool()),
                ReplyBlock::ToolUse { id, name, input } => {
                    let mut arguments = input.to_string();
                    if nth == last && is_cut_off(&stop) {
                        // Its pieces were made an object; it is left open, as it was.
                        arguments.pop();
                    }
                    if let Some(mut call) = self.called(&id, &name) {
                        self.room.argue(&mut call, &arguments);
                        pieces.push(ReplyPiece::ToolUse(call.done()));
                    }
                }
                ReplyBlock::Thinking { thinking, signature } => {
                    let (text, signature) =
                        (thinking.unwrap_or_default(), signature.unwrap_or_default());
                    push_thought(text.clone(), pieces);
                    push_thinking(text, signature, pieces);
                }
                ReplyBlock::RedactedThinking { data } => push_redacted(data, pieces),
                ReplyBlock::Unknown => {}
            }
        }
        let (stop, model) = (stop_with(self.room.calls(), stop)?, reply.model);
        let usage = reply.usage.unwrap_or_default().usage();
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        Ok(())
    }

    fn argued(&self) -> usize {
        self.room.bytes()
    }
}

impl AnthropicReader {
    pub(in crate::llm) fn new(offers: bool) -> Self {
        Self { offers, ..Self::default() }
    }

    fn start(
        &mut self,
        message: MessageStart,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if self.model.is_some() {
            return Err(AttemptFailure::broken("a second `message_start`"));
        }
        self.model = Some(message.model);
        self.count(message.usage, pieces);
        Ok(())
    }

    fn open(
        &mut self,
        index: u32,
        block: ReplyBlock,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if self.stop.is_some() {
            return Err(AttemptFailure::broken("a block after the stop reason"));
        }
        // What follows a call does not cut it off.
        self.unbare(false, pieces);
        let open = match block {
            ReplyBlock::Text { text } => {
                push_text(text, pieces);
                OpenBlock::Text
            }
            ReplyBlock::ToolUse { .. } if !self.offers => return Err(unasked_tool()),
            ReplyBlock::ToolUse { id, name, input } => match self.called(&id, &name) {
                Some(call) => OpenBlock::Tool(call, input),
                None => OpenBlock::Other,
            },
            ReplyBlock::Thinking { thinking, signature } => {
                let text = thinking.unwrap_or_default();
                push_thought(text.clone(), pieces);
                OpenBlock::Thinking { text, signature: signature.unwrap_or_default() }
            }
            ReplyBlock::RedactedThinking { data } => OpenBlock::Redacted(data.unwrap_or_default()),
            ReplyBlock::Unknown => OpenBlock::Other,
        };
        match self.blocks.insert(index, Some(open)) {
            None => Ok(()),
            Some(_) => Err(AttemptFailure::broken("two blocks with one index")),
        }
    }

    fn grow(
        &mut self,
        index: u32,
        delta: BlockDelta,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let Some(Some(open)) = self.blocks.get_mut(&index) else {
            return Err(AttemptFailure::broken("more of a block that is not open"));
        };
        match (open, delta) {
            (OpenBlock::Text, BlockDelta::Text { text }) => push_text(text, pieces),
            (OpenBlock::Tool(call, _), BlockDelta::InputJson { partial_json }) => {
                self.room.argue(call, &partial_json);
            }
            (OpenBlock::Thinking { text, .. }, BlockDelta::Thinking { thinking }) => {
                push_bounded(text, &thinking);
                push_thought(thinking, pieces);
            }
            (OpenBlock::Thinking { signature, .. }, BlockDelta::Signature { signature: more }) => {
                push_bounded(signature, &more);
            }
            (OpenBlock::Other | OpenBlock::Redacted(_), _) | (_, BlockDelta::Unknown) => {}
            (OpenBlock::Text, _) => {
                return Err(AttemptFailure::broken("something else within a block of text"));
            }
            (OpenBlock::Tool(..), _) => {
                return Err(AttemptFailure::broken("something else within a tool call"));
            }
            (OpenBlock::Thinking { .. }, _) => {
                return Err(AttemptFailure::broken("something else within a thought"));
            }
        }
        Ok(())
    }

    fn close(&mut self, index: u32, pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let open = self.blocks.get_mut(&index).and_then(Option::take);
        match open {
            None => return Err(AttemptFailure::broken("an end of a block that is not open")),
            Some(OpenBlock::Text | OpenBlock::Other) => {}
            Some(OpenBlock::Thinking { text, signature }) => push_thinking(text, signature, pieces),
            Some(OpenBlock::Redacted(data)) => push_redacted(Some(data), pieces),
            Some(OpenBlock::Tool(call, _)) if call.is_begun() => {
                pieces.push(ReplyPiece::ToolUse(call.done()));
            }
            Some(OpenBlock::Tool(mut call, input)) => match input {
                Value::Object(input) if input.is_empty() => {
                    self.unbare(false, pieces);
                    self.bare = Some(call);
                }
                Value::Null => pieces.push(ReplyPiece::ToolUse(call.done())),
                // Some servers send all of it at once.
                whole => {
                    self.room.argue(&mut call, &whole.to_string());
                    pieces.push(ReplyPiece::ToolUse(call.done()));
                }
            },
        }
        Ok(())
    }

    /// Begins a call, if there are not too many.
    fn called(&mut self, id: &str, name: &str) -> Option<Growing> {
        let mut call = self.room.open()?;
        call.identify(id);
        call.name(name);
        Some(call)
    }

    /// Delivers the call that closed without arguments.
    fn unbare(&mut self, cut_off: bool, pieces: &mut Vec<ReplyPiece>) {
        if let Some(mut call) = self.bare.take() {
            if !cut_off {
                self.room.argue(&mut call, "{}");
            }
            pieces.push(ReplyPiece::ToolUse(call.done()));
        }
    }

    fn ending(
        &mut self,
        delta: MessageEnding,
        usage: Option<AnthropicCounts>,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if let Some(reason) = delta.stop_reason {
            self.stop = Some(self.stop_reason(reason)?);
        }
        self.is_counted |= usage.is_some_and(|counts| !counts.output.is_absent());
        self.count(usage, pieces);
        Ok(())
    }

    fn end(&mut self, pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let Some(stop) = self.stop.take() else {
            return Err(AttemptFailure::broken("`message_stop` without a stop reason"));
        };
        let cut_off = is_cut_off(&stop);
        self.unbare(cut_off, pieces);
        for open in std::mem::take(&mut self.blocks).into_values().flatten() {
            match open {
                OpenBlock::Tool(call, _) if cut_off => {
                    pieces.push(ReplyPiece::ToolUse(call.done()));
                }
                OpenBlock::Text
                | OpenBlock::Tool(..)
                | OpenBlock::Thinking { .. }
                | OpenBlock::Redacted(_)
                | OpenBlock::Other => {
                    return Err(AttemptFailure::broken("`message_stop` within a block"));
                }
            }
        }
        let stop = stop_with(self.room.calls(), stop)?;
        let model = self.model.take().unwrap_or_default();
        let counted = self.counts.usage();
        let usage = Usage { estimated: counted.estimated || !self.is_counted, ..counted };
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        Ok(())
    }

    fn stop_reason(&self, reason: String) -> Result<StopReason, AttemptFailure> {
        Ok(match reason.as_str() {
            "end_turn" => StopReason::EndTurn,
            "max_tokens" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "refusal" => StopReason::Refusal,
            "tool_use" if self.offers => StopReason::ToolUse,
            "tool_use" => return Err(unasked_tool()),
            _ => StopReason::Other { reason },
        })
    }

    fn count(&mut self, counts: Option<AnthropicCounts>, pieces: &mut Vec<ReplyPiece>) {
        if let Some(new) = counts {
            self.counts = AnthropicCounts {
                input: new.input.or(self.counts.input),
                output: new.output.or(self.counts.output),
                cache_write: new.cache_write.or(self.counts.cache_write),
                cache_read: new.cache_read.or(self.counts.cache_read),
                cache_writes: new.cache_writes.or(self.counts.cache_writes),
            };
            pieces.push(ReplyPiece::Usage(self.counts.usage()));
        }
    }

    /// An error event: the provider gives up.
    fn trouble(error: AnthropicErrorBody) -> AttemptFailure {
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
        AttemptFailure::last(class, message).again(passes)
    }
}

fn push_text(text: String, pieces: &mut Vec<ReplyPiece>) {
    if !text.is_empty() {
        pieces.push(ReplyPiece::Text(text));
    }
}

fn push_thought(text: String, pieces: &mut Vec<ReplyPiece>) {
    if !text.is_empty() {
        pieces.push(ReplyPiece::Thought(text));
    }
}

/// A whole thought. Without a signature the vendor does not take it back.
fn push_thinking(text: String, signature: String, pieces: &mut Vec<ReplyPiece>) {
    if !(text.is_empty() && signature.is_empty()) {
        let signature = (!signature.is_empty()).then_some(signature);
        pieces.push(ReplyPiece::Item(Item::Thinking { text, signature }));
    }
}

fn push_redacted(data: Option<String>, pieces: &mut Vec<ReplyPiece>) {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        pieces.push(ReplyPiece::Item(Item::Redacted { data }));
    }
}

/// Whether the reply goes no further than something let it, so that its last part may be a piece.
fn is_cut_off(stop: &StopReason) -> bool {
    !matches!(stop, StopReason::EndTurn | StopReason::ToolUse)
}

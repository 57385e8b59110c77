//! What a reply says on `OpenAI`'s wire.
//!
//! The proper end is a finish reason and then `[DONE]`; one without the other is a failure. Usage
//! comes in a last chunk without choices, in every chunk, or not at all. Tool calls are whole at
//! the end and not before. Thoughts are shown as they come, and whole once something else follows.

use clawnode_proto::llm::{FailureClass, StopReason, Usage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    CALL_ID, EXTRA_CONTENT,
    calls::{CallDeltas, Fragment, FunctionDelta},
    details::ReasoningDetails,
};
use crate::llm::{
    Item,
    blocks::{PLAIN_DETAILS, REASONING_DETAILS, push_bounded},
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    http::{AttemptFailure, class_of, message_in, passes},
    sse::SseEvent,
    token_counts::{TokenCount, reported},
    tool_uses::{stop_with, unasked_tool},
};

/// The data of the last event.
const DONE: &str = "[DONE]";

/// A chunk, or a whole completion: they differ in where a choice keeps its text.
#[derive(Deserialize)]
struct ReplyChunk {
    model: Option<String>,
    choices: Option<Vec<ReplyChoice>>,
    usage: Option<OpenAiCounts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ReplyChoice {
    #[serde(default)]
    index: u32,
    delta: Option<ReplyDelta>,
    /// In the place of the delta, in a whole completion.
    message: Option<ReplyDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ReplyDelta {
    content: Option<String>,
    refusal: Option<String>,
    /// Thoughts, from a server that wants those of a round of tools back under this name.
    reasoning_content: Option<Value>,
    /// Thoughts, from a server that does not.
    reasoning: Option<Value>,
    /// Thoughts once more, in the form in which the server wants them back.
    reasoning_details: Option<Box<RawValue>>,
    tool_calls: Option<Vec<Fragment>>,
    function_call: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct OpenAiCounts {
    #[serde(default)]
    prompt_tokens: TokenCount,
    #[serde(default)]
    completion_tokens: TokenCount,
    prompt_tokens_details: Option<PromptDetails>,
    /// As `DeepSeek` says it.
    #[serde(default)]
    prompt_cache_hit_tokens: TokenCount,
    /// As Moonshot says it.
    #[serde(default)]
    cached_tokens: TokenCount,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: TokenCount,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: TokenCount,
}

/// The thought that is being read.
#[derive(Default)]
struct ReadThought {
    text: String,
    /// Whether the server wants it back.
    is_wanted: bool,
    /// Whether it comes beside those in the details.
    is_named: bool,
}

/// Reads one reply.
#[derive(Default)]
pub(in crate::llm) struct OpenAiReader {
    /// Whether tools were offered.
    offers: bool,
    model: String,
    refused: bool,
    calls: CallDeltas,
    thought: ReadThought,
    details: ReasoningDetails,
    /// None if it is not reported yet.
    usage: Option<Usage>,
    stop: Option<StopReason>,
}

impl Decoder for OpenAiReader {
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if event.data.trim() == DONE {
            return self.end(pieces);
        }
        self.chunk(serde_json::from_str(&event.data).map_err(AttemptFailure::broken)?, pieces)
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        self.chunk(serde_json::from_slice(body).map_err(AttemptFailure::broken)?, pieces)?;
        self.end(pieces)
    }

    fn argued(&self) -> usize {
        self.calls.argued()
    }
}

impl OpenAiReader {
    pub(in crate::llm) fn new(offers: bool) -> Self {
        Self { offers, ..Self::default() }
    }

    fn chunk(
        &mut self,
        chunk: ReplyChunk,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if let Some(error) = chunk.error {
            return Err(Self::trouble(&error));
        }
        if chunk.choices.is_none() && chunk.usage.is_none() {
            return Err(AttemptFailure::broken("neither a chunk nor an error"));
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model = model;
        }
        for choice in chunk.choices.unwrap_or_default() {
            self.choice(choice, pieces)?;
        }
        if let Some(counts) = chunk.usage {
            let usage = *self.usage.insert(counts.usage());
            pieces.push(ReplyPiece::Usage(usage));
        }
        Ok(())
    }

    fn choice(
        &mut self,
        choice: ReplyChoice,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if choice.index != 0 {
            return Err(AttemptFailure::broken("a second choice, and one was asked for"));
        }
        let is_whole = choice.delta.is_none();
        if let Some(delta) = choice.delta.or(choice.message) {
            self.delta(delta, is_whole, pieces)?;
        }
        if let Some(reason) = choice.finish_reason {
            self.stop = Some(match reason.as_str() {
                "stop" => StopReason::EndTurn,
                "length" => StopReason::MaxTokens,
                "content_filter" => StopReason::Refusal,
                "tool_calls" | "function_call" if self.offers => StopReason::ToolUse,
                "tool_calls" | "function_call" => return Err(unasked_tool()),
                _ => StopReason::Other { reason },
            });
        }
        Ok(())
    }

    fn delta(
        &mut self,
        delta: ReplyDelta,
        is_whole: bool,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let listed = delta.reasoning_details.as_deref();
        let listed = listed.map(|sent| self.details.add(sent, is_whole)).unwrap_or_default();
        self.think(delta.reasoning_content, delta.reasoning, listed, pieces);
        let mut calls = delta.tool_calls.unwrap_or_default();
        if calls.is_empty() {
            calls.extend(delta.function_call.map(Fragment::from));
        }
        if !calls.is_empty() {
            if !self.offers {
                return Err(unasked_tool());
            }
            if self.stop.is_some() {
                return Err(AttemptFailure::broken("a tool call after the finish reason"));
            }
            self.thought_ends(pieces);
            if is_whole { self.calls.whole(calls) } else { self.calls.grow(calls) }
        }
        let refusal = delta.refusal.filter(|text| !text.is_empty());
        self.refused |= refusal.is_some();
        let text = delta.content.filter(|text| !text.is_empty());
        for text in text.into_iter().chain(refusal) {
            if self.stop.is_some() {
                return Err(AttemptFailure::broken("text after the finish reason"));
            }
            self.thought_ends(pieces);
            pieces.push(ReplyPiece::Text(text));
        }
        Ok(())
    }

    /// More of a thought. Some servers send it under both names, or list it too.
    fn think(
        &mut self,
        wanted: Option<Value>,
        other: Option<Value>,
        listed: String,
        pieces: &mut Vec<ReplyPiece>,
    ) {
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let (wanted, other) = (text(wanted), text(other));
        self.thought.is_wanted |= wanted.is_some();
        let named = wanted.or(other);
        self.thought.is_named |= named.is_some();
        let listed = Some(listed).filter(|text| !text.is_empty() && !self.thought.is_named);
        if let Some(more) = named.or(listed) {
            push_bounded(&mut self.thought.text, &more);
            pieces.push(ReplyPiece::Thought(more));
        }
    }

    /// The thought so far is whole.
    fn thought_ends(&mut self, pieces: &mut Vec<ReplyPiece>) {
        let text = std::mem::take(&mut self.thought.text);
        let signature = std::mem::take(&mut self.thought.is_wanted).then(String::new);
        if !text.is_empty() {
            pieces.push(ReplyPiece::Item(Item::Thinking { text, signature }));
        }
    }

    fn end(&mut self, pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let Some(stop) = self.stop.take() else {
            return Err(AttemptFailure::broken("`[DONE]` without a finish reason"));
        };
        let stop = if self.refused { StopReason::Refusal } else { stop };
        let stop = stop_with(self.calls.len(), stop)?;
        self.thought_ends(pieces);
        let details = std::mem::take(&mut self.details);
        let listed = details.to_json().map_err(AttemptFailure::broken)?;
        let field = if details.is_plain() { PLAIN_DETAILS } else { REASONING_DETAILS };
        pieces.extend(listed.map(|listed| opaque(field, listed)));
        for (extra, call) in self.calls.done() {
            pieces.extend(extra.map(|extra| opaque(EXTRA_CONTENT, extra.get().to_owned())));
            if details.name_call(&call.id) {
                let id = serde_json::to_string(&call.id).map_err(AttemptFailure::broken)?;
                pieces.push(opaque(CALL_ID, id));
            }
            pieces.push(ReplyPiece::ToolUse(call));
        }
        let model = std::mem::take(&mut self.model);
        let usage = self.usage.unwrap_or(Usage::UNREPORTED);
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        Ok(())
    }

    /// An error in the place of a chunk.
    fn trouble(error: &Value) -> AttemptFailure {
        let code = error.get("code");
        let status = code
            .and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| (400..600).contains(code));
        let kind = error.get("type").or(code).and_then(Value::as_str).unwrap_or_default();
        let (class, again) = match (status, kind) {
            (Some(status), _) => (class_of(status), passes(status)),
            (None, "server_error" | "overloaded" | "overloaded_error" | "service_unavailable") => {
                (FailureClass::Overloaded, true)
            }
            (None, "rate_limit_exceeded" | "rate_limit_error" | "requests" | "tokens") => {
                (FailureClass::RateLimited, true)
            }
            (None, "invalid_request_error" | "insufficient_quota") => {
                (FailureClass::Rejected, false)
            }
            (None, "authentication_error") => (FailureClass::Unauthorized, false),
            (None, _) => (FailureClass::BrokenStream, false),
        };
        let message = error.as_str().map(str::to_owned).or_else(|| message_in(error));
        let message = message.unwrap_or_else(|| "the provider gave up without a reason".to_owned());
        let mut fault = AttemptFailure::last(class, message).again(again);
        fault.failure.status = status;
        fault
    }
}

/// Something that the server wants back as it is.
fn opaque(field: &str, data: String) -> ReplyPiece {
    ReplyPiece::Item(Item::Opaque { field: field.to_owned(), data })
}

impl OpenAiCounts {
    fn usage(&self) -> Usage {
        let details = self.completion_tokens_details.as_ref();
        let reasoning = details.map(|details| details.reasoning_tokens).unwrap_or_default();
        let cached = self.prompt_tokens_details.as_ref().map(|details| details.cached_tokens);
        let cached = cached.unwrap_or_default();
        let cached = cached.or(self.prompt_cache_hit_tokens).or(self.cached_tokens);
        Usage {
            cache_read_tokens: cached.tokens(),
            reasoning_tokens: reasoning.part(),
            ..reported(self.prompt_tokens, self.completion_tokens)
        }
    }
}

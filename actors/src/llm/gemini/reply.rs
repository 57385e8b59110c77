//! What a reply says on Gemini's wire.
//!
//! Each event is a response of its own, with more parts. The proper end is the one with a finish reason, or
//! with the reason why the prompt was blocked. Tool calls are whole. Thoughts are shown as they come, and
//! whole once something else follows or their signature comes.

use clawnode_proto::llm::{FailureClass, StopReason, Usage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{ID, PART, SEAM, SIGNATURE};
use crate::llm::{
    Item,
    blocks::push_bounded,
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    http::{AttemptFailure, class_of, message_in, passes},
    retry::asked_in,
    sse::SseEvent,
    token_counts::{TokenCount, reported},
    tool_uses::{ToolUseBounds, stop_with, unasked_tool},
};

/// A part of a reply, or all of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiChunk {
    candidates: Option<Vec<ReplyCandidate>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<GeminiCounts>,
    model_version: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyCandidate {
    #[serde(default)]
    index: u32,
    content: Option<GeminiContent>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct GeminiContent {
    /// As they came: some go back whole.
    parts: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyPart {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<Box<RawValue>>,
    function_call: Option<FunctionCall>,
    inline_data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<Box<RawValue>>,
    #[serde(default)]
    name: String,
    args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "as the wire has it")]
struct GeminiCounts {
    #[serde(default)]
    prompt_token_count: TokenCount,
    #[serde(default)]
    candidates_token_count: TokenCount,
    #[serde(default)]
    thoughts_token_count: TokenCount,
    #[serde(default)]
    cached_content_token_count: TokenCount,
    #[serde(default)]
    tool_use_prompt_token_count: TokenCount,
}

/// Reads one reply.
#[derive(Default)]
pub(in crate::llm) struct GeminiReader {
    /// Whether tools were offered.
    offers: bool,
    model: String,
    thought: String,
    /// Whether the last part is a text with a signature.
    is_signed: bool,
    room: ToolUseBounds,
    /// None if it is not reported yet.
    usage: Option<Usage>,
    is_done: bool,
}

impl Decoder for GeminiReader {
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        self.chunk(serde_json::from_str(&event.data).map_err(AttemptFailure::broken)?, pieces)
    }

    /// A response, or the list of those that would have been streamed.
    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let chunks: Vec<GeminiChunk> = if body.trim_ascii_start().starts_with(b"[") {
            serde_json::from_slice(body).map_err(AttemptFailure::broken)?
        } else {
            vec![serde_json::from_slice(body).map_err(AttemptFailure::broken)?]
        };
        for chunk in chunks {
            self.chunk(chunk, pieces)?;
            if self.is_done {
                break;
            }
        }
        Ok(())
    }
}

impl GeminiReader {
    pub(in crate::llm) fn new(offers: bool) -> Self {
        Self { offers, ..Self::default() }
    }

    fn chunk(
        &mut self,
        chunk: GeminiChunk,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if let Some(error) = chunk.error {
            return Err(Self::trouble(&error));
        }
        let blocked = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason);
        if chunk.candidates.is_none() && chunk.usage_metadata.is_none() && blocked.is_none() {
            return Err(AttemptFailure::broken("neither a part of a reply nor an error"));
        }
        if let Some(model) = chunk.model_version.filter(|model| !model.is_empty()) {
            self.model = model;
        }
        if let Some(counts) = chunk.usage_metadata {
            let usage = *self.usage.insert(counts.usage());
            pieces.push(ReplyPiece::Usage(usage));
        }
        for candidate in chunk.candidates.unwrap_or_default() {
            self.candidate(candidate, pieces)?;
        }
        if blocked.is_some() && !self.is_done {
            self.end(StopReason::Refusal, pieces);
        }
        Ok(())
    }

    fn candidate(
        &mut self,
        candidate: ReplyCandidate,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if candidate.index != 0 || self.is_done {
            return Err(AttemptFailure::broken("a second candidate, and one was asked for"));
        }
        let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
        for part in parts {
            self.part(&part, pieces)?;
        }
        let Some(reason) = candidate.finish_reason else { return Ok(()) };
        let stop = match reason.as_str() {
            "STOP" => StopReason::EndTurn,
            "MAX_TOKENS" => StopReason::MaxTokens,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => StopReason::Refusal,
            // The model meant to call a tool and failed; another try may be whole.
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
                let why = candidate.finish_message.unwrap_or_default();
                return Err(AttemptFailure::broken(format_args!("{reason} {why}")).broke_off());
            }
            _ => StopReason::Other { reason },
        };
        let stop = stop_with(self.room.calls(), stop)?;
        self.end(stop, pieces);
        Ok(())
    }

    fn part(
        &mut self,
        whole: &RawValue,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let part: ReplyPart = serde_json::from_str(whole.get()).map_err(AttemptFailure::broken)?;
        let signature = part.thought_signature;
        if let Some(call) = part.function_call {
            return self.call(call, signature, pieces);
        }
        match part.text {
            Some(text) if part.thought => {
                if !text.is_empty() {
                    push_bounded(&mut self.thought, &text);
                    pieces.push(ReplyPiece::Thought(text));
                }
                if let Some(signature) = signature {
                    let signature =
                        serde_json::from_str(signature.get()).map_err(AttemptFailure::broken)?;
                    self.thought_ends(Some(signature), pieces);
                }
            }
            Some(text) if !text.is_empty() => {
                self.thought_ends(None, pieces);
                if self.is_signed && signature.is_none() {
                    pieces.push(opaque(SEAM, "null"));
                }
                self.is_signed = signature.is_some();
                pieces.extend(signature.map(|signature| opaque(SIGNATURE, signature.get())));
                pieces.push(ReplyPiece::Text(text));
            }
            Some(_) if signature.is_none() => {}
            // It shows nothing, and goes back: above all an empty text with a signature at the end.
            _ if part.inline_data.is_none() => {
                self.thought_ends(None, pieces);
                pieces.push(opaque(PART, whole.get()));
            }
            _ => {}
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: FunctionCall,
        signature: Option<Box<RawValue>>,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if !self.offers {
            return Err(unasked_tool());
        }
        self.thought_ends(None, pieces);
        self.is_signed = false;
        let Some(mut growing) = self.room.open() else { return Ok(()) };
        pieces.extend(signature.map(|signature| opaque(SIGNATURE, signature.get())));
        if let Some(id) = call.id {
            let text: String = serde_json::from_str(id.get()).map_err(AttemptFailure::broken)?;
            growing.identify(&text);
            pieces.push(opaque(ID, id.get()));
        }
        growing.name(&call.name);
        self.room.argue(&mut growing, call.args.as_deref().map_or("{}", RawValue::get));
        pieces.push(ReplyPiece::ToolUse(growing.done()));
        Ok(())
    }

    /// The thought so far is whole. Without a signature it does not go back.
    fn thought_ends(&mut self, signature: Option<String>, pieces: &mut Vec<ReplyPiece>) {
        let text = std::mem::take(&mut self.thought);
        if !text.is_empty() || signature.is_some() {
            pieces.push(ReplyPiece::Item(Item::Thinking { text, signature }));
        }
    }

    fn end(&mut self, stop: StopReason, pieces: &mut Vec<ReplyPiece>) {
        self.thought_ends(None, pieces);
        self.is_done = true;
        let model = std::mem::take(&mut self.model);
        let usage = self.usage.unwrap_or(Usage::UNREPORTED);
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
    }

    /// An error in the place of a response.
    fn trouble(error: &Value) -> AttemptFailure {
        let code = error.get("code").and_then(Value::as_u64);
        let code = code.and_then(|code| u16::try_from(code).ok());
        let code = code.filter(|code| (400..600).contains(code));
        let word = error.get("status").and_then(Value::as_str).unwrap_or_default();
        let (class, again) = match (code, word) {
            (Some(code), _) => (class_of(code), passes(code)),
            (None, "RESOURCE_EXHAUSTED") => (FailureClass::RateLimited, true),
            (None, "UNAVAILABLE" | "INTERNAL") => (FailureClass::Overloaded, true),
            (None, "DEADLINE_EXCEEDED") => (FailureClass::Timeout, true),
            (None, "UNAUTHENTICATED" | "PERMISSION_DENIED") => (FailureClass::Unauthorized, false),
            (None, "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "NOT_FOUND") => {
                (FailureClass::Rejected, false)
            }
            (None, _) => (FailureClass::BrokenStream, false),
        };
        let words = error.as_str().map(str::to_owned).or_else(|| message_in(error));
        let words = words.unwrap_or_else(|| "the provider gave up without a reason".to_owned());
        let mut fault = AttemptFailure::last(class, words).again(again);
        fault.after = asked_in(error);
        fault.failure.status = code;
        fault
    }
}

fn opaque(field: &str, data: &str) -> ReplyPiece {
    let (field, data) = (field.to_owned(), data.to_owned());
    ReplyPiece::Item(Item::Opaque { field, data })
}

impl GeminiCounts {
    fn usage(&self) -> Usage {
        // A reply of thoughts alone has no candidates to count.
        let output = self.candidates_token_count.or(match self.thoughts_token_count {
            TokenCount::Absent => TokenCount::Absent,
            _ => TokenCount::Known(0),
        });
        let reported = reported(self.prompt_token_count, output);
        let of_tools = self.tool_use_prompt_token_count.tokens();
        let thoughts = self.thoughts_token_count.tokens();
        // The wire counts thoughts apart; `Usage` counts them in.
        Usage {
            input_tokens: reported.input_tokens.saturating_add(of_tools),
            output_tokens: reported.output_tokens.saturating_add(thoughts),
            cache_read_tokens: self.cached_content_token_count.tokens(),
            reasoning_tokens: self.thoughts_token_count.part(),
            ..reported
        }
    }
}

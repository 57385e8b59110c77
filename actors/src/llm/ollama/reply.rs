//! What a reply says on Ollama's wire: a JSON document a line, the last of which is `done`.
//!
//! Tool calls are whole, each in one document. Thoughts are shown as they come, and whole once something
//! else follows. An error in mid-stream has words alone: its status was sent before it happened.

use clawnode_proto::llm::{FailureClass, StopReason};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::llm::{
    Item,
    blocks::push_bounded,
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    http::{AttemptFailure, message_in},
    sse::SseEvent,
    token_counts::{TokenCount, reported},
    tool_uses::{ToolUseBounds, stop_with, unasked_tool},
};

/// A part of a reply, or all of it.
#[derive(Deserialize)]
struct OllamaChunk {
    model: Option<String>,
    message: Option<OllamaSaid>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    #[serde(default)]
    prompt_eval_count: TokenCount,
    #[serde(default)]
    eval_count: TokenCount,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct OllamaSaid {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<OllamaCall>>,
}

#[derive(Deserialize)]
struct OllamaCall {
    id: Option<String>,
    function: OllamaFunction,
}

#[derive(Deserialize)]
struct OllamaFunction {
    #[serde(default)]
    name: String,
    arguments: Option<Box<RawValue>>,
}

/// Reads one reply.
#[derive(Default)]
pub(in crate::llm) struct OllamaReader {
    /// Whether tools were offered.
    offers: bool,
    model: String,
    thought: String,
    room: ToolUseBounds,
    is_done: bool,
}

impl Decoder for OllamaReader {
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        self.chunk(serde_json::from_str(&event.data).map_err(AttemptFailure::broken)?, pieces)
    }

    /// A server behind something that does not stream may send all documents in one body.
    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        for chunk in serde_json::Deserializer::from_slice(body).into_iter() {
            self.chunk(chunk.map_err(AttemptFailure::broken)?, pieces)?;
            if self.is_done {
                break;
            }
        }
        Ok(())
    }
}

impl OllamaReader {
    pub(in crate::llm) fn new(offers: bool) -> Self {
        Self { offers, ..Self::default() }
    }

    fn chunk(
        &mut self,
        chunk: OllamaChunk,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if let Some(error) = chunk.error {
            return Err(Self::trouble(&error));
        }
        if chunk.message.is_none() && !chunk.done {
            return Err(AttemptFailure::broken("neither a part of a reply nor an error"));
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model = model;
        }
        if let Some(said) = chunk.message {
            self.said(said, pieces)?;
        }
        if chunk.done {
            self.thought_ends(pieces);
            let stop = match chunk.done_reason.as_deref() {
                // Early versions give no reason.
                None | Some("" | "stop") => StopReason::EndTurn,
                Some("length") => StopReason::MaxTokens,
                Some(reason) => StopReason::Other { reason: reason.to_owned() },
            };
            let usage = reported(chunk.prompt_eval_count, chunk.eval_count);
            let (stop, model) =
                (stop_with(self.room.calls(), stop)?, std::mem::take(&mut self.model));
            self.is_done = true;
            pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        }
        Ok(())
    }

    fn said(
        &mut self,
        said: OllamaSaid,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        if let Some(more) = said.thinking.filter(|more| !more.is_empty()) {
            push_bounded(&mut self.thought, &more);
            pieces.push(ReplyPiece::Thought(more));
        }
        if let Some(text) = said.content.filter(|text| !text.is_empty()) {
            self.thought_ends(pieces);
            pieces.push(ReplyPiece::Text(text));
        }
        for OllamaCall { id, function } in said.tool_calls.unwrap_or_default() {
            if !self.offers {
                return Err(unasked_tool());
            }
            self.thought_ends(pieces);
            let Some(mut call) = self.room.open() else { continue };
            call.identify(id.as_deref().unwrap_or_default());
            call.name(&function.name);
            let arguments = function.arguments.as_deref().map_or("{}", RawValue::get);
            self.room.argue(&mut call, arguments);
            pieces.push(ReplyPiece::ToolUse(call.done()));
        }
        Ok(())
    }

    /// The thought so far is whole. Models want those of a round of tools back.
    fn thought_ends(&mut self, pieces: &mut Vec<ReplyPiece>) {
        let text = std::mem::take(&mut self.thought);
        if !text.is_empty() {
            let signature = Some(String::new());
            pieces.push(ReplyPiece::Item(Item::Thinking { text, signature }));
        }
    }

    fn trouble(error: &Value) -> AttemptFailure {
        let words = error.as_str().map(str::to_owned).or_else(|| message_in(error));
        let words = words.unwrap_or_else(|| "the server gave up without a reason".to_owned());
        AttemptFailure::last(FailureClass::Overloaded, words).again(true)
    }
}

//! What a reply says on the Responses wire.
//!
//! A response is a list of items that open, grow and close; its proper end is `response.completed` or
//! `response.incomplete`. Kinds of events and items that are not known are skipped. What the model has
//! reasoned is shown as far as there is a summary of it, and kept as the item that closes.

use std::collections::BTreeMap;

use clawnode_proto::llm::{FailureClass, StopReason, Usage};
use serde::de::DeserializeOwned;
use serde_json::{Value, value::RawValue};

use super::{
    PHASE, REASONING,
    events::{EventType, OfDelta, OfItem, OfResponse, OutputItem, OutputPart, ResponseBody},
};
use crate::llm::{
    Item,
    blocks::push_bounded,
    call::{Decoder, ReplyPiece},
    call_stream::Finish,
    http::{AttemptFailure, message_in},
    sse::SseEvent,
    tool_uses::{Growing, ToolUseBounds, stop_with, unasked_tool},
};

/// An item that is not closed yet.
enum OpenItem {
    /// A message, and whether any of it came.
    Message(bool),
    Call(Growing),
    /// The summary so far.
    Reasoning(String),
    /// One tool call too many, or something that is not read.
    Other,
}

/// Reads one reply.
#[derive(Default)]
pub(in crate::llm) struct ResponsesReader {
    /// Whether tools were offered.
    offers: bool,
    model: String,
    refused: bool,
    /// Every item by index; `None` once it is closed.
    items: BTreeMap<u32, Option<OpenItem>>,
    room: ToolUseBounds,
}

impl Decoder for ResponsesReader {
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let data = event.data.as_str();
        let EventType { r#type } = read(data)?;
        match r#type.as_str() {
            "response.created" => self.begin(read::<OfResponse>(data)?.response),
            "response.output_item.added" => {
                let OfItem { output_index, item } = read(data)?;
                self.open(output_index, &read(item.get())?, pieces)?;
            }
            "response.output_item.done" => {
                let OfItem { output_index, item } = read(data)?;
                self.close(output_index, &item, pieces)?;
            }
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.function_call_arguments.delta"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_text.delta"
            | "response.reasoning_text.delta" => self.grow(&r#type, read(data)?, pieces)?,
            "response.completed" | "response.incomplete" => {
                return self.end(read::<OfResponse>(data)?.response, pieces);
            }
            "response.failed" => {
                let error = read::<OfResponse>(data)?.response.error.unwrap_or_default();
                return Err(Self::trouble(&error));
            }
            "error" => {
                let event: Value = read(data)?;
                return Err(Self::trouble(event.get("error").unwrap_or(&event)));
            }
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure> {
        let mut response: ResponseBody =
            serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        if let Some(error) = response.error.take() {
            return Err(Self::trouble(&error));
        }
        let Some(output) = response.output.take() else {
            return Err(AttemptFailure::broken("neither a response nor an error"));
        };
        for (index, item) in (0..).zip(output) {
            self.open(index, &read(item.get())?, pieces)?;
            self.close(index, &item, pieces)?;
        }
        self.end(response, pieces)
    }

    fn argued(&self) -> usize {
        self.room.bytes()
    }
}

impl ResponsesReader {
    pub(in crate::llm) fn new(offers: bool) -> Self {
        Self { offers, ..Self::default() }
    }

    fn begin(&mut self, response: ResponseBody) {
        if let Some(model) = response.model.filter(|model| !model.is_empty()) {
            self.model = model;
        }
    }

    fn open(
        &mut self,
        index: u32,
        item: &OutputItem,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let open = match item.r#type.as_str() {
            "message" => {
                let phase = item.phase.as_deref().map(RawValue::get);
                pieces.extend(
                    phase.filter(|phase| *phase != "null").map(|phase| opaque(PHASE, phase)),
                );
                OpenItem::Message(false)
            }
            "function_call" if !self.offers => return Err(unasked_tool()),
            "function_call" => match self.room.open() {
                Some(mut call) => {
                    call.identify(item.call_id.as_deref().unwrap_or_default());
                    call.name(item.name.as_deref().unwrap_or_default());
                    OpenItem::Call(call)
                }
                None => OpenItem::Other,
            },
            "reasoning" => OpenItem::Reasoning(String::new()),
            _ => OpenItem::Other,
        };
        match self.items.insert(index, Some(open)) {
            None => Ok(()),
            Some(_) => Err(AttemptFailure::broken("two items with one index")),
        }
    }

    fn grow(
        &mut self,
        kind: &str,
        more: OfDelta,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let OfDelta { output_index, mut delta, summary_index } = more;
        let Some(Some(open)) = self.items.get_mut(&output_index) else {
            return Err(AttemptFailure::broken("more of an item that is not open"));
        };
        match (open, kind) {
            (OpenItem::Other, _) => {}
            (
                OpenItem::Message(has_begun),
                "response.output_text.delta" | "response.refusal.delta",
            ) => {
                self.refused |= kind == "response.refusal.delta";
                if !delta.is_empty() {
                    *has_begun = true;
                    pieces.push(ReplyPiece::Text(delta));
                }
            }
            (OpenItem::Call(call), "response.function_call_arguments.delta") => {
                self.room.argue(call, &delta);
            }
            (OpenItem::Reasoning(thought), kind) if kind.starts_with("response.reasoning") => {
                if kind == "response.reasoning_summary_part.added" {
                    delta = if summary_index == 0 { String::new() } else { "\n\n".to_owned() };
                }
                if !delta.is_empty() {
                    push_bounded(thought, &delta);
                    pieces.push(ReplyPiece::Thought(delta));
                }
            }
            _ => return Err(AttemptFailure::broken("something else within an item")),
        }
        Ok(())
    }

    fn close(
        &mut self,
        index: u32,
        whole: &RawValue,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let item: OutputItem = read(whole.get())?;
        let open = self.items.get_mut(&index).and_then(Option::take);
        match open {
            None => return Err(AttemptFailure::broken("an end of an item that is not open")),
            Some(OpenItem::Other | OpenItem::Message(true)) => {}
            // Some servers send all of it at once.
            Some(OpenItem::Message(false)) => {
                for part in item.content.unwrap_or_default() {
                    self.refused |= part.refusal.is_some();
                    let text = part.text.or(part.refusal).filter(|text| !text.is_empty());
                    pieces.extend(text.map(ReplyPiece::Text));
                }
            }
            Some(OpenItem::Call(mut call)) => {
                if !call.is_begun() {
                    self.room.argue(&mut call, &item.arguments.unwrap_or_default());
                }
                pieces.push(ReplyPiece::ToolUse(call.done()));
            }
            Some(OpenItem::Reasoning(mut text)) => {
                let summary = summary(item.summary);
                if text.is_empty() && !summary.is_empty() {
                    push_bounded(&mut text, &summary);
                    pieces.push(ReplyPiece::Thought(summary));
                }
                if !text.is_empty() {
                    // The item goes back, not its summary.
                    let signature = None;
                    pieces.push(ReplyPiece::Item(Item::Thinking { text, signature }));
                }
                // Without its content the vendor has no item of this name: nothing is stored there.
                if item.encrypted_content.is_some_and(|content| !content.is_empty()) {
                    pieces.push(opaque(REASONING, whole.get()));
                }
            }
        }
        Ok(())
    }

    fn end(
        &mut self,
        response: ResponseBody,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure> {
        let reason =
            response.incomplete_details.as_ref().and_then(|details| details.reason.clone());
        let stop = match (response.status.as_deref(), reason.as_deref()) {
            (Some("incomplete"), Some("max_output_tokens")) => StopReason::MaxTokens,
            (Some("incomplete"), Some("content_filter")) => StopReason::Refusal,
            (Some("incomplete"), reason) => {
                StopReason::Other { reason: reason.unwrap_or("incomplete").to_owned() }
            }
            (Some("completed") | None, _) if self.refused => StopReason::Refusal,
            (Some("completed") | None, _) => StopReason::EndTurn,
            (Some(status), _) => {
                return Err(AttemptFailure::broken(format_args!("an end that is `{status}`")));
            }
        };
        let is_cut_off = response.status.as_deref() == Some("incomplete");
        for open in std::mem::take(&mut self.items).into_values().flatten() {
            match open {
                OpenItem::Call(call) if is_cut_off => pieces.push(ReplyPiece::ToolUse(call.done())),
                _ if is_cut_off => {}
                _ => return Err(AttemptFailure::broken("`response.completed` within an item")),
            }
        }
        let usage = response.usage.map_or(Usage::UNREPORTED, |counts| counts.usage());
        self.begin(response);
        let (stop, model) = (stop_with(self.room.calls(), stop)?, std::mem::take(&mut self.model));
        pieces.push(ReplyPiece::End(Finish { stop, usage, model }));
        Ok(())
    }

    /// An error event, or the error of a response that failed.
    fn trouble(error: &Value) -> AttemptFailure {
        let word = |field| error.get(field).and_then(Value::as_str);
        let code = word("code").or_else(|| word("type")).unwrap_or_default();
        let (class, again) = match code {
            "server_error"
            | "overloaded"
            | "overloaded_error"
            | "service_unavailable"
            | "vector_store_timeout" => (FailureClass::Overloaded, true),
            "rate_limit_exceeded" | "rate_limit_error" | "requests" | "tokens" => {
                (FailureClass::RateLimited, true)
            }
            "invalid_api_key" | "authentication_error" => (FailureClass::Unauthorized, false),
            "" => (FailureClass::BrokenStream, false),
            // Of the request: its prompt, its pictures, the account's credit.
            _ => (FailureClass::Rejected, false),
        };
        let words = error.as_str().map(str::to_owned).or_else(|| message_in(error));
        let words = words.unwrap_or_else(|| "the provider gave up without a reason".to_owned());
        AttemptFailure::last(class, words).again(again)
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Result<T, AttemptFailure> {
    serde_json::from_str(data).map_err(AttemptFailure::broken)
}

fn summary(parts: Option<Vec<OutputPart>>) -> String {
    let texts: Vec<String> = parts.into_iter().flatten().filter_map(|part| part.text).collect();
    texts.join("\n\n")
}

fn opaque(field: &str, data: &str) -> ReplyPiece {
    let (field, data) = (field.to_owned(), data.to_owned());
    ReplyPiece::Item(Item::Opaque { field, data })
}

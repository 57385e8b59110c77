//! The events of the Responses wire, as far as they are read. Each names its type in its data.

use clawnode_proto::llm::Usage;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::llm::token_counts::{TokenCount, reported};

/// What every event has.
#[derive(Deserialize)]
pub(super) struct EventType {
    pub(super) r#type: String,
}

/// An event that holds a response.
#[derive(Deserialize)]
pub(super) struct OfResponse {
    pub(super) response: ResponseBody,
}

/// A response, or what is known of it.
#[derive(Deserialize)]
pub(super) struct ResponseBody {
    pub(super) model: Option<String>,
    pub(super) status: Option<String>,
    pub(super) output: Option<Vec<Box<RawValue>>>,
    pub(super) usage: Option<ResponsesCounts>,
    pub(super) error: Option<Value>,
    pub(super) incomplete_details: Option<IncompleteDetails>,
}

#[derive(Deserialize)]
pub(super) struct IncompleteDetails {
    pub(super) reason: Option<String>,
}

/// An event that holds an item.
#[derive(Deserialize)]
pub(super) struct OfItem {
    pub(super) output_index: u32,
    /// As it came: some go back whole.
    pub(super) item: Box<RawValue>,
}

/// An event with more of an item.
#[derive(Deserialize)]
pub(super) struct OfDelta {
    pub(super) output_index: u32,
    #[serde(default)]
    pub(super) delta: String,
    #[serde(default)]
    pub(super) summary_index: u32,
}

/// An item of a reply.
#[derive(Default, Deserialize)]
pub(super) struct OutputItem {
    pub(super) r#type: String,
    /// Of a message.
    pub(super) content: Option<Vec<OutputPart>>,
    pub(super) phase: Option<Box<RawValue>>,
    /// Of a tool call.
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
    /// Of reasoning.
    pub(super) summary: Option<Vec<OutputPart>>,
    pub(super) encrypted_content: Option<String>,
}

/// A part of a message, or of a summary.
#[derive(Deserialize)]
pub(super) struct OutputPart {
    pub(super) text: Option<String>,
    pub(super) refusal: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct ResponsesCounts {
    #[serde(default)]
    input_tokens: TokenCount,
    #[serde(default)]
    output_tokens: TokenCount,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: TokenCount,
    #[serde(default)]
    cache_write_tokens: TokenCount,
}

#[derive(Clone, Copy, Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: TokenCount,
}

// === impl ResponsesCounts ===

impl ResponsesCounts {
    pub(super) fn usage(&self) -> Usage {
        let input = self.input_tokens_details;
        let reasoning = self.output_tokens_details.map(|details| details.reasoning_tokens);
        Usage {
            cache_read_tokens: input.map_or(0, |details| details.cached_tokens.tokens()),
            cache_write_tokens: input.map_or(0, |details| details.cache_write_tokens.tokens()),
            reasoning_tokens: reasoning.map_or(0, TokenCount::part),
            ..reported(self.input_tokens, self.output_tokens)
        }
    }
}

//! What is known of one model.

use serde::{Deserialize, Serialize};

/// The part of a window that a reply may take unless somebody says how much: one in so many.
const REPLY_SHARE: u32 = 4;

/// What is known of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelProfile {
    /// Tokens of a request and its reply together.
    pub window_tokens: u32,
    /// Most tokens of one reply, reasoning included; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Tokens of a reply that nobody limits; `max_output_tokens` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_tokens: Option<u32>,
    /// What it takes beside text.
    pub input: InputKinds,
    /// Whether it calls tools.
    pub tools: bool,
    /// How it reasons.
    pub reasoning: ReasoningStyle,
    /// How its provider caches what requests begin with.
    pub cache: CacheStyle,
    /// Whether it takes `temperature` and `top_p`.
    pub sampling: bool,
    /// Whether the limit of a reply is called `max_completion_tokens` on `OpenAI`'s wire.
    pub max_completion_tokens: bool,
    /// Whether the system prompt has the role `developer` on `OpenAI`'s wire.
    pub developer_role: bool,
    /// What its vendor asks for it; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
}

/// What a model takes beside text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputKinds {
    /// Pictures.
    pub image: bool,
    /// Documents (PDF).
    pub document: bool,
    /// Sound.
    pub audio: bool,
}

/// How a model reasons, and how a request says how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningStyle {
    /// It does not, or nothing about it can be said.
    #[default]
    None,
    /// `thinking` with a budget of tokens, on Anthropic's wire.
    AnthropicBudget,
    /// It decides itself, as far as `effort` lets it, on Anthropic's wire.
    AnthropicAdaptive,
    /// `reasoning_effort`, on `OpenAI`'s wire.
    OpenaiEffort,
    /// It reasons by itself; replies have `reasoning_content`.
    ReasoningContent,
}

/// How a provider caches what requests begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheStyle {
    /// It does not, or it is not known.
    #[default]
    None,
    /// By markers in the request, as Anthropic does.
    Markers,
    /// By itself, helped by `prompt_cache_key`.
    Key,
    /// By itself.
    Implicit,
}

/// Prices in micro-dollars for a million tokens: 3,000,000 is $3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelPrice {
    /// Tokens that the model reads.
    pub input: u64,
    /// Tokens that the model writes.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
}

// === impl ModelProfile ===

impl ModelProfile {
    /// The limit of a reply that nobody limits, in a window of so many tokens: at most a quarter of it, so
    /// that there is room for the conversation. Nothing if the model is not known well enough.
    pub(crate) fn reply_in(&self, window_tokens: u32) -> Option<u32> {
        let most = (window_tokens / REPLY_SHARE).max(1);
        let wanted = self.reply_tokens.or(self.max_output_tokens)?;
        Some(self.capped(wanted).min(most))
    }

    /// What may be asked for of `wanted` tokens of a reply.
    pub(in crate::llm) fn capped(&self, wanted: u32) -> u32 {
        self.max_output_tokens.map_or(wanted, |most| wanted.min(most))
    }
}

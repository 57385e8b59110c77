//! What is known of models, as the API shows it, and the test of one.

use serde::{Deserialize, Serialize};

use crate::{
    id::AgentName,
    llm::{ModelRef, Usage},
    media::MediaKind,
    money::MicroUsd,
};

/// How a model reasons, and how a request says how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReasoningStyle {
    /// Nothing is known about it: a request asks for what is configured.
    #[default]
    Unknown,
    /// It does not. A request does not ask for it.
    None,
    /// `thinking` with a budget of tokens, as Anthropic's API has it.
    AnthropicBudget,
    /// It decides itself, as far as `effort` lets it, as Anthropic's API has it.
    AnthropicAdaptive,
    /// `reasoning_effort`, as `OpenAI`'s API has it.
    OpenaiEffort,
    /// It reasons by itself. Replies have `reasoning_content`.
    ReasoningContent,
    /// `thinkingBudget`, a number of tokens, as Gemini's API has it.
    GeminiBudget,
    /// `thinkingLevel`, as Gemini's API has it.
    GeminiLevel,
}

/// How a provider caches what requests begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CacheStyle {
    /// It does not, or nothing is known about it.
    #[default]
    None,
    /// By markers in the request, as Anthropic does.
    Markers,
    /// By itself, helped by `prompt_cache_key`, as `OpenAI` does.
    Key,
    /// By itself.
    Implicit,
}

/// How a request says that the reply has to fit a schema. The reply is judged in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SchemaStyle {
    /// In words, in the system prompt.
    #[default]
    Words,
    /// In words, and as any JSON object (`response_format` of type `json_object`).
    JsonObject,
    /// In the request, as `response_format` of type `json_schema`.
    JsonSchema,
    /// As the schema in requests without tools, else in words: the model could call no tools.
    JsonSchemaAlone,
}

/// Prices in micro-dollars for a million tokens: 3,000,000 is $3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelPrice {
    /// Tokens that the model reads.
    pub input: u64,
    /// Tokens that the model writes.
    pub output: u64,
    /// Tokens that come from the provider's cache.
    pub cache_read: u64,
    /// Tokens that the provider writes to its cache.
    pub cache_write: u64,
}

// === impl ModelPrice ===

impl ModelPrice {
    /// Nothing costs anything.
    pub const FREE: Self = Self { input: 0, output: 0, cache_read: 0, cache_write: 0 };

    /// What this usage costs, rounded up once (PRICE-1). Beyond [`MicroUsd::MOST`] it is that.
    pub fn cost(&self, usage: &Usage) -> MicroUsd {
        let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
        let hour = usage.cache_write_hour_tokens.min(usage.cache_write_tokens);
        let parts = [
            (usage.input_tokens.saturating_sub(cached), self.input),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens - hour, self.cache_write),
            (hour, self.cache_write_hour()),
            (usage.output_tokens, self.output),
        ];
        let cost = MicroUsd::of_tokens(parts.map(|(tokens, price)| (tokens, MicroUsd(price))));
        cost.unwrap_or(MicroUsd::MOST)
    }

    /// The most that a request with so many tokens and a cap on output can cost: its tokens may all be
    /// of the dearest sort.
    pub fn most(&self, input: u64, output: u64) -> MicroUsd {
        let dearest = self.dearest_input();
        let parts = [(input, MicroUsd(dearest)), (output, MicroUsd(self.output))];
        MicroUsd::of_tokens(parts).unwrap_or(MicroUsd::MOST)
    }

    /// So many tokens that a model has read, if their sorts are not known: all of the dearest one. So an estimate
    /// costs no less than what may be billed.
    pub fn dearest_usage(&self, input: u64) -> Usage {
        let usage = Usage { input_tokens: input, ..Usage::default() };
        match self.dearest_input() {
            dearest if dearest == self.input => usage,
            dearest if dearest == self.cache_write => Usage { cache_write_tokens: input, ..usage },
            _ => Usage { cache_read_tokens: input, ..usage },
        }
    }

    /// Tokens that the provider keeps in its cache for an hour: those that offer it ask twice the price of input. No
    /// request here asks for it, so no reservation counts with it.
    fn cache_write_hour(&self) -> u64 {
        self.input.saturating_mul(2).max(self.dearest_input())
    }

    /// The dearest sort of tokens that a model reads.
    pub fn dearest_input(&self) -> u64 {
        self.input.max(self.cache_read).max(self.cache_write)
    }
}

/// Parameters of methods about one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ModelParams {
    /// The model, as `PROVIDER/MODEL`.
    pub model: ModelRef,
}

/// What is known of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelView {
    /// The model, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// The agents whose turns it may answer.
    pub agents: Vec<AgentName>,
    /// How many tokens a request and its reply may have together.
    pub window_tokens: u32,
    /// How many tokens of that an agent uses that does not say how many.
    pub used_tokens: u32,
    /// The most tokens of one reply. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// What the model takes besides text.
    pub input: Vec<MediaKind>,
    /// Whether it calls tools.
    pub tools: bool,
    /// How it reasons.
    pub reasoning: ReasoningStyle,
    /// How its provider caches.
    pub cache: CacheStyle,
    /// How a request says that the reply has to fit a schema.
    #[serde(default)]
    pub schema: SchemaStyle,
    /// Whether it takes `temperature` and `top_p`.
    pub sampling: bool,
    /// What it costs. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
    /// The patterns that this comes from, the most specific first: those of the configuration, then the row of
    /// the built-in table. Empty if nothing is known of the model.
    pub patterns: Vec<String>,
    /// The date of the built-in table.
    pub table: String,
    /// Why the model cannot be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer of `models.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelList {
    /// The models of all agents, by name. Patterns that agents allow are not listed.
    pub models: Vec<ModelView>,
}

/// Answer of `models.test`: what worked in one real call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelTest {
    /// The model, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// The name of the model, as the provider reports it; empty if the call failed.
    pub answered: String,
    /// Whether the reply had text.
    pub text: bool,
    /// Whether it had a valid call of the tool that was offered. Absent if none was offered, because the model
    /// takes no tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<bool>,
    /// Whether the reply came in more than one piece.
    pub streaming: bool,
    /// How long the whole call took, in milliseconds.
    pub took_ms: u64,
    /// The tokens of the call.
    pub usage: Usage,
    /// Why the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: ModelPrice = ModelPrice {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: 300_000,
        cache_write: 3_750_000,
    };

    #[test]
    fn an_hour_in_the_cache_costs_twice_the_input() {
        let usage = Usage {
            input_tokens: 1_000,
            cache_write_tokens: 600,
            cache_write_hour_tokens: 200,
            ..Usage::default()
        };
        // 400 at $3, 400 at $3.75 and 200 at $6 for a million.
        assert_eq!(PRICE.cost(&usage), MicroUsd(1_200 + 1_500 + 1_200));
        let more = Usage { cache_write_hour_tokens: 700, ..usage };
        assert_eq!(
            PRICE.cost(&more),
            MicroUsd(1_200 + 3_600),
            "it is a part of the tokens that were written"
        );
        assert_eq!(ModelPrice::FREE.cost(&usage), MicroUsd(0));
    }

    #[test]
    fn what_nobody_counted_costs_what_was_reserved_for_it() {
        let dearer_read = ModelPrice { cache_read: 9_000_000, ..PRICE };
        let plain = ModelPrice { cache_write: 0, ..PRICE };
        for price in [PRICE, dearer_read, plain, ModelPrice::FREE] {
            let usage = price.dearest_usage(777);
            assert_eq!((price.cost(&usage), usage.input_tokens), (price.most(777, 0), 777));
        }
    }
}

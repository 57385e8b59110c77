//! The built-in table, as of [`DATE`].
//!
//! The figures are those that the vendors publish (platform.claude.com, developers.openai.com, ai.google.dev,
//! api-docs.deepseek.com, platform.moonshot.ai) and those of the model cards of open models. They were collected
//! in part from quotations of these pages, so compare a row with its page before you rely on a price. What is not
//! certain is left out: such a model has the figures of the more general row, or of `UNKNOWN`. Open models have
//! no prices: their servers set them.

use std::sync::LazyLock;

use clawnode_guard::policy::Pattern;
use clawnode_proto::model::{CacheStyle, ModelPrice, ReasoningStyle, SchemaStyle};

use super::model::{InputKinds, ModelProfile, ThinkingDefault};
use crate::llm::Wire;

/// When the table was last changed.
pub const DATE: &str = "2026-11-26";

/// Tokens that an agent's model reads at most by default: a larger window is not filled
/// by itself, because every call would cost more, and several vendors charge double beyond it.
pub const WINDOW_DEFAULT: u32 = 200_000;

/// Of a model that no row knows. It is sent what every server takes.
const UNKNOWN: ModelProfile = ModelProfile {
    window_tokens: 100_000,
    max_output_tokens: None,
    reply_tokens: None,
    // A setting may say otherwise; to be refused is better than to hide a picture from a model that sees.
    input: ALL,
    tools: true,
    reasoning: ReasoningStyle::Unknown,
    thinks: ThinkingDefault::Off,
    cache: CacheStyle::None,
    schema: SchemaStyle::Words,
    sampling: true,
    max_completion_tokens: false,
    effort_with_tools: true,
    developer_role: false,
    price: None,
};

/// Tokens of a reply of Claude, whose API needs a limit: it fits every model, and stops a runaway at a few
/// cents.
const CLAUDE_REPLY: u32 = 8_192;
/// The same of one that thinks without being asked: what it thinks counts.
const ADAPTIVE_REPLY: u32 = 32_768;

const TEXT: InputKinds = InputKinds { image: false, document: false, audio: false };
const IMAGES: InputKinds = InputKinds { image: true, document: false, audio: false };
const PAGES: InputKinds = InputKinds { image: true, document: true, audio: false };
const ALL: InputKinds = InputKinds { image: true, document: true, audio: true };

/// Rows of `MODEL` without the part before its last slash, in lower case: `*` is any characters, `?` is
/// one. The most specific pattern decides.
static TABLE: &[(&str, ModelProfile)] = &[
    // Anthropic. A `*` before it: other vendors write `us.anthropic.claude-…`.
    ("*claude-*", claude(200_000, 8_192, ReasoningStyle::Unknown, None)),
    ("*claude-3-haiku*", claude(200_000, 4_096, ReasoningStyle::None, Some(cents(25, 125, 3, 30)))),
    (
        "*claude-3-opus*",
        claude(200_000, 4_096, ReasoningStyle::None, Some(cents(1500, 7500, 150, 1875))),
    ),
    (
        "*claude-3?5-haiku*",
        claude(200_000, 8_192, ReasoningStyle::None, Some(cents(80, 400, 8, 100))),
    ),
    ("*claude-3?5-sonnet*", claude(200_000, 8_192, ReasoningStyle::None, SONNET)),
    ("*claude-3?7-sonnet*", claude(200_000, 64_000, ReasoningStyle::AnthropicBudget, SONNET)),
    ("*claude-sonnet-4*", claude(200_000, 64_000, ReasoningStyle::AnthropicBudget, SONNET)),
    ("*claude-sonnet-4?5*", fits(claude(200_000, 64_000, ReasoningStyle::AnthropicBudget, SONNET))),
    (
        "*claude-sonnet-4?6*",
        fits(claude(1_000_000, 64_000, ReasoningStyle::AnthropicAdaptive, SONNET)),
    ),
    (
        "*claude-haiku-4?5*",
        fits(claude(
            200_000,
            64_000,
            ReasoningStyle::AnthropicBudget,
            Some(cents(100, 500, 10, 125)),
        )),
    ),
    (
        "*claude-opus-4*",
        claude(
            200_000,
            32_000,
            ReasoningStyle::AnthropicBudget,
            Some(cents(1500, 7500, 150, 1875)),
        ),
    ),
    ("*claude-opus-4?5*", fits(claude(200_000, 64_000, ReasoningStyle::AnthropicBudget, OPUS))),
    (
        "*claude-opus-4?6*",
        fits(claude(1_000_000, 128_000, ReasoningStyle::AnthropicAdaptive, OPUS)),
    ),
    ("*claude-opus-4?7*", thinks(fits(adaptive(OPUS)), ThinkingDefault::OffAndHidden)),
    ("*claude-opus-4?8*", thinks(fits(adaptive(OPUS)), ThinkingDefault::OffAndHidden)),
    ("*claude-opus-5*", adaptive(None)),
    ("*claude-opus-5", thinks(adaptive(OPUS), ThinkingDefault::On)),
    ("*claude-opus-5-20*", thinks(adaptive(OPUS), ThinkingDefault::On)),
    ("*claude-opus-5?5*", thinks(adaptive(None), ThinkingDefault::Always)),
    ("*claude-sonnet-5*", adaptive(None)),
    ("*claude-sonnet-5", thinks(adaptive(None), ThinkingDefault::On)),
    ("*claude-sonnet-5-20*", thinks(adaptive(None), ThinkingDefault::On)),
    ("*claude-sonnet-5?5*", thinks(adaptive(None), ThinkingDefault::OnBetweenTools)),
    ("*claude-haiku-5?5*", thinks(adaptive(None), ThinkingDefault::On)),
    ("*claude-fable-5*", thinks(adaptive(None), ThinkingDefault::Always)),
    // What Amazon Bedrock does not cache of them (docs.aws.amazon.com/bedrock, "Prompt caching"): it refuses
    // markers there.
    (
        "*anthropic.claude-3-haiku*",
        uncached(claude(200_000, 4_096, ReasoningStyle::None, Some(cents(25, 125, 25, 25)))),
    ),
    ("*anthropic.claude-3-sonnet*", uncached(claude(200_000, 4_096, ReasoningStyle::None, None))),
    (
        "*anthropic.claude-3-opus*",
        uncached(claude(200_000, 4_096, ReasoningStyle::None, Some(cents(1500, 7500, 1500, 1500)))),
    ),
    (
        "*anthropic.claude-3-5-sonnet*",
        uncached(claude(200_000, 8_192, ReasoningStyle::None, Some(cents(300, 1_500, 300, 300)))),
    ),
    // Amazon (docs.aws.amazon.com/nova, "What is Amazon Nova?"). Nova 2 is not told to reason.
    ("*amazon.nova-*", nova(128_000, TEXT, None)),
    ("*amazon.nova-micro-*", nova(128_000, TEXT, Some(micro(35_000, 140_000, 8_750)))),
    ("*amazon.nova-lite-*", nova(300_000, PAGES, Some(micro(60_000, 240_000, 15_000)))),
    ("*amazon.nova-pro-*", nova(300_000, PAGES, Some(micro(800_000, 3_200_000, 200_000)))),
    ("*amazon.nova-premier-*", nova(1_000_000, PAGES, None)),
    (
        "*amazon.nova-2-*",
        ModelProfile { max_output_tokens: Some(64_000), ..nova(1_000_000, PAGES, None) },
    ),
    // OpenAI.
    ("gpt-3.5-turbo*", any_object(gpt(16_385, 4_096, TEXT, Some(cents(50, 150, 50, 50))))),
    ("gpt-4", in_words(gpt(8_192, 4_096, TEXT, Some(cents(3_000, 6_000, 3_000, 3_000))))),
    (
        "gpt-4-turbo*",
        any_object(gpt(128_000, 4_096, IMAGES, Some(cents(1_000, 3_000, 1_000, 1_000)))),
    ),
    ("gpt-4o*", gpt(128_000, 16_384, PAGES, Some(cents(250, 1_000, 125, 250)))),
    ("gpt-4o-mini*", gpt(128_000, 16_384, PAGES, Some(micro(150_000, 600_000, 75_000)))),
    ("gpt-4.1*", gpt(1_047_576, 32_768, PAGES, Some(cents(200, 800, 50, 200)))),
    ("gpt-4.1-mini*", gpt(1_047_576, 32_768, PAGES, Some(cents(40, 160, 10, 40)))),
    ("gpt-4.1-nano*", gpt(1_047_576, 32_768, PAGES, Some(micro(100_000, 400_000, 25_000)))),
    ("chatgpt-4o*", in_words(without_tools(gpt(128_000, 16_384, IMAGES, None)))),
    ("gpt-5*", effort(400_000, 128_000, PAGES, None)),
    ("gpt-5", effort(400_000, 128_000, PAGES, GPT_5)),
    ("gpt-5-20*", effort(400_000, 128_000, PAGES, GPT_5)),
    ("gpt-5-mini*", effort(400_000, 128_000, PAGES, Some(micro(250_000, 2_000_000, 25_000)))),
    ("gpt-5-nano*", effort(400_000, 128_000, PAGES, Some(micro(50_000, 400_000, 5_000)))),
    ("gpt-5-chat*", gpt(128_000, 16_384, PAGES, GPT_5)),
    ("gpt-5.1", effort(400_000, 128_000, PAGES, GPT_5)),
    ("gpt-5.1-20*", effort(400_000, 128_000, PAGES, GPT_5)),
    ("gpt-5.2", effort(400_000, 128_000, PAGES, Some(micro(1_750_000, 14_000_000, 175_000)))),
    ("gpt-5.4*", no_effort_beside_tools(effort(400_000, 128_000, PAGES, None))),
    (
        "gpt-5.4",
        no_effort_beside_tools(effort(
            1_050_000,
            128_000,
            PAGES,
            Some(micro(2_500_000, 15_000_000, 250_000)),
        )),
    ),
    ("gpt-5.5*", no_effort_beside_tools(effort(400_000, 128_000, PAGES, None))),
    ("gpt-5.5", no_effort_beside_tools(effort(1_050_000, 128_000, PAGES, None))),
    ("o1", effort(200_000, 100_000, PAGES, Some(cents(1_500, 6_000, 750, 1_500)))),
    ("o1-20*", effort(200_000, 100_000, PAGES, Some(cents(1_500, 6_000, 750, 1_500)))),
    ("o3", effort(200_000, 100_000, PAGES, Some(cents(200, 800, 50, 200)))),
    ("o3-20*", effort(200_000, 100_000, PAGES, Some(cents(200, 800, 50, 200)))),
    ("o3-mini*", effort(200_000, 100_000, TEXT, Some(micro(1_100_000, 4_400_000, 550_000)))),
    ("o4-mini*", effort(200_000, 100_000, PAGES, Some(micro(1_100_000, 4_400_000, 275_000)))),
    // Google (ai.google.dev/gemini-api/docs/models, /pricing and /thinking). Models from Gemini 3 on want the
    // signatures of a round of tools back.
    (
        "gemini-2.0-flash*",
        gemini(8_192, ReasoningStyle::None, Some(micro(100_000, 400_000, 25_000))),
    ),
    ("gemini-2.5-*", gemini(65_536, ReasoningStyle::GeminiBudget, None)),
    (
        "gemini-2.5-pro*",
        gemini(65_536, ReasoningStyle::GeminiBudget, Some(micro(1_250_000, 10_000_000, 125_000))),
    ),
    (
        "gemini-2.5-flash",
        gemini(65_536, ReasoningStyle::GeminiBudget, Some(micro(300_000, 2_500_000, 30_000))),
    ),
    (
        "gemini-2.5-flash-lite",
        gemini(65_536, ReasoningStyle::GeminiBudget, Some(micro(100_000, 400_000, 10_000))),
    ),
    ("gemini-3*", fits(gemini(65_536, ReasoningStyle::GeminiLevel, None))),
    // DeepSeek's and Moonshot's own servers.
    ("deepseek-chat", any_object(vendor(128_000, 8_192, ReasoningStyle::None))),
    ("deepseek-reasoner", any_object(vendor(128_000, 64_000, ReasoningStyle::ReasoningContent))),
    ("kimi-k2*", open(131_072, TEXT)),
    ("kimi-k2-0905*", open(262_144, TEXT)),
    ("kimi-k2-thinking*", reasoning(open(262_144, TEXT))),
    // Open models, on whatever serves them. Their servers are often started with less: then `num_ctx` or
    // `window_tokens` of `[models]` says so.
    ("llama2*", without_tools(open(4_096, TEXT))),
    ("llama3", without_tools(open(8_192, TEXT))),
    ("llama3:*", without_tools(open(8_192, TEXT))),
    ("*llama-3-*", open(8_192, TEXT)),
    ("llama3.1*", open(131_072, TEXT)),
    ("*llama-3.1*", open(131_072, TEXT)),
    ("llama3.2*", open(131_072, TEXT)),
    ("*llama-3.2*", open(131_072, TEXT)),
    ("llama3.2-vision*", without_tools(open(131_072, IMAGES))),
    ("llama3.3*", open(131_072, TEXT)),
    ("*llama-3.3*", open(131_072, TEXT)),
    ("qwen2.5*", open(32_768, TEXT)),
    ("qwen3*", reasoning(open(40_960, TEXT))),
    ("qwen3-*-2507*", open(262_144, TEXT)),
    ("qwen3-*-thinking-2507*", reasoning(open(262_144, TEXT))),
    ("qwen3-coder*", open(262_144, TEXT)),
    ("qwq*", reasoning(open(40_960, TEXT))),
    ("deepseek-r1*", reasoning(open(131_072, TEXT))),
    ("gpt-oss*", ModelProfile { reasoning: ReasoningStyle::OpenaiEffort, ..open(131_072, TEXT) }),
    (
        "openai.gpt-oss*",
        ModelProfile { reasoning: ReasoningStyle::OpenaiEffort, ..open(131_072, TEXT) },
    ),
    ("mistral:7b*", open(32_768, TEXT)),
    ("mistral-7b-*", open(32_768, TEXT)),
    ("mixtral-8x7b*", open(32_768, TEXT)),
    ("mistral-nemo*", open(131_072, TEXT)),
    ("mistral-small3*", open(131_072, TEXT)),
    ("mistral-large*", open(131_072, TEXT)),
    ("gemma2*", without_tools(open(8_192, TEXT))),
    ("gemma3*", without_tools(open(131_072, IMAGES))),
    ("gemma3:1b*", without_tools(open(32_768, TEXT))),
    ("phi4", without_tools(open(16_384, TEXT))),
    ("phi4:*", without_tools(open(16_384, TEXT))),
    ("demo/*", open(100_000, TEXT)),
    // Embeddings.
    ("text-embedding-3-small", embeds(20_000)),
    ("text-embedding-3-large", embeds(130_000)),
    ("text-embedding-ada-002", embeds(100_000)),
    ("gemini-embedding-001", embeds(150_000)),
    ("amazon.titan-embed-text-v1", embeds(100_000)),
    ("amazon.titan-embed-text-v2:0", embeds(20_000)),
];

/// $3 and $15.
const SONNET: Option<ModelPrice> = Some(cents(300, 1_500, 30, 375));
/// $5 and $25.
const OPUS: Option<ModelPrice> = Some(cents(500, 2_500, 50, 625));
/// $1.25 and $10.
const GPT_5: Option<ModelPrice> = Some(micro(1_250_000, 10_000_000, 125_000));

/// What is known of the model of this name, and the pattern of the row. A pattern without a provider is
/// compared with the last part of the name.
pub(super) fn built_in(model: &str) -> (ModelProfile, Option<&'static str>) {
    // Each turn looks up its model several times.
    static PATTERNS: LazyLock<Vec<Pattern>> =
        LazyLock::new(|| TABLE.iter().map(|(pattern, _)| Pattern::from(*pattern)).collect());
    let whole = model.to_ascii_lowercase();
    let last = whole.rsplit('/').next().unwrap_or(&whole);
    let compared = |pattern: &str| if pattern.contains('/') { whole.as_str() } else { last };
    let rows = TABLE.iter().zip(PATTERNS.iter());
    let fitting = rows.filter(|((text, _), pattern)| pattern.fits(compared(text)));
    let best = fitting.max_by_key(|((text, _), _)| specificity(text));
    best.map_or((UNKNOWN, None), |((text, profile), _)| (*profile, Some(*text)))
}

/// The dearest of the known prices of a wire's models, for each sort of tokens; of all, if the wire has models of
/// many vendors.
pub(super) fn dearest(wire: Option<Wire>) -> ModelPrice {
    let vendor = match wire {
        Some(Wire::Anthropic) => "claude",
        Some(Wire::Gemini) => "gemini",
        _ => "",
    };
    let rows = TABLE.iter().filter(|(pattern, _)| pattern.contains(vendor));
    let prices = rows.filter_map(|(_, profile)| profile.price);
    prices.fold(ModelPrice::FREE, |most, price| ModelPrice {
        input: most.input.max(price.input),
        output: most.output.max(price.output),
        cache_read: most.cache_read.max(price.cache_read),
        cache_write: most.cache_write.max(price.cache_write),
    })
}

/// How much a pattern says: its characters that are no `*`, and then whether it has none.
pub(super) fn specificity(pattern: &str) -> (usize, bool) {
    let stars = pattern.matches('*').count();
    (pattern.chars().count() - stars, stars == 0)
}

const fn claude(
    window_tokens: u32,
    max_output_tokens: u32,
    reasoning: ReasoningStyle,
    price: Option<ModelPrice>,
) -> ModelProfile {
    ModelProfile {
        window_tokens,
        max_output_tokens: Some(max_output_tokens),
        reply_tokens: Some(CLAUDE_REPLY),
        input: PAGES,
        reasoning,
        cache: CacheStyle::Markers,
        price,
        ..UNKNOWN
    }
}

/// One of Amazon's.
const fn nova(window_tokens: u32, input: InputKinds, price: Option<ModelPrice>) -> ModelProfile {
    ModelProfile {
        window_tokens,
        max_output_tokens: Some(10_000),
        input,
        reasoning: ReasoningStyle::None,
        cache: CacheStyle::Markers,
        price,
        ..UNKNOWN
    }
}

/// One whose provider does not cache.
const fn uncached(profile: ModelProfile) -> ModelProfile {
    ModelProfile { cache: CacheStyle::None, ..profile }
}

/// One that decides itself how long to think, and refuses `temperature`.
const fn adaptive(price: Option<ModelPrice>) -> ModelProfile {
    ModelProfile {
        sampling: false,
        reply_tokens: Some(ADAPTIVE_REPLY),
        ..claude(1_000_000, 128_000, ReasoningStyle::AnthropicAdaptive, price)
    }
}

const fn gpt(
    window_tokens: u32,
    max_output_tokens: u32,
    input: InputKinds,
    price: Option<ModelPrice>,
) -> ModelProfile {
    ModelProfile {
        window_tokens,
        max_output_tokens: Some(max_output_tokens),
        input,
        reasoning: ReasoningStyle::None,
        cache: CacheStyle::Key,
        schema: SchemaStyle::JsonSchema,
        price,
        ..UNKNOWN
    }
}

/// A reasoning model of `OpenAI`.
const fn effort(
    window_tokens: u32,
    max_output_tokens: u32,
    input: InputKinds,
    price: Option<ModelPrice>,
) -> ModelProfile {
    ModelProfile {
        reasoning: ReasoningStyle::OpenaiEffort,
        sampling: false,
        max_completion_tokens: true,
        developer_role: true,
        ..gpt(window_tokens, max_output_tokens, input, price)
    }
}

const fn gemini(
    max_output_tokens: u32,
    reasoning: ReasoningStyle,
    price: Option<ModelPrice>,
) -> ModelProfile {
    ModelProfile {
        window_tokens: 1_048_576,
        max_output_tokens: Some(max_output_tokens),
        input: ALL,
        reasoning,
        schema: SchemaStyle::JsonSchemaAlone,
        cache: CacheStyle::Implicit,
        price,
        ..UNKNOWN
    }
}

const fn vendor(
    window_tokens: u32,
    max_output_tokens: u32,
    reasoning: ReasoningStyle,
) -> ModelProfile {
    ModelProfile {
        window_tokens,
        max_output_tokens: Some(max_output_tokens),
        input: TEXT,
        reasoning,
        cache: CacheStyle::Implicit,
        ..UNKNOWN
    }
}

const fn open(window_tokens: u32, input: InputKinds) -> ModelProfile {
    ModelProfile { window_tokens, input, reasoning: ReasoningStyle::None, ..UNKNOWN }
}

/// One that makes vectors of texts, for so many micro-dollars a million tokens.
const fn embeds(price: u64) -> ModelProfile {
    let price = Some(micro(price, 0, price));
    without_tools(ModelProfile { price, ..open(8_192, TEXT) })
}

/// One that refuses `reasoning_effort` beside tools on the wire of Chat Completions.
const fn no_effort_beside_tools(profile: ModelProfile) -> ModelProfile {
    ModelProfile { effort_with_tools: false, ..profile }
}

/// One that thinks so by default.
const fn thinks(profile: ModelProfile, thinks: ThinkingDefault) -> ModelProfile {
    ModelProfile { thinks, ..profile }
}

/// One whose replies are held to a schema, also beside tools.
const fn fits(profile: ModelProfile) -> ModelProfile {
    ModelProfile { schema: SchemaStyle::JsonSchema, ..profile }
}

/// One whose replies can only be held to being a JSON object.
const fn any_object(profile: ModelProfile) -> ModelProfile {
    ModelProfile { schema: SchemaStyle::JsonObject, ..profile }
}

const fn in_words(profile: ModelProfile) -> ModelProfile {
    ModelProfile { schema: SchemaStyle::Words, ..profile }
}

const fn without_tools(profile: ModelProfile) -> ModelProfile {
    ModelProfile { tools: false, ..profile }
}

const fn reasoning(profile: ModelProfile) -> ModelProfile {
    ModelProfile { reasoning: ReasoningStyle::ReasoningContent, ..profile }
}

/// Prices in cents for a million tokens.
const fn cents(input: u64, output: u64, cache_read: u64, cache_write: u64) -> ModelPrice {
    const MICRO: u64 = 10_000;
    ModelPrice {
        input: input * MICRO,
        output: output * MICRO,
        cache_read: cache_read * MICRO,
        cache_write: cache_write * MICRO,
    }
}

/// Prices in micro-dollars, of a vendor that writes to its cache for nothing.
const fn micro(input: u64, output: u64, cache_read: u64) -> ModelPrice {
    ModelPrice { input, output, cache_read, cache_write: input }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_row_decides_however_a_vendor_writes_the_name() {
        for (model, row) in [
            ("claude-sonnet-4-5", Some("*claude-sonnet-4?5*")),
            ("claude-sonnet-4-20250514", Some("*claude-sonnet-4*")),
            ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", Some("*anthropic.claude-3-5-sonnet*")),
            ("anthropic.claude-3-5-haiku-20241022-v1:0", Some("*claude-3?5-haiku*")),
            ("bedrock/anthropic.claude-opus-4-1-20250805-v1:0", Some("*claude-opus-4*")),
            (
                "arn:aws:bedrock:us-east-1:123456789012:inference-profile/\
                 us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                Some("*claude-sonnet-4?5*"),
            ),
            ("us.amazon.nova-lite-v1:0", Some("*amazon.nova-lite-*")),
            ("amazon.nova-2-lite-v1:0", Some("*amazon.nova-2-*")),
            ("amazon.nova-9-v1:0", Some("*amazon.nova-*")),
            ("anthropic/claude-3.5-sonnet", Some("*claude-3?5-sonnet*")),
            ("anthropic/claude-opus-4.5", Some("*claude-opus-4?5*")),
            ("claude-opus-4-1-20250805", Some("*claude-opus-4*")),
            ("claude-opus-5", Some("*claude-opus-5")),
            ("claude-opus-5-5", Some("*claude-opus-5?5*")),
            ("anthropic/claude-opus-5-20260701", Some("*claude-opus-5-20*")),
            ("claude-opus-5-next", Some("*claude-opus-5*")),
            ("gpt-4o-2024-11-20", Some("gpt-4o*")),
            ("gpt-4o-mini", Some("gpt-4o-mini*")),
            ("openai/gpt-5", Some("gpt-5")),
            ("gpt-5-mini-2025-08-07", Some("gpt-5-mini*")),
            ("gpt-5-codex", Some("gpt-5*")),
            ("o3-mini", Some("o3-mini*")),
            ("meta-llama/Llama-3.1-8B-Instruct", Some("*llama-3.1*")),
            ("llama3.2:3b", Some("llama3.2*")),
            ("qwen3:8b", Some("qwen3*")),
            ("Qwen/Qwen3-30B-A3B-Thinking-2507", Some("qwen3-*-thinking-2507*")),
            ("gemma3:1b", Some("gemma3:1b*")),
            ("demo/echo", Some("demo/*")),
            ("p/demo/echo", None),
            ("echo", None),
            ("some-model", None),
            ("o2", None),
        ] {
            assert_eq!(built_in(model).1, row, "{model}");
        }
    }

    #[test]
    fn rows_make_sense_and_no_two_are_the_same() {
        for (at, (pattern, profile)) in TABLE.iter().enumerate() {
            assert_eq!(*pattern, pattern.to_ascii_lowercase());
            assert!(TABLE.iter().skip(at + 1).all(|(other, _)| other != pattern), "{pattern}");
            assert!(profile.max_output_tokens.is_none_or(|tokens| tokens < profile.window_tokens));
            if let Some(price) = profile.price {
                // Embeddings have no output.
                let is_dearer = price.input <= price.output || pattern.contains("embed");
                assert!(price.cache_read <= price.input && is_dearer, "{pattern}");
            }
        }
    }

    #[test]
    fn an_unknown_model_is_treated_as_before_there_was_a_table() {
        let unknown = built_in("some-model").0;
        assert_eq!((unknown.window_tokens, unknown.reply_in(100_000)), (100_000, None));
        assert!(unknown.sampling && !unknown.developer_role && !unknown.max_completion_tokens);
    }

    #[test]
    fn a_reply_leaves_room_for_the_conversation() {
        let reply = |model, window| built_in(model).0.reply_in(window);
        assert_eq!(reply("gpt-4o", 128_000), Some(16_384));
        assert_eq!(reply("o3", 200_000), Some(50_000));
        assert_eq!(reply("claude-sonnet-4-5", 200_000), Some(8_192));
        assert_eq!(reply("claude-3-haiku-20240307", 200_000), Some(4_096));
        assert_eq!(reply("claude-3-haiku-20240307", 2), Some(1));
    }
}

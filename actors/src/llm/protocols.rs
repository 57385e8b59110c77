//! The wire protocols, one row each, and which of them a provider speaks. A wire is a folder beside this file: what is
//! asked (its [`Dialect`]) and what a reply says (its decoder). Adding one is that folder, its `mod` line, its name in
//! `wire` and its row here.

use std::time::Duration;

use secrecy::SecretString;

use super::{
    anthropic::{Anthropic, AnthropicReader},
    bedrock::{self, Bedrock, BedrockReader},
    call::{Dialect, ReplyReader},
    demo,
    embed::EmbedDialect,
    framing::Framing,
    gemini::{Gemini, GeminiReader},
    machine_role::AwsSigner,
    ollama::{Ollama, OllamaReader, address},
    openai::{OpenAi, OpenAiReader},
    options::{BaseUrl, Lookup, OptionsError, ParseBaseUrlError, ProviderOptions},
    responses::{Responses, ResponsesReader},
    settings::Setting,
    wire::Wire,
};

/// The provider that needs no wire.
const DEMO: &str = "demo";
/// How long a provider may be silent that says where it is by an environment variable.
const IDLE: Duration = Duration::from_mins(1);

/// All wires. Without a configured provider, the first whose key is set is used.
static WIRES: &[WireRow] = &[
    WireRow {
        wire: Wire::Anthropic,
        provider: Some("anthropic"),
        base_url: "https://api.anthropic.com",
        url_variable: "ANTHROPIC_BASE_URL",
        read_url: str::parse,
        key_variable: Some("ANTHROPIC_API_KEY"),
        // A fair balance of skill and price.
        model: Some("claude-sonnet-4-5"),
        idle: IDLE,
        takes_num_ctx: false,
        is_of_aws: false,
        settings: |_| {
            &[Setting::Stop, Setting::ToolChoice, Setting::ParallelToolCalls, Setting::TopK]
        },
        dialect: |WireParts { base, key, max_tokens, .. }| {
            Box::new(Anthropic { base, key, max_tokens })
        },
        reads: ReplyReader {
            framing: Framing::Events,
            decoder: |offers| Box::new(AnthropicReader::new(offers)),
        },
        embeds: None,
    },
    WireRow {
        wire: Wire::Openai,
        provider: Some("openai"),
        base_url: "https://api.openai.com/v1",
        url_variable: "OPENAI_BASE_URL",
        read_url: str::parse,
        key_variable: Some("OPENAI_API_KEY"),
        model: Some("gpt-4o"),
        idle: IDLE,
        // Servers that are compatible take it, if any does.
        takes_num_ctx: true,
        is_of_aws: false,
        settings: |_| {
            &[
                Setting::Stop,
                Setting::PresencePenalty,
                Setting::FrequencyPenalty,
                Setting::Seed,
                Setting::LogitBias,
                Setting::ToolChoice,
                Setting::ParallelToolCalls,
            ]
        },
        dialect: |WireParts { base, key, .. }| Box::new(OpenAi { base, key }),
        reads: ReplyReader {
            framing: Framing::Events,
            decoder: |offers| Box::new(OpenAiReader::new(offers)),
        },
        embeds: Some(|WireParts { base, key, .. }| Box::new(OpenAi { base, key })),
    },
    WireRow {
        wire: Wire::OpenaiResponses,
        // The provider of the same vendor speaks the wire that more servers have.
        provider: None,
        base_url: "https://api.openai.com/v1",
        url_variable: "OPENAI_BASE_URL",
        read_url: str::parse,
        key_variable: Some("OPENAI_API_KEY"),
        model: None,
        idle: IDLE,
        takes_num_ctx: false,
        is_of_aws: false,
        settings: |_| &[Setting::ToolChoice, Setting::ParallelToolCalls],
        dialect: |WireParts { base, key, .. }| Box::new(Responses { base, key }),
        reads: ReplyReader {
            framing: Framing::Events,
            decoder: |offers| Box::new(ResponsesReader::new(offers)),
        },
        // The same API has them beside the other wire.
        embeds: Some(|WireParts { base, key, .. }| Box::new(OpenAi { base, key })),
    },
    WireRow {
        wire: Wire::Gemini,
        provider: Some("gemini"),
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        url_variable: "GEMINI_BASE_URL",
        read_url: str::parse,
        key_variable: Some("GEMINI_API_KEY"),
        model: Some("gemini-2.5-flash"),
        idle: IDLE,
        takes_num_ctx: false,
        is_of_aws: false,
        settings: |_| {
            &[
                Setting::Stop,
                Setting::PresencePenalty,
                Setting::FrequencyPenalty,
                Setting::Seed,
                Setting::ToolChoice,
                Setting::TopK,
            ]
        },
        dialect: |WireParts { base, key, .. }| Box::new(Gemini { base, key }),
        reads: ReplyReader {
            framing: Framing::Events,
            decoder: |offers| Box::new(GeminiReader::new(offers)),
        },
        embeds: Some(|WireParts { base, key, .. }| Box::new(Gemini { base, key })),
    },
    WireRow {
        wire: Wire::Ollama,
        provider: Some("ollama"),
        base_url: "http://127.0.0.1:11434",
        url_variable: "OLLAMA_HOST",
        read_url: address,
        key_variable: None,
        model: None,
        // It may load a large model first.
        idle: Duration::from_mins(5),
        takes_num_ctx: true,
        is_of_aws: false,
        settings: |_| {
            &[
                Setting::Stop,
                Setting::PresencePenalty,
                Setting::FrequencyPenalty,
                Setting::Seed,
                Setting::TopK,
            ]
        },
        dialect: |WireParts { base, key, .. }| Box::new(Ollama { base, key }),
        reads: ReplyReader {
            framing: Framing::Lines,
            decoder: |offers| Box::new(OllamaReader::new(offers)),
        },
        embeds: Some(|WireParts { base, key, .. }| Box::new(Ollama { base, key })),
    },
    WireRow {
        wire: Wire::Bedrock,
        provider: Some("bedrock"),
        // That of the region takes its place.
        base_url: "https://bedrock-runtime.us-east-1.amazonaws.com",
        url_variable: "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        read_url: str::parse,
        key_variable: Some("AWS_BEARER_TOKEN_BEDROCK"),
        // An account has to ask for access to each, and regions have others.
        model: None,
        idle: IDLE,
        takes_num_ctx: false,
        is_of_aws: true,
        settings: bedrock::settings,
        dialect: |WireParts { base, key, max_tokens, aws }| {
            Box::new(Bedrock { base, key, max_tokens, aws })
        },
        reads: ReplyReader {
            framing: Framing::EventStream,
            decoder: |offers| Box::new(BedrockReader::new(offers)),
        },
        embeds: Some(|WireParts { base, key, max_tokens, aws }| {
            Box::new(Bedrock { base, key, max_tokens, aws })
        }),
    },
];

/// What is known of a wire.
#[derive(Debug)]
pub(super) struct WireRow {
    pub(super) wire: Wire,
    /// The name of the provider that speaks it without configuration.
    pub(super) provider: Option<&'static str>,
    /// Where that is.
    base_url: &'static str,
    /// The environment variable that says where else it is, and how it is read.
    pub(super) url_variable: &'static str,
    read_url: fn(&str) -> Result<BaseUrl, ParseBaseUrlError>,
    /// The environment variable of its key; none if it needs none.
    pub(super) key_variable: Option<&'static str>,
    /// Its model where the configuration names none; absent if each server has other models.
    pub(super) model: Option<&'static str>,
    /// How long it may be silent.
    idle: Duration,
    /// Whether a request may have `options.num_ctx`.
    takes_num_ctx: bool,
    /// Whether it is a service of Amazon's, with a region and signatures.
    pub(super) is_of_aws: bool,
    /// The settings that it has for a model, of those that not every wire has.
    settings: fn(&str) -> &'static [Setting],
    /// What writes requests.
    pub(super) dialect: fn(WireParts) -> Box<dyn Dialect>,
    /// What reads replies.
    pub(super) reads: ReplyReader,
    /// What asks for embeddings and reads them; none if the wire has none.
    pub(super) embeds: Option<fn(WireParts) -> Box<dyn EmbedDialect>>,
}

/// What a wire's requests are made of, beside what is asked.
#[derive(Clone)]
pub(super) struct WireParts {
    pub(super) base: BaseUrl,
    pub(super) key: Option<SecretString>,
    /// Tokens of a reply for requests that set no limit.
    pub(super) max_tokens: u32,
    /// For services of Amazon's.
    pub(super) aws: Option<AwsSigner>,
}

// === impl Wire ===

impl Wire {
    /// The wire of a provider that does not say which: that of its name.
    pub fn of_provider(name: &str, base_url: Option<&str>) -> Option<Self> {
        let row = rows().find(|row| row.provider == Some(name)).map(|row| row.wire);
        let is_v1 = base_url.is_some_and(|url| url.trim_end_matches('/').ends_with("/v1"));
        match row {
            // That address is `OpenAI`'s wire, also where Ollama serves it.
            Some(Self::Ollama) if is_v1 => Some(Self::Openai),
            None if name == DEMO => Some(Self::Demo),
            wire => wire,
        }
    }

    /// The providers that need no configuration, by name.
    pub fn built_in_providers() -> impl Iterator<Item = &'static str> {
        rows().filter_map(|row| row.provider).chain([DEMO])
    }

    /// The environment variables of keys with which a model is found, for people.
    pub fn key_variables() -> impl Iterator<Item = &'static str> {
        rows().filter_map(|row| row.provider.and(row.model).and(row.key_variable))
    }

    /// The environment variable that holds the key of the wire's inventor; none if that needs none.
    pub fn key_variable(self) -> Option<&'static str> {
        self.row()?.key_variable
    }

    /// The providers without configuration that have embeddings, for people.
    pub fn embedding_providers() -> impl Iterator<Item = &'static str> {
        rows().filter(|row| row.embeds.is_some()).filter_map(|row| row.provider)
    }

    /// Whether it has embeddings.
    pub fn has_embeddings(self) -> bool {
        self.row().is_some_and(|row| row.embeds.is_some())
    }

    /// Whether a request may ask the server for room (`options.num_ctx`).
    pub fn takes_num_ctx(self) -> bool {
        self.row().is_some_and(|row| row.takes_num_ctx)
    }

    /// The settings that it has for this model, of those that not every wire has.
    pub(super) fn settings(self, model: &str) -> &'static [Setting] {
        self.row().map_or(demo::SETTINGS, |row| (row.settings)(model))
    }

    /// Its row; none for the demo.
    pub(super) fn row(self) -> Option<&'static WireRow> {
        rows().find(|row| row.wire == self)
    }
}

pub(super) fn rows() -> impl Iterator<Item = &'static WireRow> {
    WIRES.iter()
}

// === impl WireRow ===

impl WireRow {
    /// Where its inventor is, or runs by default.
    pub(super) fn default_url(&self) -> Option<BaseUrl> {
        self.base_url.parse().ok()
    }

    /// Where the environment says that it is; none if it does not.
    pub(super) fn url(&self, lookup: Lookup<'_>) -> Result<Option<BaseUrl>, OptionsError> {
        let variable = self.url_variable;
        let set = lookup(variable).filter(|url| !url.trim().is_empty());
        set.map(|url| (self.read_url)(url.trim()))
            .transpose()
            .map_err(|source| OptionsError::Url { variable, source })
    }

    /// The options of the provider that speaks it without configuration.
    pub(super) fn built_in(&self, lookup: Lookup<'_>) -> Result<ProviderOptions, OptionsError> {
        let mut options = ProviderOptions::new(self.wire);
        options.base_url = self.url(lookup)?;
        options.api_key_env = self.key_variable.map(str::to_owned);
        options.idle_timeout = self.idle;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_has_one_row_and_every_row_an_address() {
        for row in rows() {
            assert_eq!(rows().filter(|other| other.wire == row.wire).count(), 1, "{:?}", row.wire);
            assert!(row.default_url().is_some(), "{:?}", row.wire);
            let named = row.provider.and_then(|name| Wire::of_provider(name, None));
            assert_eq!(named, row.provider.map(|_| row.wire));
        }
        assert_eq!(Wire::of_provider("demo", None), Some(Wire::Demo));
        assert_eq!(Wire::of_provider("local", None), None);
    }

    #[test]
    fn an_ollama_at_an_address_of_the_other_wire_is_spoken_to_as_before() {
        for (url, wire) in [
            ("http://box:11434", Wire::Ollama),
            ("http://box:11434/api", Wire::Ollama),
            ("http://box:11434/v1", Wire::Openai),
            ("http://box:11434/v1/", Wire::Openai),
        ] {
            assert_eq!(Wire::of_provider("ollama", Some(url)), Some(wire), "{url}");
        }
        let other = Wire::of_provider("anthropic", Some("http://box/v1"));
        assert_eq!(other, Some(Wire::Anthropic));
    }
}

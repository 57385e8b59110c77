//! Settings of models.

use std::collections::BTreeMap;

use clawnode_actors::llm::profile::{InputKinds, ModelExtras, ModelOverride};
use clawnode_proto::{
    limits::RULE_CHARS,
    llm::ModelRef,
    media::MediaKind,
    model::{CacheStyle, ReasoningStyle, SchemaStyle},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::nearest;
use crate::secret::Secret;

/// Patterns of models that one agent's messages may choose from, or clients may ask for embeddings.
const MODEL_CHOICES: usize = 64;
/// Patterns of one node (256): each model is compared with all of them.
pub(super) const PATTERNS: usize = 256;
/// Headers that clawnode sets itself, or that belong to the connection.
const OWN_HEADERS: [&str; 9] = [
    "content-type",
    "content-length",
    "accept",
    "host",
    "connection",
    "transfer-encoding",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
];

/// `[embeddings]`: which models clients may ask for the vectors of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddingsSection {
    /// Patterns of `PROVIDER/MODEL` (none): each request costs what the provider asks for it, so nothing is
    /// allowed by default.
    pub models: Vec<String>,
}

/// `[models."PROVIDER/PATTERN"]`: what is to be known of models whose `PROVIDER/MODEL` fits the pattern
/// (`*` is any characters, `?` is one). What is not set comes from less specific patterns, then from the
/// built-in table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSection {
    /// Tokens of a request and its reply together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u32>,
    /// Most tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// What it takes beside text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<MediaKind>>,
    /// Whether it calls tools. Agents have none with one that does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// How it reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningStyle>,
    /// How its provider caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStyle>,
    /// How a request says that the reply has to fit a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaStyle>,
    /// Whether it takes `temperature` and `top_p`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
    /// Whether the limit of a reply is called `max_completion_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<bool>,
    /// Whether the system prompt has the role `developer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_role: Option<bool>,
    /// Tokens that the server is asked to make room for (`options.num_ctx`), on the wires of Ollama and
    /// `OpenAI`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u32>,
    /// Headers of each request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
    /// Fields of each request's JSON.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub body: serde_json::Map<String, Value>,
}

/// What is wrong with a pattern's settings.
pub(super) struct ModelFault {
    pub(super) pattern: String,
    /// Which of its keys; empty if it is the pattern itself.
    pub(super) key: &'static str,
    pub(super) what: String,
    pub(super) hint: String,
}

/// What is wrong with a list of patterns of models, and what to do.
pub(super) fn choices_fault(patterns: &[String]) -> Option<(String, &'static str)> {
    if patterns.len() > MODEL_CHOICES {
        let what = format!("{} patterns, at most {MODEL_CHOICES}", patterns.len());
        return Some((what, "combine some: patterns may contain `*` and `?`"));
    }
    let wrong = |text: &&String| text.parse::<ModelRef>().is_err() || text.len() > RULE_CHARS;
    let pattern = patterns.iter().find(wrong)?;
    let what = format!("`{pattern}` is not a pattern of `PROVIDER/MODEL`");
    Some((what, "write one such as `openai/gpt-4o` or `ollama/*`"))
}

/// The first thing that is wrong with these, if anything is. `providers` are those that there are, with
/// whether they can be asked for room (`num_ctx`).
pub(super) fn check(
    models: &BTreeMap<String, ModelSection>,
    providers: &BTreeMap<&str, bool>,
) -> Option<ModelFault> {
    if models.len() > PATTERNS {
        let what = format!("{} patterns, at most {PATTERNS}", models.len());
        let hint = "combine some: patterns may contain `*` and `?`".to_owned();
        return Some(ModelFault { pattern: String::new(), key: "", what, hint });
    }
    let fault = |(pattern, section): (&String, &ModelSection)| {
        let wrong = pattern_fault(pattern, providers).map(|(what, hint)| ("", what, hint));
        let (key, what, hint) = wrong.or_else(|| section.fault(pattern, providers))?;
        Some(ModelFault { pattern: pattern.clone(), key, what, hint })
    };
    models.iter().find_map(fault)
}

/// What is wrong with a pattern, and what to do.
pub(super) fn pattern_fault(
    pattern: &str,
    providers: &BTreeMap<&str, bool>,
) -> Option<(String, String)> {
    let Some((provider, model)) = pattern.split_once('/') else {
        let what = format!("`{pattern}` is not a pattern of `PROVIDER/MODEL`");
        return Some((what, "write one such as `ollama/qwen3*`".to_owned()));
    };
    if provider.is_empty() || model.is_empty() {
        let what = format!("`{pattern}` names no provider, or no model");
        return Some((what, "write one such as `ollama/qwen3*`, or `*` for any".to_owned()));
    }
    if provider.contains(['*', '?']) || providers.contains_key(provider) {
        return None;
    }
    let known: Vec<&str> = providers.keys().copied().collect();
    let near = nearest(provider, known.iter().copied());
    let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let hint = format!("{meant}name one of: {}", known.join(", "));
    Some((format!("no provider is called `{provider}`"), hint))
}

// === impl ModelSection ===

impl ModelSection {
    /// Which key is wrong, how, and what to do.
    fn fault(
        &self,
        pattern: &str,
        providers: &BTreeMap<&str, bool>,
    ) -> Option<(&'static str, String, String)> {
        let numbers = [
            ("window_tokens", self.window_tokens),
            ("max_output_tokens", self.max_output_tokens),
            ("num_ctx", self.num_ctx),
        ];
        if let Some((key, _)) = numbers.into_iter().find(|(_, number)| *number == Some(0)) {
            return Some((key, "0 is too few".to_owned(), "write 1 or more".to_owned()));
        }
        if let (Some(window), Some(reply)) = (self.window_tokens, self.max_output_tokens)
            && reply >= window
        {
            let what = format!("a reply of {reply} tokens does not fit a window of {window}");
            let hint = "write less than `window_tokens`: a window has the request and its reply";
            return Some(("max_output_tokens", what, hint.to_owned()));
        }
        let provider = pattern.split_once('/').map_or("", |(provider, _)| provider);
        if self.num_ctx.is_some() && providers.get(provider) == Some(&false) {
            let what = format!("the protocol of `{provider}` has no `num_ctx`");
            return Some(("num_ctx", what, "set `window_tokens` instead".to_owned()));
        }
        if let Err(error) = self.extras().check() {
            let hint = "remove it: clawnode sets it itself".to_owned();
            return Some(("body", error.to_string(), hint));
        }
        self.headers.iter().find_map(|(name, value)| header_fault(name, value))
    }

    /// The same as models' clients take it.
    pub fn to_override(&self) -> ModelOverride {
        ModelOverride {
            window_tokens: self.window_tokens,
            max_output_tokens: self.max_output_tokens,
            input: self.input.as_deref().map(InputKinds::of),
            tools: self.tools,
            reasoning: self.reasoning,
            cache: self.cache,
            schema: self.schema,
            sampling: self.sampling,
            max_completion_tokens: self.max_completion_tokens,
            developer_role: self.developer_role,
            // It has a section of its own.
            price: None,
            extras: self.extras(),
        }
    }

    fn extras(&self) -> ModelExtras {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let value = HeaderValue::from_str(value.expose());
            if let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name.as_str()), value) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        ModelExtras { headers, body: self.body.clone(), num_ctx: self.num_ctx }
    }
}

fn header_fault(name: &str, value: &Secret) -> Option<(&'static str, String, String)> {
    let wrong = |what: String, hint: &str| Some(("headers", what, hint.to_owned()));
    if HeaderName::try_from(name).is_err() {
        let what = format!("`{name}` cannot be the name of a header");
        return wrong(what, "use letters, digits and `-`");
    }
    if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        let what = format!("the header `{name}` is set by clawnode itself");
        return wrong(what, "remove it; the key belongs into `[providers.NAME]`");
    }
    if HeaderValue::from_str(value.expose()).is_err() {
        let what = format!("the value of `{name}` cannot be sent in a header");
        return wrong(what, "use visible characters of ASCII");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{load::read_text as read, show};
    use clawnode_proto::llm::ModelRef;

    #[test]
    fn mistakes_are_named_with_their_place_and_what_to_do() {
        for (text, says) in [
            ("[models.\"ollama\"]", "not a pattern of `PROVIDER/MODEL`"),
            ("[models.\"olama/*\"]", "did you mean `ollama`?"),
            ("[models.\"ollama/*\"]\nwindow_tokens = 0", "0 is too few"),
            ("[models.\"ollama/*\"]\nwindow_tokens = -5", "a whole number from 0"),
            ("[models.\"ollama/*\"]\nwindow_token = 5", "did you mean `window_tokens`?"),
            ("[models.\"ollama/*\"]\nwindow_tokens = 5\nmax_output_tokens = 5", "does not fit"),
            ("[models.\"anthropic/*\"]\nnum_ctx = 5", "has no `num_ctx`"),
            ("[models.\"ollama/*\"]\nbody = { stream = false }", "cannot set `stream`"),
            ("[models.\"ollama/*\".price]\ninput = 3", "unknown key `price`"),
            ("[models.\"ollama/*\"]\nbody = { model = \"x\" }", "cannot set `model`"),
            ("[models.\"ollama/*\".headers]\n\"a b\" = \"x\"", "the name of a header"),
            ("[models.\"ollama/*\".headers]\nAuthorization = \"x\"", "set by clawnode itself"),
            ("[models.\"ollama/*\".headers]\nX-Key = \"hunter2\\n\"", "cannot be sent"),
            ("[models.\"ollama/*\".headers]\nX-Key = 8675309", "not text"),
            ("[agents.default]\nmodels = [\"gpt-4o\"]", "not a pattern of `PROVIDER/MODEL`"),
        ] {
            let error = read(text).unwrap_err();
            let shown = format!("{error} ({})", error.hint);
            assert!(shown.contains(says), "{text}: {shown}");
            assert!(!shown.contains("hunter2") && !shown.contains("8675309"), "{shown}");
        }
    }

    #[test]
    fn a_pattern_overrides_the_table_and_its_secrets_are_not_shown() {
        let loaded = read(
            "[models.\"openai/gpt-4o*\"]\nwindow_tokens = 9\ninput = [\"audio\"]\n\
             body = { a = { b = [1, 2.5, true] } }\n\
             [models.\"openai/gpt-4o*\".headers]\nX-Key = \"hunter2\"\n",
        )
        .unwrap();
        let shown = format!("{:?} {:?}", show::settings(&loaded).unwrap(), loaded.config);
        assert!(shown.contains("openai/gpt-4o*") && !shown.contains("hunter2"), "{shown}");
        let section = &loaded.config.models["openai/gpt-4o*"];
        let known = section.to_override();
        assert!(!format!("{known:?}").contains("hunter2"), "{known:?}");
        let all = BTreeMap::from([("openai/gpt-4o*".to_owned(), known)]);
        let profiles = clawnode_actors::llm::profile::ModelProfiles::new(all);
        let model: ModelRef = "openai/gpt-4o-mini".parse().unwrap();
        let profile = profiles.of(&model);
        assert_eq!((profile.window_tokens, profiles.window(&model)), (9, 9));
        assert_eq!(profile.input.list(), [MediaKind::Audio]);
        assert!(profile.tools);
        assert_eq!(section.body["a"], serde_json::json!({"b": [1, 2.5, true]}));
    }
}

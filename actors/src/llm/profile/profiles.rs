//! The table with what the configuration sets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use clawnode_guard::policy::Pattern;
use clawnode_proto::{
    llm::ModelRef,
    model::{CacheStyle, ModelPrice, ReasoningStyle, SchemaStyle},
};
use reqwest::header::HeaderMap;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{
    model::{InputKinds, ModelProfile},
    num_ctx,
    price::ProviderPlace,
    table::{WINDOW_DEFAULT, built_in, specificity},
};

/// Fields of a request that decide what is asked and how the answer is read.
const OWN_FIELDS: [&str; 5] = ["model", "messages", "contents", "input", "stream"];

/// Models whose profiles are remembered: clients may name any number of them.
const REMEMBERED: usize = 256;

/// What the configuration sets about models whose names fit a pattern of `PROVIDER/MODEL`. What is absent
/// is left as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOverride {
    /// See [`ModelProfile::window_tokens`].
    pub window_tokens: Option<u32>,
    /// See [`ModelProfile::max_output_tokens`].
    pub max_output_tokens: Option<u32>,
    /// See [`ModelProfile::input`].
    pub input: Option<InputKinds>,
    /// See [`ModelProfile::tools`].
    pub tools: Option<bool>,
    /// See [`ModelProfile::reasoning`].
    pub reasoning: Option<ReasoningStyle>,
    /// See [`ModelProfile::cache`].
    pub cache: Option<CacheStyle>,
    /// See [`ModelProfile::schema`].
    pub schema: Option<SchemaStyle>,
    /// See [`ModelProfile::sampling`].
    pub sampling: Option<bool>,
    /// See [`ModelProfile::max_completion_tokens`].
    pub max_completion_tokens: Option<bool>,
    /// See [`ModelProfile::developer_role`].
    pub developer_role: Option<bool>,
    /// See [`ModelProfile::price`].
    pub price: Option<ModelPrice>,
    /// See [`ModelExtras`].
    pub extras: ModelExtras,
}

/// What is added to each request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelExtras {
    /// Headers; their values print as nothing.
    pub headers: HeaderMap,
    /// Fields of the request's JSON. Objects are merged, anything else replaces the field.
    pub body: Map<String, Value>,
    /// Tokens that the server is asked to make room for, and the window unless that is set.
    pub num_ctx: Option<u32>,
}

/// Fields that a request may not be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// clawnode sets it itself.
    #[error("`body` cannot set `{0}`")]
    Own(String),
    /// A window is set twice.
    #[error("`body` cannot set `options.num_ctx` beside `num_ctx`")]
    NumCtx,
}

/// What is known of all models: the table with what the configuration sets, and what providers said since
/// that was read. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ModelProfiles {
    overrides: Arc<BTreeMap<String, ModelOverride>>,
    /// What [`ModelProfiles::of`] found, which each turn asks several times and only a new configuration changes.
    found: Arc<RwLock<BTreeMap<ModelRef, ModelProfile>>>,
    /// How many tokens models read that found a request too long.
    windows: Arc<RwLock<BTreeMap<ModelRef, u32>>>,
    /// Where providers are, by name.
    pub(super) places: Arc<BTreeMap<String, ProviderPlace>>,
    /// Models without a price that people were warned about.
    pub(super) warned: Arc<Mutex<BTreeSet<ModelRef>>>,
}

/// Those with the same configuration are equal.
impl PartialEq for ModelProfiles {
    fn eq(&self, other: &Self) -> bool {
        self.overrides == other.overrides && self.places == other.places
    }
}

// === impl ModelProfiles ===

impl ModelProfiles {
    /// The table with these, by pattern.
    pub fn new(overrides: BTreeMap<String, ModelOverride>) -> Self {
        Self { overrides: Arc::new(overrides), ..Self::default() }
    }

    /// A provider has said how many tokens a model reads.
    pub fn learn_window(&self, model: &ModelRef, tokens: u32) {
        let mut windows = self.windows.write().unwrap_or_else(PoisonError::into_inner);
        windows
            .entry(model.clone())
            .and_modify(|window| *window = tokens.min(*window))
            .or_insert(tokens);
    }

    /// How many tokens a model reads by its provider's word, if it ever said so.
    pub fn real_window(&self, model: &ModelRef) -> Option<u32> {
        self.windows.read().unwrap_or_else(PoisonError::into_inner).get(model).copied()
    }

    /// What is known of a model. Each field comes from the most specific pattern that sets it.
    pub fn of(&self, model: &ModelRef) -> ModelProfile {
        let known = self.found.read().unwrap_or_else(PoisonError::into_inner).get(model).copied();
        if let Some(profile) = known {
            return profile;
        }
        let (mut profile, _) = built_in(&model.to_string());
        for (_, model_override) in self.fitting(model) {
            model_override.apply(&mut profile);
        }
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        if found.len() < REMEMBERED {
            found.insert(model.clone(), profile);
        }
        profile
    }

    /// What the configuration says that a model costs.
    pub(super) fn configured_price(&self, model: &ModelRef) -> Option<ModelPrice> {
        self.fitting(model).into_iter().rev().find_map(|(_, model_override)| model_override.price)
    }

    /// Where that comes from: the patterns that fit, the most specific first. Those of the configuration go
    /// before that of the table.
    pub fn patterns(&self, model: &ModelRef) -> Vec<String> {
        let own = self.fitting(model).into_iter().rev().map(|(pattern, _)| pattern.to_owned());
        own.chain(built_in(&model.to_string()).1.map(str::to_owned)).collect()
    }

    /// Tokens that a model reads where its agent does not say how many.
    pub fn window(&self, model: &ModelRef) -> u32 {
        let is_set = |model_override: &ModelOverride| {
            num_ctx::window(model_override.window_tokens, model_override.extras.num_ctx).is_some()
        };
        let configured =
            self.fitting(model).into_iter().any(|(_, model_override)| is_set(model_override));
        let window = self.of(model).window_tokens;
        if configured { window } else { window.min(WINDOW_DEFAULT) }
    }

    /// How a request to a model says that its reply has to fit a schema: what the configuration sets, then what
    /// holds for all models of its wire, then what the table has.
    pub(in crate::llm) fn schema(
        &self,
        model: &ModelRef,
        of_wire: Option<SchemaStyle>,
    ) -> SchemaStyle {
        let set = self
            .fitting(model)
            .into_iter()
            .rev()
            .find_map(|(_, model_override)| model_override.schema);
        set.or(of_wire).unwrap_or_else(|| self.of(model).schema)
    }

    /// What is added to each request to a model.
    pub(in crate::llm) fn extras(&self, model: &ModelRef) -> ModelExtras {
        let mut all = ModelExtras::default();
        for (_, ModelOverride { extras, .. }) in self.fitting(model) {
            for (name, value) in &extras.headers {
                all.headers.insert(name.clone(), value.clone());
            }
            merge(&mut all.body, &extras.body);
            all.num_ctx = extras.num_ctx.or(all.num_ctx);
        }
        all
    }

    /// What the configuration sets about a model, the least specific first.
    fn fitting(&self, model: &ModelRef) -> Vec<(&str, &ModelOverride)> {
        if self.overrides.is_empty() {
            return Vec::new();
        }
        let name = model.to_string();
        let fits = |pattern: &str| Pattern::from(pattern).fits(&name);
        let mut fitting: Vec<_> = self
            .overrides
            .iter()
            .map(|(name, model_override)| (name.as_str(), model_override))
            .collect();
        fitting.retain(|(pattern, _)| fits(pattern));
        fitting.sort_by_key(|(pattern, _)| specificity(pattern));
        fitting
    }
}

// === impl ModelOverride ===

impl ModelOverride {
    fn apply(&self, to: &mut ModelProfile) {
        let set = |value: &mut bool, own: Option<bool>| *value = own.unwrap_or(*value);
        let window = num_ctx::window(self.window_tokens, self.extras.num_ctx);
        to.window_tokens = window.unwrap_or(to.window_tokens);
        to.max_output_tokens = self.max_output_tokens.or(to.max_output_tokens);
        to.input = self.input.unwrap_or(to.input);
        to.reasoning = self.reasoning.unwrap_or(to.reasoning);
        to.cache = self.cache.unwrap_or(to.cache);
        to.schema = self.schema.unwrap_or(to.schema);
        to.price = self.price.or(to.price);
        set(&mut to.tools, self.tools);
        set(&mut to.sampling, self.sampling);
        set(&mut to.max_completion_tokens, self.max_completion_tokens);
        set(&mut to.developer_role, self.developer_role);
    }
}

// === impl ModelExtras ===

impl ModelExtras {
    /// Refuses fields that a request may not be given.
    pub fn check(&self) -> Result<(), BodyError> {
        if let Some(field) = OWN_FIELDS.iter().find(|field| self.body.contains_key(**field)) {
            return Err(BodyError::Own((*field).to_owned()));
        }
        if self.num_ctx.is_some() && num_ctx::is_in(&self.body) {
            return Err(BodyError::NumCtx);
        }
        Ok(())
    }

    /// The request's JSON with these fields.
    pub(in crate::llm) fn added_to(
        &self,
        body: &[u8],
    ) -> Result<Option<Vec<u8>>, serde_json::Error> {
        if self.body.is_empty() && self.num_ctx.is_none() {
            return Ok(None);
        }
        let mut over = self.body.clone();
        if let Some(tokens) = self.num_ctx {
            merge(&mut over, &num_ctx::asks_for(tokens));
        }
        // All else stays as it is to the byte: a model shall find its own words again.
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body)?;
        for (name, value) in over {
            let below = fields.get(&name).map(|raw| serde_json::from_str(raw.get())).transpose()?;
            let mut merged = Map::from_iter(below.map(|below| (name.clone(), below)));
            merge(&mut merged, &Map::from_iter([(name.clone(), value)]));
            let merged = merged.remove(&name).unwrap_or_default();
            fields.insert(name, to_raw_value(&merged)?);
        }
        serde_json::to_vec(&fields).map(Some)
    }
}

/// Lays `over` on top: objects are joined field by field, anything else is replaced.
fn merge(fields: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (name, value) in over {
        match (fields.get_mut(name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (_, value) => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn window(tokens: u32) -> ModelOverride {
        ModelOverride { window_tokens: Some(tokens), ..ModelOverride::default() }
    }

    fn profiles(all: &[(&str, ModelOverride)]) -> ModelProfiles {
        ModelProfiles::new(
            all.iter()
                .map(|(name, model_override)| ((*name).to_owned(), model_override.clone()))
                .collect(),
        )
    }

    fn model(name: &str) -> ModelRef {
        name.parse().unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_most_specific_pattern_decides_each_field() {
        let no_tools = ModelOverride { tools: Some(false), ..window(1) };
        let all = profiles(&[
            ("*/*", no_tools),
            ("local/big-*", window(2)),
            ("local/big-one", window(3)),
            ("other/*", window(4)),
        ]);
        for (name, tokens) in
            [("local/big-one", 3), ("local/big-two", 2), ("local/a/b", 1), ("other/x", 4)]
        {
            let profile = all.of(&model(name));
            assert_eq!((profile.window_tokens, profile.tools), (tokens, false), "{name}");
        }
        assert_eq!(all.patterns(&model("local/big-one")), ["local/big-one", "local/big-*", "*/*"]);
    }

    #[test]
    fn as_many_models_are_remembered_as_have_room_and_all_are_known() {
        let all = profiles(&[("local/*", window(2)), ("other/*", window(4))]);
        for n in 0..2 * REMEMBERED {
            let asked = all.clone();
            for (name, tokens) in [("local", 2), ("other", 4), ("local", 2)] {
                let profile = asked.of(&model(&format!("{name}/m{n}")));
                assert_eq!(profile.window_tokens, tokens, "{name} {n}");
            }
        }
        assert_eq!(all.found.read().unwrap().len(), REMEMBERED);
        assert_eq!(profiles(&[("local/*", window(3))]).of(&model("local/m1")).window_tokens, 3);
    }

    #[test]
    fn a_large_window_is_used_only_if_it_is_configured() {
        let gemini = model("google/gemini-2.5-pro");
        assert_eq!(profiles(&[]).window(&gemini), WINDOW_DEFAULT);
        assert_eq!(profiles(&[]).window(&model("ollama/llama2")), 4_096);
        assert_eq!(profiles(&[("google/*", window(500_000))]).window(&gemini), 500_000);
        let mut asked = ModelOverride::default();
        asked.extras.num_ctx = Some(16_384);
        assert_eq!(profiles(&[("ollama/*", asked)]).window(&model("ollama/qwen3:8b")), 16_384);
    }

    #[test]
    fn bodies_are_merged_and_what_is_ours_stays_ours() {
        let body = |value| ModelExtras { body: object(value), ..ModelExtras::default() };
        let with = |extras| ModelOverride { extras, ..ModelOverride::default() };
        let all = profiles(&[
            ("p/*", with(body(json!({"a": {"b": 1, "c": 1}, "stream_options": {"x": 1}})))),
            ("p/m", with(body(json!({"a": {"b": 2}, "d": [1]})))),
        ]);
        let extras = all.extras(&model("p/m"));
        let sent = br#"{"model":"m","stream_options":{"include_usage":true}}"#;
        let sent: Value = serde_json::from_slice(&extras.added_to(sent).unwrap().unwrap()).unwrap();
        let expected = json!({
            "model": "m", "stream_options": {"include_usage": true, "x": 1},
            "a": {"b": 2, "c": 1}, "d": [1],
        });
        assert_eq!(sent, expected);
        for field in OWN_FIELDS {
            let refused = body(json!({field: 1})).check().unwrap_err();
            assert!(refused.to_string().contains(field), "{refused}");
        }
        assert_eq!(all.extras(&model("q/m")).added_to(b"{}").unwrap(), None);
    }
}

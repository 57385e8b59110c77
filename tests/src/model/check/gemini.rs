//! What Gemini demands of a request, as its models from version 3 on do.

use clawnode_proto::media::MediaType;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    media,
    request::{Asked, count},
    tools::{Pairs, check_offers},
};
use crate::model::thoughts::sign_part;

/// Bytes of one inline content in base64, as the vendor has it for requests.
const INLINE_BYTES: usize = 20 << 20;
/// What clawnode writes before a tool's pictures, which are no words of the user's.
const FROM_TOOL: &str = "(from the tool call ";
/// What the vendor takes in the place of a signature of calls that its model did not make.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// The fields of its schemas.
const SCHEMA_FIELDS: [&str; 19] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "anyOf",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Generate {
    contents: Vec<Content>,
    system_instruction: Option<Content>,
    tools: Option<Vec<Tools>>,
    tool_config: Option<ToolConfig>,
    generation_config: Option<GenerationConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    role: Option<String>,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    inline_data: Option<InlineData>,
    function_call: Option<FunctionCall>,
    function_response: Option<FunctionResponse>,
    thought_signature: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct InlineData {
    mime_type: String,
    data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionCall {
    id: String,
    name: String,
    args: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionResponse {
    id: String,
    name: String,
    response: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Tools {
    function_declarations: Vec<Declaration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declaration {
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    parameters: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToolConfig {
    function_calling_config: CallingConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CallingConfig {
    mode: String,
    allowed_function_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GenerationConfig {
    temperature: Option<f64>,
    #[serde(rename = "topP")]
    _top_p: Option<f64>,
    #[serde(rename = "topK")]
    _top_k: Option<u32>,
    max_output_tokens: Option<u32>,
    #[serde(default)]
    stop_sequences: Vec<String>,
    #[serde(rename = "seed")]
    _seed: Option<i32>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    response_mime_type: Option<String>,
    response_json_schema: Option<Value>,
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ThinkingConfig {
    #[serde(rename = "includeThoughts")]
    _include_thoughts: Option<bool>,
    thinking_budget: Option<i64>,
    thinking_level: Option<String>,
}

/// A conversation, message by message.
#[derive(Default)]
struct Reading<'a> {
    pairs: Pairs<'a>,
    /// The calls of the last message of the model.
    calls: Vec<(&'a str, &'a str)>,
    /// Why a call since the user's last words is not taken.
    unsigned: Option<String>,
    last_user: String,
    rounds: usize,
    results: Vec<String>,
    words: u64,
}

pub(super) fn gemini(request: &Generate) -> Result<Asked, String> {
    if let Some(config) = &request.generation_config {
        check_config(config)?;
        check_reply(config)?;
    }
    let declared = request.tools.iter().flatten().flat_map(|tool| &tool.function_declarations);
    let none = json!({"type": "object"});
    let offers: Vec<_> = declared
        .map(|declaration| {
            (
                declaration.name.as_str(),
                declaration.parameters.as_ref().unwrap_or(&none),
                &declaration.parameters,
            )
        })
        .collect();
    if request.tools.is_some() {
        check_offers(offers.iter().map(|(name, schema, _)| (*name, *schema)))?;
    }
    if let Some(config) = &request.tool_config {
        let names: Vec<_> = offers.iter().map(|(name, ..)| *name).collect();
        check_calling(&config.function_calling_config, &names)?;
    }
    for schema in offers.iter().filter_map(|(_, _, schema)| schema.as_ref()) {
        check_schema(schema)?;
        if schema.get("properties").is_none() {
            return Err("`parameters.properties`: should be non-empty for OBJECT type".to_owned());
        }
    }
    let mut reading = Reading::default();
    if let Some(instruction) = &request.system_instruction {
        for part in &instruction.parts {
            reading.words += count(part.text.as_deref().ok_or("an instruction without text")?);
        }
    }
    for (nth, content) in request.contents.iter().enumerate() {
        let expected = if nth.is_multiple_of(2) { "user" } else { "model" };
        if content.role.as_deref() != Some(expected) {
            return Err("roles do not alternate from the user on".to_owned());
        }
        if content.parts.is_empty() {
            return Err("a message without parts".to_owned());
        }
        if expected == "user" {
            reading.user(&content.parts)?;
        } else {
            reading.model(&content.parts)?;
        }
    }
    if request.contents.len().is_multiple_of(2) {
        return Err("the last message is not the user's".to_owned());
    }
    if let Some(why) = reading.unsigned {
        return Err(why);
    }
    Ok(Asked {
        cached: crate::model::cache::PromptTokens::default(),
        usage: true,
        model: String::new(),
        last_user: reading.last_user,
        rounds: reading.rounds,
        results: reading.results,
        thoughts: Vec::new(),
        offers: request.tools.is_some(),
        stream: true,
        words: reading.words,
    })
}

fn check_config(config: &GenerationConfig) -> Result<(), String> {
    if config.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err("`temperature` is not within 0 and 2".to_owned());
    }
    if config.max_output_tokens == Some(0) {
        return Err("a limit of 0 tokens".to_owned());
    }
    let penalties = [config.presence_penalty, config.frequency_penalty];
    if penalties.into_iter().flatten().any(|penalty| !(-2.0..=2.0).contains(&penalty)) {
        return Err("a penalty is not within -2 and 2".to_owned());
    }
    if config.stop_sequences.len() > 5 {
        return Err("more than 5 stop sequences".to_owned());
    }
    let Some(ThinkingConfig { thinking_budget, thinking_level, .. }) = &config.thinking_config
    else {
        return Ok(());
    };
    match (thinking_budget, thinking_level.as_deref()) {
        (Some(_), Some(_)) => Err("both `thinkingBudget` and `thinkingLevel`".to_owned()),
        (Some(budget), None) if !(-1..=24_576).contains(budget) => {
            Err(format!("the thinking budget {budget} is invalid"))
        }
        (None, Some(level)) if !["minimal", "low", "medium", "high"].contains(&level) => {
            Err(format!("the thinking level `{level}` is invalid"))
        }
        _ => Ok(()),
    }
}

fn check_reply(config: &GenerationConfig) -> Result<(), String> {
    let schema = config.response_json_schema.as_ref();
    match (config.response_mime_type.as_deref(), schema) {
        (None, Some(_)) => Err("`responseJsonSchema` without `responseMimeType`".to_owned()),
        (Some(kind), _) if kind != "application/json" => {
            Err(format!("the response MIME type `{kind}` is invalid"))
        }
        (Some(_), Some(schema)) if !schema.is_object() => Err("a schema that is none".to_owned()),
        _ => Ok(()),
    }
}

fn check_calling(config: &CallingConfig, offers: &[&str]) -> Result<(), String> {
    let CallingConfig { mode, allowed_function_names } = config;
    if !["AUTO", "ANY", "NONE"].contains(&mode.as_str()) {
        return Err(format!("the mode `{mode}` of calls is invalid"));
    }
    if mode == "ANY" && offers.is_empty() {
        return Err("calls are demanded, and no functions are declared".to_owned());
    }
    let allowed = allowed_function_names.iter().flatten();
    for name in allowed {
        if mode != "ANY" || !offers.contains(&name.as_str()) {
            return Err(format!("`allowedFunctionNames` has `{name}`, which cannot be called"));
        }
    }
    Ok(())
}

fn check_schema(schema: &Value) -> Result<(), String> {
    let fields = schema.as_object().ok_or("a schema that is no object")?;
    if let Some(name) = fields.keys().find(|name| !SCHEMA_FIELDS.contains(&name.as_str())) {
        return Err(format!("Unknown name \"{name}\" at 'tools[0].function_declarations'"));
    }
    let below = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
    let any = fields.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    below.map(|(_, schema)| schema).chain(any).chain(fields.get("items")).try_for_each(check_schema)
}

impl<'a> Reading<'a> {
    fn user(&mut self, parts: &'a [Part]) -> Result<(), String> {
        self.results.clear();
        let (mut words, mut has_media) = (None, false);
        for part in parts {
            match part {
                Part { text: Some(text), .. } if text.trim().is_empty() => {
                    return Err("a part with empty text".to_owned());
                }
                Part { text: Some(text), .. } => {
                    self.words += count(text);
                    if !text.starts_with(FROM_TOOL) {
                        words = Some(text.clone());
                    }
                }
                Part { inline_data: Some(InlineData { mime_type, data }), .. } => {
                    has_media = true;
                    let claimed = if mime_type == "audio/mp3" { "audio/mpeg" } else { mime_type };
                    let types = [
                        MediaType::Png,
                        MediaType::Jpeg,
                        MediaType::Webp,
                        MediaType::Pdf,
                        MediaType::Wav,
                        MediaType::Mp3,
                    ];
                    media::check(claimed, data, &types, INLINE_BYTES)?;
                }
                Part { function_response: Some(response), .. } => {
                    if words.is_some() || has_media {
                        return Err("a tool result after other content".to_owned());
                    }
                    self.response(response)?;
                }
                _ => return Err("a part of the user's that is none".to_owned()),
            }
        }
        self.pairs.closed()?;
        if !self.results.is_empty() {
            self.rounds += 1;
        }
        if words.is_some() || (has_media && self.results.is_empty()) {
            (self.last_user, self.rounds) = (words.unwrap_or_default(), 0);
            self.unsigned = None;
        }
        Ok(())
    }

    fn response(&mut self, response: &'a FunctionResponse) -> Result<(), String> {
        let FunctionResponse { id, name, response } = response;
        self.pairs.answer(id)?;
        if !self.calls.contains(&(id.as_str(), name.as_str())) {
            return Err(format!("`{id}` is no call of `{name}`"));
        }
        let text = response.get("output").or_else(|| response.get("error")).and_then(Value::as_str);
        let text = text.ok_or("a function response without `output` or `error`")?;
        self.words += count(text);
        self.results.push(text.to_owned());
        Ok(())
    }

    fn model(&mut self, parts: &'a [Part]) -> Result<(), String> {
        self.calls.clear();
        let mut said = String::new();
        for part in parts {
            let signature = part.thought_signature.as_deref();
            match part {
                Part { function_call: Some(FunctionCall { id, name, args }), .. } => {
                    if !args.is_object() {
                        return Err(format!("the arguments of `{id}` are no object"));
                    }
                    let own = sign_part(&[id, name, &args.to_string()]);
                    match signature {
                        Some(NO_SIGNATURE) => {}
                        Some(other) if other != own => {
                            return Err("Corrupted thought signature.".to_owned());
                        }
                        None if self.calls.is_empty() => {
                            let why = format!(
                                "Function call is missing a thought_signature in functionCall parts: `{name}`"
                            );
                            self.unsigned.get_or_insert(why);
                        }
                        _ => {}
                    }
                    self.pairs.ask(id, name)?;
                    self.calls.push((id, name));
                }
                Part { text: Some(text), thought: true, .. } => {
                    if signature.is_none() || text.is_empty() {
                        return Err("a thought without a signature".to_owned());
                    }
                }
                Part { text: Some(text), .. } => {
                    if text.is_empty() && signature.is_none() {
                        return Err("a part with empty text".to_owned());
                    }
                    said.push_str(text);
                    if signature.is_some_and(|signed| signed != sign_part(&[&said])) {
                        return Err("Corrupted thought signature.".to_owned());
                    }
                    self.words += count(text);
                }
                _ => return Err("a part of the model's that is none".to_owned()),
            }
        }
        Ok(())
    }
}

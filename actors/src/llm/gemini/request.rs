//! What is asked on Gemini's wire.

use std::{borrow::Cow, collections::BTreeMap};

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role, Sampling},
    media::MediaType,
    model::{ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
    tool_choice::ToolChoice,
};
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{
    ID, PART, SIGNATURE,
    schema::{REPLY_KEYWORDS, parameters},
};
use crate::llm::{
    Item, ModelRequest, PlainMedia, PlainMessage, PlainReply, ReplySchema, ToolOffer,
    call::{Dialect, headers, sensitive},
    http::Prepared,
    media::in_words,
    options::BaseUrl,
    ordered_parts::{HeardPart, Part},
    profile::ModelProfile,
    prompt::{alternate, not_sent},
    settings::choice_among,
};

/// What the vendor documents for the first tool call of a step that its model did not make itself: after a
/// change of model in mid-turn there is no signature that could be sent.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// The largest budget of thoughts that every model with budgets takes.
const BUDGET_MOST: u32 = 24_576;
/// The smallest one of models that cannot but think.
const BUDGET_LEAST: u32 = 128;
/// What the names of these models have.
const ALWAYS_THINKS: &str = "2.5-pro";

/// The wire.
#[derive(Debug)]
pub(in crate::llm) struct Gemini {
    pub(in crate::llm) base: BaseUrl,
    pub(in crate::llm) key: Option<SecretString>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiBody<'a> {
    contents: Vec<GeminiMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<GeminiMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<GeminiTools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
struct GeminiMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<SentPart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum SentPart<'a> {
    Made(Box<MadePart<'a>>),
    /// As the model made it.
    Kept(&'a RawValue),
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct MadePart<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<InlineData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<CalledFunction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<Cow<'a, RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData {
    mime_type: &'static str,
    data: String,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    id: Cow<'a, RawValue>,
    name: &'a str,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    id: Cow<'a, RawValue>,
    name: &'a str,
    response: GeminiOutcome<'a>,
}

/// The result of a call, under the names that the vendor gives it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum GeminiOutcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiTools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a ToolName,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    function_calling_config: CallingConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallingConfig<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a ToolName; 1]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    /// The API has a field for its own kind of schemas, too; this one takes JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

/// What was said, message by message.
struct GeminiConversation<'a> {
    contents: Vec<GeminiMessage<'a>>,
    /// The tool and the id on the wire of each call in the last message of the model, by its id here.
    calls: BTreeMap<&'a str, (&'a str, Cow<'a, RawValue>)>,
    /// Where the running turn begins, if the model wants a signature with each of its steps.
    strict_from: Option<usize>,
}

// === impl Gemini ===

impl Dialect for Gemini {
    fn provider(&self) -> &'static str {
        "gcp.gemini"
    }

    fn prepare(
        &self,
        mut request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        in_words(&mut request.messages, |media| {
            mime_type(media).is_some() && profile.input.takes(media.media_type().kind())
        });
        let conversation = alternate(request.messages)?;
        let has_words = |message: &PlainMessage| {
            message.role == Role::User && !(message.text.is_empty() && message.media.is_empty())
        };
        let is_strict =
            !matches!(profile.reasoning, ReasoningStyle::GeminiBudget | ReasoningStyle::None);
        let strict_from = conversation.iter().rposition(has_words).filter(|_| is_strict);
        let mut said =
            GeminiConversation { contents: Vec::new(), calls: BTreeMap::new(), strict_from };
        for (nth, message) in conversation.iter().enumerate() {
            said.add(nth, message)?;
        }
        let system = request.system.trim();
        let instruction = GeminiMessage { role: None, parts: vec![SentPart::text(system)] };
        let declared: Vec<_> = request.tools.iter().map(Declaration::from).collect();
        let tools =
            (!declared.is_empty()).then_some(GeminiTools { function_declarations: declared });
        let (sampling, schema) = (&request.sampling, request.reply_schema.as_ref());
        let is_given = |schema: &&ReplySchema| schema.style == SchemaStyle::JsonSchema;
        let reasoning = sampling.reasoning.filter(|_| profile.reasoning != ReasoningStyle::None);
        // The limit is of the reply; the API counts thoughts in.
        let budget = reasoning.map_or(0, Reasoning::budget);
        let limit = sampling.max_tokens.map(|wanted| wanted.saturating_add(budget));
        let body = GeminiBody {
            contents: said.contents,
            system_instruction: (!system.is_empty()).then_some(instruction),
            tools: tools.into_iter().collect(),
            tool_config: ToolConfig::of(sampling, &request.tools)?,
            generation_config: GenerationConfig {
                temperature: sampling.temperature.filter(|_| profile.sampling),
                top_p: sampling.top_p.filter(|_| profile.sampling),
                top_k: sampling.top_k,
                max_output_tokens: limit.map(|wanted| profile.capped(wanted)),
                stop_sequences: &sampling.stop,
                seed: sampling.seed.map(seed).transpose()?,
                presence_penalty: sampling.presence_penalty,
                frequency_penalty: sampling.frequency_penalty,
                response_mime_type: schema.map(|_| "application/json"),
                response_json_schema: schema.filter(is_given).map(|schema| &schema.schema),
                thinking_config: reasoning
                    .and_then(|reasoning| ThinkingConfig::of(reasoning, &request.model, profile)),
            },
        };
        let mut headers = headers(&request.idempotency_key);
        if let Some(key) = self.key.as_ref().and_then(|key| sensitive(key.expose_secret())) {
            headers.insert("x-goog-api-key", key);
        }
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let offers = !request.tools.is_empty();
        let mut url =
            self.base.join(&format!("{}:streamGenerateContent", resource(&request.model)));
        url.set_query(Some("alt=sse"));
        Ok(Prepared { url, headers, body: body.into(), offers })
    }

    fn probe(&self) -> Option<Prepared> {
        let mut url = self.base.join("models");
        url.set_query(Some("pageSize=1"));
        let mut headers = HeaderMap::new();
        if let Some(key) = self.key.as_ref().and_then(|key| sensitive(key.expose_secret())) {
            headers.insert("x-goog-api-key", key);
        }
        Some(Prepared::empty(url, headers))
    }

    fn takes(&self, schema: &ReplySchema) -> bool {
        schema.style == SchemaStyle::JsonObject || schema.has_only(&REPLY_KEYWORDS)
    }
}

/// The API takes 32 bits.
fn seed(seed: i64) -> Result<i32, ModelFailure> {
    i32::try_from(seed).map_err(|_too_large| not_sent("`seed`: Gemini takes one of 32 bits"))
}

impl<'a> ToolConfig<'a> {
    fn of(sampling: &'a Sampling, tools: &[ToolOffer]) -> Result<Option<Self>, ModelFailure> {
        let config = |mode, allowed_function_names| Self {
            function_calling_config: CallingConfig { mode, allowed_function_names },
        };
        Ok(choice_among(sampling, tools)?.map(|choice| match choice {
            ToolChoice::None => config("NONE", None),
            ToolChoice::Required => config("ANY", None),
            ToolChoice::Tool { name } => config("ANY", Some([name])),
        }))
    }
}

/// The name of a model as the API lists it, and as some people write it.
pub(super) fn resource(model: &str) -> Cow<'_, str> {
    if model.contains('/') { model.into() } else { format!("models/{model}").into() }
}

/// What the API calls a type that it takes.
fn mime_type(media: &PlainMedia) -> Option<&'static str> {
    match media.media_type() {
        MediaType::Gif => None,
        MediaType::Mp3 => Some("audio/mp3"),
        other => Some(other.as_str()),
    }
}

impl ThinkingConfig {
    /// Nothing where the model cannot be told not to think.
    fn of(reasoning: Reasoning, model: &str, profile: &ModelProfile) -> Option<Self> {
        let is_on = reasoning != Reasoning::Off;
        if profile.reasoning == ReasoningStyle::GeminiBudget {
            let least = if model.contains(ALWAYS_THINKS) { BUDGET_LEAST } else { 0 };
            let budget = reasoning.budget().clamp(least, BUDGET_MOST);
            return Some(Self {
                include_thoughts: is_on,
                thinking_budget: Some(budget),
                thinking_level: None,
            });
        }
        let thinking_level = reasoning.effort()?;
        Some(Self {
            include_thoughts: true,
            thinking_budget: None,
            thinking_level: Some(thinking_level),
        })
    }
}

impl<'a> From<&'a ToolOffer> for Declaration<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        let ToolOffer { name, description, input_schema } = offer;
        Self { name, description, parameters: parameters(input_schema) }
    }
}

impl<'a> SentPart<'a> {
    fn made(part: MadePart<'a>) -> Self {
        Self::Made(Box::new(part))
    }

    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::made(MadePart { text: Some(text.into()), ..MadePart::default() })
    }

    fn media(media: &PlainMedia) -> Option<Self> {
        let inline_data = InlineData { mime_type: mime_type(media)?, data: media.base64() };
        Some(Self::made(MadePart { inline_data: Some(inline_data), ..MadePart::default() }))
    }
}

/// A JSON text as it came.
fn raw(data: &str) -> Result<Cow<'_, RawValue>, ModelFailure> {
    serde_json::from_str::<&RawValue>(data).map(Cow::Borrowed).map_err(not_sent)
}

/// A text as JSON.
fn quoted<'a>(text: &str) -> Result<Cow<'a, RawValue>, ModelFailure> {
    to_raw_value(text).map(Cow::Owned).map_err(not_sent)
}

impl<'a> GeminiConversation<'a> {
    fn add(&mut self, nth: usize, message: &'a PlainMessage) -> Result<(), ModelFailure> {
        let (role, parts) = match message.role {
            Role::User => ("user", self.user(message)?),
            Role::Assistant => {
                let is_strict = self.strict_from.is_some_and(|from| nth > from);
                ("model", self.model(message, is_strict)?)
            }
        };
        self.contents.push(GeminiMessage { role: Some(role), parts });
        Ok(())
    }

    /// Replies first, in one message, as the API wants those of calls that were made together.
    fn user(&mut self, message: &'a PlainMessage) -> Result<Vec<SentPart<'a>>, ModelFailure> {
        let (mut parts, mut given) = (Vec::new(), Vec::new());
        for reply in &message.tool_replies {
            let (id, part) = self.reply(reply)?;
            parts.push(part);
            if !reply.media.is_empty() {
                let id: String = serde_json::from_str(id.get()).map_err(not_sent)?;
                given.push(SentPart::text(format!("(from the tool call `{id}`)")));
                given.extend(reply.media.iter().filter_map(SentPart::media));
            }
        }
        parts.append(&mut given);
        parts.extend(message.heard().into_iter().filter_map(|part| match part {
            HeardPart::Text(text) => Some(SentPart::text(text)),
            HeardPart::Media(media) => SentPart::media(media),
        }));
        Ok(parts)
    }

    /// A reply, and the id that the request has for its call.
    fn reply(
        &mut self,
        reply: &'a PlainReply,
    ) -> Result<(Cow<'a, RawValue>, SentPart<'a>), ModelFailure> {
        let Some((name, id)) = self.calls.remove(reply.id.as_str()) else {
            return Err(not_sent("a tool reply without a tool use"));
        };
        let text = reply.text.as_str();
        let response =
            if reply.is_error { GeminiOutcome::Error(text) } else { GeminiOutcome::Output(text) };
        let function_response = Some(FunctionResponse { id: id.clone(), name, response });
        Ok((id, SentPart::made(MadePart { function_response, ..MadePart::default() })))
    }

    /// What the model said, part by part, each with the signature that it came with. `is_strict` if the
    /// first call needs one.
    fn model(
        &mut self,
        message: &'a PlainMessage,
        is_strict: bool,
    ) -> Result<Vec<SentPart<'a>>, ModelFailure> {
        self.calls.clear();
        let (mut parts, mut signature, mut id) = (Vec::new(), None, None);
        for part in message.all_parts() {
            match part {
                Part::Text(text) => {
                    let text = Some(Cow::Borrowed(text));
                    let thought_signature = signature.take();
                    parts.push(SentPart::made(MadePart {
                        text,
                        thought_signature,
                        ..MadePart::default()
                    }));
                }
                Part::Item(Item::Thinking { text, signature: Some(signed) }) => {
                    if !signed.is_empty() {
                        parts.push(SentPart::made(MadePart {
                            text: Some(Cow::Borrowed(text)),
                            thought: true,
                            thought_signature: Some(quoted(signed)?),
                            ..MadePart::default()
                        }));
                    }
                }
                Part::Item(Item::Opaque { field, data }) => match field.as_str() {
                    SIGNATURE => signature = Some(raw(data)?),
                    ID => id = Some(raw(data)?),
                    PART => {
                        parts.push(SentPart::Kept(serde_json::from_str(data).map_err(not_sent)?));
                    }
                    _ => {}
                },
                Part::Item(Item::Thinking { .. } | Item::Redacted { .. }) => {}
                Part::ToolUse(tool_use) => {
                    let id = match id.take() {
                        Some(id) => id,
                        None => quoted(&tool_use.id)?,
                    };
                    let is_first = self.calls.is_empty();
                    if is_first && is_strict && signature.is_none() {
                        signature = Some(quoted(NO_SIGNATURE)?);
                    }
                    self.calls.insert(&tool_use.id, (&tool_use.name, id.clone()));
                    let args = serde_json::from_str(&tool_use.arguments).map_err(not_sent)?;
                    let function_call = Some(CalledFunction { id, name: &tool_use.name, args });
                    let thought_signature = signature.take();
                    parts.push(SentPart::made(MadePart {
                        function_call,
                        thought_signature,
                        ..MadePart::default()
                    }));
                }
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::tool::ToolUse;
    use serde_json::json;

    use super::*;
    use crate::llm::{PlainBlock, media::tests::media, profile::ModelProfiles};

    #[test]
    fn what_a_tool_gave_names_its_call_as_the_request_does() {
        let wire = Gemini { base: "http://127.0.0.1".parse().unwrap(), key: None };
        let profile = ModelProfiles::default().of(&"gemini/gemini-2.5-flash".parse().unwrap());
        for (theirs, sent) in [(Some("fc_1"), "fc_1"), (None, "own")] {
            let opaque =
                |id: &str| Item::Opaque { field: ID.to_owned(), data: json!(id).to_string() };
            let id = theirs.map(|id| PlainBlock::Item(opaque(id)));
            let using =
                ToolUse { id: "own".to_owned(), name: "get".to_owned(), arguments: "{}".into() };
            let reply = PlainReply {
                id: "own".to_owned(),
                text: "seen".to_owned(),
                is_error: false,
                media: vec![media(MediaType::Png, None)],
            };
            let request = ModelRequest {
                model: "gemini-2.5-flash".to_owned(),
                system: String::new(),
                messages: vec![
                    PlainMessage::text(Role::User, "go"),
                    PlainMessage {
                        tool_uses: vec![using],
                        blocks: id.into_iter().chain([PlainBlock::ToolUse]).collect(),
                        ..PlainMessage::text(Role::Assistant, "")
                    },
                    PlainMessage {
                        tool_replies: vec![reply],
                        ..PlainMessage::text(Role::User, "")
                    },
                ],
                tools: Vec::new(),
                sampling: Sampling::default(),
                idempotency_key: "k".to_owned(),
                reply_schema: None,
                cache_key: String::new(),
            };
            let prepared = wire.prepare(request, &profile).unwrap();
            let body: Value = serde_json::from_slice(&prepared.body).unwrap();
            assert_eq!(body["contents"][1]["parts"][0]["functionCall"]["id"], sent);
            let parts = &body["contents"][2]["parts"];
            assert_eq!(parts[0]["functionResponse"]["id"], sent);
            assert_eq!(parts[1]["text"], format!("(from the tool call `{sent}`)"));
            assert!(parts[2]["inlineData"].is_object(), "{parts}");
        }
    }
}

//! What is asked on the Responses wire.

use std::borrow::Cow;

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role, Sampling},
    media::MediaKind,
    model::{CacheStyle, ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
    tool_choice::ToolChoice,
};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{PHASE, REASONING};
use crate::llm::{
    Item, ModelRequest, PlainMedia, PlainMessage, PlainReply, ReplySchema, ToolOffer,
    call::{Dialect, bearer_headers},
    http::Prepared,
    media::in_words,
    options::BaseUrl,
    ordered_parts::{HeardPart, Part},
    profile::ModelProfile,
    prompt::{alternate, not_sent},
    settings::choice_among,
};

/// The only kind of tool that is offered.
const FUNCTION: &str = "function";
/// Before what a tool said that failed: the wire has no flag for it.
const FAILED: &str = "Error: ";
/// What a reply shall have besides: what the model reasons, encrypted, because the vendor stores nothing.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The wire.
#[derive(Debug)]
pub(in crate::llm) struct Responses {
    pub(in crate::llm) base: BaseUrl,
    pub(in crate::llm) key: Option<SecretString>,
}

#[derive(Serialize)]
struct ResponsesBody<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ResponsesTool<'a>>,
    stream: bool,
    store: bool,
    /// Models that do not reason refuse it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<FunctionChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    /// Leads requests of one conversation to the server that has its beginning in a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct TextConfig<'a> {
    format: TextFormat<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat<'a> {
    JsonObject,
    JsonSchema {
        name: &'a str,
        /// Whether the vendor holds the model to each word of it; it refuses schemas that it cannot do that
        /// for.
        strict: bool,
        schema: &'a Value,
    },
}

/// Whether the model must, may or must not call tools.
#[derive(Serialize)]
#[serde(untagged)]
enum FunctionChoice<'a> {
    Word(&'static str),
    Tool { r#type: &'static str, name: &'a ToolName },
}

#[derive(Serialize)]
struct Effort {
    effort: &'static str,
}

#[derive(Serialize)]
struct ResponsesTool<'a> {
    r#type: &'static str,
    name: &'a ToolName,
    description: &'a str,
    parameters: &'a Value,
    /// The wire's default would refuse schemas with optional fields.
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Said(InputMessage<'a>),
    Called {
        r#type: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    Output {
        r#type: &'static str,
        call_id: &'a str,
        output: ToolOutputContent<'a>,
    },
    /// As the model made it.
    Kept(&'a RawValue),
}

#[derive(Serialize)]
struct InputMessage<'a> {
    r#type: &'static str,
    role: Role,
    content: Vec<InputPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolOutputContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputPart<'a> {
    InputText { text: Cow<'a, str> },
    OutputText { text: &'a str },
    InputImage { image_url: String, detail: &'static str },
    InputFile { filename: String, file_data: String },
}

// === impl Responses ===

impl Dialect for Responses {
    fn provider(&self) -> &'static str {
        "openai"
    }

    fn prepare(
        &self,
        mut request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        in_words(&mut request.messages, |media| {
            takes(media) && profile.input.takes(media.media_type().kind())
        });
        let conversation = alternate(request.messages)?;
        let mut input = Vec::with_capacity(conversation.len());
        for message in &conversation {
            match message.role {
                Role::User => user(message, &mut input),
                Role::Assistant => assistant(message, &mut input)?,
            }
        }
        let sampling = &request.sampling;
        let reasons = profile.reasoning != ReasoningStyle::None;
        let effort = sampling.reasoning.filter(|_| reasons).and_then(Reasoning::effort);
        let body = ResponsesBody {
            model: &request.model,
            instructions: request.system.trim(),
            input,
            tools: request.tools.iter().map(ResponsesTool::from).collect(),
            stream: true,
            store: false,
            include: reasons.then_some(ENCRYPTED).into_iter().collect(),
            temperature: sampling.temperature.filter(|_| profile.sampling),
            top_p: sampling.top_p.filter(|_| profile.sampling),
            max_output_tokens: sampling.max_tokens.map(|wanted| profile.capped(wanted)),
            reasoning: effort.map(|effort| Effort { effort }),
            text: request.reply_schema.as_ref().map(TextConfig::from),
            tool_choice: wire_choice(sampling, &request.tools)?,
            // The vendor refuses it where there are no tools.
            parallel_tool_calls: sampling.parallel_tool_calls.filter(|_| !request.tools.is_empty()),
            prompt_cache_key: (profile.cache == CacheStyle::Key)
                .then_some(request.cache_key.as_str())
                .filter(|key| !key.is_empty()),
        };
        let headers = bearer_headers(&request.idempotency_key, self.key.as_ref());
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let (url, offers) = (self.base.join("responses"), !request.tools.is_empty());
        Ok(Prepared { url, headers, body: body.into(), offers })
    }

    fn probe(&self) -> Option<Prepared> {
        Some(Prepared::empty(self.base.join("models"), bearer_headers("", self.key.as_ref())))
    }

    fn takes(&self, _schema: &ReplySchema) -> bool {
        true
    }
}

fn wire_choice<'a>(
    sampling: &'a Sampling,
    tools: &[ToolOffer],
) -> Result<Option<FunctionChoice<'a>>, ModelFailure> {
    Ok(choice_among(sampling, tools)?.map(|choice| match choice {
        ToolChoice::None => FunctionChoice::Word("none"),
        ToolChoice::Required => FunctionChoice::Word("required"),
        ToolChoice::Tool { name } => FunctionChoice::Tool { r#type: FUNCTION, name },
    }))
}

impl<'a> From<&'a ReplySchema> for TextConfig<'a> {
    fn from(reply: &'a ReplySchema) -> Self {
        let format = if reply.style == SchemaStyle::JsonObject {
            TextFormat::JsonObject
        } else {
            let (name, strict, schema) = (&reply.name, reply.is_strict(true), &reply.schema);
            TextFormat::JsonSchema { name, strict, schema }
        };
        Self { format }
    }
}

/// What the wire takes.
fn takes(media: &PlainMedia) -> bool {
    media.media_type().kind() != MediaKind::Audio
}

impl<'a> From<&'a ToolOffer> for ResponsesTool<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        let ToolOffer { name, description, input_schema } = offer;
        Self { r#type: FUNCTION, name, description, parameters: input_schema, strict: false }
    }
}

impl<'a> InputPart<'a> {
    fn heard(part: HeardPart<'a>) -> Self {
        match part {
            HeardPart::Text(text) => Self::InputText { text: text.into() },
            HeardPart::Media(media) => Self::media(media),
        }
    }

    fn media(media: &PlainMedia) -> Self {
        match media.media_type().kind() {
            MediaKind::Image => Self::InputImage { image_url: media.data_url(), detail: "auto" },
            // Sound is in words here (`takes`).
            MediaKind::Document | MediaKind::Audio => {
                Self::InputFile { filename: media.file_name(), file_data: media.data_url() }
            }
        }
    }
}

impl<'a> ToolOutputContent<'a> {
    fn of(reply: &'a PlainReply) -> Self {
        let text = reply.text.as_str();
        let text = if reply.is_error { format!("{FAILED}{text}").into() } else { Cow::from(text) };
        if reply.media.is_empty() {
            return Self::Text(text);
        }
        let said = (!text.is_empty()).then_some(InputPart::InputText { text });
        Self::Parts(said.into_iter().chain(reply.media.iter().map(InputPart::media)).collect())
    }
}

impl<'a> InputMessage<'a> {
    const fn new(role: Role, content: Vec<InputPart<'a>>) -> Self {
        Self { r#type: "message", role, content, phase: None }
    }
}

/// What tools answered, then the user's words.
fn user<'a>(message: &'a PlainMessage, input: &mut Vec<InputItem<'a>>) {
    input.extend(message.tool_replies.iter().map(|reply| InputItem::Output {
        r#type: "function_call_output",
        call_id: &reply.id,
        output: ToolOutputContent::of(reply),
    }));
    let content: Vec<_> = message.heard().into_iter().map(InputPart::heard).collect();
    if !content.is_empty() {
        input.push(InputItem::Said(InputMessage::new(Role::User, content)));
    }
}

/// What the model said, item by item. What it reasoned goes before what followed it, as it came.
fn assistant<'a>(
    message: &'a PlainMessage,
    input: &mut Vec<InputItem<'a>>,
) -> Result<(), ModelFailure> {
    let mut phase = None;
    for part in message.parts() {
        match part {
            Part::Text(text) => {
                let said = InputMessage::new(Role::Assistant, vec![InputPart::OutputText { text }]);
                input.push(InputItem::Said(InputMessage { phase: phase.take(), ..said }));
            }
            Part::ToolUse(tool_use) => input.push(InputItem::Called {
                r#type: "function_call",
                call_id: &tool_use.id,
                name: &tool_use.name,
                arguments: &tool_use.arguments,
            }),
            Part::Item(Item::Opaque { field, data }) => match field.as_str() {
                REASONING => {
                    input.push(InputItem::Kept(serde_json::from_str(data).map_err(not_sent)?));
                }
                PHASE => phase = Some(serde_json::from_str(data).map_err(not_sent)?),
                _ => {}
            },
            Part::Item(Item::Thinking { .. } | Item::Redacted { .. }) => {}
        }
    }
    Ok(())
}

//! What is asked on Ollama's wire.

use std::{borrow::Cow, collections::BTreeMap};

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role},
    media::MediaKind,
    model::{ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
};
use reqwest::header::HeaderValue;
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::picture_markers::with_markers;
use crate::llm::{
    Item, ModelRequest, PlainMedia, PlainMessage, ReplySchema, ToolOffer,
    call::{Dialect, bearer_headers},
    http::Prepared,
    media::in_words,
    options::BaseUrl,
    ordered_parts::Part,
    profile::ModelProfile,
    prompt::{alternate, not_sent},
};

/// The only kind of tool that is offered.
const FUNCTION: &str = "function";
/// Before what a tool said that failed: the wire has no flag for it.
const FAILED: &str = "Error: ";

/// What the server can make a grammar of.
const REPLY_KEYWORDS: [&str; 24] = [
    "$schema",
    "$defs",
    "definitions",
    "$ref",
    "type",
    "format",
    "title",
    "description",
    "default",
    "enum",
    "const",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
];

/// The wire.
#[derive(Debug)]
pub(in crate::llm) struct Ollama {
    pub(in crate::llm) base: BaseUrl,
    /// For a server behind something that asks for a key.
    pub(in crate::llm) key: Option<SecretString>,
}

#[derive(Serialize)]
struct OllamaBody<'a> {
    model: &'a str,
    messages: Vec<OllamaMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OllamaTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<ReplyFormat<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Think>,
    /// `num_ctx` is laid over it where it is configured.
    #[serde(skip_serializing_if = "OllamaOptions::is_empty")]
    options: OllamaOptions<'a>,
}

/// What the server holds a reply to.
#[derive(Serialize)]
#[serde(untagged)]
enum ReplyFormat<'a> {
    Word(&'static str),
    Schema(&'a Value),
}

/// Whether a model thinks, or how much.
#[derive(Serialize)]
#[serde(untagged)]
enum Think {
    Whether(bool),
    Effort(&'static str),
}

#[derive(Serialize)]
struct OllamaOptions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
}

#[derive(Serialize)]
struct OllamaTool<'a> {
    r#type: &'static str,
    function: OllamaFunctionSpec<'a>,
}

#[derive(Serialize)]
struct OllamaFunctionSpec<'a> {
    name: &'a ToolName,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
struct OllamaMessage<'a> {
    role: &'static str,
    content: Cow<'a, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<OllamaToolCall<'a>>,
    /// Of whose call a tool's message is. Versions differ in which of the two they read.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct OllamaToolCall<'a> {
    id: &'a str,
    function: OllamaCalled<'a>,
}

#[derive(Serialize)]
struct OllamaCalled<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

/// What was said, message by message.
#[derive(Default)]
struct OllamaConversation<'a> {
    messages: Vec<OllamaMessage<'a>>,
    /// The tools that the last message of the assistant calls, by the ids of the calls.
    tools: BTreeMap<&'a str, &'a str>,
}

// === impl Ollama ===

impl Dialect for Ollama {
    fn provider(&self) -> &'static str {
        "ollama"
    }

    fn prepare(
        &self,
        mut request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        in_words(&mut request.messages, |media| takes(media) && profile.input.image);
        let conversation = alternate(request.messages)?;
        let mut said = OllamaConversation::default();
        let system = request.system.trim();
        if !system.is_empty() {
            said.messages.push(OllamaMessage::new("system", system));
        }
        for message in &conversation {
            said.add(message)?;
        }
        let sampling = &request.sampling;
        let reasoning = sampling.reasoning.filter(|_| profile.reasoning != ReasoningStyle::None);
        // The limit is of the reply; the server counts thoughts in.
        let budget = reasoning.map_or(0, Reasoning::budget);
        let limit = sampling.max_tokens.map(|wanted| wanted.saturating_add(budget));
        let body = OllamaBody {
            model: &request.model,
            messages: said.messages,
            tools: request.tools.iter().map(OllamaTool::from).collect(),
            format: request.reply_schema.as_ref().map(ReplyFormat::from),
            stream: true,
            think: reasoning.map(|reasoning| Think::of(reasoning, profile)),
            options: OllamaOptions {
                temperature: sampling.temperature.filter(|_| profile.sampling),
                top_p: sampling.top_p.filter(|_| profile.sampling),
                top_k: sampling.top_k,
                num_predict: limit.map(|wanted| profile.capped(wanted)),
                stop: &sampling.stop,
                seed: sampling.seed,
                presence_penalty: sampling.presence_penalty,
                frequency_penalty: sampling.frequency_penalty,
            },
        };
        let mut headers = bearer_headers(&request.idempotency_key, self.key.as_ref());
        headers.insert("accept", HeaderValue::from_static("application/x-ndjson"));
        // Some people write the base with the `/api` of Ollama's documentation.
        let path = if self.base.ends_in("api") { "chat" } else { "api/chat" };
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let offers = !request.tools.is_empty();
        Ok(Prepared { url: self.base.join(path), headers, body: body.into(), offers })
    }

    fn probe(&self) -> Option<Prepared> {
        let path = if self.base.ends_in("api") { "tags" } else { "api/tags" };
        Some(Prepared::empty(self.base.join(path), bearer_headers("", self.key.as_ref())))
    }

    fn takes(&self, schema: &ReplySchema) -> bool {
        schema.style == SchemaStyle::JsonObject || schema.has_only(&REPLY_KEYWORDS)
    }

    /// The server holds any model to it: it lets no other token through, also none of a call.
    fn schema_style(&self) -> Option<SchemaStyle> {
        Some(SchemaStyle::JsonSchemaAlone)
    }

    fn shows_schema(&self) -> bool {
        false
    }
}

impl<'a> From<&'a ReplySchema> for ReplyFormat<'a> {
    fn from(reply: &'a ReplySchema) -> Self {
        match reply.style {
            SchemaStyle::JsonObject => Self::Word("json"),
            _ => Self::Schema(&reply.schema),
        }
    }
}

/// What the wire takes.
fn takes(media: &PlainMedia) -> bool {
    media.media_type().kind() == MediaKind::Image
}

impl Think {
    /// Most models think or do not; only a few take how much.
    fn of(reasoning: Reasoning, profile: &ModelProfile) -> Self {
        match reasoning.effort() {
            None => Self::Whether(false),
            Some(effort) if profile.reasoning == ReasoningStyle::OpenaiEffort => {
                Self::Effort(effort)
            }
            Some(_) => Self::Whether(true),
        }
    }
}

impl OllamaOptions<'_> {
    const fn is_empty(&self) -> bool {
        self.temperature.is_none()
            && self.top_p.is_none()
            && self.top_k.is_none()
            && self.num_predict.is_none()
            && self.stop.is_empty()
            && self.seed.is_none()
            && self.presence_penalty.is_none()
            && self.frequency_penalty.is_none()
    }
}

impl<'a> From<&'a ToolOffer> for OllamaTool<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        let ToolOffer { name, description, input_schema } = offer;
        Self {
            r#type: FUNCTION,
            function: OllamaFunctionSpec { name, description, parameters: input_schema },
        }
    }
}

impl<'a> OllamaMessage<'a> {
    fn new(role: &'static str, content: impl Into<Cow<'a, str>>) -> Self {
        Self {
            role,
            content: content.into(),
            thinking: String::new(),
            images: Vec::new(),
            tool_calls: Vec::new(),
            tool_name: None,
            tool_call_id: None,
        }
    }
}

impl<'a> OllamaConversation<'a> {
    fn add(&mut self, message: &'a PlainMessage) -> Result<(), ModelFailure> {
        match message.role {
            Role::User => self.user(message),
            Role::Assistant => self.assistant(message)?,
        }
        Ok(())
    }

    /// Each tool reply is a message of its own, before the user's words; their pictures come with these,
    /// because a tool's message has none.
    fn user(&mut self, message: &'a PlainMessage) {
        let (mut images, mut notes) = (Vec::new(), String::new());
        for reply in &message.tool_replies {
            let text = reply.text.as_str();
            let content =
                if reply.is_error { format!("{FAILED}{text}").into() } else { Cow::from(text) };
            self.messages.push(OllamaMessage {
                tool_name: self.tools.get(reply.id.as_str()).copied(),
                tool_call_id: Some(&reply.id),
                ..OllamaMessage::new("tool", content)
            });
            if !reply.media.is_empty() {
                notes = format!("{notes}(from the tool call `{}`)\n\n", reply.id);
            }
            images.extend(reply.media.iter().map(PlainMedia::base64));
        }
        let text = with_markers(message, &mut images);
        if text.is_empty() && images.is_empty() {
            return;
        }
        let content = if notes.is_empty() {
            text
        } else {
            format!("{notes}{text}").trim_end().to_owned().into()
        };
        self.messages.push(OllamaMessage { images, ..OllamaMessage::new("user", content) });
    }

    fn assistant(&mut self, message: &'a PlainMessage) -> Result<(), ModelFailure> {
        let mut said = OllamaMessage::new("assistant", message.text.as_str());
        self.tools.clear();
        for part in message.parts() {
            match part {
                // Only a thought that the server wants back has a signature, an empty one.
                Part::Item(Item::Thinking { text, signature: Some(signature) }) => {
                    if signature.is_empty() {
                        said.thinking.push_str(text);
                    }
                }
                Part::Text(_) | Part::Item(_) => {}
                Part::ToolUse(tool_use) => {
                    let arguments = serde_json::from_str(&tool_use.arguments).map_err(not_sent)?;
                    let (id, name) = (tool_use.id.as_str(), tool_use.name.as_str());
                    said.tool_calls
                        .push(OllamaToolCall { id, function: OllamaCalled { name, arguments } });
                    self.tools.insert(id, name);
                }
            }
        }
        self.messages.push(said);
        Ok(())
    }
}

//! What is asked on `OpenAI`'s wire.

use std::{borrow::Cow, collections::BTreeMap};

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role, Sampling},
    media::{MediaKind, MediaType},
    model::{CacheStyle, ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
    tool_choice::ToolChoice,
};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::EXTRA_CONTENT;
use crate::llm::{
    Item, ModelRequest, PlainMedia, PlainMessage, PlainReply, ReplySchema, ToolOffer,
    call::{Dialect, bearer_headers},
    http::Prepared,
    media::in_words,
    options::BaseUrl,
    parts::{HeardPart, Part},
    profile::ModelProfile,
    prompt::{alternate, not_sent},
    settings::choice_among,
};

/// The inventor's own host: it wants `max_completion_tokens`, which compatible servers do not know.
const OWN_HOST: &str = "api.openai.com";
/// The only kind of tool that is offered and called.
const FUNCTION: &str = "function";
/// Before what a tool said that failed: the wire has no flag for it.
const FAILED: &str = "Error: ";

/// The wire.
#[derive(Debug)]
pub(in crate::llm) struct OpenAi {
    pub(in crate::llm) base: BaseUrl,
    pub(in crate::llm) key: Option<SecretString>,
}

#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: Vec<OpenAiMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OpenAiTool<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logit_bias: &'a BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ChosenTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
}

/// Whether the model must, may or must not call tools.
#[derive(Serialize)]
#[serde(untagged)]
enum ChosenTool<'a> {
    Word(&'static str),
    Tool { r#type: &'static str, function: ChosenFunction<'a> },
}

#[derive(Serialize)]
struct ChosenFunction<'a> {
    name: &'a ToolName,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: NamedSchema<'a> },
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'a str,
    /// Whether the vendor holds the model to each word of it; it refuses schemas that it cannot do that for.
    strict: bool,
    schema: &'a Value,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct OpenAiTool<'a> {
    r#type: &'static str,
    function: FunctionSpec<'a>,
}

#[derive(Serialize)]
struct FunctionSpec<'a> {
    name: &'a ToolName,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
struct OpenAiMessage<'a> {
    role: &'static str,
    /// `null` for an assistant that only calls.
    content: Option<OpenAiContent<'a>>,
    /// The thoughts of a round of tools, for a server that wants them back.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<OpenAiToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OpenAiContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
    InputAudio { input_audio: InputAudio },
    File { file: FileData },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct InputAudio {
    data: String,
    format: &'static str,
}

#[derive(Serialize)]
struct FileData {
    filename: String,
    file_data: String,
}

#[derive(Serialize)]
struct OpenAiToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Called<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: &'a str,
}

// === impl OpenAi ===

impl Dialect for OpenAi {
    fn provider(&self) -> &'static str {
        "openai"
    }

    fn prepare(
        &self,
        mut request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        in_words(&mut request.messages, |media| profile.input.takes(media.media_type().kind()));
        let renamed = profile.max_completion_tokens || self.base.host() == OWN_HOST;
        let conversation = alternate(request.messages)?;
        let mut messages = Vec::with_capacity(conversation.len() + 1);
        let system = request.system.trim();
        if !system.is_empty() {
            let role = if profile.developer_role { "developer" } else { "system" };
            messages.push(OpenAiMessage::text(role, system));
        }
        for message in &conversation {
            say(message, &mut messages)?;
        }
        let limit = request.sampling.max_tokens.map(|wanted| profile.capped(wanted));
        let may_say = profile.reasoning != ReasoningStyle::None
            && (profile.effort_with_tools || request.tools.is_empty());
        let reasoning = request.sampling.reasoning.filter(|_| may_say);
        let body = ChatBody {
            model: &request.model,
            messages,
            tools: request.tools.iter().map(OpenAiTool::from).collect(),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            temperature: request.sampling.temperature.filter(|_| profile.sampling),
            top_p: request.sampling.top_p.filter(|_| profile.sampling),
            max_tokens: limit.filter(|_| !renamed),
            max_completion_tokens: limit.filter(|_| renamed),
            // Reasoning models refuse it.
            stop: if profile.sampling { &request.sampling.stop } else { &[] },
            reasoning_effort: reasoning.and_then(Reasoning::effort),
            response_format: request.reply_schema.as_ref().map(ResponseFormat::from),
            presence_penalty: request.sampling.presence_penalty,
            frequency_penalty: request.sampling.frequency_penalty,
            seed: request.sampling.seed,
            logit_bias: &request.sampling.logit_bias,
            tool_choice: wire_choice(&request.sampling, &request.tools)?,
            // The vendor refuses it where there are no tools.
            parallel_tool_calls: (request.sampling.parallel_tool_calls)
                .filter(|_| !request.tools.is_empty()),
            prompt_cache_key: (profile.cache == CacheStyle::Key)
                .then_some(request.cache_key.as_str())
                .filter(|key| !key.is_empty()),
        };
        let headers = bearer_headers(&request.idempotency_key, self.key.as_ref());
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let (url, offers) = (self.base.join("chat/completions"), !request.tools.is_empty());
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
) -> Result<Option<ChosenTool<'a>>, ModelFailure> {
    Ok(choice_among(sampling, tools)?.map(|choice| match choice {
        ToolChoice::None => ChosenTool::Word("none"),
        ToolChoice::Required => ChosenTool::Word("required"),
        ToolChoice::Tool { name } => {
            ChosenTool::Tool { r#type: FUNCTION, function: ChosenFunction { name } }
        }
    }))
}

impl<'a> From<&'a ReplySchema> for ResponseFormat<'a> {
    fn from(reply: &'a ReplySchema) -> Self {
        if reply.style == SchemaStyle::JsonObject {
            return Self::JsonObject;
        }
        let (name, strict, schema) = (&reply.name, reply.is_strict(true), &reply.schema);
        Self::JsonSchema { json_schema: NamedSchema { name, strict, schema } }
    }
}

impl<'a> From<&'a ToolOffer> for OpenAiTool<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        let ToolOffer { name, description, input_schema } = offer;
        Self {
            r#type: FUNCTION,
            function: FunctionSpec { name, description, parameters: input_schema },
        }
    }
}

impl<'a> OpenAiMessage<'a> {
    fn text(role: &'static str, text: &'a str) -> Self {
        let content = Some(OpenAiContent::Text(Cow::Borrowed(text)));
        let tool_calls = Vec::new();
        Self { role, content, reasoning_content: None, tool_calls, tool_call_id: None }
    }

    fn reply(reply: &'a PlainReply) -> Self {
        let content = if reply.is_error {
            Cow::Owned(format!("{FAILED}{}", reply.text))
        } else {
            Cow::Borrowed(reply.text.as_str())
        };
        let (content, tool_call_id) = (Some(OpenAiContent::Text(content)), Some(reply.id.as_str()));
        Self { content, tool_call_id, ..Self::text("tool", "") }
    }

    /// What the model said, and with it what its server wants back.
    fn said(message: &'a PlainMessage) -> Result<Self, ModelFailure> {
        let (mut thoughts, mut tool_calls, mut extra_content) = (None, Vec::new(), None);
        for part in message.parts() {
            match part {
                Part::Item(Item::Thinking { text, signature: Some(signature) }) => {
                    if signature.is_empty() {
                        thoughts.get_or_insert_with(String::new).push_str(text);
                    }
                }
                Part::Item(Item::Opaque { field, data }) if field == EXTRA_CONTENT => {
                    extra_content = Some(serde_json::from_str(data).map_err(not_sent)?);
                }
                Part::Text(_) | Part::Item(_) => {}
                Part::ToolUse(tool_use) => {
                    let function = Called { name: &tool_use.name, arguments: &tool_use.arguments };
                    let (id, extra_content) = (tool_use.id.as_str(), extra_content.take());
                    tool_calls.push(OpenAiToolCall {
                        id,
                        r#type: FUNCTION,
                        function,
                        extra_content,
                    });
                }
            }
        }
        Ok(Self {
            role: "assistant",
            content: (!message.text.is_empty())
                .then_some(OpenAiContent::Text(Cow::Borrowed(&message.text))),
            reasoning_content: thoughts,
            tool_calls,
            tool_call_id: None,
        })
    }
}

/// The parts of a user's message that has attachments, or follows replies that have some: a tool's
/// message takes text alone.
fn content_parts(message: &PlainMessage) -> Vec<ContentPart<'_>> {
    let mut parts = Vec::new();
    for reply in message.tool_replies.iter().filter(|reply| !reply.media.is_empty()) {
        let text = Cow::Owned(format!("(from the tool call `{}`)", reply.id));
        parts.push(ContentPart::Text { text });
        parts.extend(reply.media.iter().map(ContentPart::of));
    }
    if !(parts.is_empty() && message.media.is_empty()) {
        parts.extend(message.heard().into_iter().map(ContentPart::heard));
    }
    parts
}

impl<'a> ContentPart<'a> {
    fn heard(part: HeardPart<'a>) -> Self {
        match part {
            HeardPart::Text(text) => Self::Text { text: Cow::Borrowed(text) },
            HeardPart::Media(media) => Self::of(media),
        }
    }

    fn of(media: &PlainMedia) -> Self {
        match media.media_type().kind() {
            MediaKind::Image => Self::ImageUrl { image_url: ImageUrl { url: media.data_url() } },
            MediaKind::Document => {
                let (filename, file_data) = (media.file_name(), media.data_url());
                Self::File { file: FileData { filename, file_data } }
            }
            MediaKind::Audio => {
                let format = if media.media_type() == MediaType::Wav { "wav" } else { "mp3" };
                Self::InputAudio { input_audio: InputAudio { data: media.base64(), format } }
            }
        }
    }
}

/// A message; each tool reply is one of its own, before the user's words.
fn say<'a>(
    message: &'a PlainMessage,
    messages: &mut Vec<OpenAiMessage<'a>>,
) -> Result<(), ModelFailure> {
    match message.role {
        Role::User => {
            messages.extend(message.tool_replies.iter().map(OpenAiMessage::reply));
            let parts = content_parts(message);
            if !parts.is_empty() {
                let content = Some(OpenAiContent::Parts(parts));
                let (tool_calls, tool_call_id) = (Vec::new(), None);
                messages.push(OpenAiMessage {
                    role: "user",
                    content,
                    reasoning_content: None,
                    tool_calls,
                    tool_call_id,
                });
            } else if !message.text.is_empty() {
                messages.push(OpenAiMessage::text("user", &message.text));
            }
        }
        Role::Assistant => messages.push(OpenAiMessage::said(message)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{llm::Sampling, tool::ToolUse};
    use serde_json::json;

    use super::*;
    use crate::llm::{media::tests::media, profile::ModelProfiles};

    #[test]
    fn attachments_are_parts_and_those_of_tools_follow_their_replies() {
        let using =
            ToolUse { id: "t".to_owned(), name: "look".to_owned(), arguments: "{}".to_owned() };
        let reply = PlainReply {
            id: "t".to_owned(),
            text: "seen".to_owned(),
            is_error: false,
            media: vec![media(MediaType::Jpeg, None)],
        };
        let all = [
            media(MediaType::Png, Some("a.png")),
            media(MediaType::Pdf, None),
            media(MediaType::Wav, None),
            media(MediaType::Mp3, None),
        ];
        let messages = vec![
            PlainMessage { media: all.to_vec(), ..PlainMessage::text(Role::User, "see") },
            PlainMessage { tool_uses: vec![using], ..PlainMessage::text(Role::Assistant, "") },
            PlainMessage { tool_replies: vec![reply], ..PlainMessage::text(Role::User, "and?") },
        ];
        let request = ModelRequest {
            model: "m".to_owned(),
            system: String::new(),
            messages,
            tools: Vec::new(),
            sampling: Sampling::default(),
            idempotency_key: "k".to_owned(),
            reply_schema: None,
            cache_key: String::new(),
        };
        let wire = OpenAi { base: "http://127.0.0.1".parse().unwrap(), key: None };
        let body = wire
            .prepare(request, &ModelProfiles::default().of(&"p/m".parse().unwrap()))
            .unwrap()
            .body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let audio = |format: &str| {
            let input_audio = json!({"data": "YWI=", "format": format});
            json!({"type": "input_audio", "input_audio": input_audio})
        };
        let pdf = "data:application/pdf;base64,YWI=";
        let expected = json!([
            {"role": "user", "content": [
                image("data:image/png;base64,YWI="),
                {"type": "file", "file": {"filename": "attachment.pdf", "file_data": pdf}},
                audio("wav"),
                audio("mp3"),
                {"type": "text", "text": "see"},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "t", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ]},
            {"role": "tool", "content": "seen", "tool_call_id": "t"},
            {"role": "user", "content": [
                {"type": "text", "text": "(from the tool call `t`)"},
                image("data:image/jpeg;base64,YWI="),
                {"type": "text", "text": "and?"},
            ]},
        ]);
        assert_eq!(body["messages"], expected);
    }
}

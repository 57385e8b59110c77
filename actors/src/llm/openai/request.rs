//! What is asked on `OpenAI`'s wire.

use std::{borrow::Cow, collections::BTreeMap};

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role, Sampling},
    model::{CacheStyle, ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
    tool_choice::ToolChoice,
};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    CALL_ID, EXTRA_CONTENT,
    content::{OpenAiContent, content_parts},
};
use crate::llm::{
    Item, ModelRequest, PlainMessage, PlainReply, ReplySchema, ToolOffer,
    blocks::{PLAIN_DETAILS, REASONING_DETAILS},
    call::{Dialect, bearer_headers},
    http::Prepared,
    media::in_words,
    options::BaseUrl,
    ordered_parts::Part,
    profile::ModelProfile,
    prompt::{alternate, not_sent},
    settings::choice_among,
};

/// The inventor's own host: it wants `max_completion_tokens`, which compatible servers do not know.
const OWN_HOST: &str = "api.openai.com";
/// The only kind of tool that is offered and called.
const FUNCTION: &str = "function";
/// The role of the model.
const ASSISTANT: &str = "assistant";
/// Ends of requests that are marked: of this one, and of the one before. The system prompt has a marker too, and
/// four are taken.
const MARKED_ENDS: usize = 2;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<OpenAiToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct OpenAiToolCall<'a> {
    id: Cow<'a, str>,
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
        let messages = all_messages(request.system.trim(), &conversation, profile)?;
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
            stop: &request.sampling.stop,
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
        let (reasoning_content, reasoning_details, tool_call_id) = (None, None, None);
        Self { role, content, reasoning_content, reasoning_details, tool_calls, tool_call_id }
    }

    fn reply(reply: &'a PlainReply, ids: &WireIds<'a>) -> Self {
        let content = if reply.is_error {
            Cow::Owned(format!("{FAILED}{}", reply.text))
        } else {
            Cow::Borrowed(reply.text.as_str())
        };
        let (content, tool_call_id) = (OpenAiContent::Text(content), wire_id(ids, &reply.id));
        let (content, tool_call_id) = (Some(content), Some(tool_call_id));
        Self { content, tool_call_id, ..Self::text("tool", "") }
    }

    /// What the model said, and with it what its server wants back.
    fn said(message: &'a PlainMessage, ids: &mut WireIds<'a>) -> Result<Self, ModelFailure> {
        let (mut thoughts, mut tool_calls, mut extra_content) = (None, Vec::new(), None);
        let mut own_id: Option<String> = None;
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
                Part::Item(Item::Opaque { field, data }) if field == CALL_ID => {
                    own_id = Some(serde_json::from_str(data).map_err(not_sent)?);
                }
                Part::Text(_) | Part::Item(_) => {}
                Part::ToolUse(tool_use) => {
                    match own_id.take() {
                        Some(id) => ids.insert(&tool_use.id, id),
                        None => ids.remove(tool_use.id.as_str()),
                    };
                    let function = Called { name: &tool_use.name, arguments: &tool_use.arguments };
                    let (id, extra_content) = (wire_id(ids, &tool_use.id), extra_content.take());
                    tool_calls.push(OpenAiToolCall {
                        id,
                        r#type: FUNCTION,
                        function,
                        extra_content,
                    });
                }
            }
        }
        let reasoning_details = details(message)?;
        // A server that sends both has the same thoughts in both, and more of them in the details.
        let reasoning_content = thoughts.filter(|_| reasoning_details.is_none());
        Ok(Self {
            role: ASSISTANT,
            content: (!message.text.is_empty())
                .then_some(OpenAiContent::Text(Cow::Borrowed(&message.text))),
            reasoning_content,
            reasoning_details,
            tool_calls,
            tool_call_id: None,
        })
    }
}

/// Ids of tool calls that the server knows by others.
type WireIds<'a> = BTreeMap<&'a str, String>;

/// The id of a tool call as its server has it.
fn wire_id<'a>(ids: &WireIds<'a>, id: &'a str) -> Cow<'a, str> {
    ids.get(id).map_or(Cow::Borrowed(id), |own| Cow::Owned(own.clone()))
}

/// What the server wants back of a whole reply. It has no place of its own, so it may also come last.
fn details(message: &PlainMessage) -> Result<Option<&RawValue>, ModelFailure> {
    let details = message.all_parts().into_iter().find_map(|part| match part {
        Part::Item(Item::Opaque { field, data })
            if field == REASONING_DETAILS || field == PLAIN_DETAILS =>
        {
            Some(data)
        }
        _ => None,
    });
    details.map(|data| serde_json::from_str(data)).transpose().map_err(not_sent)
}

/// The system prompt and the conversation, with markers if the model's provider wants them: after the prompt, and
/// where this request and the one before it end.
fn all_messages<'a>(
    system: &'a str,
    conversation: &'a [PlainMessage],
    profile: &ModelProfile,
) -> Result<Vec<OpenAiMessage<'a>>, ModelFailure> {
    let mut messages = Vec::with_capacity(conversation.len() + 1);
    if !system.is_empty() {
        let role = if profile.developer_role { "developer" } else { "system" };
        messages.push(OpenAiMessage::text(role, system));
    }
    let (prompt, mut ends, mut ids) = (messages.len(), Vec::new(), WireIds::new());
    for message in conversation {
        say(message, &mut messages, &mut ids)?;
        if message.role == Role::User {
            ends.push(messages.len());
        }
    }
    if profile.cache == CacheStyle::Markers {
        for message in messages.iter_mut().filter(|message| message.role != ASSISTANT) {
            if let Some(content) = &mut message.content {
                content.split();
            }
        }
        for end in ends.into_iter().rev().take(MARKED_ENDS).chain([prompt]) {
            let last = end.checked_sub(1).and_then(|at| messages.get_mut(at));
            if let Some(content) = last.and_then(|last| last.content.as_mut()) {
                content.mark();
            }
        }
    }
    Ok(messages)
}

/// A message; each tool reply is one of its own, before the user's words.
fn say<'a>(
    message: &'a PlainMessage,
    messages: &mut Vec<OpenAiMessage<'a>>,
    ids: &mut WireIds<'a>,
) -> Result<(), ModelFailure> {
    match message.role {
        Role::User => {
            let replies = message.tool_replies.iter();
            messages.extend(replies.map(|reply| OpenAiMessage::reply(reply, ids)));
            let parts = content_parts(message, |id| wire_id(ids, id));
            if !parts.is_empty() {
                let content = Some(OpenAiContent::Parts(parts));
                messages.push(OpenAiMessage { content, ..OpenAiMessage::text("user", "") });
            } else if !message.text.is_empty() {
                messages.push(OpenAiMessage::text("user", &message.text));
            }
        }
        Role::Assistant => messages.push(OpenAiMessage::said(message, ids)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{media::MediaType, tool::ToolUse};
    use serde_json::json;

    use super::*;
    use crate::llm::{PlainBlock, media::tests::media, profile::ModelProfiles};

    /// The messages of a request with these.
    fn sent(messages: Vec<PlainMessage>) -> Value {
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
        let profile = ModelProfiles::default().of(&"p/m".parse().unwrap());
        let prepared = wire.prepare(request, &profile).unwrap();
        let mut body: Value = serde_json::from_slice(&prepared.body).unwrap();
        body["messages"].take()
    }

    /// What `OpenRouter` and servers like it send of a round of tools.
    #[test]
    fn thoughts_under_two_names_go_back_under_one_and_a_call_has_one_id() {
        let opaque = |field: &str, data: &Value| {
            PlainBlock::Item(Item::Opaque { field: field.to_owned(), data: data.to_string() })
        };
        let thought = Item::Thinking { text: "hm".to_owned(), signature: Some(String::new()) };
        let listed = json!([{"type": "reasoning.text", "text": "hm", "id": "get_1"}]);
        for (details, content) in
            [(Some(REASONING_DETAILS), None), (Some(PLAIN_DETAILS), None), (None, Some("hm"))]
        {
            let details_block = details.map(|field| opaque(field, &listed));
            let blocks = [PlainBlock::Item(thought.clone())].into_iter().chain(details_block);
            let blocks = blocks.chain([opaque(CALL_ID, &json!("get_1")), PlainBlock::ToolUse]);
            let using =
                ToolUse { id: "own".to_owned(), name: "get".to_owned(), arguments: "{}".into() };
            let reply = PlainReply {
                id: "own".to_owned(),
                text: "seen".to_owned(),
                is_error: false,
                media: vec![media(MediaType::Png, None)],
            };
            let messages = sent(vec![
                PlainMessage::text(Role::User, "go"),
                PlainMessage {
                    tool_uses: vec![using],
                    blocks: blocks.collect(),
                    ..PlainMessage::text(Role::Assistant, "")
                },
                PlainMessage { tool_replies: vec![reply], ..PlainMessage::text(Role::User, "") },
            ]);
            assert_eq!(messages[1].get("reasoning_content"), content.map(Value::from).as_ref());
            assert_eq!(
                messages[1].get("reasoning_details"),
                details.map(|_| &listed),
                "{details:?}"
            );
            assert_eq!(messages[1]["tool_calls"][0]["id"], "get_1");
            assert_eq!(messages[2]["tool_call_id"], "get_1");
            assert_eq!(messages[3]["content"][0]["text"], "(from the tool call `get_1`)");
        }
    }

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
        assert_eq!(sent(messages), expected);
    }
}

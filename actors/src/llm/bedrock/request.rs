//! What is asked on Bedrock's wire.

use std::{borrow::Cow, collections::BTreeSet};

use clawnode_proto::{
    Timestamp,
    llm::{ModelFailure, Role},
    media::{MediaKind, MediaType},
    model::{CacheStyle, ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
    tool_choice::ToolChoice,
};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::{
    body::{
        ContentBlock, ContentBytes, ConverseBody, ConverseMessage, ConverseOutput, ConverseTool,
        DEFAULT_POINT, InferenceConfig, InputSchema, ModelFields, ToolConfiguration, is_nova,
    },
    documents::DocumentNames,
    sign::sign,
};
use crate::llm::{
    ModelRequest, PlainMedia, PlainMessage, PlainReply, ReplySchema, ToolOffer,
    call::{Dialect, headers, sensitive},
    http::{AMAZON_EVENTS, AttemptFailure, Prepared},
    machine_role::{AwsSigner, MachineKeys},
    media::in_words,
    options::BaseUrl,
    ordered_parts::{HeardPart, Part},
    profile::ModelProfile,
    prompt::{alternate, not_sent},
    settings::choice_among,
    thinking_budget::{has_thoughts, may_think},
};

/// Bytes of the largest picture and of the largest document that the API takes.
const PICTURE_BYTES: usize = 3_750_000;
const DOCUMENT_BYTES: usize = 4_500_000;
/// Ends of the conversation that are marked: of this request, and of the one before.
const MARKED_ENDS: usize = 2;
/// Before what a tool said that failed, for models without a status of results.
const FAILED: &str = "Error: ";
/// What a tool said that said nothing: the API takes neither a blank text nor a result without content.
const NOTHING: &str = "(no output)";
/// Of a tool in the conversation that is not offered any more: the API wants to know all of them.
const GONE: &str = "This tool is not available any more. Do not call it.";

/// The wire.
#[derive(Debug)]
pub(in crate::llm) struct Bedrock {
    pub(in crate::llm) base: BaseUrl,
    /// A key of Bedrock's own; without it requests are signed, if there are keys.
    pub(in crate::llm) key: Option<SecretString>,
    /// For requests with a budget of thoughts that set no limit.
    pub(in crate::llm) max_tokens: u32,
    pub(in crate::llm) aws: Option<AwsSigner>,
}

/// What a request says about thoughts.
struct Thinks {
    is_on: bool,
    /// Whether those of the conversation go back.
    go_back: bool,
    /// The most tokens of the reply, thoughts included.
    limit: Option<u32>,
    fields: Option<ModelFields>,
}

/// What decides how messages are written.
struct Writing<'a> {
    model: &'a str,
    /// Whether thoughts go back.
    thoughts: bool,
    names: DocumentNames,
}

// === impl Bedrock ===

impl Dialect for Bedrock {
    fn provider(&self) -> &'static str {
        "aws.bedrock"
    }

    fn prepare(
        &self,
        mut request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        in_words(&mut request.messages, |media| {
            takes(media) && profile.input.takes(media.media_type().kind())
        });
        let conversation = alternate(std::mem::take(&mut request.messages))?;
        let choice = choice_among(&request.sampling, &request.tools)?;
        // The API has no word for that.
        let no_calls = matches!(choice, Some(ToolChoice::None));
        let offered = if no_calls { &[][..] } else { &request.tools };
        let thinking = self.thinking(&request, profile, &conversation, choice);
        let mut writing = Writing {
            model: &request.model,
            thoughts: thinking.go_back,
            names: DocumentNames::default(),
        };
        let said = |message| writing.said(message);
        let mut messages = conversation.iter().map(said).collect::<Result<Vec<_>, _>>()?;
        let system = request.system.trim();
        let mut system: Vec<_> =
            (!system.is_empty()).then(|| ContentBlock::text(system)).into_iter().collect();
        let mut tools = tools(offered, &conversation);
        if profile.cache == CacheStyle::Markers {
            mark(&request.model, &mut tools, &mut system, &mut messages);
        }
        let tool_choice = wire_choice(choice);
        // Claude refuses all three beside thoughts.
        let top_k = request.sampling.top_k.filter(|_| !thinking.is_on);
        let fields = ModelFields::with(thinking.fields, &request.model, top_k);
        let tool_config = (!tools.is_empty()).then_some(ToolConfiguration { tools, tool_choice });
        let sampling = &request.sampling;
        let samples = profile.sampling && !thinking.is_on;
        let body = ConverseBody {
            messages,
            system,
            inference_config: InferenceConfig {
                max_tokens: thinking.limit.map(|wanted| profile.capped(wanted)),
                temperature: sampling.temperature.filter(|_| samples),
                top_p: sampling.top_p.filter(|_| samples),
                stop_sequences: &sampling.stop,
            },
            tool_config,
            additional_model_request_fields: fields,
            output_config: request.reply_schema.as_ref().map(ConverseOutput::of).transpose()?,
        };
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let headers = self.headers(&request.idempotency_key);
        let url = self.base.join(&format!("model/{}/converse-stream", encoded(&request.model)));
        Ok(Prepared { url, headers, body: body.into(), offers: !offered.is_empty() })
    }

    fn takes(&self, schema: &ReplySchema) -> bool {
        schema.style == SchemaStyle::JsonSchema && schema.is_strict(false)
    }

    fn signed(
        &self,
        request: &Prepared,
        now: Timestamp,
    ) -> Result<Option<Prepared>, AttemptFailure> {
        let keys = self.aws.as_ref().and_then(|aws| aws.now(now));
        keys.map(|(keys, region)| sign(request, &keys, region, now)).transpose()
    }

    fn machine_keys(&self) -> Option<&MachineKeys> {
        self.aws.as_ref()?.machine()
    }
}

impl Bedrock {
    pub(super) fn headers(&self, idempotency_key: &str) -> HeaderMap {
        let mut headers = headers(idempotency_key);
        headers.insert(ACCEPT, HeaderValue::from_static(AMAZON_EVENTS));
        let bearer = self.key.as_ref().map(|key| format!("Bearer {}", key.expose_secret()));
        if let Some(key) = bearer.and_then(|bearer| sensitive(&bearer)) {
            headers.insert(AUTHORIZATION, key);
        }
        headers
    }

    /// What a request says about thoughts. Models that decide themselves may begin a round of tools without one.
    /// Others may not, and none may think before a call that it has to make.
    fn thinking(
        &self,
        request: &ModelRequest,
        profile: &ModelProfile,
        conversation: &[PlainMessage],
        choice: Option<&ToolChoice>,
    ) -> Thinks {
        let sampling = &request.sampling;
        let asked = sampling.reasoning.filter(|reasoning| *reasoning != Reasoning::Off);
        let is_claude = thinks_as_claude(&request.model, profile);
        let is_forced = choice.is_some_and(|choice| *choice != ToolChoice::None);
        let adapts = profile.reasoning == ReasoningStyle::AnthropicAdaptive;
        let may = is_claude && !is_forced && (adapts || may_think(conversation));
        let Some(reasoning) = asked.filter(|_| may) else {
            return Thinks {
                is_on: false,
                // Who was not told otherwise may have thought by itself.
                go_back: sampling.reasoning.is_none() || !is_claude,
                limit: sampling.max_tokens,
                fields: asked.and_then(|asked| ModelFields::effort(asked, profile)),
            };
        };
        let reply = sampling.max_tokens.unwrap_or(self.max_tokens);
        Thinks {
            is_on: true,
            go_back: true,
            // The limit is of the reply; the API counts thoughts in.
            limit: Some(reply.saturating_add(reasoning.budget())),
            fields: Some(ModelFields::of(reply, reasoning, profile)),
        }
    }
}

/// Whether the model takes `thinking` as Anthropic's models do. Other vendors' refuse it.
fn thinks_as_claude(model: &str, profile: &ModelProfile) -> bool {
    match profile.reasoning {
        ReasoningStyle::AnthropicBudget | ReasoningStyle::AnthropicAdaptive => true,
        ReasoningStyle::Unknown => model.contains("claude"),
        _ => false,
    }
}

/// Whether the model takes the status of a tool's result.
fn has_status(model: &str) -> bool {
    model.contains("claude") || is_nova(model)
}

/// The name of a model as a part of a path: it may have slashes and colons.
pub(super) fn encoded(model: &str) -> String {
    let mut text = String::with_capacity(model.len());
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |nibble: u8| char::from(HEX[usize::from(nibble)]);
            text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    text
}

/// What the API takes.
fn takes(media: &PlainMedia) -> bool {
    match media.media_type().kind() {
        MediaKind::Image => media.content.len() <= PICTURE_BYTES,
        MediaKind::Document => media.content.len() <= DOCUMENT_BYTES,
        MediaKind::Audio => false,
    }
}

/// The tools that are offered, and without any those of the conversation: the API refuses calls and results of
/// tools if there are none.
fn tools<'a>(offered: &'a [ToolOffer], conversation: &'a [PlainMessage]) -> Vec<ConverseTool<'a>> {
    if !offered.is_empty() {
        return offered.iter().map(ConverseTool::from).collect();
    }
    let called = conversation.iter().flat_map(|message| &message.tool_uses);
    let names: BTreeSet<&str> = called.map(|tool_use| tool_use.name.as_str()).collect();
    let spec = |name| ConverseTool::ToolSpec {
        name,
        description: GONE,
        input_schema: InputSchema { json: Cow::Owned(json!({"type": "object"})) },
    };
    names.into_iter().map(spec).collect()
}

/// Whether the model must call tools.
fn wire_choice(choice: Option<&ToolChoice>) -> Option<Value> {
    match choice? {
        ToolChoice::None => None,
        ToolChoice::Required => Some(json!({"any": {}})),
        ToolChoice::Tool { name } => Some(json!({"tool": {"name": name}})),
    }
}

/// Marks the tools, the system prompt and two ends of the conversation, as Anthropic's wire does. Nova takes no
/// marker beside tools and their results.
fn mark<'a>(
    model: &str,
    tools: &mut Vec<ConverseTool<'a>>,
    system: &mut Vec<ContentBlock<'a>>,
    messages: &mut [ConverseMessage<'a>],
) {
    let is_nova = is_nova(model);
    if !(tools.is_empty() || is_nova) {
        tools.push(ConverseTool::CachePoint(DEFAULT_POINT));
    }
    if !system.is_empty() {
        system.push(ContentBlock::CachePoint(DEFAULT_POINT));
    }
    let is_result = |block: &ContentBlock<'_>| matches!(block, ContentBlock::ToolResult { .. });
    let ends = messages.iter_mut().rev().filter(|message| message.role == Role::User);
    for message in ends.take(MARKED_ENDS) {
        if !(is_nova && message.content.iter().any(is_result)) {
            message.content.push(ContentBlock::CachePoint(DEFAULT_POINT));
        }
    }
}

// === impl Writing ===

impl Writing<'_> {
    /// A message: tool results first, then what the user or the model said in its order. LLM-2: thoughts go back
    /// exactly or not at all.
    fn said<'a>(&mut self, message: &'a PlainMessage) -> Result<ConverseMessage<'a>, ModelFailure> {
        let parts = message.parts();
        let has_thoughts = self.thoughts && has_thoughts(&parts);
        let mut content: Vec<_> =
            message.tool_replies.iter().map(|reply| self.replied(reply)).collect();
        if message.role == Role::User {
            for part in message.heard() {
                content.push(match part {
                    HeardPart::Text(text) => ContentBlock::text(text),
                    HeardPart::Media(media) => self.media(media),
                });
            }
        }
        for part in parts {
            match part {
                Part::Text(_) if message.role == Role::User => {}
                Part::Text(text) => content.push(ContentBlock::text(text)),
                Part::ToolUse(tool_use) => {
                    let input = serde_json::from_str(&tool_use.arguments).map_err(not_sent)?;
                    let (tool_use_id, name) = (tool_use.id.as_str(), tool_use.name.as_str());
                    content.push(ContentBlock::ToolUse { tool_use_id, name, input });
                }
                Part::Item(item) => {
                    content.extend(ContentBlock::thought(item).filter(|_| has_thoughts));
                }
            }
        }
        // The API refuses a document without words about it.
        let is_text = |block: &ContentBlock<'_>| matches!(block, ContentBlock::Text(_));
        let is_document = |media: &&PlainMedia| media.media_type().kind() == MediaKind::Document;
        if let Some(document) = message.media.iter().find(is_document)
            && !content.iter().any(is_text)
        {
            content.push(ContentBlock::text(format!("(attached: {})", document.about)));
        }
        Ok(ConverseMessage { role: message.role, content })
    }

    fn replied<'a>(&mut self, reply: &'a PlainReply) -> ContentBlock<'a> {
        let has_status = has_status(self.model);
        let text = match (reply.text.trim().is_empty(), reply.is_error && !has_status) {
            (true, false) => None,
            (_, true) => Some(Cow::Owned(format!("{FAILED}{}", reply.text))),
            (false, false) => Some(Cow::Borrowed(reply.text.as_str())),
        };
        let mut content: Vec<_> = text.map(ContentBlock::Text).into_iter().collect();
        content.extend(reply.media.iter().map(|media| self.media(media)));
        if content.is_empty() {
            content.push(ContentBlock::text(NOTHING));
        }
        let status = (reply.is_error && has_status).then_some("error");
        ContentBlock::ToolResult { tool_use_id: &reply.id, content, status }
    }

    fn media<'a>(&mut self, media: &PlainMedia) -> ContentBlock<'a> {
        let source = ContentBytes { bytes: media.base64() };
        let format = match media.media_type() {
            MediaType::Png => "png",
            MediaType::Jpeg => "jpeg",
            MediaType::Webp => "webp",
            MediaType::Gif => "gif",
            // Sound is in words here (`takes`).
            MediaType::Pdf | MediaType::Wav | MediaType::Mp3 => {
                let name = self.names.of(media);
                return ContentBlock::Document { format: "pdf", name, source };
            }
        };
        ContentBlock::Image { format, source }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{llm::Sampling, tool::ToolUse};

    use super::*;
    use crate::llm::{media::tests::media, profile::ModelProfiles};

    fn body(messages: Vec<PlainMessage>) -> (String, Value) {
        let request = ModelRequest {
            model: "arn:aws:bedrock:eu-west-1:1:x/m".to_owned(),
            system: String::new(),
            messages,
            tools: Vec::new(),
            sampling: Sampling::default(),
            idempotency_key: "k".to_owned(),
            reply_schema: None,
            cache_key: String::new(),
        };
        let base = "http://127.0.0.1/proxy/".parse().unwrap();
        let wire = Bedrock { base, key: None, max_tokens: 9, aws: None };
        let profile = ModelProfiles::default().of(&"p/m".parse().unwrap());
        let prepared = wire.prepare(request, &profile).unwrap();
        (prepared.url.to_string(), serde_json::from_slice(&prepared.body).unwrap())
    }

    #[test]
    fn pictures_and_documents_are_blocks_and_sound_is_told() {
        let using =
            ToolUse { id: "t".to_owned(), name: "look".to_owned(), arguments: "{}".to_owned() };
        let reply = PlainReply {
            id: "t".to_owned(),
            text: " ".to_owned(),
            is_error: false,
            media: vec![media(MediaType::Pdf, Some("a_b.pdf"))],
        };
        let with = |media: Vec<PlainMedia>, text| PlainMessage {
            media,
            ..PlainMessage::text(Role::User, text)
        };
        let messages = vec![
            with(vec![media(MediaType::Jpeg, None), media(MediaType::Wav, None)], "see"),
            PlainMessage { tool_uses: vec![using], ..PlainMessage::text(Role::Assistant, "") },
            PlainMessage { tool_replies: vec![reply], ..PlainMessage::text(Role::User, "") },
            PlainMessage::text(Role::Assistant, "ok"),
            with(vec![media(MediaType::Pdf, Some("a_b.pdf"))], ""),
        ];
        let (url, body) = body(messages);
        let path = "arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ax%2Fm/converse-stream";
        assert_eq!(url, format!("http://127.0.0.1/proxy/model/{path}"));
        let source = json!({"bytes": "YWI="});
        let document =
            |name| json!({"document": {"format": "pdf", "name": name, "source": source}});
        let told = "see\n\n(attached: a WAV recording, 2 bytes, which this model cannot read)";
        let expected = json!([
            {"role": "user", "content": [
                {"image": {"format": "jpeg", "source": source}},
                {"text": told},
            ]},
            {"role": "assistant", "content": [
                {"toolUse": {"toolUseId": "t", "name": "look", "input": {}}},
            ]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "t", "content": [document("a b")]}},
            ]},
            {"role": "assistant", "content": [{"text": "ok"}]},
            {"role": "user", "content": [
                document("a b (2)"),
                {"text": "(attached: a PDF \"a_b.pdf\", 2 bytes)"},
            ]},
        ]);
        assert_eq!(body["messages"], expected);
        assert_eq!(body.get("additionalModelRequestFields"), None);
    }

    #[test]
    fn what_is_too_large_for_the_wire_is_told() {
        for (kind, most) in [(MediaType::Png, PICTURE_BYTES), (MediaType::Pdf, DOCUMENT_BYTES)] {
            let mut large = media(kind, None);
            for (bytes, expected) in [(most, true), (most + 1, false)] {
                large.content = vec![0; bytes].into();
                assert_eq!(takes(&large), expected, "{bytes}");
            }
        }
    }
}

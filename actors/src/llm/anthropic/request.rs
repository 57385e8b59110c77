//! What is asked on Anthropic's wire.

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role, Sampling},
    media::MediaKind,
    model::{CacheStyle, ReasoningStyle, SchemaStyle},
    reasoning::Reasoning,
    tool_choice::ToolChoice,
};
use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    cache::{CacheControl, MARKED_ENDS},
    thinking::{Thinking, effort_of},
};
use crate::llm::{
    Item, ModelRequest, PlainMedia, PlainMessage, PlainReply, ReplySchema, ToolOffer,
    call::{Dialect, headers, sensitive},
    http::Prepared,
    media::in_words,
    options::BaseUrl,
    ordered_parts::{HeardPart, Part},
    profile::{ModelProfile, ThinkingDefault},
    prompt::{alternate, not_sent},
    settings::choice_among,
    thinking_budget::{has_thoughts, may_think},
};

/// The version of the API that this file speaks.
const VERSION: &str = "2023-06-01";

/// The vendor's own host. Its models think only if a request says so, unless they adapt; those behind
/// compatible servers may.
const OWN_HOST: &str = "api.anthropic.com";
/// The least `top_p` that the API takes beside thoughts.
const THINKING_TOP_P: f64 = 0.95;
/// Bytes of the longest picture in base64 that the API takes (5 MiB). A larger one would be refused with
/// each request of its conversation.
const PICTURE_BASE64_BYTES: usize = 5 << 20;

/// The wire.
#[derive(Debug)]
pub(in crate::llm) struct Anthropic {
    pub(in crate::llm) base: BaseUrl,
    pub(in crate::llm) key: Option<SecretString>,
    /// For requests that set no limit; the API needs one.
    pub(in crate::llm) max_tokens: u32,
}

#[derive(Serialize)]
struct MessagesBody<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "AnthropicContent::is_empty")]
    system: AnthropicContent<'a>,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<WireChoice<'a>>,
}

/// Whether the model must, may or must not call tools.
#[derive(Serialize)]
struct WireChoice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a ToolName>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    /// How much a model thinks that decides by itself how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat<'a>>,
}

/// What the reply has to fit.
#[derive(Serialize)]
#[serde(tag = "type", rename = "json_schema")]
struct OutputFormat<'a> {
    schema: &'a Value,
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a ToolName,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: Role,
    content: AnthropicContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AnthropicContent<'a> {
    Text(&'a str),
    Blocks(Vec<RequestBlock<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum RequestBlock<'a> {
    ToolResult {
        tool_use_id: &'a str,
        /// Left out if there is none: the API has no empty text.
        #[serde(skip_serializing_if = "AnthropicContent::is_empty")]
        content: AnthropicContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    Image {
        source: Source,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Document {
        source: Source,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        /// As the model wrote it, so that it finds its own words again.
        input: &'a RawValue,
    },
}

/// Content in place.
#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct Source {
    media_type: &'static str,
    data: String,
}

// === impl Anthropic ===

impl Dialect for Anthropic {
    fn provider(&self) -> &'static str {
        "anthropic"
    }

    fn prepare(
        &self,
        mut request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        in_words(&mut request.messages, |media| {
            takes(media) && profile.input.takes(media.media_type().kind())
        });
        let messages = alternate(request.messages)?;
        let sampling = &request.sampling;
        let reply = sampling.max_tokens.unwrap_or(self.max_tokens);
        let reasoning = sampling.reasoning.filter(|reasoning| *reasoning != Reasoning::Off);
        let reasoning = reasoning.filter(|_| profile.reasoning != ReasoningStyle::None);
        let tool_choice = wire_choice(&request.sampling, &request.tools)?;
        // The API refuses thoughts before a call that it must make.
        let is_forced = tool_choice.as_ref().is_some_and(WireChoice::is_forced);
        let reasoning = reasoning.filter(|_| !is_forced);
        let adapts = profile.reasoning == ReasoningStyle::AnthropicAdaptive;
        // A model that decides itself may begin a round of tools without a thought.
        let reasoning = reasoning.filter(|_| adapts || may_think(&messages));
        let thinking = match reasoning {
            Some(reasoning) => Some(Thinking::within(reply, reasoning, profile)),
            None => Thinking::by_default(sampling.reasoning, is_forced, profile),
        };
        let effort = sampling.reasoning.filter(|_| adapts && !is_forced);
        let effort = effort.and_then(|reasoning| effort_of(reasoning, profile));
        let thinks = thinking.as_ref().is_some_and(Thinking::is_on);
        let format = request
            .reply_schema
            .as_ref()
            .map(|reply_schema| OutputFormat { schema: &reply_schema.schema });
        // The limit is of the reply; the API counts thoughts in.
        let budget = reasoning.map_or(0, Reasoning::budget);
        let max_tokens = profile.capped(reply.saturating_add(budget));
        let by_itself = (adapts && profile.thinks == ThinkingDefault::Always)
            || (sampling.reasoning.is_none() && (adapts || self.base.host() != OWN_HOST));
        let said = |message| said(message, thinks || by_itself);
        let mut tools: Vec<_> = request.tools.iter().map(AnthropicTool::from).collect();
        let mut system = AnthropicContent::Text(request.system.trim());
        let mut messages = messages.iter().map(said).collect::<Result<Vec<_>, _>>()?;
        if profile.cache == CacheStyle::Markers {
            if let Some(last) = tools.last_mut() {
                last.cache_control = Some(CacheControl::Ephemeral);
            }
            mark(&mut system, &mut messages);
        }
        let body = MessagesBody {
            model: &request.model,
            max_tokens,
            system,
            messages,
            tools,
            stream: true,
            // The API refuses these three beside thoughts.
            temperature: sampling.temperature.filter(|_| profile.sampling && !thinks),
            top_p: sampling
                .top_p
                .filter(|top_p| profile.sampling && (!thinks || *top_p >= THINKING_TOP_P)),
            top_k: sampling.top_k.filter(|_| !thinks),
            stop_sequences: &request.sampling.stop,
            thinking,
            output_config: (effort.is_some() || format.is_some())
                .then_some(OutputConfig { effort, format }),
            tool_choice,
        };
        let headers = self.headers(headers(&request.idempotency_key));
        // Some people write the base with its `/v1`, as the other wire has it.
        let path = if self.base.ends_in("v1") { "messages" } else { "v1/messages" };
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let offers = !request.tools.is_empty();
        Ok(Prepared { url: self.base.join(path), headers, body: body.into(), offers })
    }

    fn probe(&self) -> Option<Prepared> {
        let path = if self.base.ends_in("v1") { "models" } else { "v1/models" };
        let mut url = self.base.join(path);
        url.set_query(Some("limit=1"));
        Some(Prepared::empty(url, self.headers(HeaderMap::new())))
    }

    fn takes(&self, schema: &ReplySchema) -> bool {
        schema.style == SchemaStyle::JsonSchema && schema.is_strict(false)
    }
}

impl Anthropic {
    /// These headers, with those of each request.
    fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        if let Some(key) = self.key.as_ref().and_then(|key| sensitive(key.expose_secret())) {
            headers.insert("x-api-key", key);
        }
        headers
    }
}

impl WireChoice<'_> {
    fn is_forced(&self) -> bool {
        matches!(self.r#type, "any" | "tool")
    }
}

fn wire_choice<'a>(
    sampling: &'a Sampling,
    tools: &[ToolOffer],
) -> Result<Option<WireChoice<'a>>, ModelFailure> {
    let disable_parallel_tool_use = sampling.parallel_tool_calls == Some(false);
    let (r#type, name) = match choice_among(sampling, tools)? {
        // It means nothing beside `none`, and the API does not take it there.
        Some(ToolChoice::None) => {
            let disable_parallel_tool_use = false;
            return Ok(Some(WireChoice { r#type: "none", name: None, disable_parallel_tool_use }));
        }
        Some(ToolChoice::Required) => ("any", None),
        Some(ToolChoice::Tool { name }) => ("tool", Some(name)),
        None if disable_parallel_tool_use && !tools.is_empty() => ("auto", None),
        None => return Ok(None),
    };
    Ok(Some(WireChoice { r#type, name, disable_parallel_tool_use }))
}

impl<'a> From<&'a ToolOffer> for AnthropicTool<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        let ToolOffer { name, description, input_schema } = offer;
        Self { name, description, input_schema, cache_control: None }
    }
}

/// What the API takes.
fn takes(media: &PlainMedia) -> bool {
    match media.media_type().kind() {
        MediaKind::Image => media.content.len().div_ceil(3) * 4 <= PICTURE_BASE64_BYTES,
        MediaKind::Document => true,
        MediaKind::Audio => false,
    }
}

impl<'a> AnthropicContent<'a> {
    /// The content of a tool's reply.
    fn of(reply: &'a PlainReply) -> Self {
        let text = if reply.text.trim().is_empty() { "" } else { &reply.text };
        if reply.media.is_empty() {
            return Self::Text(text);
        }
        let said = (!text.is_empty()).then(|| RequestBlock::text(text));
        Self::Blocks(said.into_iter().chain(reply.media.iter().map(RequestBlock::of)).collect())
    }

    const fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }

    fn split(&mut self) {
        if let Self::Text(text) = *self {
            let blocks = (!text.is_empty()).then(|| RequestBlock::text(text));
            *self = Self::Blocks(blocks.into_iter().collect());
        }
    }

    /// Marks its last block.
    fn mark(&mut self) {
        let Self::Blocks(blocks) = self else { return };
        match blocks.last_mut() {
            Some(
                RequestBlock::ToolResult { cache_control, .. }
                | RequestBlock::Text { cache_control, .. }
                | RequestBlock::Image { cache_control, .. }
                | RequestBlock::Document { cache_control, .. },
            ) => *cache_control = Some(CacheControl::Ephemeral),
            Some(
                RequestBlock::Thinking { .. }
                | RequestBlock::RedactedThinking { .. }
                | RequestBlock::ToolUse { .. },
            )
            | None => {}
        }
    }
}

impl<'a> RequestBlock<'a> {
    const fn text(text: &'a str) -> Self {
        Self::Text { text, cache_control: None }
    }

    fn heard(part: HeardPart<'a>) -> Self {
        match part {
            HeardPart::Text(text) => Self::text(text),
            HeardPart::Media(media) => Self::of(media),
        }
    }

    fn of(media: &'a PlainMedia) -> Self {
        let source = Source { media_type: media.media_type().as_str(), data: media.base64() };
        match media.media_type().kind() {
            MediaKind::Image => Self::Image { source, cache_control: None },
            // Sound is in words here (`takes`).
            MediaKind::Document | MediaKind::Audio => {
                let title = media.about.name.as_deref();
                Self::Document { source, title, cache_control: None }
            }
        }
    }
}

/// Marks the system prompt and the conversation. Texts become blocks, also those without a marker, so that a
/// message looks the same in each request.
fn mark(system: &mut AnthropicContent<'_>, messages: &mut [AnthropicMessage<'_>]) {
    system.split();
    system.mark();
    for message in messages.iter_mut() {
        message.content.split();
    }
    // Each request ends with the user, whose messages have no thoughts: those take no marker.
    let ends = messages.iter_mut().rev().filter(|message| message.role == Role::User);
    for message in ends.take(MARKED_ENDS) {
        message.content.mark();
    }
}

/// A thought as the vendor takes it back.
fn thought(item: &Item) -> Option<RequestBlock<'_>> {
    match item {
        Item::Thinking { text, signature: Some(signature) } if !signature.is_empty() => {
            Some(RequestBlock::Thinking { thinking: text, signature })
        }
        Item::Redacted { data } => Some(RequestBlock::RedactedThinking { data }),
        Item::Thinking { .. } | Item::Opaque { .. } => None,
    }
}

/// A message: plain text where it is nothing else; tool results first, as the API wants them, and what
/// the model said in its order. LLM-2: its thoughts go back exactly or not at all.
fn said(message: &PlainMessage, thinks: bool) -> Result<AnthropicMessage<'_>, ModelFailure> {
    let PlainMessage { role, text, media, tool_uses, tool_replies, .. } = message;
    let parts = message.parts();
    let has_thoughts = thinks && has_thoughts(&parts);
    if media.is_empty() && tool_uses.is_empty() && tool_replies.is_empty() && !has_thoughts {
        return Ok(AnthropicMessage { role: *role, content: AnthropicContent::Text(text) });
    }
    let mut blocks = Vec::with_capacity(tool_replies.len() + 2 * media.len() + parts.len());
    for reply in tool_replies {
        let (tool_use_id, is_error) = (&reply.id, reply.is_error);
        let content = AnthropicContent::of(reply);
        let cache_control = None;
        blocks.push(RequestBlock::ToolResult { tool_use_id, content, is_error, cache_control });
    }
    if *role == Role::User {
        blocks.extend(message.heard().into_iter().map(RequestBlock::heard));
        return Ok(AnthropicMessage { role: *role, content: AnthropicContent::Blocks(blocks) });
    }
    for part in parts {
        match part {
            Part::Text(text) => blocks.push(RequestBlock::text(text)),
            Part::ToolUse(tool_use) => {
                let input = serde_json::from_str(&tool_use.arguments).map_err(not_sent)?;
                let (id, name) = (tool_use.id.as_str(), tool_use.name.as_str());
                blocks.push(RequestBlock::ToolUse { id, name, input });
            }
            Part::Item(item) => blocks.extend(thought(item).filter(|_| has_thoughts)),
        }
    }
    Ok(AnthropicMessage { role: *role, content: AnthropicContent::Blocks(blocks) })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use clawnode_proto::{llm::Sampling, media::MediaType, tool::ToolUse};
    use serde_json::json;

    use super::*;
    use crate::llm::{media::tests::media, profile::ModelProfiles};

    #[test]
    fn pictures_and_documents_are_blocks_and_sound_is_told() {
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
            media(MediaType::Pdf, Some("a.pdf")),
            media(MediaType::Wav, None),
        ];
        let messages = vec![
            PlainMessage { media: all.to_vec(), ..PlainMessage::text(Role::User, "see") },
            PlainMessage { tool_uses: vec![using], ..PlainMessage::text(Role::Assistant, "") },
            PlainMessage { tool_replies: vec![reply], ..PlainMessage::text(Role::User, "") },
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
        let wire =
            Anthropic { base: "http://127.0.0.1".parse().unwrap(), key: None, max_tokens: 9 };
        let body = wire
            .prepare(request, &ModelProfiles::default().of(&"p/m".parse().unwrap()))
            .unwrap()
            .body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let source = |kind: &str| json!({"type": "base64", "media_type": kind, "data": "YWI="});
        let told = "see\n\n(attached: a WAV recording, 2 bytes, which this model cannot read)";
        let expected = json!([
            {"role": "user", "content": [
                {"type": "image", "source": source("image/png")},
                {"type": "document", "source": source("application/pdf"), "title": "a.pdf"},
                {"type": "text", "text": told},
            ]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t", "name": "look", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [
                    {"type": "text", "text": "seen"},
                    {"type": "image", "source": source("image/jpeg")},
                ]},
            ]},
        ]);
        assert_eq!(body["messages"], expected);
    }

    #[test]
    fn a_picture_that_is_too_large_for_the_wire_is_told() {
        let mut picture = media(MediaType::Png, None);
        for (bytes, expected) in [(PICTURE_BASE64_BYTES / 4 * 3, true), (5_000_000, false)] {
            picture.content = Bytes::from(vec![0; bytes]);
            assert_eq!(takes(&picture), expected, "{bytes}");
        }
    }
}

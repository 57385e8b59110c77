//! What is asked on Anthropic's wire.

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::AnthropicReader;
use crate::llm::{
    ModelRequest, PlainMessage, ToolOffer,
    call::{Decoder, Dialect, headers, sensitive},
    http::Prepared,
    options::BaseUrl,
    profile::ModelProfile,
    prompt::{alternate, not_sent},
};

/// The version of the API that this file speaks.
const VERSION: &str = "2023-06-01";

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
    #[serde(skip_serializing_if = "str::is_empty")]
    system: &'a str,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a ToolName,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: Role,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Blocks(Vec<RequestBlock<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum RequestBlock<'a> {
    ToolResult {
        tool_use_id: &'a str,
        /// Left out if there is none: the API has no empty text.
        #[serde(skip_serializing_if = "str::is_empty")]
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Text {
        text: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        /// As the model wrote it, so that it finds its own words again.
        input: &'a RawValue,
    },
}

// === impl Anthropic ===

impl Dialect for Anthropic {
    fn provider(&self) -> &'static str {
        "anthropic"
    }

    fn prepare(
        &self,
        request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure> {
        let messages = alternate(request.messages)?;
        let body = MessagesBody {
            model: &request.model,
            max_tokens: profile.capped(request.sampling.max_tokens.unwrap_or(self.max_tokens)),
            system: request.system.trim(),
            messages: messages.iter().map(said).collect::<Result<_, _>>()?,
            tools: request.tools.iter().map(AnthropicTool::from).collect(),
            stream: true,
            temperature: request.sampling.temperature.filter(|_| profile.sampling),
            top_p: request.sampling.top_p.filter(|_| profile.sampling),
            stop_sequences: &request.sampling.stop,
        };
        let mut headers = headers(&request.idempotency_key);
        headers.insert("anthropic-version", reqwest::header::HeaderValue::from_static(VERSION));
        if let Some(key) = self.key.as_ref().and_then(|key| sensitive(key.expose_secret())) {
            headers.insert("x-api-key", key);
        }
        // Some people write the base with its `/v1`, as the other wire has it.
        let path = if self.base.ends_in("v1") { "messages" } else { "v1/messages" };
        let body = serde_json::to_vec(&body).map_err(not_sent)?;
        let offers = !request.tools.is_empty();
        Ok(Prepared { url: self.base.join(path), headers, body: body.into(), offers })
    }

    fn decoder(&self, offers: bool) -> Box<dyn Decoder> {
        Box::new(AnthropicReader::new(offers))
    }
}

impl<'a> From<&'a ToolOffer> for AnthropicTool<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        let ToolOffer { name, description, input_schema } = offer;
        Self { name, description, input_schema }
    }
}

/// A message: plain text where it is nothing else; tool results first and tool uses last, as the
/// API wants them.
fn said(message: &PlainMessage) -> Result<AnthropicMessage<'_>, ModelFailure> {
    let PlainMessage { role, text, tool_uses, tool_replies } = message;
    if tool_uses.is_empty() && tool_replies.is_empty() {
        return Ok(AnthropicMessage { role: *role, content: Content::Text(text) });
    }
    let mut blocks = Vec::with_capacity(tool_replies.len() + 1 + tool_uses.len());
    for reply in tool_replies {
        let content = if reply.text.trim().is_empty() { "" } else { &reply.text };
        let (tool_use_id, is_error) = (&reply.id, reply.is_error);
        blocks.push(RequestBlock::ToolResult { tool_use_id, content, is_error });
    }
    if !text.is_empty() {
        blocks.push(RequestBlock::Text { text });
    }
    for tool_use in tool_uses {
        let input = serde_json::from_str(&tool_use.arguments).map_err(not_sent)?;
        blocks.push(RequestBlock::ToolUse { id: &tool_use.id, name: &tool_use.name, input });
    }
    Ok(AnthropicMessage { role: *role, content: Content::Blocks(blocks) })
}

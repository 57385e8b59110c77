//! What is asked on Anthropic's wire.

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role},
    reasoning::Reasoning,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::AnthropicReader;
use crate::llm::{
    Item, ModelRequest, PlainMessage, ToolOffer,
    call::{Decoder, Dialect, headers, sensitive},
    http::Prepared,
    options::BaseUrl,
    parts::Part,
    profile::ModelProfile,
    prompt::{alternate, not_sent},
};

/// The version of the API that this file speaks.
const VERSION: &str = "2023-06-01";

/// The vendor's own host. Its models think if they are told to, and not otherwise; those behind
/// compatible servers may.
const OWN_HOST: &str = "api.anthropic.com";
/// The least `top_p` that the API takes beside thoughts.
const THINKING_TOP_P: f64 = 0.95;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
}

#[derive(Serialize)]
struct Thinking {
    r#type: &'static str,
    budget_tokens: u32,
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
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        /// As the model wrote it, so that it finds its own words again.
        input: &'a RawValue,
    },
}

// === impl Thinking ===

impl Thinking {
    /// A budget that leaves room for a reply of so many tokens, or for half of what the model writes at
    /// most: the API refuses a budget that is not below the limit.
    fn within(reply: u32, reasoning: Reasoning, profile: &ModelProfile) -> Self {
        let budget = reasoning.budget();
        let most = profile.capped(reply.saturating_add(budget));
        let budget = budget.min(most.saturating_sub(reply.min(most / 2)));
        Self { r#type: "enabled", budget_tokens: budget.max(Reasoning::MIN_TOKENS) }
    }
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
        let sampling = &request.sampling;
        let reply = sampling.max_tokens.unwrap_or(self.max_tokens);
        let reasoning = sampling.reasoning.filter(|it| *it != Reasoning::Off);
        let thinking = reasoning
            .filter(|_| may_think(&messages))
            .map(|reasoning| Thinking::within(reply, reasoning, profile));
        let thinks = thinking.is_some();
        // The limit is of the reply; the API counts thoughts in.
        let budget = thinking.as_ref().map_or(0, |thinking| thinking.budget_tokens);
        let max_tokens = profile.capped(reply.saturating_add(budget));
        let by_itself = sampling.reasoning.is_none() && self.base.host() != OWN_HOST;
        let said = |message| said(message, thinks || by_itself);
        let body = MessagesBody {
            model: &request.model,
            max_tokens,
            system: request.system.trim(),
            messages: messages.iter().map(said).collect::<Result<_, _>>()?,
            tools: request.tools.iter().map(AnthropicTool::from).collect(),
            stream: true,
            // The API refuses both beside thoughts.
            temperature: sampling.temperature.filter(|_| profile.sampling && !thinks),
            top_p: sampling
                .top_p
                .filter(|it| profile.sampling && (!thinks || *it >= THINKING_TOP_P)),
            stop_sequences: &request.sampling.stop,
            thinking,
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

/// Whether the model may be told to think: what runs is not a round of tools that began without a
/// thought that can be sent back. The API refuses that.
fn may_think(messages: &[PlainMessage]) -> bool {
    let mut rest = messages;
    let mut first = None;
    while let [before @ .., asking, answering] = rest
        && !answering.tool_replies.is_empty()
    {
        first = Some(asking);
        rest = before;
    }
    first.is_none_or(|asking| {
        let begins = asking.parts().into_iter().next();
        matches!(begins, Some(Part::Item(_))) && has_thoughts(&asking.parts())
    })
}

/// Whether there are thoughts, all of which can be sent back.
fn has_thoughts(parts: &[Part<'_>]) -> bool {
    let mut items = parts.iter().filter_map(|part| match part {
        Part::Item(item) => Some(*item),
        Part::Text(_) | Part::ToolUse(_) => None,
    });
    items.clone().next().is_some() && items.all(|item| thought(item).is_some())
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
    let PlainMessage { role, text, tool_uses, tool_replies, .. } = message;
    let parts = message.parts();
    let has_thoughts = thinks && has_thoughts(&parts);
    if tool_uses.is_empty() && tool_replies.is_empty() && !has_thoughts {
        return Ok(AnthropicMessage { role: *role, content: Content::Text(text) });
    }
    let mut blocks = Vec::with_capacity(tool_replies.len() + parts.len());
    for reply in tool_replies {
        let content = if reply.text.trim().is_empty() { "" } else { &reply.text };
        let (tool_use_id, is_error) = (&reply.id, reply.is_error);
        blocks.push(RequestBlock::ToolResult { tool_use_id, content, is_error });
    }
    for part in parts {
        match part {
            Part::Text(text) => blocks.push(RequestBlock::Text { text }),
            Part::ToolUse(tool_use) => {
                let input = serde_json::from_str(&tool_use.arguments).map_err(not_sent)?;
                let (id, name) = (tool_use.id.as_str(), tool_use.name.as_str());
                blocks.push(RequestBlock::ToolUse { id, name, input });
            }
            Part::Item(item) => blocks.extend(thought(item).filter(|_| has_thoughts)),
        }
    }
    Ok(AnthropicMessage { role: *role, content: Content::Blocks(blocks) })
}

//! The JSON of a request.

use std::borrow::Cow;

use clawnode_proto::{llm::Role, model::ReasoningStyle, reasoning::Reasoning};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use crate::llm::{Item, ToolOffer, profile::ModelProfile, signed::budget_within};

/// A marker that lasts as long as the provider has it.
pub(super) const DEFAULT_POINT: CachePoint = CachePoint { r#type: "default" };

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseBody<'a> {
    pub(super) messages: Vec<ConverseMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) system: Vec<ContentBlock<'a>>,
    pub(super) inference_config: InferenceConfig<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_config: Option<ToolConfiguration<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) additional_model_request_fields: Option<ModelFields>,
}

#[derive(Serialize)]
pub(super) struct ConverseMessage<'a> {
    pub(super) role: Role,
    pub(super) content: Vec<ContentBlock<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum ContentBlock<'a> {
    Text(Cow<'a, str>),
    Image {
        format: &'static str,
        source: ContentBytes,
    },
    Document {
        format: &'static str,
        name: String,
        source: ContentBytes,
    },
    ToolUse {
        tool_use_id: &'a str,
        name: &'a str,
        /// As the model wrote it, so that it finds its own words again.
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Vec<ContentBlock<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<&'static str>,
    },
    ReasoningContent(SentThought<'a>),
    /// Up to where the provider keeps what a request begins with.
    CachePoint(CachePoint),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SentThought<'a> {
    ReasoningText { text: &'a str, signature: &'a str },
    RedactedContent(&'a str),
}

/// Content in place, in base64.
#[derive(Serialize)]
pub(super) struct ContentBytes {
    pub(super) bytes: String,
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct CachePoint {
    pub(super) r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InferenceConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) stop_sequences: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfiguration<'a> {
    pub(super) tools: Vec<ConverseTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum ConverseTool<'a> {
    ToolSpec {
        name: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        description: &'a str,
        input_schema: InputSchema<'a>,
    },
    CachePoint(CachePoint),
}

#[derive(Serialize)]
pub(super) struct InputSchema<'a> {
    pub(super) json: Cow<'a, Value>,
}

/// What is passed on to the model as its vendor names it.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ModelFields {
    Budget { thinking: ClaudeThinking },
    Adaptive { thinking: ClaudeThinking, output_config: Value },
    Effort { reasoning_effort: &'static str },
}

#[derive(Serialize)]
pub(super) struct ClaudeThinking {
    pub(super) r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget_tokens: Option<u32>,
}

// === impl ModelFields ===

impl ModelFields {
    /// Of a model that thinks as Claude does.
    pub(super) fn of(reply: u32, reasoning: Reasoning, profile: &ModelProfile) -> Self {
        match reasoning.effort() {
            Some(effort) if profile.reasoning == ReasoningStyle::AnthropicAdaptive => {
                let thinking = ClaudeThinking { r#type: "adaptive", budget_tokens: None };
                Self::Adaptive { thinking, output_config: json!({"effort": effort}) }
            }
            _ => {
                let budget_tokens = Some(budget_within(reply, reasoning, profile));
                Self::Budget { thinking: ClaudeThinking { r#type: "enabled", budget_tokens } }
            }
        }
    }

    /// Of any other model that can be told.
    pub(super) fn effort(reasoning: Reasoning, profile: &ModelProfile) -> Option<Self> {
        let reasoning_effort = reasoning.effort()?;
        let takes_effort = profile.reasoning == ReasoningStyle::OpenaiEffort;
        takes_effort.then_some(Self::Effort { reasoning_effort })
    }
}

impl<'a> From<&'a ToolOffer> for ConverseTool<'a> {
    fn from(offer: &'a ToolOffer) -> Self {
        Self::ToolSpec {
            name: offer.name.as_str(),
            description: &offer.description,
            input_schema: InputSchema { json: Cow::Borrowed(&offer.input_schema) },
        }
    }
}

// === impl ContentBlock ===

impl<'a> ContentBlock<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// A thought as the vendor takes it back.
    pub(super) fn thought(item: &'a Item) -> Option<Self> {
        Some(Self::ReasoningContent(match item {
            Item::Thinking { text, signature: Some(signature) } => {
                SentThought::ReasoningText { text, signature }
            }
            Item::Redacted { data } => SentThought::RedactedContent(data),
            Item::Thinking { signature: None, .. } | Item::Opaque { .. } => return None,
        }))
    }
}

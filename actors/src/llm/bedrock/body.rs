//! The JSON of a request.

use std::borrow::Cow;

use clawnode_proto::{
    llm::{ModelFailure, Role},
    model::ReasoningStyle,
    reasoning::Reasoning,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use crate::llm::{
    Item, ReplySchema, ToolOffer, profile::ModelProfile, prompt::not_sent, settings::Setting,
    thinking_budget::budget_within,
};

/// Whether the model is one of Amazon's own, which differ from Claude in what they take.
pub(super) fn is_nova(model: &str) -> bool {
    model.contains("nova")
}

/// Where it is known how the model takes `top_k`: each vendor has it in a place of its own.
fn takes_top_k(model: &str) -> bool {
    is_nova(model) || model.contains("claude")
}

/// The settings that the model takes, of those that not every wire has.
pub(in crate::llm) fn settings(model: &str) -> &'static [Setting] {
    if takes_top_k(model) {
        &[Setting::Stop, Setting::ToolChoice, Setting::TopK]
    } else {
        &[Setting::Stop, Setting::ToolChoice]
    }
}

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_config: Option<ConverseOutput<'a>>,
}

/// What the reply has to fit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseOutput<'a> {
    text_format: ConverseFormat<'a>,
}

#[derive(Serialize)]
struct ConverseFormat<'a> {
    r#type: &'static str,
    structure: FormatStructure<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FormatStructure<'a> {
    json_schema: ConverseSchema<'a>,
}

#[derive(Serialize)]
struct ConverseSchema<'a> {
    name: &'a str,
    /// The schema as text.
    schema: String,
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
#[derive(Default, Serialize)]
pub(super) struct ModelFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ClaudeThinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    /// Where Nova has what the wire's own settings lack.
    #[serde(rename = "inferenceConfig", skip_serializing_if = "Option::is_none")]
    inference_config: Option<Value>,
}

#[derive(Serialize)]
pub(super) struct ClaudeThinking {
    pub(super) r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget_tokens: Option<u32>,
}

// === impl ConverseOutput ===

impl<'a> ConverseOutput<'a> {
    pub(super) fn of(reply: &'a ReplySchema) -> Result<Self, ModelFailure> {
        let schema = serde_json::to_string(&reply.schema).map_err(not_sent)?;
        let json_schema = ConverseSchema { name: &reply.name, schema };
        let structure = FormatStructure { json_schema };
        Ok(Self { text_format: ConverseFormat { r#type: "json_schema", structure } })
    }
}

// === impl ModelFields ===

impl ModelFields {
    /// Of a model that thinks as Claude does.
    pub(super) fn of(reply: u32, reasoning: Reasoning, profile: &ModelProfile) -> Self {
        match reasoning.effort() {
            Some(effort) if profile.reasoning == ReasoningStyle::AnthropicAdaptive => {
                let thinking = ClaudeThinking { r#type: "adaptive", budget_tokens: None };
                let output_config = Some(json!({"effort": effort}));
                Self { thinking: Some(thinking), output_config, ..Self::default() }
            }
            _ => {
                let budget_tokens = Some(budget_within(reply, reasoning, profile));
                let thinking = ClaudeThinking { r#type: "enabled", budget_tokens };
                Self { thinking: Some(thinking), ..Self::default() }
            }
        }
    }

    /// Of any other model that can be told.
    pub(super) fn effort(reasoning: Reasoning, profile: &ModelProfile) -> Option<Self> {
        let reasoning_effort = Some(reasoning.effort()?);
        let takes_effort = profile.reasoning == ReasoningStyle::OpenaiEffort;
        takes_effort.then(|| Self { reasoning_effort, ..Self::default() })
    }

    /// The same with `top_k`. A model whose place for it is not known is not asked with it: see [`settings`].
    pub(super) fn with(fields: Option<Self>, model: &str, top_k: Option<u32>) -> Option<Self> {
        let Some(top_k) = top_k.filter(|_| takes_top_k(model)) else { return fields };
        let fields = fields.unwrap_or_default();
        if is_nova(model) {
            let inference_config = Some(json!({"topK": top_k}));
            return Some(Self { inference_config, ..fields });
        }
        Some(Self { top_k: Some(top_k), ..fields })
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

//! What Bedrock passes on to a model as its vendor names it, and what a reply there has to fit.

use serde::Deserialize;
use serde_json::Value;

use super::schemas;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelFields {
    pub(super) thinking: Option<Thinking>,
    #[serde(rename = "output_config")]
    _output_config: Option<Value>,
    #[serde(rename = "reasoning_effort")]
    _reasoning_effort: Option<String>,
    pub(super) top_k: Option<u32>,
    #[serde(rename = "inferenceConfig")]
    _inference_config: Option<NovaConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NovaConfig {
    #[serde(rename = "topK")]
    _top_k: u32,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Thinking {
    Enabled { budget_tokens: u32 },
    Adaptive,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ConverseOutput {
    text_format: TextFormat,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "structure", rename_all = "snake_case")]
enum TextFormat {
    JsonSchema(FormatStructure),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FormatStructure {
    json_schema: NamedSchema,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    name: Option<String>,
    schema: String,
}

// === impl ConverseOutput ===

impl ConverseOutput {
    /// A schema is text, and closed.
    pub(super) fn check(&self) -> Result<(), String> {
        let TextFormat::JsonSchema(structure) = &self.text_format;
        let NamedSchema { name, schema } = &structure.json_schema;
        name.as_deref().map_or(Ok(()), schemas::check_name)?;
        let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
        schemas::check_closed(&schema, false)
    }
}

//! The wire formats by name; `protocols` has what is known of each.

use serde::{Deserialize, Serialize};

/// The wire format that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic's Messages API.
    Anthropic,
    /// `OpenAI`'s Chat Completions API, which many servers speak: vLLM, llama.cpp, `OpenRouter`, Groq.
    Openai,
    /// `OpenAI`'s Responses API, without anything stored at the vendor.
    OpenaiResponses,
    /// Gemini's API.
    Gemini,
    /// Ollama's own API.
    Ollama,
    /// Amazon Bedrock's Converse.
    Bedrock,
    /// No wire: the built-in demo, which is no language model.
    Demo,
}

//! What every request has, on any wire.

use axum::http::HeaderMap;

use super::{
    anthropic::anthropic, bedrock::bedrock, gemini::gemini, ollama::ollama, openai::openai,
    responses::responses,
};
use crate::model::{book::WireName, cache::PromptTokens};

/// What matters of a proper request.
#[derive(Debug)]
pub(in crate::model) struct Asked {
    pub(in crate::model) model: String,
    /// The last words of the user, also if tools have answered since.
    pub(in crate::model) last_user: String,
    /// How often tools have answered since.
    pub(in crate::model) rounds: usize,
    /// What tools answered in the last message.
    pub(in crate::model) results: Vec<String>,
    /// What the assistant thought in each of those rounds, as it is sent back; none if it is not wanted
    /// back.
    pub(in crate::model) thoughts: Vec<String>,
    /// Whether tools are offered.
    pub(in crate::model) offers: bool,
    pub(in crate::model) stream: bool,
    /// Whether usage was asked for.
    pub(in crate::model) usage: bool,
    /// Words of the prompt, which this server counts as tokens.
    pub(in crate::model) words: u64,
    /// What was cached of it, if this server caches.
    pub(in crate::model) cached: PromptTokens,
}

/// Reads a request; the error says how it is malformed.
pub(in crate::model) fn check(
    wire: WireName,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Asked, String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header("content-type") != Some("application/json") {
        return Err("`content-type` is not `application/json`".to_owned());
    }
    match wire {
        WireName::Anthropic => {
            if header("anthropic-version") != Some("2023-06-01") {
                return Err("`anthropic-version` is not `2023-06-01`".to_owned());
            }
            anthropic(serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
        WireName::Openai => {
            openai(serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
        WireName::OpenaiResponses => {
            responses(&serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
        WireName::Gemini => {
            gemini(&serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
        WireName::Ollama => {
            ollama(&serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
        WireName::Bedrock => {
            bedrock(&serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
    }
}

/// How many words.
pub(super) fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

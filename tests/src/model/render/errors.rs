//! Errors in the shape of each wire.

use serde_json::{Value, json};

use super::{bedrock, gemini_error};
use crate::model::book::WireName;

/// An error in the wire's own shape.
pub(in crate::model) fn error(wire: WireName, kind: &str, message: &str) -> Value {
    match wire {
        WireName::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        WireName::Openai | WireName::OpenaiResponses => json!({
            "error": {"message": message, "type": kind, "param": null, "code": null}
        }),
        WireName::Gemini => gemini_error::error(kind, message),
        WireName::Ollama => json!({"error": message}),
        WireName::Bedrock => json!({"message": message}),
    }
}

/// The wire's kind for a status.
pub(in crate::model) const fn error_kind(wire: WireName, status: u16) -> &'static str {
    match (wire, status) {
        (WireName::Anthropic, 400) | (WireName::Openai | WireName::OpenaiResponses, 400..=404) => {
            "invalid_request_error"
        }
        (WireName::Anthropic, 401) => "authentication_error",
        (WireName::Anthropic, 403) => "permission_error",
        (WireName::Anthropic, 404) => "not_found_error",
        (WireName::Anthropic, 429) => "rate_limit_error",
        (WireName::Anthropic, 529) => "overloaded_error",
        (WireName::Anthropic, _) => "api_error",
        (WireName::Openai | WireName::OpenaiResponses, 429) => "requests",
        (WireName::Openai | WireName::OpenaiResponses, _) => "server_error",
        (WireName::Gemini, _) => gemini_error::word(status),
        (WireName::Ollama, _) => "",
        (WireName::Bedrock, _) => bedrock::exception(status),
    }
}

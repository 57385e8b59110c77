//! The response object, in OpenAI's words.

use clawnode_proto::{ErrorBody, ErrorCode, llm::Usage};
use serde_json::{Map, Value, json};

use super::super::{id::ResponseId, reply::FinishReason, tools::handed_id};

/// The server of tools that are no MCP server's.
pub(super) const OWN_SERVER: &str = "clawnode";

/// What all of one response have in common.
#[derive(Clone, Debug)]
pub(super) struct ResponseLabel {
    pub(super) id: ResponseId,
    pub(super) created: u64,
    pub(super) model: String,
    /// Its settings.
    pub(super) echo: Map<String, Value>,
}

/// How far a response is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Status {
    Queued,
    InProgress,
    Ended(FinishReason),
    Cancelled,
    Failed(ErrorBody),
}

// === impl Status ===

impl Status {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Ended(FinishReason::Stop | FinishReason::ToolCalls) => "completed",
            Self::Ended(FinishReason::Length | FinishReason::ContentFilter) => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// The last event of its stream.
    pub(super) const fn event(&self) -> &'static str {
        match self {
            Self::Queued | Self::InProgress => "response.in_progress",
            Self::Ended(FinishReason::Stop | FinishReason::ToolCalls) => "response.completed",
            // This protocol has no event for what was cancelled.
            Self::Ended(_) | Self::Cancelled => "response.incomplete",
            Self::Failed(_) => "response.failed",
        }
    }

    const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Ended(FinishReason::Length) => Some("max_output_tokens"),
            Self::Ended(FinishReason::ContentFilter) => Some("content_filter"),
            _ => None,
        }
    }
}

// === impl ResponseLabel ===

impl ResponseLabel {
    /// The whole object.
    pub(super) fn response(&self, status: &Status, output: Vec<Value>, usage: &Usage) -> Value {
        let mut response = self.echo.clone();
        let error = match status {
            Status::Failed(error) => json!({"code": code(error), "message": said(error)}),
            _ => Value::Null,
        };
        let is_under_way = matches!(status, Status::Queued | Status::InProgress);
        let usage = if is_under_way { Value::Null } else { tokens(usage) };
        for (name, value) in [
            ("id", json!(self.id.to_string())),
            ("object", json!("response")),
            ("created_at", json!(self.created)),
            ("model", json!(self.model)),
            ("status", json!(status.name())),
            ("error", error),
            ("incomplete_details", json!(status.reason().map(|reason| json!({"reason": reason})))),
            ("output", Value::Array(output)),
            ("usage", usage),
        ] {
            response.insert(name.to_owned(), value);
        }
        Value::Object(response)
    }

    pub(super) fn call_id(&self, call: clawnode_proto::CallId) -> String {
        handed_id(call, self.id.session)
    }
}

/// OpenAI's own words for errors of a response are few.
fn code(error: &ErrorBody) -> &'static str {
    match error.code {
        ErrorCode::ProviderRateLimited => "rate_limit_exceeded",
        code if code.http_status() < 500 => "invalid_prompt",
        _ => "server_error",
    }
}

fn said(error: &ErrorBody) -> String {
    match &error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    }
}

fn tokens(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

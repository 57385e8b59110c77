//! `GET /v1/models` and `/v1/models/{model}`: in Anthropic's shape for its clients, which send
//! `anthropic-version`, else in OpenAI's.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{AgentName, api::Nothing};
use serde::Serialize;

use super::{
    super::{
        error::{ANTHROPIC_VERSION, AnthropicError, json},
        gateway::Gateway,
        openai, rest,
    },
    handlers::{refused, unknown},
};

#[derive(Serialize)]
struct ModelPage<'a> {
    data: Vec<ModelInfo<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ModelInfo<'a> {
    r#type: &'static str,
    id: &'a str,
    display_name: &'a str,
    /// The API's own word for a date that is not known.
    created_at: &'static str,
    lifecycle: &'static str,
}

/// `GET /v1/models`.
pub(in super::super) async fn models(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Response {
    if !headers.contains_key(ANTHROPIC_VERSION) {
        return openai::models(State(gateway)).await;
    }
    match gateway.backend.agents_list(&gateway.caller(None), Nothing {}).await {
        Ok(list) => {
            let names = || list.agents.iter().map(|view| view.agent.as_str());
            let (first_id, last_id) = (names().next(), names().next_back());
            let data = names().map(ModelInfo::of).collect();
            rest::json(json(&ModelPage { data, has_more: false, first_id, last_id }))
        }
        Err(error) => AnthropicError::from(error).respond(),
    }
}

/// `GET /v1/models/{model}`.
pub(in super::super) async fn model(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Response {
    if !headers.contains_key(ANTHROPIC_VERSION) {
        return openai::model(State(gateway), Path(name)).await;
    }
    let Ok(agent) = name.parse::<AgentName>() else {
        return unknown(&gateway, AnthropicError::no_model(&name)).respond();
    };
    match gateway.backend.agents_show(&gateway.caller(None), agent).await {
        Ok(view) => rest::json(json(&ModelInfo::of(view.view.agent.as_str()))),
        Err(error) => refused(&gateway, error, &name).respond(),
    }
}

// === impl ModelInfo ===

impl<'a> ModelInfo<'a> {
    const fn of(name: &'a str) -> Self {
        Self {
            r#type: "model",
            id: name,
            display_name: name,
            created_at: "1970-01-01T00:00:00Z",
            lifecycle: "active",
        }
    }
}

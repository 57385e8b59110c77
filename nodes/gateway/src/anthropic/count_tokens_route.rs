//! `POST /v1/messages/count_tokens`: about how many tokens a request has.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use clawnode_proto::limits::COMPLETION_BYTES;
use serde::Serialize;

use super::{
    super::{
        error::{AnthropicError, json},
        gateway::Gateway,
        rest,
    },
    handlers::{refused, unknown},
    request::to_count,
};

#[derive(Serialize)]
struct CountedTokens {
    input_tokens: u64,
}

/// The route.
pub(in super::super) async fn count_tokens(
    State(gateway): State<Arc<Gateway>>,
    request: axum::extract::Request,
) -> Response {
    let counted = async {
        let body = rest::body_within(&gateway, request.into_body(), COMPLETION_BYTES).await?;
        let (agent, (message, attachments)) = to_count(&body)?;
        match gateway.backend.count_tokens(&agent, message, attachments).await {
            Ok(input_tokens) => Ok(rest::json(json(&CountedTokens { input_tokens }))),
            Err(error) => Err(refused(&gateway, error, agent.as_str())),
        }
    };
    counted.await.unwrap_or_else(|error: AnthropicError| unknown(&gateway, error).respond())
}

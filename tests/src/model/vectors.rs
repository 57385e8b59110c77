//! Embeddings: vectors that follow from their texts alone, so that a test knows them.

use std::sync::Arc;

use axum::{
    Json,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    book::WireName,
    check::{Embeds, embeds},
    listen::Breaker,
    script::Act,
    server::{InPath, Refusal, Shared, log_failed, refuse_as},
};

/// The numbers of a vector, unless a request says how many.
const DIMENSIONS: usize = 8;

/// The vector of a text: of its bytes, each a number from 0 on in quarters, over and over.
pub fn vector(text: &str, dimensions: Option<usize>) -> Vec<f32> {
    let bytes = text.bytes().cycle().take(dimensions.unwrap_or(DIMENSIONS));
    bytes.map(|byte| f32::from(byte) / 4.0).collect()
}

/// The answer to a proper request. Words count as tokens; Gemini's wire does not count them.
fn vectors(wire: WireName, asked: &Embeds) -> Response {
    let Embeds { model, texts, dimensions } = asked;
    let vectors = texts.iter().map(|text| vector(text, *dimensions));
    let words: usize = texts.iter().map(|text| text.split_whitespace().count()).sum();
    let body = match wire {
        WireName::Gemini => {
            let all: Vec<Value> = vectors.map(|values| json!({"values": values})).collect();
            json!({"embeddings": all})
        }
        WireName::Bedrock => {
            let all: Vec<_> = vectors.flatten().collect();
            json!({"embedding": all, "inputTextTokenCount": words, "embeddingsByType": {"float": all}})
        }
        WireName::Ollama => {
            let all: Vec<_> = vectors.collect();
            json!({"model": model, "embeddings": all, "total_duration": 1, "load_duration": 1,
                "prompt_eval_count": words})
        }
        _ => {
            let one = |(index, embedding)| json!({"object": "embedding", "index": index, "embedding": embedding});
            // The last first: `index` says which is which.
            let mut all: Vec<Value> = vectors.enumerate().map(one).collect();
            all.reverse();
            json!({"object": "list", "data": all, "model": model,
                "usage": {"prompt_tokens": words, "total_tokens": words}})
        }
    };
    Json(body).into_response()
}

/// The route of a wire that has everything in the body.
pub(super) fn route(wire: WireName) -> MethodRouter<Arc<Shared>> {
    let route = move |State(shared): State<Arc<Shared>>,
                      ConnectInfo(breaker): ConnectInfo<Breaker>,
                      headers: HeaderMap,
                      body: Bytes| async move {
        answer(wire, None, shared, breaker, &headers, body).await
    };
    post(route)
}

/// Vectors; an act in the queue that is no reply goes before.
pub(super) async fn answer(
    wire: WireName,
    in_path: Option<InPath>,
    shared: Arc<Shared>,
    breaker: Breaker,
    headers: &HeaderMap,
    body: Bytes,
) -> Response {
    let model = in_path.as_ref().map(|path| path.model.as_str());
    let asked = shared.authorize(wire, in_path.as_ref(), headers, &body);
    let asked = asked.and_then(|()| embeds(wire, model, &body).map_err(Refusal::Malformed));
    let asked = match asked {
        Ok(asked) => asked,
        Err(refusal) => return shared.refuse(wire, refusal, &body),
    };
    let text = asked.texts.first().cloned().unwrap_or_default();
    let seq = match shared.enter(wire, headers, text, Vec::new(), body) {
        Ok(seq) => seq,
        Err(error) => return log_failed(wire, &error),
    };
    let act = shared.script().queue.pop_front();
    let response = match act {
        None | Some(Act::Reply(_)) => vectors(wire, &asked),
        Some(Act::Raw { content_type, body }) => {
            ([(CONTENT_TYPE, content_type)], body).into_response()
        }
        Some(Act::Bytes { content_type, body }) => {
            ([(CONTENT_TYPE, content_type)], body).into_response()
        }
        Some(Act::Status(status)) => refuse_as(wire, &status),
        Some(Act::Hangup) => {
            breaker.trip();
            StatusCode::NO_CONTENT.into_response()
        }
        Some(Act::Stall) => std::future::pending().await,
    };
    match shared.book.answered(seq, true) {
        Ok(()) => response,
        Err(error) => log_failed(wire, &error),
    }
}

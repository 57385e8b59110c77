//! Embeddings on each wire that has them: what is asked, what comes back, and what is tried again.

use std::time::Duration;

use clawnode_actors::llm::{EmbedReply, EmbedRequest, Model, Wire};
use clawnode_proto::llm::{FailureClass, ModelFailure};
use clawnode_tests::model::{Act, ModelServer, Setup, vector};
use serde_json::{Value, json};

use crate::{KEY, client};

/// Those that have embeddings.
const EMBEDDING: [Wire; 4] = [Wire::Openai, Wire::OpenaiResponses, Wire::Gemini, Wire::Ollama];

fn asked(texts: &[&str], dimensions: Option<u32>) -> EmbedRequest {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    EmbedRequest { model: "embedder".to_owned(), texts, dimensions }
}

async fn embed(model: &dyn Model, request: EmbedRequest) -> Result<EmbedReply, ModelFailure> {
    model.embed(request).unwrap().await
}

fn numbers(reply: &EmbedReply) -> Vec<Vec<f32>> {
    reply.vectors.iter().map(|vector| vector.numbers().collect()).collect()
}

#[tokio::test]
async fn texts_become_vectors_in_their_order() {
    for wire in EMBEDDING {
        let setup = Setup { api_key: Some(KEY.to_owned()), ..Setup::default() };
        let server = ModelServer::start(setup).await.unwrap();
        let client = client(wire, &server);
        let reply = embed(&*client, asked(&["one two", "three"], None)).await.unwrap();
        assert_eq!(numbers(&reply), [vector("one two", None), vector("three", None)], "{wire:?}");
        let counted = if wire == Wire::Gemini { 0 } else { 3 };
        assert_eq!(reply.input_tokens, counted, "{wire:?}");
        let reply = embed(&*client, asked(&["three"], Some(3))).await.unwrap();
        assert_eq!(numbers(&reply), [vector("three", Some(3))], "{wire:?}");
        server.stop().await.unwrap();
    }
    let server = ModelServer::start(Setup::default()).await.unwrap();
    let anthropic = client(Wire::Anthropic, &server);
    assert!(anthropic.embed(asked(&["a"], None)).is_none(), "it has none");
}

#[tokio::test]
async fn a_text_that_is_too_long_is_not_cut_by_ollama() {
    let server = ModelServer::start(Setup::default()).await.unwrap();
    embed(&*client(Wire::Ollama, &server), asked(&["a"], None)).await.unwrap();
    let body: Value = serde_json::from_slice(&server.calls()[0].body).unwrap();
    assert_eq!(body, json!({"model": "embedder", "input": ["a"], "truncate": false}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn failures_are_those_of_other_calls() {
    let server = crate::server([
        Act::status_with(503, "busy", "retry-after-ms", "1"),
        Act::Hangup,
        Act::status_with(429, "slow down", "retry-after-ms", "1"),
    ])
    .await
    .unwrap();
    let model = client(Wire::Openai, &server);
    let reply = embed(&*model, asked(&["a"], None)).await.unwrap();
    assert_eq!((numbers(&reply), server.count()), (vec![vector("a", None)], 4), "tried again");
    server.stop().await.unwrap();

    let few = json!({"data": [{"index": 0, "embedding": [0.5]}]}).to_string();
    let raw = |body: String| Act::Raw { content_type: "application/json".to_owned(), body };
    let key = format!("no key {KEY}");
    for (act, class, says) in [
        (Act::status_with(401, &key, "x", "y"), FailureClass::Unauthorized, "no key [key]"),
        (Act::status_with(404, "no such model", "x", "y"), FailureClass::Rejected, "`embedder`"),
        (raw(few), FailureClass::BrokenStream, "one vector for each text"),
        (raw("{".to_owned()), FailureClass::BrokenStream, "EOF"),
    ] {
        let server = crate::server([act]).await.unwrap();
        let model = client(Wire::Openai, &server);
        let failure = embed(&*model, asked(&["a", "b"], None)).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure:?}");
        assert!(failure.message.contains(says), "{says}: {}", failure.message);
        assert!(!failure.message.contains(KEY), "{}", failure.message);
        assert_eq!(server.count(), 1, "{says}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_provider_that_does_not_work_is_not_called() {
    let acts: Vec<_> =
        (0..5).map(|_| Act::status_with(500, "down", "x-should-retry", "false")).collect();
    let server = crate::server(acts).await.unwrap();
    let model = client(Wire::Ollama, &server);
    for _ in 0..5 {
        embed(&*model, asked(&["a"], None)).await.unwrap_err();
    }
    let failure = embed(&*model, asked(&["a"], None)).await.unwrap_err();
    assert_eq!((failure.class, server.count()), (FailureClass::Overloaded, 5), "{failure:?}");
    let wait = failure.retry_after_ms.map(Duration::from_millis);
    assert!(wait.is_some_and(|wait| wait > Duration::from_secs(1)), "{wait:?}");
    server.stop().await.unwrap();
}

/// Titan takes one text a request. The vectors come in the order of the texts, however the answers do.
#[tokio::test]
async fn titan_is_asked_for_one_text_at_a_time() {
    let setup = Setup { api_key: Some(KEY.to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    let client = client(Wire::Bedrock, &server);
    let titan = |texts: &[&str], dimensions| {
        let model = "amazon.titan-embed-text-v2:0".to_owned();
        EmbedRequest { model, ..asked(texts, dimensions) }
    };
    let texts = ["one two", "three", "four", "five six", "seven", "eight"];
    let reply = embed(&*client, titan(&texts, Some(256))).await.unwrap();
    let expected = texts.map(|text| vector(text, Some(256)));
    assert_eq!((numbers(&reply), reply.input_tokens), (expected.to_vec(), 8));
    assert_eq!(server.count(), 6);
    let other = embed(&*client, asked(&["a"], None)).await.unwrap_err();
    assert!(other.message.contains("only Titan's text embeddings"), "{other:?}");
    assert_eq!(server.stop().await.unwrap().len(), 6, "it was not sent");
}

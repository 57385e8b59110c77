//! `POST /v1/sessions/{session}/messages`, and problems as RFC 9457 has them.

use clawnode_cluster::Peek as _;
use clawnode_proto::{
    api::SendMode,
    turn::{ReplyReset, TurnBody},
};
use reqwest::Response;
use serde_json::{Value, json};

use super::{
    harness::{Gateway, patiently},
    node::structured,
};

const PATH: &str = "/v1/sessions/default:test:bot:ada/messages";

async fn post(gateway: &Gateway, path: &str, body: Value, key: Option<&str>) -> Response {
    let mut post = gateway.post(path).json(&body);
    if let Some(key) = key {
        post = post.header("Idempotency-Key", key);
    }
    patiently("an answer", post.send()).await.unwrap()
}

async fn problem(response: Response, status: u16, code: &str) -> Value {
    assert_eq!(response.status(), status);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let problem: Value = response.json().await.unwrap();
    assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)), "{problem}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    problem
}

#[tokio::test]
async fn a_message_is_answered_when_its_turn_has_ended() {
    let gateway = Gateway::start().await;
    let answer = post(&gateway, PATH, json!({ "content": "hello" }), Some("k1")).await;
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["session"], "default:test:bot:ada");
    assert_eq!(answer["text"], "echo: hello");
    assert_eq!(answer["outcome"]["type"], "completed");
    assert!(answer["turn"].as_str().unwrap().starts_with("turn_"), "{answer}");
    assert!(answer["usage"]["output_tokens"].as_u64().unwrap() > 0, "{answer}");
    // The header and the body name the request alike, and once is enough.
    let named = json!({ "content": "hello", "idempotency_key": "k1" });
    for (body, key) in [(json!({ "content": "hello" }), Some("k1")), (named, Some("other"))] {
        let again: Value = post(&gateway, PATH, body, key).await.json().await.unwrap();
        assert_eq!(again["turn"], answer["turn"]);
    }
    let sent = gateway.node.sent.peek(Clone::clone);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!((sent[0].key.as_str(), sent[0].mode), ("k1", SendMode::Turn));
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_says_where_its_files_go() {
    let gateway = Gateway::start().await;
    let large = json!({ "content": "see", "attachments": [{ "data": "A".repeat(4 << 20) }] });
    let problem = problem(post(&gateway, PATH, large, None).await, 413, "too_large").await;
    assert!(problem.to_string().contains("`POST /v1/files`"), "{problem}");
    gateway.stop().await;
}

#[tokio::test]
async fn what_was_taken_back_is_not_in_the_answer() {
    let gateway = Gateway::start().await;
    let answer = tokio::spawn(gateway.post(PATH).json(&json!({ "content": "hold" })).send());
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.text(turn, "wrong");
    gateway.node.speak(turn, TurnBody::Reset(ReplyReset { text: "rig".to_owned() }));
    gateway.node.text(turn, "ht");
    gateway.node.done(turn);
    let answer = patiently("an answer", answer).await.unwrap().unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap()["text"], "right");
    gateway.stop().await;
}

#[tokio::test]
async fn a_reply_that_had_to_fit_a_schema_is_in_the_answer() {
    let gateway = Gateway::start().await;
    let schema = json!({ "title": "a b", "type": "object" });
    let body = json!({ "content": "hold", "response_schema": schema });
    let answer = tokio::spawn(gateway.post(PATH).json(&body).send());
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.text(turn, "{\"a\": 1}");
    gateway.node.speak(turn, structured(json!({ "a": 1 })));
    let answer = patiently("an answer", answer).await.unwrap().unwrap();
    let answer: Value = answer.json().await.unwrap();
    let said = (&answer["text"], &answer["structured"]);
    assert_eq!(said, (&json!("{\"a\": 1}"), &json!({ "a": 1 })));
    let asked = gateway.node.sent.peek(|sent| sent[0].message.response_schema.clone()).unwrap();
    assert_eq!((asked.name.as_str(), asked.schema.parse::<Value>().unwrap()), ("a_b", schema));
    let steer = json!({ "content": "more", "mode": "steer", "response_schema": {} });
    problem(post(&gateway, PATH, steer, None).await, 400, "invalid_params").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_with_a_conversation_names_the_same_session() {
    let gateway = Gateway::start().await;
    let path = "/v1/sessions/default:test:bot:ada~two/messages";
    let body = json!({ "content": "hello", "mode": "steer", "stream": true });
    let answer = post(&gateway, path, body, None).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let text = patiently("the end", answer.text()).await.unwrap();
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!((events[0], events[events.len() - 1]), ("accepted", "done"), "{text}");
    let sent = gateway.node.sent.peek(Clone::clone);
    assert_eq!(sent[0].session.to_string(), "default:test:bot:ada~two");
    assert_eq!(sent[0].mode, SendMode::Steer);
    gateway.stop().await;
}

#[tokio::test]
async fn what_fails_is_a_problem() {
    let gateway = Gateway::start().await;
    for (path, body, status, code) in [
        (PATH, json!({ "content": "refuse overloaded" }), 429, "overloaded"),
        (PATH, json!({ "content": "fail rejected" }), 502, "provider_rejected"),
        (PATH, json!({ "content": "break overloaded" }), 503, "provider_overloaded"),
        (PATH, json!({ "content": "" }), 400, "invalid_params"),
        (PATH, json!({ "message": "hello" }), 400, "invalid_params"),
        (PATH, json!(["hello"]), 400, "invalid_params"),
        ("/v1/sessions/nonsense/messages", json!({ "content": "hi" }), 400, "invalid_params"),
        ("/v1/sessions/absent:a:b:c/messages", json!({ "content": "hi" }), 404, "not_found"),
    ] {
        let answer = post(&gateway, path, body, None).await;
        // A turn that has failed is not asked for again by itself: that would be another one.
        let ended = answer.headers().get("x-should-retry").is_some_and(|header| header == "false");
        let retry = answer.headers().contains_key("retry-after");
        let problem = problem(answer, status, code).await;
        assert_eq!(problem["turn"].is_string(), ended, "{problem}");
        assert_eq!(ended, status > 500, "{problem}");
        assert_eq!(retry, status == 429, "{problem}");
    }
    let listed = problem(post(&gateway, PATH, json!(["x"]), None).await, 400, "invalid_params");
    assert!(listed.await["hint"].as_str().unwrap().contains(r#""content":"hello""#));
    let wrong = patiently("an answer", gateway.post("/v1/status").send()).await.unwrap();
    problem(wrong, 405, "invalid_request").await;
    let cancelled = tokio::spawn(gateway.post(PATH).json(&json!({ "content": "hold" })).send());
    gateway.node.stored(3).await;
    let turn = gateway.node.turns_of("hold")[0];
    let cancel =
        post(&gateway, "/v1/sessions/default:test:bot:ada/cancel", json!({ "turn": turn }), None);
    assert_eq!(cancel.await.status(), 200);
    problem(patiently("an answer", cancelled).await.unwrap().unwrap(), 499, "cancelled").await;
    gateway.stop().await;
}

//! Tools that a client runs, and people who are waited for, in OpenAI's shapes.

use std::time::Duration;

use clawnode_cluster::Peek as _;
use clawnode_proto::{
    Digest, Timestamp,
    frame::{ApprovalRequest, ToolFinished},
    tool::Risk,
    turn::TurnBody,
};
use serde_json::{Value, json};

use super::{harness::Gateway, node::CALL};

fn body(content: &str) -> Value {
    let look = json!({"type": "function", "function": {"name": "look"}});
    let messages = json!([{"role": "user", "content": content}]);
    json!({"model": "default", "messages": messages, "tools": [look]})
}

async fn complete(gateway: &Gateway, body: &Value) -> Value {
    let response = gateway.post("/v1/chat/completions").json(body).send().await.unwrap();
    let status = response.status();
    let answer: Value = response.json().await.unwrap();
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The payloads of a streamed completion.
async fn stream(gateway: &Gateway, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    let response = gateway.post("/v1/chat/completions").json(&body).send().await.unwrap();
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The request that brings the results of the calls in the answer.
fn with_results(mut body: Value, message: &Value) -> Value {
    let calls = message["tool_calls"].as_array().unwrap().clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    for (nth, call) in calls.iter().enumerate() {
        let content = format!("result {nth}");
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
    }
    body
}

#[tokio::test]
async fn a_client_runs_its_tools_and_the_answer_goes_on() {
    let gateway = Gateway::start().await;
    let first = body("call look find");
    let answer = complete(&gateway, &first).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(
        message["tool_calls"][1]["function"],
        json!({"name": "find", "arguments": "{\"at\":1}"})
    );
    assert_eq!(message["tool_calls"][0]["type"], "function");
    assert_eq!(answer["usage"]["total_tokens"], 5);
    let second = complete(&gateway, &with_results(first, message)).await;
    assert_eq!(second["choices"][0]["message"]["content"], "got: result 0, result 1");
    assert_eq!(second["choices"][0]["finish_reason"], "stop");
    let (first, second_id) = (answer["id"].as_str().unwrap(), second["id"].as_str().unwrap());
    assert!(second_id.len() > first.len() && second_id.starts_with(first), "a part of one turn");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_hands_out_calls_and_ends() {
    let gateway = Gateway::start().await;
    let mut first = body("call look");
    first["stream_options"] = json!({"include_usage": true});
    let chunks = stream(&gateway, first.clone()).await;
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let call = deltas.iter().find_map(|delta| delta.get("tool_calls")).unwrap();
    assert_eq!(call[0]["index"], 0);
    let [.., finish, usage] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(usage["usage"]["total_tokens"], 5);
    let mut message = json!({"role": "assistant", "content": null, "tool_calls": call});
    message["tool_calls"][0].as_object_mut().unwrap().remove("index");
    let chunks = stream(&gateway, with_results(first, &message)).await;
    let said = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(said.collect::<String>(), "got: result 0");
    gateway.stop().await;
}

fn request() -> ApprovalRequest {
    ApprovalRequest {
        id: CALL,
        name: "write".to_owned(),
        arguments: "{}".to_owned(),
        action: Digest::of(b"action"),
        risk: Risk::Write,
        reason: None,
        expires: Timestamp(2_000),
        truncated: false,
        chars: 2,
    }
}

#[tokio::test]
async fn who_waits_for_a_person_is_told_how_to_go_on() {
    let patience = Duration::from_millis(20);
    let gateway = Gateway::start_with(|options| options.approval_patience = patience).await;
    let waits = tokio::spawn(gateway.post("/v1/chat/completions").json(&body("hold")).send());
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.speak(turn, TurnBody::ApprovalRequest(request()));
    let response = waits.await.unwrap().unwrap();
    assert_eq!(response.status(), 409);
    let headers = response.headers().clone();
    assert_eq!(headers["clawnode-approval"], CALL.to_string());
    let session = headers["clawnode-session"].to_str().unwrap().to_owned();
    assert!(session.starts_with("default:openai:default:once-"), "{session}");
    assert_eq!(headers["x-should-retry"], "false");
    let error = response.json::<Value>().await.unwrap()["error"].clone();
    assert_eq!(error["code"], "approval_pending");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`write`") && message.contains(&session), "{message}");
    gateway.stop().await;
}

#[tokio::test]
async fn who_waits_for_a_response_is_told_how_to_go_on_and_can() {
    let patience = Duration::from_millis(20);
    let gateway = Gateway::start_with(|options| options.approval_patience = patience).await;
    let ask = || {
        let body = json!({"model": "default", "input": "hold"});
        gateway.post("/v1/responses").header("idempotency-key", "once").json(&body).send()
    };
    let waits = tokio::spawn(ask());
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.speak(turn, TurnBody::ApprovalRequest(request()));
    let response = waits.await.unwrap().unwrap();
    assert_eq!(response.status(), 409);
    let headers = response.headers().clone();
    assert_eq!(headers["clawnode-approval"], CALL.to_string());
    assert_eq!(headers["x-should-retry"], "false");
    let session = headers["clawnode-session"].to_str().unwrap().to_owned();
    let error = response.json::<Value>().await.unwrap()["error"].clone();
    assert_eq!(error["code"], "approval_pending");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`write`") && message.contains(&session), "{message}");
    let (id, name, content) = (CALL, "write".to_owned(), "did".to_owned());
    let ended = ToolFinished { id, name, content, is_error: Some(false), failure: None };
    gateway.node.speak(turn, TurnBody::ToolResult(ended));
    gateway.node.text(turn, "done");
    gateway.node.done(turn);
    let response = ask().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["clawnode-session"]),
        (200, &headers["clawnode-session"])
    );
    let response: Value = response.json().await.unwrap();
    assert_eq!(response["status"], "completed");
    assert!(response["output"].to_string().contains(r#""text":"done""#), "{response}");
    assert_eq!(gateway.node.sent.peek(Vec::len), 1, "the turn was begun once");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_names_the_call_that_waits_and_goes_on() {
    let gateway = Gateway::start().await;
    let mut body = body("hold");
    body["stream"] = json!(true);
    let answered = tokio::spawn(gateway.post("/v1/chat/completions").json(&body).send());
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.speak(turn, TurnBody::ApprovalRequest(request()));
    let response = answered.await.unwrap().unwrap();
    assert_eq!(response.headers()["clawnode-approval"], CALL.to_string());
    let (id, name, content) = (CALL, "write".to_owned(), "did".to_owned());
    let ended = ToolFinished { id, name, content, is_error: Some(false), failure: None };
    gateway.node.speak(turn, TurnBody::ToolResult(ended));
    gateway.node.text(turn, "done");
    gateway.node.done(turn);
    let text = response.text().await.unwrap();
    assert!(
        text.contains(r#""approval":{"id":"#) && text.contains(r#""content":"done""#),
        "{text}"
    );
    gateway.stop().await;
}

//! Anthropic's shapes, to the letter.

use std::time::Duration;

use clawnode_cluster::Peek as _;
use clawnode_proto::{
    Digest, Timestamp,
    frame::ApprovalRequest,
    tool::Risk,
    turn::{ReplyReset, TurnBody},
};
use serde_json::{Value, json};

use super::{
    harness::{Gateway, TOKEN, http_client},
    node::{CALL, turn_of},
};

fn ask(content: &str) -> Value {
    let messages = json!([{"role": "user", "content": content}]);
    json!({"model": "default", "max_tokens": 1_024, "messages": messages})
}

async fn create(gateway: &Gateway, body: &Value) -> (u16, Value) {
    let response = gateway.post("/v1/messages").json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// The events of a stream; each is named by its type.
fn events(text: &str) -> Vec<Value> {
    let read = |event: &str| {
        let line = |field: &str| event.lines().find_map(|line| line.strip_prefix(field));
        let data: Value = serde_json::from_str(line("data: ").unwrap()).unwrap();
        assert_eq!(line("event: "), data["type"].as_str(), "{event}");
        data
    };
    text.split("\n\n").filter(|event| !event.is_empty()).map(read).collect()
}

async fn stream(gateway: &Gateway, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    let response = gateway.post("/v1/messages").json(&body).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    events(&response.text().await.unwrap())
}

fn last_turn(gateway: &Gateway) -> String {
    gateway.node.sent.peek(|sent| turn_of(sent.last().unwrap())).to_string()
}

const USAGE: &str = r#"{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":2}"#;

fn usage() -> Value {
    serde_json::from_str(USAGE).unwrap()
}

#[tokio::test]
async fn a_message_has_the_exact_shape() {
    let gateway = Gateway::start().await;
    let (status, message) = create(&gateway, &ask("hello")).await;
    assert_eq!(status, 200, "{message}");
    let expected = json!({
        "id": format!("msg_{}", last_turn(&gateway)),
        "type": "message",
        "role": "assistant",
        "model": "default",
        "content": [{"type": "text", "text": "echo: hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": null,
        "usage": usage(),
    });
    assert_eq!(message, expected);
    for (content, reason) in [("filter", "refusal"), ("length", "max_tokens")] {
        let (_, message) = create(&gateway, &ask(content)).await;
        assert_eq!((&message["stop_reason"], &message["content"]), (&reason.into(), &json!([])));
    }
    // The session is that of the same user of chat completions.
    let mut body = ask("hello");
    body["metadata"] = json!({"user_id": "ada"});
    create(&gateway, &body).await;
    let session = gateway.node.sent.peek(|sent| sent.last().unwrap().session.to_string());
    assert_eq!(session, "default:openai:default:ada");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_has_the_exact_shape() {
    let gateway = Gateway::start().await;
    let events = stream(&gateway, ask("hello")).await;
    let turn = last_turn(&gateway);
    let (said, rest): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| event["delta"]["type"] == "text_delta");
    let text: String = said.iter().map(|event| event["delta"]["text"].as_str().unwrap()).collect();
    assert_eq!(text, "echo: hello");
    let zero = json!({"input_tokens": 0, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0, "output_tokens": 0});
    let message = json!({"id": format!("msg_{turn}"), "type": "message", "role": "assistant",
        "model": "default", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": zero});
    let expected = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "usage": usage(),
            "delta": {"stop_reason": "end_turn", "stop_sequence": null}}),
        json!({"type": "message_stop"}),
    ];
    assert_eq!(rest, expected);
    gateway.stop().await;
}

#[tokio::test]
async fn thoughts_are_blocks_before_the_text() {
    let gateway = Gateway::start().await;
    let mut body = ask("hold");
    body["stream"] = json!(true);
    let answered = tokio::spawn(gateway.post("/v1/messages").json(&body).send());
    let whole = tokio::spawn(gateway.post("/v1/messages").json(&ask("hold")).send());
    gateway.node.stored(2).await;
    for turn in gateway.node.turns_of("hold") {
        gateway.node.speak(turn, TurnBody::Thought("h".to_owned()));
        gateway.node.speak(turn, TurnBody::Thought("m".to_owned()));
        gateway.node.text(turn, "so");
        gateway.node.done(turn);
    }
    let text = answered.await.unwrap().unwrap().text().await.unwrap();
    let turn = text.split_once("msg_").unwrap().1.split_once('"').unwrap().0.to_owned();
    let events = events(&text);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let block = |deltas: usize| {
        let mut block = vec!["content_block_start"];
        block.extend(vec!["content_block_delta"; deltas]);
        block.push("content_block_stop");
        block
    };
    let deltas = |index: usize| {
        let is_of =
            |event: &&Value| event["type"] == "content_block_delta" && event["index"] == index;
        events.iter().filter(is_of).collect::<Vec<_>>()
    };
    let mut expected = vec!["message_start"];
    expected.extend(block(deltas(0).len()));
    expected.extend(block(deltas(1).len()));
    expected.extend(["message_delta", "message_stop"]);
    assert_eq!(kinds, expected);
    let signature = &deltas(0).last().unwrap()["delta"];
    assert_eq!(*signature, json!({"type": "signature_delta", "signature": turn}));
    assert_eq!(deltas(1)[0]["delta"], json!({"type": "text_delta", "text": "so"}));
    let message: Value = whole.await.unwrap().unwrap().json().await.unwrap();
    let thinking = &message["content"][0];
    assert_eq!((&thinking["type"], &thinking["thinking"]), (&"thinking".into(), &"hm".into()));
    assert!(thinking["signature"].as_str().unwrap().starts_with("turn_"), "{message}");
    assert_eq!(message["content"][1], json!({"type": "text", "text": "so"}));
    gateway.stop().await;
}

/// The request that brings the results of the calls in the answer.
fn with_results(mut body: Value, content: &Value) -> Value {
    let calls = content.as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
    let result = |(nth, call): (usize, &Value)| json!({"type": "tool_result", "tool_use_id": call["id"], "content": format!("result {nth}")});
    let results: Vec<Value> = calls.enumerate().map(result).collect();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": results}));
    body
}

#[tokio::test]
async fn a_client_runs_its_tools_and_the_message_goes_on() {
    let gateway = Gateway::start().await;
    let mut body = ask("call look find");
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let (_, message) = create(&gateway, &body).await;
    assert_eq!(message["stop_reason"], "tool_use");
    let calls = message["content"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{message}");
    let (name, input) = (&calls[1]["name"], &calls[1]["input"]);
    assert_eq!((name, input), (&"find".into(), &json!({"at": 1})));
    let (status, last) = create(&gateway, &with_results(body.clone(), &message["content"])).await;
    assert_eq!(status, 200, "{last}");
    assert_eq!(last["content"], json!([{"type": "text", "text": "got: result 0, result 1"}]));
    assert_eq!(last["id"], message["id"], "one turn");

    // The same as a stream: calls are blocks, whole in one piece.
    let events = stream(&gateway, body.clone()).await;
    let start = events.iter().find(|event| event["type"] == "content_block_start").unwrap();
    let block = &start["content_block"];
    assert_eq!((&block["type"], &block["input"]), (&"tool_use".into(), &json!({})));
    let delta = events.iter().find_map(|event| event["delta"]["partial_json"].as_str());
    assert_eq!(delta, Some(r#"{"at":1}"#));
    let end = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
    gateway.stop().await;
}

#[tokio::test]
async fn errors_have_their_types_and_statuses() {
    let gateway = Gateway::start().await;
    let mut nowhere = ask("x");
    nowhere["model"] = json!("absent");
    let mut odd = ask("x");
    odd["top_k"] = json!("many");
    for (body, status, kind) in [
        (nowhere, 404, "not_found_error"),
        (odd, 400, "invalid_request_error"),
        (ask("refuse overloaded"), 429, "rate_limit_error"),
        (ask("fail overloaded"), 529, "overloaded_error"),
        (ask("fail timeout"), 504, "timeout_error"),
        (ask("fail rejected"), 502, "api_error"),
    ] {
        let (found, error) = create(&gateway, &body).await;
        assert_eq!((found, &error["error"]["type"]), (status, &kind.into()), "{error}");
        assert_eq!(error["type"], "error");
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        assert_eq!(create(&gateway, &streamed).await.0, status, "before the first word: {body}");
    }
    let events = stream(&gateway, ask("break overloaded")).await;
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["error"]["type"]),
        (&"error".into(), &"overloaded_error".into())
    );

    let call = |key: &'static str| {
        let request = http_client().post(gateway.url("/v1/messages")).header("x-api-key", key);
        request.header("anthropic-version", "2023-06-01").json(&ask("hello")).send()
    };
    assert_eq!(call(TOKEN).await.unwrap().status(), 200);
    let refused = call("wrong").await.unwrap();
    assert_eq!(refused.status(), 401);
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["type"], "authentication_error");
    gateway.stop().await;
}

#[tokio::test]
async fn a_reply_that_begins_again_is_not_glued_to_the_first() {
    let gateway = Gateway::start().await;
    let mut body = ask("hold");
    body["stream"] = json!(true);
    let answered = tokio::spawn(gateway.post("/v1/messages").json(&body).send());
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.text(turn, "one two");
    gateway.node.speak(turn, TurnBody::Reset(ReplyReset::default()));
    gateway.node.text(turn, "three");
    gateway.node.done(turn);
    let text = answered.await.unwrap().unwrap().text().await.unwrap();
    let events = events(&text);
    let last = events.last().unwrap();
    assert_eq!(last["error"]["code"], "provider_broken_stream", "{text}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_one_turn() {
    let gateway = Gateway::start().await;
    let call = |name: &'static str, value: &'static str| {
        let request = gateway.post("/v1/messages").header(name, value).json(&ask("hello"));
        async move { request.send().await.unwrap().json::<Value>().await.unwrap()["id"].clone() }
    };
    let named = call("idempotency-key", "k1").await;
    assert_eq!(call("idempotency-key", "k1").await, named);
    let first = call("x-stainless-retry-count", "0").await;
    assert_ne!(first, named);
    assert_eq!(call("x-stainless-retry-count", "1").await, first);
    gateway.stop().await;
}

#[tokio::test]
async fn a_turn_that_waits_for_a_person_says_so() {
    let patience = Duration::from_millis(20);
    let gateway = Gateway::start_with(|options| options.approval_patience = patience).await;
    let request = || {
        TurnBody::ApprovalRequest(ApprovalRequest {
            id: CALL,
            name: "write".to_owned(),
            arguments: "{}".to_owned(),
            action: Digest::of(b"action"),
            risk: Risk::Write,
            reason: None,
            expires: Timestamp(2_000),
            truncated: false,
            chars: 2,
        })
    };
    let waits = tokio::spawn(gateway.post("/v1/messages").json(&ask("hold")).send());
    gateway.node.stored(1).await;
    gateway.node.speak(gateway.node.turns_of("hold")[0], request());
    let response = waits.await.unwrap().unwrap();
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["clawnode-approval"], CALL.to_string());
    assert_eq!(response.headers()["x-should-retry"], "false");
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["type"], "conflict_error");
    assert_eq!(error["error"]["code"], "approval_pending");

    let mut body = ask("hold on");
    body["stream"] = json!(true);
    let answered = tokio::spawn(gateway.post("/v1/messages").json(&body).send());
    gateway.node.stored(2).await;
    let turn = gateway.node.turns_of("hold on")[0];
    gateway.node.speak(turn, request());
    let response = answered.await.unwrap().unwrap();
    assert_eq!(response.headers()["clawnode-approval"], CALL.to_string());
    gateway.node.text(turn, "done");
    gateway.node.done(turn);
    let events = events(&response.text().await.unwrap());
    let ping = events.iter().find(|event| event["type"] == "ping").unwrap();
    assert_eq!(ping["clawnode"]["approval"]["name"], "write");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    gateway.stop().await;
}

#[tokio::test]
async fn its_clients_read_models_in_its_shape() {
    let gateway = Gateway::start().await;
    let get = |path: &'static str| {
        let request = gateway.get(path).header("anthropic-version", "2023-06-01");
        let request = request.header("x-api-key", TOKEN);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let list = get("/v1/models").await;
    assert_eq!((&list["first_id"], &list["last_id"]), (&"clan".into(), &"default".into()));
    assert_eq!(list["has_more"], false);
    assert_eq!(list["data"][1], get("/v1/models/default").await);
    assert_eq!(list["data"][1]["type"], "model");
    assert_eq!(get("/v1/models/absent").await["error"]["type"], "not_found_error");
    gateway.stop().await;
}

#[tokio::test]
async fn tokens_are_counted_before_anything_is_stored() {
    let gateway = Gateway::start().await;
    let count = async |body: Value| {
        let path = "/v1/messages/count_tokens";
        let response = gateway.post(path).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let said = |messages: Value| json!({"model": "default", "messages": messages});
    let user = |text: &str| json!({"role": "user", "content": text});
    assert_eq!(count(said(json!([user("12345")]))).await, (200, json!({"input_tokens": 5})));
    let call = json!({"type": "tool_use", "id": "a", "name": "look", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "seen"});
    let rounds = json!([user("12345"), {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]}]);
    let mut body = said(rounds);
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2_048});
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    assert_eq!(count(body).await, (200, json!({"input_tokens": 5})), "results need no more words");
    let image = json!({"type": "image", "source":
        {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let shown = said(json!([{"role": "user", "content": [image, {"type": "text", "text": "1"}]}]));
    assert_eq!(count(shown).await, (200, json!({"input_tokens": 1_001})));
    let (status, error) = count(ask("x")).await;
    let message = error["error"]["message"].as_str().unwrap();
    assert_eq!((status, message.starts_with("max_tokens: ")), (400, true), "{error}");
    let mut nowhere = said(json!([user("x")]));
    nowhere["model"] = json!("gone");
    assert_eq!(count(nowhere).await.1["error"]["type"], "not_found_error");
    assert_eq!(gateway.node.sent.peek(Vec::len), 0, "nothing is stored");
    gateway.stop().await;
}

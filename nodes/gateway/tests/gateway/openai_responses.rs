//! OpenAI's Responses API, to the letter.

use clawnode_cluster::Peek as _;
use clawnode_proto::turn::{ReplyReset, TurnBody};
use serde_json::{Value, json};

use super::{
    harness::{Gateway, TOKEN, http_client},
    node::structured,
};

fn ask(input: &str) -> Value {
    json!({"model": "default", "input": input})
}

async fn create(gateway: &Gateway, body: &Value) -> (u16, Value) {
    let response = gateway.post("/v1/responses").json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn made(gateway: &Gateway, body: &Value) -> Value {
    let (status, response) = create(gateway, body).await;
    assert_eq!(status, 200, "{response}");
    response
}

/// The events of a stream, whose names are those in their data.
fn events(text: &str) -> Vec<Value> {
    let event = |event: &str| {
        let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
        let data: Value = serde_json::from_str(data).unwrap();
        let name = event.lines().find_map(|line| line.strip_prefix("event: "));
        assert_eq!(name, data["type"].as_str());
        Some(data)
    };
    text.split("\n\n").filter_map(event).collect()
}

async fn stream(gateway: &Gateway, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    let response = gateway.post("/v1/responses").json(&body).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    events(&response.text().await.unwrap())
}

async fn get(gateway: &Gateway, path: &str) -> (u16, String) {
    let request = gateway.get(&format!("/v1/responses/{path}")).bearer_auth(TOKEN);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn retrieved(gateway: &Gateway, response: &Value) -> Value {
    let (status, text) = get(gateway, response["id"].as_str().unwrap()).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn last(events: &[Value]) -> &Value {
    events.last().unwrap()
}

#[tokio::test]
async fn a_response_has_the_exact_shape() {
    let gateway = Gateway::start().await;
    let response = made(&gateway, &ask("hello")).await;
    let message = &response["output"][0];
    assert_eq!(
        response,
        json!({
            "id": response["id"],
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": null,
            "max_output_tokens": null,
            "metadata": {},
            "model": "default",
            "output": [{
                "id": message["id"],
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{
                    "type": "output_text",
                    "text": "echo: hello",
                    "annotations": [],
                    "logprobs": [],
                }],
            }],
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null},
            "store": true,
            "temperature": null,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "auto",
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 5,
            },
            "user": null,
        })
    );
    let again = retrieved(&gateway, &response).await;
    assert_eq!((&again["output"], &again["id"]), (&response["output"], &response["id"]));
    assert_eq!((&again["status"], &again["created_at"]), (&json!("completed"), &json!(7)));
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_is_gone_on_with_after_any_event() {
    let gateway = Gateway::start().await;
    let told = stream(&gateway, ask("hello there you")).await;
    let text: String = told.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text, "echo: hello there you");
    assert_eq!(last(&told)["type"], "response.completed");
    let id = told[0]["response"]["id"].as_str().unwrap().to_owned();
    for (at, event) in told.iter().enumerate() {
        let path = format!("{id}?stream=true&starting_after={}", event["sequence_number"]);
        let (status, rest) = get(&gateway, &path).await;
        assert_eq!(status, 200, "{rest}");
        let rest = events(&rest);
        assert_eq!(kinds(&rest), kinds(&told[at + 1..]), "after {event}");
        let number = |event: &Value| event["sequence_number"].clone();
        let numbers: Vec<Value> = rest.iter().map(number).collect();
        assert_eq!(numbers, told[at + 1..].iter().map(number).collect::<Vec<_>>());
    }
    let (_, other) = get(&gateway, &format!("{id}?stream=true&starting_after=262145")).await;
    let other = events(&other);
    assert_eq!((last(&other)["type"].as_str(), other.len()), (Some("error"), 1), "{other:?}");
    for (query, param) in [
        ("starting_after=1", "starting_after"),
        ("stream=yes", "stream"),
        ("stream=true&starting_after=x", "starting_after"),
        ("stream=true&include_obfuscation=true", "include_obfuscation"),
        ("limit=1", "limit"),
    ] {
        let (status, text) = get(&gateway, &format!("{id}?{query}")).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!((400..502).contains(&status), "{query}: {text}");
        assert_eq!(answer["error"]["param"], param, "{query}: {text}");
    }
    gateway.stop().await;
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[tokio::test]
async fn a_client_runs_its_tools_and_the_turn_goes_on() {
    let gateway = Gateway::start().await;
    let look = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
    let mut body = ask("call look find");
    body["tools"] = look.clone();
    let first = made(&gateway, &body).await;
    assert_eq!(first["status"], "completed");
    let calls = first["output"].as_array().unwrap().clone();
    assert_eq!(
        (&calls[1]["name"], &calls[1]["arguments"]),
        (&json!("find"), &json!(r#"{"at":1}"#))
    );
    let outputs: Vec<Value> = calls
        .iter()
        .map(|call| {
            assert_eq!(call["type"], "function_call");
            json!({"type": "function_call_output", "call_id": call["call_id"], "output": "seen"})
        })
        .collect();
    // With the id of the first response, or with all that was said: the calls name their turn.
    let with_id = json!({"model": "default", "input": outputs, "previous_response_id": first["id"], "tools": look});
    let second = made(&gateway, &with_id).await;
    assert_eq!(second["output"][0]["content"][0]["text"], "got: seen, seen");
    assert_ne!(second["id"], first["id"]);
    assert_eq!(retrieved(&gateway, &second).await["output"], second["output"]);
    let again = retrieved(&gateway, &first).await;
    assert_eq!(again["output"], first["output"], "it ended where its client was asked");
    let all = [json!({"role": "user", "content": "call look find"})].into_iter().chain(calls);
    let all: Vec<Value> = all.chain(with_id["input"].as_array().unwrap().clone()).collect();
    // The one that is not brought first is known as a call of another response too.
    let told = stream(&gateway, json!({"model": "default", "input": all, "tools": look})).await;
    assert_eq!(last(&told)["response"]["status"], "completed");
    gateway.stop().await;
}

#[tokio::test]
async fn a_conversation_is_gone_on_with_by_its_last_response() {
    let gateway = Gateway::start().await;
    let first = made(&gateway, &ask("one")).await;
    let mut next = ask("two");
    next["previous_response_id"] = first["id"].clone();
    let second = made(&gateway, &next).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    let sessions = gateway
        .node
        .sent
        .peek(|sent| sent.iter().map(|request| request.session.clone()).collect::<Vec<_>>());
    assert_eq!(sessions[0], sessions[1]);
    let (status, refused) = create(&gateway, &next).await;
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("previous_response_id")),
        "{refused}"
    );
    next["previous_response_id"] = second["id"].clone();
    next["model"] = json!("clan");
    let (status, refused) = create(&gateway, &next).await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("model")), "{refused}");
    let missing = format!("resp_{}", "0".repeat(64));
    next["previous_response_id"] = json!(missing);
    let (status, refused) = create(&gateway, &next).await;
    assert_eq!(status, 404);
    assert_eq!(refused["error"]["code"], "previous_response_not_found");
    let (status, text) = get(&gateway, &missing).await;
    assert_eq!(status, 404, "{text}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_response_in_the_background_is_read_and_cancelled() {
    let gateway = Gateway::start().await;
    let mut body = ask("hold");
    body["background"] = json!(true);
    let queued = made(&gateway, &body).await;
    assert_eq!((&queued["status"], &queued["background"]), (&json!("queued"), &json!(true)));
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.text(turn, "one two ");
    let under_way = retrieved(&gateway, &queued).await;
    assert_eq!(under_way["status"], "in_progress");
    assert_eq!(under_way["output"][0]["content"][0]["text"], "one two ");
    let path = format!("/v1/responses/{}/cancel", queued["id"].as_str().unwrap());
    let cancelled: Value = gateway.post(&path).send().await.unwrap().json().await.unwrap();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    assert_eq!(retrieved(&gateway, &queued).await["status"], "cancelled");
    // What is over stays as it is.
    let cancelled: Value = gateway.post(&path).send().await.unwrap().json().await.unwrap();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(gateway.node.cancelled.lock().unwrap().len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn what_fails_has_its_status_and_its_reason() {
    let gateway = Gateway::start().await;
    let (status, answer) = create(&gateway, &ask("fail rate_limited")).await;
    assert_eq!(status, 429, "{answer}");
    let told = stream(&gateway, ask("break rate_limited")).await;
    let response = &last(&told)["response"];
    assert_eq!(last(&told)["type"], "response.failed");
    assert_eq!(response["error"]["code"], "rate_limit_exceeded");
    assert_eq!(retrieved(&gateway, response).await["status"], "failed");
    for (input, reason) in [("length", "max_output_tokens"), ("filter", "content_filter")] {
        let response = made(&gateway, &ask(input)).await;
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"]["reason"], reason);
    }
    let told = stream(&gateway, ask("restart one two three")).await;
    assert_eq!(last(&told)["type"], "response.completed", "it went on where it was the same");
    let told = stream(&gateway, ask("restart other")).await;
    assert_eq!(last(&told)["type"], "error", "{told:?}");
    let (status, _) = create(&gateway, &json!({"model": "absent", "input": "x"})).await;
    assert_eq!(status, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn a_response_with_a_schema_is_json_and_told_at_its_end() {
    let gateway = Gateway::start().await;
    let mut body = ask("hold");
    body["text"] = json!({"format": {"type": "json_object"}});
    body["background"] = json!(true);
    let queued = made(&gateway, &body).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.text(turn, "so: ");
    gateway.node.speak(turn, TurnBody::Reset(ReplyReset::default()));
    gateway.node.text(turn, "```{}```");
    gateway.node.speak(turn, structured(json!({"a": 1})));
    let response = retrieved(&gateway, &queued).await;
    assert_eq!(response["output"][0]["content"][0]["text"], r#"{"a":1}"#);
    gateway.stop().await;
}

#[tokio::test]
async fn the_same_idempotency_key_is_the_same_response() {
    let gateway = Gateway::start().await;
    let send = || {
        let request = gateway.post("/v1/responses").header("idempotency-key", "k1");
        let request = request.json(&ask("hello"));
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let (first, second) = (send().await, send().await);
    assert_eq!(first["id"], second["id"]);
    assert_eq!(gateway.node.sent.peek(Vec::len), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_response_keeps_the_pairs_of_its_client() {
    let gateway = Gateway::start().await;
    let pairs = json!({"order": "7", "desk": "b"});
    let mut labelled = ask("hello");
    labelled["metadata"] = pairs.clone();
    let response = made(&gateway, &labelled).await;
    assert_eq!(response["metadata"], pairs);
    assert_eq!(retrieved(&gateway, &response).await["metadata"], pairs, "it is kept with the turn");
    let (status, error) =
        create(&gateway, &json!({"metadata": [], "model": "default", "input": "x"})).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("metadata")), "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_response_is_deleted_unless_its_session_has_more() {
    let gateway = Gateway::start().await;
    let delete = async |response: &Value| {
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        let request = http_client().delete(gateway.url(&path)).bearer_auth(TOKEN);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let alone = made(&gateway, &ask("hello")).await;
    let deleted = json!({"id": alone["id"], "object": "response", "deleted": true});
    assert_eq!(delete(&alone).await, (200, deleted));
    let first = made(&gateway, &ask("one")).await;
    let mut second = ask("two");
    second["previous_response_id"] = first["id"].clone();
    made(&gateway, &second).await;
    let (status, error) = delete(&first).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("response_id")), "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("`DELETE /v1/sessions/default:openai:default:"), "{message}");
    gateway.stop().await;
}

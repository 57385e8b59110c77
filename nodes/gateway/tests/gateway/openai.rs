//! OpenAI's shapes, to the letter.

use clawnode_cluster::Peek as _;
use clawnode_proto::{
    CallId, Digest, Timestamp,
    frame::ApprovalRequest,
    tool::Risk,
    turn::{ReplyReset, TurnBody},
};
use serde_json::{Value, json};

use super::{
    harness::{Gateway, TOKEN, http_client},
    node::{structured, turn_of},
};

fn ask(content: &str) -> Value {
    json!({"model": "default", "user": "ada", "messages": [{"role": "user", "content": content}]})
}

async fn complete(gateway: &Gateway, body: &Value) -> (u16, Value) {
    let response = gateway.post("/v1/chat/completions").json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// A streamed completion: status, and the payloads of its events.
async fn stream(gateway: &Gateway, mut body: Value) -> (u16, Vec<String>) {
    body["stream"] = json!(true);
    let response = gateway.post("/v1/chat/completions").json(&body).send().await.unwrap();
    let status = response.status().as_u16();
    if status == 200 {
        assert_eq!(response.headers()["content-type"], "text/event-stream");
    }
    let text = response.text().await.unwrap();
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    // Texts have an id, which clients of this protocol ignore.
    let data = |event: &str| match event.lines().find_map(|line| line.strip_prefix("data: ")) {
        Some(data) => data.to_owned(),
        None => event.to_owned(),
    };
    (status, events.map(data).collect())
}

#[tokio::test]
async fn a_completion_that_is_cut_off_is_gone_on_with_as_events() {
    let gateway = Gateway::start().await;
    let mut body = ask("hello");
    body["stream"] = json!(true);
    let response = gateway.post("/v1/chat/completions").json(&body).send().await.unwrap();
    let session = response.headers()["clawnode-session"].to_str().unwrap().to_owned();
    assert_eq!(session, "default:openai:default:ada");
    let text = response.text().await.unwrap();
    let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let rest = gateway.get(&format!("/v1/sessions/{session}/events")).bearer_auth(TOKEN);
    let rest = rest.header("Last-Event-ID", id).send().await.unwrap().text().await.unwrap();
    assert!(rest.contains("event: usage\n") && rest.contains("event: done\n"), "{rest}");
    assert!(!rest.contains("echo: "), "what was seen is not repeated: {rest}");
    gateway.stop().await;
}

fn last_id(gateway: &Gateway) -> String {
    let (session, turn) = gateway.node.sent.peek(|sent| {
        let last = sent.last().unwrap();
        (last.session.entity(), turn_of(last))
    });
    format!("chatcmpl-{:032x}{:032x}", session.as_u128(), turn.as_u128())
}

#[tokio::test]
async fn a_completion_is_read_again_with_its_metadata() {
    let gateway = Gateway::start().await;
    let get = async |id: &str| {
        let path = format!("/v1/chat/completions/{id}");
        let answer = gateway.get(&path).bearer_auth(TOKEN).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let mut labelled = ask("hello");
    labelled["metadata"] = json!({"topic": "demo"});
    labelled["store"] = json!(true);
    let (status, made) = complete(&gateway, &labelled).await;
    assert_eq!((status, made.get("metadata")), (200, None), "{made}");
    let id = made["id"].as_str().unwrap();
    let (status, read) = get(id).await;
    assert_eq!((status, &read["metadata"]), (200, &labelled["metadata"]), "{read}");
    assert_eq!((&read["choices"], &read["usage"]), (&made["choices"], &made["usage"]));
    assert_eq!((&read["id"], &read["model"]), (&made["id"], &made["model"]));
    let (_, plain) = complete(&gateway, &ask("bare")).await;
    assert_eq!(get(plain["id"].as_str().unwrap()).await.1["metadata"], json!({}));
    for (id, status) in [("nonsense", 400), (&*format!("chatcmpl-{:064x}", 7), 404)] {
        let (found, error) = get(id).await;
        assert_eq!((found, &error["error"]["param"]), (status, &json!("completion_id")), "{error}");
    }
    let running = tokio::spawn(gateway.post("/v1/chat/completions").json(&ask("hold")).send());
    gateway.node.stored(3).await;
    let (status, error) = get(&last_id(&gateway)).await;
    assert_eq!((status, &error["error"]["code"]), (503, &json!("unavailable")), "{error}");
    running.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn models_are_agents() {
    let gateway = Gateway::start().await;
    let get = |path: &'static str| {
        let request = gateway.get(path).bearer_auth(TOKEN);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let model =
        |id| json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "clawnode"});
    assert_eq!(
        get("/v1/models").await,
        json!({"object": "list", "data": [model("clan"), model("default")]})
    );
    assert_eq!(get("/v1/models/default").await, model("default"));
    let missing = get("/v1/models/absent").await;
    assert_eq!(missing["error"]["code"], "model_not_found");
    gateway.stop().await;
}

#[tokio::test]
async fn a_completion_has_the_exact_shape() {
    let gateway = Gateway::start().await;
    let (status, body) = complete(&gateway, &ask("hello")).await;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        json!({
            "id": last_id(&gateway),
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "default",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "echo: hello", "refusal": null},
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "total_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 1},
            },
        })
    );
    let session = gateway.node.sent.peek(|sent| sent[0].session.to_string());
    assert_eq!(session, "default:openai:default:ada");
    for (content, reason) in [("filter", "content_filter"), ("length", "length")] {
        let (_, body) = complete(&gateway, &ask(content)).await;
        assert_eq!(body["choices"][0]["finish_reason"], reason);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_has_the_exact_shape() {
    let gateway = Gateway::start().await;
    let (status, events) = stream(&gateway, ask("hello")).await;
    assert_eq!(status, 200);
    let chunk = |delta: &str, reason: &str| {
        format!(
            r#"{{"id":"{}","object":"chat.completion.chunk","created":1700000000,"model":"default","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{reason}}}]}}"#,
            last_id(&gateway)
        )
    };
    assert_eq!(events.first().unwrap(), &chunk(r#"{"role":"assistant","content":""}"#, "null"));
    assert_eq!(events[events.len() - 2], chunk("{}", r#""stop""#));
    assert_eq!(events.last().unwrap(), "[DONE]");
    assert_eq!(said(&events), "echo: hello");
    assert!(!events.iter().any(|event| event.contains("usage")));
    gateway.stop().await;
}

#[tokio::test]
async fn usage_is_streamed_to_who_asks() {
    let gateway = Gateway::start().await;
    let mut body = ask("hello");
    body["stream_options"] = json!({"include_usage": true});
    let (_, events) = stream(&gateway, body).await;
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["total_tokens"], 5);
    let first: Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!(first.get("usage"), Some(&Value::Null), "null, not absent");
    gateway.stop().await;
}

/// The text of a stream's chunks.
fn said(events: &[String]) -> String {
    events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn provider_failures_have_their_status_before_the_first_word() {
    let gateway = Gateway::start().await;
    let table = [
        ("fail unreachable", 502, "server_error", "provider_unreachable"),
        ("fail timeout", 504, "server_error", "provider_timeout"),
        ("fail rate_limited", 429, "rate_limit_error", "provider_rate_limited"),
        ("fail overloaded", 503, "server_error", "provider_overloaded"),
        ("fail unauthorized", 502, "server_error", "provider_unauthorized"),
        ("fail cancelled", 499, "invalid_request_error", "cancelled"),
        ("refuse overloaded", 429, "rate_limit_error", "overloaded"),
        ("refuse disk_full", 507, "server_error", "disk_full"),
        ("refuse quarantined", 409, "invalid_request_error", "quarantined"),
    ];
    for (content, status, kind, code) in table {
        let (found, body) = complete(&gateway, &ask(content)).await;
        assert_eq!(found, status, "{content}");
        assert_eq!(body["error"]["type"], kind, "{content}");
        assert_eq!(body["error"]["code"], code, "{content}");
        assert!(body["error"]["message"].is_string());
        let (found, events) = stream(&gateway, ask(content)).await;
        assert_eq!(found, status, "streamed: {content}");
        let body: Value = serde_json::from_str(&events[0]).unwrap();
        assert_eq!(body["error"]["code"], code, "streamed: {content}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_failure_after_the_first_word_is_a_chunk() {
    let gateway = Gateway::start().await;
    let (status, events) = stream(&gateway, ask("break broken_stream")).await;
    assert_eq!(status, 200);
    assert_eq!(said(&events), "half a ");
    assert_eq!(
        events[events.len() - 2],
        r#"{"error":{"message":"the provider said no","type":"server_error","param":null,"code":"provider_broken_stream"}}"#
    );
    assert_eq!(events.last().unwrap(), "[DONE]");
    let (status, _) = complete(&gateway, &ask("break broken_stream")).await;
    assert_eq!(status, 502, "half a reply is no reply");
    gateway.stop().await;
}

#[tokio::test]
async fn a_reply_begun_again_is_said_once_or_called_broken() {
    let gateway = Gateway::start().await;
    let (_, events) = stream(&gateway, ask("restart one two three")).await;
    assert_eq!(said(&events), "one two three");
    assert_eq!(events.last().unwrap(), "[DONE]");
    let (_, events) = stream(&gateway, ask("restart something else")).await;
    assert_eq!(said(&events), "one two");
    assert!(events[events.len() - 2].contains("provider_broken_stream"), "{events:?}");
    let (status, whole) = complete(&gateway, &ask("restart something else")).await;
    assert_eq!(status, 200);
    assert_eq!(whole["choices"][0]["message"]["content"], "something else");
    gateway.stop().await;
}

/// This protocol takes nothing back, and its clients read the whole as JSON.
#[tokio::test]
async fn a_structured_reply_is_told_once_it_is_checked() {
    for streamed in [true, false] {
        let gateway = Gateway::start().await;
        let schema = json!({"name": "a", "schema": {"type": "object"}, "strict": true});
        let mut body = ask("hold");
        body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        let replies = async {
            gateway.node.stored(1).await;
            let turn = gateway.node.turns_of("hold")[0];
            gateway.node.text(turn, "It is 1.");
            gateway.node.speak(turn, TurnBody::Reset(ReplyReset::default()));
            gateway.node.text(turn, "```json\n{\"a\":1}\n```");
            gateway.node.speak(turn, structured(json!({"a": 1})));
        };
        let said = async {
            if streamed {
                let (status, events) = stream(&gateway, body).await;
                assert_eq!((status, events.last().unwrap().as_str()), (200, "[DONE]"));
                return said(&events);
            }
            let (status, whole) = complete(&gateway, &body).await;
            assert_eq!(status, 200);
            whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
        };
        let (said, ()) = tokio::join!(said, replies);
        assert_eq!(said, r#"{"a":1}"#, "streamed: {streamed}");
        let asked = gateway.node.sent.peek(|sent| sent[0].message.response_schema.clone());
        assert_eq!(asked.unwrap().schema, r#"{"type":"object"}"#);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_schema_that_the_node_refuses_is_named() {
    let gateway = Gateway::start().await;
    let mut body = ask("refuse invalid_params");
    let schema = json!({"name": "a", "schema": {"type": "objet"}});
    body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
    let (status, answer) = complete(&gateway, &body).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_params")));
    assert_eq!(answer["error"]["param"], "response_format.json_schema");
    gateway.stop().await;
}

#[tokio::test]
async fn refusals_have_the_exact_shape() {
    let gateway = Gateway::start().await;
    let mut body = ask("hello");
    body["n"] = json!(2);
    let (status, answer) = complete(&gateway, &body).await;
    assert_eq!(status, 400);
    assert_eq!(
        answer,
        json!({"error": {
            "message": "`n`: only one choice is offered; leave it out or send 1",
            "type": "invalid_request_error",
            "param": "n",
            "code": "unsupported",
        }})
    );
    for model in ["absent", "no such model"] {
        body = ask("hello");
        body["model"] = json!(model);
        let (status, answer) = complete(&gateway, &body).await;
        assert_eq!((status, &answer["error"]["code"]), (404, &json!("model_not_found")), "{model}");
        assert_eq!(answer["error"]["param"], "model");
    }
    let anonymous = http_client()
        .post(gateway.url("/v1/chat/completions"))
        .json(&ask("hello"))
        .send()
        .await
        .unwrap();
    assert_eq!(anonymous.status(), 401);
    let answer: Value = anonymous.json().await.unwrap();
    assert_eq!(answer["error"]["code"], "invalid_api_key");
    for path in ["/v1/responses/x/y", "/v1/audio/speech", "/v1/models/a/b"] {
        let answer = gateway.post(path).json(&json!({})).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["type"], "invalid_request_error", "{path}: {answer}");
    }
    let large = gateway.post("/v1/chat/completions").json(&ask(&"x".repeat(2 << 20)));
    assert_eq!(large.send().await.unwrap().status(), 413);
    assert!(gateway.node.sent.peek(Vec::is_empty));
    gateway.stop().await;
}

#[tokio::test]
async fn a_model_that_there_is_not_gets_the_nearest_names() {
    let gateway = Gateway::start().await;
    let said = json!([{"role": "user", "content": "x"}]);
    let names = "nearest names: `default`, `clan`; `/v1/models` lists all of them";
    for path in ["chat/completions", "responses", "messages", "messages/count_tokens"] {
        // One is no name of an agent, the other is the name of none.
        for model in ["openai/gpt 4o", "absent"] {
            let mut body = json!({"model": model});
            match path {
                "responses" => body["input"] = json!("x"),
                _ => body["messages"] = said.clone(),
            }
            if path == "messages" {
                body["max_tokens"] = json!(4_096);
            }
            let answer = gateway.post(&format!("/v1/{path}")).json(&body).send().await.unwrap();
            let (status, answer) =
                (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
            let message = answer["error"]["message"].as_str().unwrap();
            assert_eq!((status, message.contains(names)), (404, true), "{path}: {answer}");
            assert!(message.contains(&format!("the model `{model}` does not exist")), "{answer}");
        }
    }
    let absent = gateway.get("/v1/models/absent").bearer_auth(TOKEN).send().await.unwrap();
    assert!(absent.text().await.unwrap().contains(names));
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_that_there_is_not_is_no_missing_model() {
    let gateway = Gateway::start().await;
    let file = "file_00000000000000000000000001";
    let part = json!({"type": "file", "file": {"file_id": file}});
    let mut body = ask("x");
    body["messages"] = json!([{"role": "user", "content": [part]}]);
    let (status, answer) = complete(&gateway, &body).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("not_found")), "{answer}");
    let source = json!({"type": "file", "file_id": file});
    let body = json!({"model": "default", "max_tokens": 4_096, "messages": [
        {"role": "user", "content": [{"type": "document", "source": source}]}]});
    let answer = gateway.post("/v1/messages").json(&body).send().await.unwrap();
    let answer = answer.text().await.unwrap();
    assert!(answer.contains("not_found_error") && !answer.contains("the model"), "{answer}");
    gateway.stop().await;
}

#[tokio::test]
async fn the_apis_of_files_say_where_files_go() {
    let gateway = Gateway::start().await;
    for (path, is_anthropic) in [("/v1/uploads", false), ("/v1/files", true)] {
        // More than a socket holds: a client that is cut off while it sends reads no answer.
        let mut request = gateway.post(path).body(vec![b'x'; 8 << 20]);
        if is_anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        let answer = request.send().await.unwrap();
        let (status, answer) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!((status, answer.get("type").is_some()), (404, is_anthropic), "{path}: {answer}");
        assert!(message.contains("`POST /v1/files` with a form"), "{answer}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn embeddings_have_openais_shape() {
    let gateway = Gateway::start().await;
    let post = async |body: Value| {
        let answer = gateway.post("/v1/embeddings").json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, answer) =
        post(json!({"model": "p/m", "input": ["a", "bcd"], "dimensions": 2})).await;
    assert_eq!(status, 200, "{answer}");
    let one = |index: usize, length: f32| json!({"object": "embedding", "index": index, "embedding": [length, length]});
    assert_eq!(answer["data"], json!([one(0, 1.0), one(1, 3.0)]));
    assert_eq!(answer["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    let (_, answer) =
        post(json!({"model": "p/m", "input": "a", "encoding_format": "base64"})).await;
    assert_eq!(answer["data"][0]["embedding"], "AACAPw==", "1.0 in four bytes");
    for (body, status, param) in [
        (json!({"model": "p/m", "input": [[1]]}), 400, "input"),
        (json!({"model": "absent", "input": "a"}), 404, "model"),
        (json!({"model": "p/m", "input": "a", "task": "x"}), 400, "task"),
    ] {
        let (got, answer) = post(body).await;
        assert_eq!((got, answer["error"]["param"].as_str()), (status, Some(param)), "{answer}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_same_idempotency_key_is_the_same_turn() {
    let gateway = Gateway::start().await;
    let mut ids = Vec::new();
    for key in ["one", "one", "two"] {
        let body = json!({"model": "default", "messages": [{"role": "user", "content": "hi"}]});
        let request = gateway.post("/v1/chat/completions").header("idempotency-key", key);
        let answer: Value = request.json(&body).send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], "echo: hi");
        ids.push(answer["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    assert_eq!(gateway.node.sent.peek(Vec::len), 2);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_again_joins_the_turn_of_the_first_try() {
    let gateway = Gateway::start().await;
    let (mut body, mut ids) = (ask("hello"), Vec::new());
    for (count, text) in [("0", "hello"), ("1", "hello"), ("0", "hello"), ("1", "other")] {
        body["messages"][0]["content"] = json!(text);
        let request = gateway.post("/v1/chat/completions").header("x-stainless-retry-count", count);
        let answer: Value = request.json(&body).send().await.unwrap().json().await.unwrap();
        ids.push(answer["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids[0], ids[1]);
    assert!(ids[2] != ids[1] && ids[3] != ids[2], "{ids:?}");
    let sent = gateway.node.sent.peek(Clone::clone);
    let before: Vec<bool> = sent.iter().map(|one| one.sent_before).collect();
    assert_eq!(before, [false, false, true], "the last was sent to another gateway before");
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_is_told_not_to_send_again_what_has_ended() {
    let gateway = Gateway::start().await;
    for stream in [false, true] {
        let mut body = ask("fail overloaded");
        body["stream"] = json!(stream);
        let answer = gateway.post("/v1/chat/completions").json(&body).send().await.unwrap();
        assert!(answer.status().is_server_error(), "{answer:?}");
        assert_eq!(answer.headers()["x-should-retry"], "false");
        assert!(!answer.headers().contains_key("retry-after"));
    }
    // Except that a provider asked for a wait.
    let answer = gateway.post("/v1/chat/completions").json(&ask("fail rate_limited"));
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.headers()["x-should-retry"], "false");
    assert_eq!(answer.headers()["retry-after"], "91");
    let refused = gateway.post("/v1/chat/completions").json(&ask("refuse overloaded"));
    let refused = refused.send().await.unwrap();
    assert!(!refused.headers().contains_key("x-should-retry"), "it was not stored");
    assert_eq!(refused.headers()["retry-after"], "1");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_begins_before_its_first_word_and_says_that_a_person_is_asked() {
    let gateway = Gateway::start().await;
    let mut body = ask("hold");
    body["stream"] = json!(true);
    let mut response = gateway.post("/v1/chat/completions").json(&body).send().await.unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    let first = String::from_utf8_lossy(&first).into_owned();
    assert!(first.contains(r#""delta":{"role":"assistant"#), "{first}");
    let turn = gateway.node.turns_of("hold")[0];
    let request = ApprovalRequest {
        id: CallId::derive_tool(CallId::derive(turn, 0), 0),
        name: "run_command".to_owned(),
        arguments: "{}".to_owned(),
        action: Digest::of(b"action"),
        risk: Risk::Write,
        reason: None,
        expires: Timestamp(2_000),
        truncated: false,
        chars: 2,
    };
    gateway.node.speak(turn, TurnBody::ApprovalRequest(request));
    let asked = response.chunk().await.unwrap().unwrap();
    let asked = String::from_utf8_lossy(&asked).into_owned();
    assert!(asked.starts_with(": a person is asked whether `run_command` may run\n\n"), "{asked}");
    let data = asked.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let chunk: Value = serde_json::from_str(data).unwrap();
    assert_eq!(chunk["clawnode"]["approval"]["name"], "run_command");
    assert_eq!(chunk["choices"][0]["delta"], json!({}));
    gateway.node.text(turn, "one");
    gateway.node.done(turn);
    let rest = response.text().await.unwrap();
    assert!(rest.contains(r#"{"content":"one"}"#) && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(!rest.contains("role"), "said once: {rest}");
    gateway.stop().await;
}

#[tokio::test]
async fn gate_4_a_lost_client_of_a_stream_cancels_nothing() {
    let gateway = Gateway::start().await;
    let mut body = ask("hold");
    body["stream"] = json!(true);
    let request = gateway.post("/v1/chat/completions").json(&body).send();
    let answered = tokio::spawn(request);
    gateway.node.stored(1).await;
    let turn = gateway.node.turns_of("hold")[0];
    gateway.node.text(turn, "one");
    let mut response = answered.await.unwrap().unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    drop(response);
    // A client that asks again meanwhile joins it.
    let again = gateway.post("/v1/chat/completions").json(&body).send();
    let again = tokio::spawn(again);
    gateway.node.followed_by(2).await;
    assert!(gateway.node.cancelled.lock().unwrap().is_empty());
    gateway.node.done(turn);
    assert!(again.await.unwrap().unwrap().text().await.unwrap().contains("one"));
    gateway.node.followed_by(0).await;
    assert_eq!(gateway.node.sent.peek(Vec::len), 1);
    gateway.stop().await;
}

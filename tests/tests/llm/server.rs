//! The scripted model server itself: it holds its clients to the wire, and its log outlives it.

use std::{path::Path, process::Stdio, time::Duration};

use clawnode_actors::llm::Wire;
use clawnode_tests::model::{Act, ModelServer, Reply, Script, Setup, Step, WireName, read_log};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{WIRES, ask, call, client_at, text, url_of};

/// Long enough that reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn http() -> Client {
    let ring = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Client::builder().tls_backend_preconfigured(tls).build().unwrap()
}

pub(crate) async fn post(server: &ModelServer, wire: WireName, body: &Value) -> (u16, Value) {
    let path = match wire {
        WireName::Anthropic => "v1/messages",
        WireName::Openai => "v1/chat/completions",
        WireName::OpenaiResponses => "v1/responses",
        WireName::Gemini => "v1beta/models/m:generateContent",
        WireName::Ollama => "api/chat",
        WireName::Bedrock => "model/m/converse",
    };
    let response = http()
        .post(format!("{}/{path}", server.url()))
        .header("anthropic-version", "2023-06-01")
        .json(body)
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn malformed_requests_are_violations() {
    let say = |role: &str, text: &str| json!({"role": role, "content": text});
    let anthropic = |messages: Value| json!({"model": "m", "max_tokens": 9, "messages": messages});
    let openai = |messages: Value| json!({"model": "m", "messages": messages});
    let orphan = json!([{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]);
    let cases = [
        (WireName::Anthropic, anthropic(json!([])), "not the user's"),
        (WireName::Anthropic, anthropic(json!([say("assistant", "a")])), "alternate"),
        (WireName::Anthropic, anthropic(json!([say("user", "a"), say("user", "b")])), "alternate"),
        (WireName::Anthropic, anthropic(json!([say("user", " ")])), "empty"),
        (WireName::Anthropic, anthropic(json!([say("system", "a")])), "unknown variant `system`"),
        (
            WireName::Anthropic,
            anthropic(json!([say("user", "a"), say("assistant", "b")])),
            "not the user's",
        ),
        (
            WireName::Anthropic,
            anthropic(json!([{"role": "user", "content": orphan}])),
            "orphan tool result `t1`",
        ),
        (WireName::Anthropic, json!({"model": "m", "messages": [say("user", "a")]}), "max_tokens"),
        (
            WireName::Anthropic,
            json!({"model": "m", "max_tokens": 9, "messages": [say("user", "a")], "stop": []}),
            "unknown field `stop`",
        ),
        (WireName::Openai, openai(json!([])), "not the user's"),
        (WireName::Openai, openai(json!([say("assistant", "a"), say("user", "b")])), "begins with"),
        (WireName::Openai, openai(json!([say("user", "a"), say("system", "b")])), "within"),
        (WireName::Openai, openai(json!([say("user", "")])), "empty"),
        (
            WireName::Openai,
            openai(json!([
                say("user", "a"),
                {"role": "tool", "content": "x", "tool_call_id": "c1"},
            ])),
            "orphan tool result `c1`",
        ),
        (
            WireName::Openai,
            json!({"model": "m", "messages": [say("user", "a")], "max_tokenz": 1}),
            "unknown field `max_tokenz`",
        ),
    ];
    let server = ModelServer::start(Setup::default()).await.unwrap();
    for (wire, body, says) in cases {
        let (status, answer) = post(&server, wire, &body).await;
        let violations = server.take_violations();
        assert_eq!((status, violations.len()), (400, 1), "{body}");
        assert!(violations[0].contains(says), "{}", violations[0]);
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{answer}");
    }
    assert_eq!(server.count(), 0, "a malformed request is no call");
    post(&server, WireName::Openai, &openai(json!([say("user", "")]))).await;
    assert!(server.stop().await.is_err(), "an untaken violation fails the test");
}

#[tokio::test]
async fn markers_of_prompt_caching_are_held_to_the_wire() {
    let marker = json!({"type": "ephemeral"});
    let ending = |text: &str| json!({"type": "text", "text": text, "cache_control": marker});
    let body = |system: usize, said: Value| {
        json!({
            "model": "m", "max_tokens": 9, "system": vec![ending("s"); system],
            "tools": [{"name": "get", "input_schema": {"type": "object"}, "cache_control": marker}],
            "messages": [
                {"role": "user", "content": [ending("a")]},
                {"role": "assistant", "content": [said, {"type": "text", "text": "b"}]},
                {"role": "user", "content": [ending("c")]},
            ],
        })
    };
    let said = json!({"type": "text", "text": "a"});
    let thought =
        json!({"type": "thinking", "thinking": "hm", "signature": "x", "cache_control": marker});
    let odd = json!({"type": "text", "text": "a", "cache_control": {"type": "eternal"}});
    let server = ModelServer::start(Setup::default()).await.unwrap();
    let (status, _) = post(&server, WireName::Anthropic, &body(1, said.clone())).await;
    assert_eq!((status, server.take_violations().len()), (200, 0), "four are taken");
    for (body, says) in [
        (body(2, said), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        (body(1, thought), "did not match"),
        (body(0, odd), "did not match"),
    ] {
        let (status, answer) = post(&server, WireName::Anthropic, &body).await;
        assert_eq!((status, server.take_violations().len()), (400, 1), "{body}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{answer}");
    }
    server.stop().await.unwrap();
}

/// A conversation in which an assistant asks for a tool and the user answers, on either wire.
fn with_tools(wire: WireName, set: impl FnOnce(&mut Value)) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let mut body = match wire {
        WireName::Anthropic => json!({
            "model": "m", "max_tokens": 9, "tools": [{"name": "get", "input_schema": schema}],
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "b"},
                    {"type": "tool_use", "id": "t1", "name": "get", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "c"},
                    {"type": "text", "text": "d"},
                ]},
            ],
        }),
        _ => json!({
            "model": "m",
            "tools": [{"type": "function", "function": {"name": "get", "parameters": schema}}],
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "get", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "t1", "content": "c"},
                {"role": "user", "content": "d"},
            ],
        }),
    };
    set(&mut body);
    body
}

/// Puts a value in the place of another.
pub(crate) fn put(at: &str, value: Value) -> impl FnOnce(&mut Value) {
    let at = at.to_owned();
    move |body| *body.pointer_mut(&at).unwrap() = value
}

#[tokio::test]
async fn malformed_tools_are_violations() {
    let use_again = json!({"type": "tool_use", "id": "t1", "name": "get", "input": {}});
    let late = json!([
        {"type": "text", "text": "d"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "c"},
    ]);
    let anthropic: [(&str, Value, &str); 14] = [
        ("/tools", json!([]), "0 tools"),
        ("/tools/0/name", json!("g t"), "a tool name `g t`"),
        ("/tools/0/input_schema", json!({"type": "string"}), "not one of an object"),
        ("/tools/0/input_schema/properties", json!([]), "not one of an object"),
        ("/tools/0", json!({"type": "function"}), "unknown field `type`"),
        ("/messages/1/content/0", use_again, "two tool uses `t1`"),
        ("/messages/1/content/1/id", json!("t:1"), "a tool use id `t:1`"),
        ("/messages/1/content/1/name", json!(""), "a tool name ``"),
        ("/messages/1/content/1/input", json!("{}"), "not an object"),
        ("/messages/1/role", json!("user"), "alternate"),
        ("/messages/2/content/0/tool_use_id", json!("t2"), "an orphan tool result `t2`"),
        ("/messages/2/content", json!("d"), "no tool result for `t1`"),
        ("/messages/2/content/0/content", json!(" "), "an empty tool result"),
        ("/messages/2/content", late, "a tool result after other content"),
    ];
    let again = json!({"id": "t1", "type": "function",
        "function": {"name": "get", "arguments": "{}"}});
    let openai: [(&str, Value, &str); 12] = [
        ("/tools", json!([]), "0 tools"),
        ("/tools/0/type", json!("custom"), "unknown variant `custom`"),
        ("/tools/0/function/name", json!("é"), "a tool name `é`"),
        ("/tools/0/function/parameters", json!("{}"), "not one of an object"),
        ("/messages/1/tool_calls", json!([]), "no tool calls"),
        ("/messages/1/tool_calls", json!([again, again]), "two tool uses `t1`"),
        ("/messages/1/tool_calls/0/id", json!("x".repeat(41)), "1 to 40 bytes"),
        ("/messages/1/tool_calls/0/function/arguments", json!("{"), "not an object in JSON"),
        ("/messages/1/tool_calls/0/function/arguments", json!({}), "expected a string"),
        ("/messages/2/tool_call_id", json!("t2"), "an orphan tool result `t2`"),
        ("/messages/2", json!({"role": "user", "content": "x"}), "no tool result for `t1`"),
        ("/messages/2/content", json!(null), "did not match any variant"),
    ];
    let cases = anthropic
        .into_iter()
        .map(|case| (WireName::Anthropic, case))
        .chain(openai.into_iter().map(|case| (WireName::Openai, case)));
    let server = ModelServer::start(Setup::default()).await.unwrap();
    for wire in [WireName::Anthropic, WireName::Openai] {
        let (status, answer) = post(&server, wire, &with_tools(wire, |_| {})).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(server.take_violations(), Vec::<String>::new());
    }
    for (wire, (at, value, says)) in cases {
        let body = with_tools(wire, put(at, value));
        let (status, _) = post(&server, wire, &body).await;
        let violations = server.take_violations();
        assert_eq!((status, violations.len()), (400, 1), "{wire:?} {at}: {body}");
        assert!(violations[0].contains(says), "{says}: {}", violations[0]);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_missing_key_is_a_violation_and_a_wrong_one_is_not() {
    let setup = Setup { api_key: Some("right".to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    for wire in WIRES {
        let url = url_of(wire, &server);
        let events = call(&*client_at(wire, &url, |_| {}), ask("hi")).await;
        let status = if wire == Wire::Bedrock { 403 } else { 401 };
        assert_eq!(crate::failed(&events).status, Some(status));
        assert!(server.take_violations().is_empty());
        let events = call(&*client_at(wire, &url, |o| o.api_key_env = None), ask("hi")).await;
        assert_eq!(crate::failed(&events).status, Some(400));
        assert_eq!(server.take_violations().len(), 1);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn replies_without_streaming_have_the_wires_shape() {
    let server = ModelServer::start(Setup::default()).await.unwrap();
    let said = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": said});
    let (_, anthropic) = post(&server, WireName::Anthropic, &body).await;
    assert_eq!(anthropic["content"][0]["text"], "reply to: hi");
    assert_eq!(
        (&anthropic["type"], &anthropic["stop_reason"]),
        (&json!("message"), &json!("end_turn"))
    );
    let (_, openai) =
        post(&server, WireName::Openai, &json!({"model": "m", "messages": said})).await;
    assert_eq!(openai["choices"][0]["message"]["content"], "reply to: hi");
    assert_eq!(openai["usage"]["total_tokens"], 4);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn acts_for_a_text_come_before_the_queue_and_the_queue_before_the_default() {
    let mut script = Script::queue([Act::say("queued")]);
    script.on.insert("special".to_owned(), [Act::say("keyed")].into());
    script.default.tokens = 3;
    let server = ModelServer::start(script).await.unwrap();
    let client = client_at(Wire::Openai, &server.openai_url(), |_| {});
    for (asked, said) in
        [("special", "keyed"), ("special", "queued"), ("special", "reply to: special 2 3")]
    {
        assert_eq!(text(&call(&*client, ask(asked)).await), said);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_gate_holds_a_reply_until_the_test_opens_it() {
    let steps = [
        Step::Text { text: "a".to_owned() },
        Step::Gate { name: "g".to_owned() },
        Step::Text { text: "b".to_owned() },
    ];
    let server = ModelServer::start(Script::queue([Reply::steps(steps).into()])).await.unwrap();
    let client = client_at(Wire::Anthropic, &server.url(), |_| {});
    let reply = call(&*client, ask("hi"));
    tokio::pin!(reply);
    tokio::select! {
        biased;
        events = &mut reply => panic!("{events:?}"),
        _ = server.asked(1) => {}
    }
    server.open("g");
    assert_eq!(text(&reply.await), "ab");
    server.stop().await.unwrap();
}

/// A server as a process; killed when it is dropped.
async fn process(log: &Path, more: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_model_server"))
        .args(["--listen", "127.0.0.1:0", "--log"])
        .arg(log)
        .args(more)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let addr = line.strip_prefix("listening ").unwrap().to_owned();
    (child, addr)
}

#[tokio::test]
async fn the_log_outlives_a_kill_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("calls");
    let script = dir.path().join("script.json");
    let stall = json!({"queue": [
        {"do": "reply", "steps": [{"do": "text", "text": "ok"}]},
        {"do": "reply", "steps": [{"do": "text", "text": "par"}, {"do": "stall"}]},
    ]});
    std::fs::write(&script, stall.to_string()).unwrap();
    let (mut child, addr) = process(&log, &["--script", script.to_str().unwrap()]).await;
    let client = client_at(Wire::Anthropic, &format!("http://{addr}"), |o| o.retries = 0);
    assert_eq!(text(&call(&*client, ask("one")).await), "ok");
    let mut stream = client.stream(ask("two"));
    while text(&[futures_util::StreamExt::next(&mut stream).await.unwrap()]) != "par" {}
    child.start_kill().unwrap();
    child.wait().await.unwrap();

    let logged = read_log(&log).unwrap();
    let seen: Vec<_> =
        logged.iter().map(|call| (call.seq, call.last_user.as_str(), call.full)).collect();
    assert_eq!(seen, [(1, "one", Some(true)), (2, "two", None)]);
    assert_eq!(logged[0].key.as_deref(), Some("call-1"));
    assert_ne!(logged[0].digest, logged[1].digest);

    // A second run writes below the first.
    let (_child, addr) = process(&log, &["--tokens", "2"]).await;
    let client = client_at(Wire::Openai, &format!("http://{addr}/v1"), |_| {});
    assert_eq!(text(&call(&*client, ask("three")).await), "reply to: three 2");
    let wires: Vec<_> = read_log(&log).unwrap().iter().map(|call| call.wire).collect();
    assert_eq!(wires, [WireName::Anthropic, WireName::Anthropic, WireName::Openai]);
}

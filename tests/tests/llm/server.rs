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

use crate::{WIRES, ask, call, client_at, text};

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

async fn post(server: &ModelServer, wire: WireName, body: &Value) -> (u16, Value) {
    let path = match wire {
        WireName::Anthropic => "v1/messages",
        WireName::Openai => "v1/chat/completions",
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
async fn a_missing_key_is_a_violation_and_a_wrong_one_is_not() {
    let setup = Setup { api_key: Some("right".to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    for wire in WIRES {
        let url = if wire == Wire::Anthropic { server.url() } else { server.openai_url() };
        let events = call(&*client_at(wire, &url, |_| {}), ask("hi")).await;
        assert_eq!(crate::failed(&events).status, Some(401));
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

//! One trace per turn: from the client's request through the bus to the model call.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, routing::post};
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, Reply, Script, Step},
    process::Node,
};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message as Packet;

use super::{Outcome, scene};

/// Long enough that reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// The trace that the client begins.
const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

/// Bytes of a span before its name: the trace, the span, its state, its parent, each with its tag.
const SPAN_HEAD: usize = 48;
/// What people and models say in these tests.
const CONTENT: [&str; 3] = ["a private matter", "a private thought", "reply to:"];

#[tokio::test]
async fn a_turn_is_one_trace_and_holds_no_content() -> Outcome {
    let asked = "a private matter\n/tool effect_safe {}";
    let calls = Reply::steps([thinks(), Step::tools([("effect_safe", json!({}))])]);
    let script = Script::default().turn(asked, [calls.into(), said()]);
    let (server, home) = scene(script).await;
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = "[agents.default]\nreasoning = \"high\"\ntools = [\"effect_safe\"]\n";
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let exported: Arc<Mutex<Vec<u8>>> = Arc::default();
    let sink = Arc::clone(&exported);
    let take = post(move |body: Bytes| {
        sink.lock().unwrap().extend_from_slice(&body);
        std::future::ready("")
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let serving = axum::serve(listener, Router::new().route("/v1/traces", take));
    let collecting = tokio::spawn(async move { serving.await });
    let home = home.var("OTEL_EXPORTER_OTLP_ENDPOINT", &collector);
    let node = Node::up(&home).await?;
    let messages = json!([{ "role": "user", "content": asked }]);
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", node.url()))
        .bearer_auth(node.client()?.token())
        .header("traceparent", format!("00-{TRACE:032x}-00f067aa0ba902b7-01"))
        .json(&json!({ "model": "default", "messages": messages }))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    // A stop exports what is left.
    node.stop().await?;
    collecting.abort();
    let bytes = exported.lock().unwrap().clone();
    let count = |needle: &[u8]| bytes.windows(needle.len()).filter(|at| *at == needle).count();
    for span in ["gateway.request", "session.call", "chat claude"] {
        assert!(count(span.as_bytes()) > 0, "no span `{span}` was exported");
    }
    assert!(count(b"gen_ai.request.model") > 0, "model calls carry GenAI attributes");
    let spans = count(&TRACE.to_be_bytes());
    assert!(spans >= 3, "{spans} spans belong to the client's trace");
    // A job runs in no task of its session, and maybe on no node of it. In a span's bytes its trace
    // comes first, then its own id and its parent's, then its name.
    assert_eq!(counter.total().unwrap(), 1, "the job ran");
    let name = [&[0x2a, 7][..], b"job.run"].concat();
    let at: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&name)).collect();
    assert!(!at.is_empty(), "no span `job.run` was exported");
    for at in at {
        let before = &bytes[at.saturating_sub(SPAN_HEAD)..at];
        let trace = TRACE.to_be_bytes();
        assert!(
            before.windows(trace.len()).any(|window| window == trace),
            "the job is of another trace"
        );
    }
    assert_eq!(server.calls().len(), 2, "the model thought, and got its thought back");
    for content in CONTENT {
        assert_eq!(count(content.as_bytes()), 0, "`{content}` is captured");
    }
    Ok(())
}

/// What a model thinks.
fn thinks() -> Step {
    Step::Thinking { text: "a private thought".to_owned() }
}

/// What it says after that.
fn said() -> Act {
    Reply::steps([thinks(), Step::Text { text: "reply to: you".to_owned() }]).into()
}

/// A log contains neither tokens nor content, however much is logged.
#[tokio::test]
async fn a_log_at_trace_holds_no_token_and_no_content() -> Outcome {
    let script = Script::default().turn("a private matter", [said()]);
    let (server, home) = scene(script).await;
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__REASONING", "high");
    let home = home.var("RUST_LOG", "trace,async_nats=debug");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    // The token is the first message on this socket, and the content the second.
    let url = node.url().replace("http://", "ws://") + "/ws";
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let mut send = async |value: serde_json::Value| {
        socket.send(Packet::text(value.to_string())).await.unwrap();
    };
    send(json!({ "token": client.token() })).await;
    let params = json!({
        "channel": "web", "account": "a", "peer": "p", "content": "a private matter",
    });
    send(json!({ "id": 1, "method": "chat.send", "params": params })).await;
    let done = async {
        loop {
            match socket.next().await {
                Some(Ok(Packet::Text(text))) if text.contains(r#""event":"done""#) => break,
                Some(Ok(_)) => {}
                other => panic!("the socket ended before the turn: {other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("the turn takes too long");
    let token = client.token().to_owned();
    node.stop().await?;
    let log = std::fs::read_to_string(home.log()).unwrap();
    let is_ours = |line: &&str| line.contains("DEBUG") && line.contains("clawnode");
    assert!(log.lines().any(|line| is_ours(&line)), "it logs too little");
    assert!(log.contains("async_nats=debug"), "it must say that this is not logged");
    assert_eq!(server.calls().len(), 1, "the model was asked");
    for secret in CONTENT.into_iter().chain([token.as_str()]) {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a log contains a secret");
    }
    Ok(())
}

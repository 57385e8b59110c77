//! What a person reads of a node that they start themselves.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::post};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
};

use super::harness::Home;

/// Lines of a log, by their level.
fn logged<'a>(text: &'a str, level: &str) -> Vec<&'a str> {
    let level = format!(" {level} ");
    text.lines().filter(|line| line.contains(&level) && line.contains("clawnode::")).collect()
}

#[tokio::test]
async fn a_first_start_is_one_line_of_the_log_and_nothing_is_a_warning() {
    let home = Home::new();
    let mut child = home.command(&["up", "--listen", "127.0.0.1:0"], &[]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(out.next_line().await.unwrap().expect("it starts").starts_with("ready http://"));
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = home.end(child).await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(logged(&ended.err, "WARN"), Vec::<&str>::new());
    let lines = logged(&ended.err, "INFO");
    assert!(lines.first().is_some_and(|line| line.contains("node serves")), "{}", ended.err);
    assert!(lines.get(1).is_some_and(|line| line.contains("stopping")), "{}", ended.err);
}

#[tokio::test]
async fn a_chat_tells_of_a_retry_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let answer = move || {
        let first = count.fetch_add(1, Ordering::Relaxed) == 0;
        let reply = json!({ "role": "assistant", "content": "hello" });
        let body = json!({
            "id": "1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{ "index": 0, "message": reply, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
        });
        let busy = (StatusCode::SERVICE_UNAVAILABLE, "busy").into_response();
        std::future::ready(if first { busy } else { Json(body).into_response() })
    };
    let router = Router::new().route("/v1/chat/completions", post(answer));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let home = Home::new();
    home.write(
        "config.toml",
        &format!(
            "[providers.lab]\nwire = 'openai'\nbase_url = 'http://{address}/v1'\n\
             [agents.default]\nmodel = 'lab/m'\n"
        ),
    );
    let args = ["--config", "config.toml", "--listen", "127.0.0.1:0", "up", "--chat"];
    let ended = home.run_with(&args, &[], "hi\n").await;
    serving.abort();
    assert_eq!((ended.code, ended.out.as_str()), (0, "hello\n"), "{}", ended.err);
    assert_eq!(ended.err.matches("retry 1 ").count(), 1, "{}", ended.err);
    assert!(!ended.err.contains("WARN"), "{}", ended.err);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

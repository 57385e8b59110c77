//! A turn as server-sent events, and what `Last-Event-ID` makes of it.

use std::num::NonZeroUsize;

use clawnode_cluster::Peek as _;
use clawnode_proto::{
    FrameKey, TurnId,
    frame::Notice,
    turn::{ReplyReset, TurnBody},
};
use serde_json::{Value, json};

use super::harness::{Gateway, TOKEN, patiently};

/// The session of all tests here.
const PATH: &str = "/v1/sessions/default:test:bot:ada/events";

/// One event as it came: name, id, data.
type Told = (String, Option<String>, Value);

/// A turn that waits for the test to speak.
async fn held(gateway: &Gateway) -> TurnId {
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hold").await;
    gateway.node.stored(1).await;
    gateway.node.turns_of("hold")[0]
}

async fn get(gateway: &Gateway, path: &str, last: Option<&str>) -> reqwest::Response {
    let mut get = gateway.get(path).bearer_auth(TOKEN);
    if let Some(last) = last {
        get = get.header("Last-Event-ID", last);
    }
    patiently("an answer", get.send()).await.unwrap()
}

/// A stream's events to its end.
async fn read(response: reqwest::Response) -> (String, Vec<Told>) {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = patiently("the end", response.text()).await.unwrap();
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(": ").to_owned())
    };
    let told = text.split("\n\n").filter(|block| block.contains("event")).map(|block| {
        let data = serde_json::from_str(&field(block, "data").unwrap()).unwrap();
        (field(block, "event").unwrap(), field(block, "id"), data)
    });
    let told = told.collect();
    (text, told)
}

fn names(told: &[Told]) -> Vec<&str> {
    told.iter().map(|(name, _, _)| name.as_str()).collect()
}

/// GATE-2, GATE-5.
#[tokio::test]
async fn a_turn_is_told_and_gone_on_with_from_the_last_id() {
    let gateway = Gateway::start().await;
    let turn = held(&gateway).await;
    let notice =
        TurnBody::Notice(Notice { name: "retrying".to_owned(), message: "a\nb".to_owned() });
    gateway.node.text(turn, "one\n\n");
    gateway.node.speak(turn, notice);
    gateway.node.text(turn, "two");
    gateway.node.speak(turn, TurnBody::Reset(ReplyReset { text: "thr".to_owned() }));
    gateway.node.text(turn, "ee");
    gateway.node.done(turn);
    let (text, told) = read(get(&gateway, PATH, None).await).await;
    assert!(text.starts_with("retry: "), "{text}");
    assert_eq!(names(&told), ["accepted", "text", "notice", "text", "reset", "text", "done"]);
    assert_eq!(told[0].2["turn"], json!(turn));
    assert_eq!((&told[1].2, &told[4].2), (&json!("one\n\n"), &json!({ "text": "thr" })));
    assert_eq!(told[6].2["outcome"]["type"], "completed");
    let last = told[3].1.clone().unwrap();
    assert!(last.parse::<FrameKey>().is_ok(), "{last}");

    let (_, rest) = read(get(&gateway, PATH, Some(&last)).await).await;
    assert_eq!(names(&rest), ["accepted", "reset", "text", "done"]);
    assert_eq!(rest[1..], told[4..]);
    // The header goes before the address, which browsers repeat as it was.
    let path = format!("{PATH}?turn={turn}&cursor={last}");
    assert_eq!(read(get(&gateway, &path, None).await).await.1[1..], told[4..]);
    let later = told[4].1.as_deref();
    assert_eq!(read(get(&gateway, &path, later).await).await.1[1..], told[5..]);
    gateway.stop().await;
}

#[tokio::test]
async fn gate_3_a_slow_reader_is_told_and_loses_nothing() {
    let gateway = Gateway::start_with(|options| {
        options.queue_frames = NonZeroUsize::new(8).unwrap();
        options.queue_bytes = NonZeroUsize::new(64 << 10).unwrap();
    })
    .await;
    let turn = held(&gateway).await;
    gateway.node.followed_by(0).await;
    let mut quick = gateway.connect().await;
    let slow = get(&gateway, PATH, None).await;
    gateway.node.followed_by(1).await;
    // More than all socket buffers on the way can hold; `slow` reads nothing meanwhile.
    let part = "x".repeat(32 << 10);
    let mut written = 0_usize;
    while gateway.node.followed.peek(|count| *count) > 0 {
        gateway.node.text(turn, &part);
        written += 1;
        quick.call(1, "ping", json!({})).await;
        assert_eq!(quick.frame().await["result"], "pong");
        assert!(written < 10_000, "nothing ever filled up");
    }
    gateway.node.done(turn);
    let (_, told) = read(slow).await;
    let lagged = told.iter().find(|(name, _, _)| name == "lagged").unwrap();
    assert!(lagged.1.as_ref().unwrap().parse::<FrameKey>().is_ok());
    assert_eq!(told.last().unwrap().0, "done", "GATE-2");
    let texts = told.iter().filter(|(name, _, _)| name == "text");
    let said: usize = texts.map(|(_, _, text)| text.as_str().unwrap().len()).sum();
    assert_eq!(said, written * part.len(), "no gap and no repeat");
    gateway.stop().await;
}

#[tokio::test]
async fn gate_4_a_reader_that_leaves_is_followed_no_longer() {
    let gateway = Gateway::start().await;
    let turn = held(&gateway).await;
    gateway.node.followed_by(0).await;
    let mut left = get(&gateway, PATH, None).await;
    gateway.node.text(turn, "one");
    let mut told = String::new();
    while !told.contains("one") {
        let piece = patiently("a piece", left.chunk()).await.unwrap().unwrap();
        told.push_str(std::str::from_utf8(&piece).unwrap());
    }
    drop(left);
    gateway.node.followed_by(0).await;
    assert!(gateway.node.cancelled.lock().unwrap().is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn who_has_seen_the_end_is_told_to_stop() {
    let gateway = Gateway::start().await;
    let turn = held(&gateway).await;
    gateway.node.done(turn);
    let (_, told) = read(get(&gateway, PATH, None).await).await;
    let seen: FrameKey = told[1].1.as_ref().unwrap().parse().unwrap();
    // A real node's `done` has the last index there is.
    let done = FrameKey { index: FrameKey::DONE, ..seen }.to_string();
    assert_eq!(get(&gateway, PATH, Some(&done)).await.status(), 204);
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_before_anything_is_told() {
    let gateway = Gateway::start().await;
    held(&gateway).await;
    let none = gateway.get(PATH).send().await.unwrap();
    assert_eq!(none.status(), 401, "GATE-1");
    for (path, last, status, code) in [
        (PATH, Some("nonsense"), 400, "invalid_params"),
        ("/v1/sessions/default:test:bot:absent/events", None, 404, "not_found"),
        ("/v1/sessions/x/events", None, 400, "invalid_params"),
        ("/v1/sessions/default:test:bot:ada/events?more=1", None, 400, "invalid_params"),
    ] {
        let refused = get(&gateway, path, last).await;
        assert_eq!(refused.status(), status, "{path}");
        assert_eq!(refused.json::<Value>().await.unwrap()["code"], code, "{path}");
    }
    gateway.stop().await;
}

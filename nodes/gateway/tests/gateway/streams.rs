//! Turns on `/ws`: many at once, slow readers, lost clients, a stop.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::atomic::Ordering};

use clawnode_cluster::Peek as _;
use clawnode_gateway::SendRequest;
use clawnode_proto::{
    TurnId,
    api::SendMode,
    frame::Notice,
    llm::Usage,
    turn::{Lagged, ReplyReset, TurnBody},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, sync::Semaphore};

use super::harness::{Client, Gateway, TOKEN, events, message, text};

/// Requests at once on one socket.
const MOST: usize = 64;

async fn accepted(client: &mut Client) -> TurnId {
    let frame = client.frame().await;
    assert_eq!(frame["event"], "accepted", "{frame}");
    frame["data"]["turn"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_turn_streams_in_frames() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.send("one", "ada", "hello").await;
    let frames = client.stream().await;
    assert!(frames.iter().all(|frame| frame["id"] == "one"));
    let turn = frames[0]["data"]["turn"].clone();
    assert_eq!(frames[0]["data"]["session"], "default:test:bot:ada");
    assert!(frames[0]["data"]["cursor"].is_string());
    assert_eq!(events(&frames).first(), Some(&"accepted"));
    assert_eq!(events(&frames).last(), Some(&"done"));
    assert_eq!(text(&frames), "echo: hello");
    let usage = frames.iter().find(|frame| frame["event"] == "usage").unwrap();
    assert_eq!(serde_json::from_value::<Usage>(usage["data"].clone()).unwrap(), super::node::USAGE);
    let outcome = json!({"type": "completed", "stop": {"type": "end_turn"}});
    assert_eq!(frames.last().unwrap()["data"], json!({"turn": turn, "outcome": outcome}));
    gateway.stop().await;
}

/// GATE-2.
#[tokio::test]
async fn all_event_kinds_have_their_frames() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hold").await;
    let turn = accepted(&mut client).await;
    let node = &gateway.node;
    let notice =
        TurnBody::Notice(Notice { name: "retrying".to_owned(), message: "again".to_owned() });
    node.speak(turn, notice);
    node.text(turn, "one");
    node.speak(turn, TurnBody::Reset(ReplyReset { text: "tw".to_owned() }));
    node.speak(turn, TurnBody::Lagged(Lagged::default()));
    node.text(turn, "o");
    node.done(turn);
    let frames = client.stream().await;
    assert_eq!(events(&frames), ["notice", "text", "reset", "lagged", "text", "done"]);
    assert_eq!(frames[0]["data"], json!({"name": "retrying", "message": "again"}));
    assert_eq!(text(&frames), "two");
    client.send(2, "ada", "fail timeout").await;
    let frames = client.stream().await;
    assert_eq!(events(&frames), ["accepted", "error", "done"]);
    assert_eq!(frames[1]["data"]["code"], "provider_timeout");
    assert_eq!(frames[2]["data"]["outcome"]["type"], "failed");
    client.send(3, "ada", "refuse overloaded").await;
    let frames = client.stream().await;
    assert_eq!(events(&frames), ["error", "done"]);
    assert_eq!(
        frames[0]["data"],
        json!({"code": "overloaded", "message": "refused as told", "hint": "do not ask"})
    );
    gateway.stop().await;
}

#[tokio::test]
async fn bindings_agents_modes_and_keys_reach_the_node() {
    let gateway = Gateway::start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("traceparent", trace)];
    let mut client = gateway.connect_with(&headers).await.unwrap();
    let mut params = message("ada", "hello");
    params["guild"] = json!("clan");
    params["mode"] = json!("steer");
    params["idempotency_key"] = json!("key 1");
    client.call(1, "chat.send", params.clone()).await;
    let first = client.stream().await;
    client.call(2, "chat.send", params.clone()).await;
    let second = client.stream().await;
    assert_eq!(first[0]["data"], second[0]["data"], "the same key finds the same turn");
    params["agent"] = json!("other");
    client.call(3, "chat.send", params).await;
    client.stream().await;
    let sent = gateway.node.sent.peek(Clone::clone);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].session.to_string(), "clan:test:bot:ada");
    assert_eq!(sent[0].mode, SendMode::Steer);
    assert_eq!(sent[0].key.as_str(), "key 1");
    assert_eq!(sent[0].trace.as_ref().unwrap().0, trace);
    assert_eq!(sent[1].session.to_string(), "other:test:bot:ada");
    gateway.stop().await;
}

#[tokio::test]
async fn many_streams_share_a_socket_and_cancel_has_room() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    for id in 0..MOST {
        client.send(id, &format!("peer-{id}"), "hold").await;
    }
    let mut turns = Vec::new();
    for _ in 0..MOST {
        turns.push(accepted(&mut client).await);
    }
    client.send("more", "ada", "hello").await;
    let refused = client.stream().await;
    assert_eq!(refused[0]["data"]["code"], "overloaded");
    // Cancelling one makes room.
    let params = json!({"session": "default:test:bot:peer-0", "turn": turns[0].to_string()});
    client.call("cancel", "chat.cancel", params).await;
    let frames = [client.frame().await, client.frame().await];
    let ended = frames.iter().find(|frame| frame["event"] == "done").unwrap();
    assert_eq!(ended["data"]["outcome"]["type"], "cancelled");
    let answer = frames.iter().find(|frame| frame["id"] == "cancel").unwrap();
    assert_eq!(answer["result"], json!({"ok": true}));
    assert_eq!(*gateway.node.cancelled.lock().unwrap(), [turns[0]]);
    // The others speak all at once; each stream is whole and in order.
    for part in 0..20 {
        for turn in &turns[1..] {
            gateway.node.text(*turn, &format!("{part},"));
        }
    }
    turns[1..].iter().for_each(|turn| gateway.node.done(*turn));
    let mut streams: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut open = MOST - 1;
    while open > 0 {
        let frame = client.frame().await;
        open -= usize::from(frame["event"] == "done");
        streams.entry(frame["id"].to_string()).or_default().push(frame);
    }
    let expected = (0..20).map(|part| part.to_string() + ",").collect::<String>();
    assert_eq!(streams.len(), MOST - 1);
    for (id, frames) in &streams {
        assert_eq!(text(frames), expected, "stream {id}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn messages_to_one_session_are_stored_in_order() {
    let gateway = Gateway::start().await;
    gateway.node.uneven.store(true, Ordering::Relaxed);
    let mut client = gateway.connect().await;
    for id in 0..50 {
        client.send(id, "ada", &format!("message {id}")).await;
    }
    gateway.node.stored(50).await;
    let text = |request: &SendRequest| request.message.content.inline().unwrap().to_owned();
    let stored: Vec<String> = gateway.node.sent.peek(|sent| sent.iter().map(text).collect());
    let sent: Vec<String> = (0..50).map(|id| format!("message {id}")).collect();
    assert_eq!(stored, sent);
    gateway.stop().await;
}

#[tokio::test]
async fn gate_4_a_lost_client_cancels_nothing_and_resumes_without_gap_or_repeat() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hold").await;
    let turn = accepted(&mut client).await;
    gateway.node.text(turn, "one ");
    let seen = client.frame().await;
    drop(client);
    gateway.node.followed_by(0).await;
    assert!(gateway.node.cancelled.lock().unwrap().is_empty());
    gateway.node.text(turn, "two ");
    let mut again = gateway.connect().await;
    let params = json!({"session": "default:test:bot:ada", "cursor": seen["cursor"]});
    again.call(2, "sessions.resume", params).await;
    assert_eq!(accepted(&mut again).await, turn);
    assert_eq!(again.frame().await["data"], "two ");
    gateway.node.text(turn, "three");
    gateway.node.done(turn);
    assert_eq!(text(&again.stream().await), "three");
    // Without a cursor: from the start; by id, too.
    let id = gateway.node.sent.peek(|sent| sent[0].session.entity().to_string());
    again.call(3, "sessions.resume", json!({"session": id})).await;
    assert_eq!(text(&again.stream().await), "one two three");
    again.call(4, "sessions.resume", json!({"session": "default:test:bot:absent"})).await;
    let frames = again.stream().await;
    assert_eq!(frames[0]["data"]["code"], "not_found");
    let other = json!({"session": id, "cursor": seen["cursor"], "turn": TurnId::from_u128(7)});
    again.call(5, "sessions.resume", other).await;
    assert_eq!(again.stream().await[0]["data"]["code"], "invalid_params");
    gateway.stop().await;
}

/// What reads a turn for the process fails in the middle of it: its clients hear the rest all the same.
#[tokio::test]
async fn a_stream_that_ends_too_early_is_followed_again_without_gap_or_repeat() {
    let gateway = Gateway::start().await;
    gateway.node.cuts.lock().unwrap().extend([1, 2, 0, 1, 0, 0]);
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hold").await;
    let turn = accepted(&mut client).await;
    for word in ["one ", "two ", "three ", "four ", "five ", "six"] {
        gateway.node.text(turn, word);
    }
    gateway.node.done(turn);
    let frames = client.stream().await;
    assert_eq!(text(&frames), "one two three four five six");
    assert!(!events(&frames).contains(&"error"), "{:?}", events(&frames));
    assert_eq!(gateway.node.resumed.load(Ordering::Relaxed), 6);
    // If nothing comes any more, they hear that at once.
    gateway.node.cuts.lock().unwrap().extend([1, 0, 0, 0, 0]);
    client.send(2, "bob", "hold").await;
    let turn = accepted(&mut client).await;
    gateway.node.text(turn, "one");
    let frames = client.stream().await;
    assert_eq!((text(&frames).as_str(), events(&frames).last()), ("one", Some(&"done")));
    let error = frames.iter().find(|frame| frame["event"] == "error").unwrap();
    assert!(error["data"]["message"].as_str().unwrap().contains("lost track"), "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_whose_sender_hangs_up_is_stored_all_the_same() {
    let gateway = Gateway::start().await;
    gateway.node.gate.forget_permits(Semaphore::MAX_PERMITS);
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hello").await;
    client.call(2, "ping", json!({})).await;
    client.frame().await; // so the message before it was read
    client.socket.close(None).await.unwrap();
    drop(client);
    gateway.node.gate.add_permits(1);
    gateway.node.stored(1).await;
    gateway.node.followed_by(0).await;
    gateway.stop().await;
}

#[tokio::test]
async fn gate_3_a_slow_reader_is_told_and_loses_nothing() {
    let gateway = Gateway::start_with(|options| {
        options.queue_frames = NonZeroUsize::new(8).unwrap();
        options.queue_bytes = NonZeroUsize::new(64 << 10).unwrap();
    })
    .await;
    let (mut slow, mut quick) = (gateway.connect().await, gateway.connect().await);
    slow.send(1, "slow", "hold").await;
    let turn = accepted(&mut slow).await;
    // More than all socket buffers on the way can hold; `slow` reads nothing meanwhile.
    let part = "x".repeat(32 << 10);
    let mut written = 0_usize;
    while gateway.node.resumed.load(Ordering::Relaxed) == 0
        && gateway.node.followed.peek(|count| *count) > 0
    {
        gateway.node.text(turn, &part);
        written += 1;
        // Another socket is served as ever, and gives the slow one's tasks time to run.
        quick.call(1, "ping", json!({})).await;
        assert_eq!(quick.frame().await["result"], "pong");
        assert!(written < 10_000, "nothing ever filled up");
    }
    assert_eq!(
        gateway.node.followed.peek(|count| *count),
        0,
        "the turn is not held up by its reader"
    );
    gateway.node.done(turn);
    let frames = slow.stream().await;
    assert!(events(&frames).contains(&"lagged"), "{:?}", events(&frames));
    let lagged = frames.iter().find(|frame| frame["event"] == "lagged").unwrap();
    assert!(lagged["cursor"].is_string());
    assert_eq!(text(&frames).len(), written * part.len(), "no gap and no repeat");
    let metrics = gateway.get("/metrics").bearer_auth(TOKEN).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(!metrics.contains("clawnode_gateway_lagged_total 0\n"), "{metrics}");
    gateway.stop().await;
}

/// What makes good and what ends a turn comes after a text that is all that may wait.
#[tokio::test]
async fn gate_3_a_text_larger_than_the_queue_is_told_once_with_what_follows_it() {
    let gateway = Gateway::start_with(|options| {
        options.queue_bytes = NonZeroUsize::new(1 << 10).unwrap();
    })
    .await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hold").await;
    let turn = accepted(&mut client).await;
    let whole = "x".repeat(256 << 10);
    // All of it at once, as it comes from the journal.
    gateway.node.speak_all(
        turn,
        [
            TurnBody::Reset(ReplyReset { text: whole.clone() }),
            TurnBody::Usage(super::node::USAGE),
            super::node::Node::end(),
        ],
    );
    let frames = client.stream().await;
    assert_eq!(events(&frames), ["reset", "usage", "done"]);
    assert_eq!(text(&frames), whole);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stop_lets_streams_end_and_begins_nothing() {
    let gateway = Gateway::start().await;
    let (mut busy, mut idle) = (gateway.connect().await, gateway.connect().await);
    busy.send(1, "ada", "hold").await;
    let turn = accepted(&mut busy).await;
    gateway.shutdown.cancel();
    assert_eq!(idle.close_code().await, 1001);
    busy.send(2, "bob", "hello").await;
    let refused = busy.stream().await;
    assert_eq!(refused[0]["data"]["code"], "unavailable");
    assert!(gateway.connect_with(&[]).await.is_err(), "no new client is let in");
    gateway.node.text(turn, "the end");
    gateway.node.done(turn);
    assert_eq!(text(&busy.stream().await), "the end");
    assert_eq!(busy.close_code().await, 1001);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stop_waits_only_so_long() {
    let gateway = Gateway::start_with(|options| {
        options.drain = std::time::Duration::from_millis(20);
    })
    .await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", "hold").await;
    accepted(&mut client).await;
    // A message that never gets stored does not hold up the end, nor does half a request.
    gateway.node.gate.forget_permits(Semaphore::MAX_PERMITS);
    client.send(2, "bob", "hello").await;
    client.call(3, "ping", json!({})).await;
    client.frame().await; // so the message before it was read
    let mut half = tokio::net::TcpStream::connect(gateway.serving.addr).await.unwrap();
    half.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let node = std::sync::Arc::clone(&gateway.node);
    gateway.stop().await;
    assert!(node.cancelled.lock().unwrap().is_empty(), "GATE-4");
}

#[tokio::test]
async fn who_reads_nothing_at_all_is_let_go() {
    let gateway = Gateway::start_with(|options| {
        options.write_deadline = std::time::Duration::from_millis(50);
    })
    .await;
    let (mut socket, mut other) = (gateway.connect().await, gateway.connect().await);
    socket.send(1, "ada", "hold").await;
    let on_socket = accepted(&mut socket).await;
    let body = json!({"model": "default", "stream": true, "user": "bob",
        "messages": [{"role": "user", "content": "hold"}]});
    let request = gateway.post("/v1/chat/completions").json(&body).send();
    let asked = tokio::spawn(request);
    gateway.node.stored(2).await;
    let on_http = gateway.node.turns_of("hold")[1];
    // Both keep their connections, and read nothing more.
    let part = "x".repeat(1 << 20);
    for _ in 0..32 {
        gateway.node.text(on_socket, &part);
        gateway.node.text(on_http, &part);
        other.call(1, "ping", json!({})).await;
        assert_eq!(other.frame().await["result"], "pong");
    }
    let response = asked.await.unwrap().unwrap();
    // The gateway itself follows the completion to its end, in case its client asks again.
    gateway.node.followed_by(1).await;
    assert!(gateway.node.cancelled.lock().unwrap().is_empty(), "GATE-4");
    gateway.node.done(on_http);
    gateway.node.followed_by(0).await;
    drop((socket, response));
    gateway.stop().await;
}

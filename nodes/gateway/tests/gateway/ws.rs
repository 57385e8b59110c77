//! `/ws`: who gets in, and what nonsense gets for an answer.

use clawnode_cluster::Peek as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message};

use super::harness::{Client, Gateway, TOKEN, events, message, patiently};

async fn ping(client: &mut Client) {
    client.call("p", "ping", json!({})).await;
    assert_eq!(client.frame().await, json!({"id": "p", "result": "pong"}));
}

#[tokio::test]
async fn the_token_in_the_upgrade() {
    let gateway = Gateway::start().await;
    ping(&mut gateway.connect().await).await;
    for wrong in ["Bearer wrong", "Bearer ", "Basic x", TOKEN] {
        let Err(tungstenite::Error::Http(response)) =
            gateway.connect_with(&[("authorization", wrong)]).await
        else {
            panic!("`{wrong}` got in");
        };
        assert_eq!(response.status(), 401, "{wrong}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_token_as_first_message() {
    let gateway = Gateway::start().await;
    let good = [
        json!({"token": TOKEN}).to_string(),
        json!({"type": "auth", "token": TOKEN}).to_string(),
        TOKEN.to_owned(),
        format!(" {TOKEN}\n"),
    ];
    for first in good {
        let mut client = gateway.connect_with(&[]).await.unwrap();
        client.say(&first).await;
        ping(&mut client).await;
    }
    let bad = [
        json!({"token": "wrong"}).to_string(),
        json!({"token": ""}).to_string(),
        json!({"token": 7}).to_string(),
        json!({"id": 1, "method": "ping"}).to_string(),
        String::new(),
        "wrong".to_owned(),
        "{".to_owned(),
    ];
    for first in bad {
        let mut client = gateway.connect_with(&[]).await.unwrap();
        client.say(&first).await;
        let frame = client.frame().await;
        assert_eq!(frame["error"]["data"]["code"], "unauthorized", "{first}");
        assert_eq!(frame["id"], Value::Null);
        assert_eq!(client.close_code().await, 1008, "{first}");
    }
    let mut binary = gateway.connect_with(&[]).await.unwrap();
    binary.socket.send(Message::binary(TOKEN.as_bytes())).await.unwrap();
    assert_eq!(binary.frame().await["error"]["data"]["code"], "unauthorized");
    gateway.stop().await;
}

#[tokio::test]
async fn who_shows_nothing_in_time_is_let_go() {
    let gateway = Gateway::start_with(|options| {
        options.auth_deadline = std::time::Duration::from_millis(50);
    })
    .await;
    let mut client = gateway.connect_with(&[]).await.unwrap();
    assert_eq!(client.frame().await["error"]["data"]["code"], "unauthorized");
    assert_eq!(client.close_code().await, 1008);
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_token_nothing_is_asked_and_a_greeting_is_welcome() {
    let gateway = Gateway::start_with(|options| options.token = None).await;
    let mut client = gateway.connect_with(&[]).await.unwrap();
    ping(&mut client).await;
    let mut greeter = gateway.connect_with(&[]).await.unwrap();
    greeter.say(json!({"token": "whatever"}).to_string()).await;
    ping(&mut greeter).await;
    gateway.stop().await;
}

#[tokio::test]
async fn auth_2_a_ticket_opens_one_socket() {
    let gateway = Gateway::start().await;
    let made = gateway.rpc("ticket.create", json!({})).await;
    let protocol = made["result"]["protocol"].as_str().unwrap().to_owned();
    assert!(protocol.starts_with("clawnode.ticket."));
    assert_eq!(made["result"]["expires_seconds"], 30);
    let offer = format!("clawnode, {protocol}");
    let mut client = gateway.connect_with(&[("sec-websocket-protocol", &offer)]).await.unwrap();
    assert_eq!(client.protocol.as_ref().unwrap(), "clawnode");
    ping(&mut client).await;
    let Err(tungstenite::Error::Http(response)) =
        gateway.connect_with(&[("sec-websocket-protocol", &offer)]).await
    else {
        panic!("a ticket worked twice");
    };
    assert_eq!(response.status(), 401);
    let made = gateway.rpc("ticket.create", json!({})).await;
    let alone = made["result"]["protocol"].as_str().unwrap();
    let mut client = gateway.connect_with(&[("sec-websocket-protocol", alone)]).await.unwrap();
    assert_eq!(client.protocol.as_ref().unwrap(), alone);
    ping(&mut client).await;
    gateway.stop().await;
}

#[tokio::test]
async fn nonsense_is_answered_and_closes_nothing() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    let deep = "[".repeat(10_000);
    let table = [
        ("{", Value::Null, -32700, "malformed"),
        ("", Value::Null, -32700, "malformed"),
        ("not json", Value::Null, -32700, "malformed"),
        (deep.as_str(), Value::Null, -32700, "malformed"),
        (r#"{"id":1,"method":"ping"} trailing"#, Value::Null, -32700, "malformed"),
        // Readers differ about which of the two counts.
        (r#"{"id":1,"method":"ping","method":"panic"}"#, Value::Null, -32700, "malformed"),
        (r#"{"id":1,"method":"ping","m\u0065thod":"panic"}"#, Value::Null, -32700, "malformed"),
        (
            r#"{"id":1,"method":"ping","params":{"o":[{"a":1,"a":2}]}}"#,
            Value::Null,
            -32700,
            "malformed",
        ),
        ("[]", Value::Null, -32600, "invalid_request"),
        ("7", Value::Null, -32600, "invalid_request"),
        (r#"[{"id":1,"method":"ping"}]"#, Value::Null, -32600, "invalid_request"),
        (r#"{"id":1}"#, json!(1), -32600, "invalid_request"),
        (r#"{"id":1,"method":7}"#, json!(1), -32600, "invalid_request"),
        (r#"{"id":{},"method":"ping"}"#, Value::Null, -32600, "invalid_request"),
        (r#"{"id":1,"method":"no.such"}"#, json!(1), -32601, "unknown_method"),
        (r#"{"id":1,"method":"Ping"}"#, json!(1), -32601, "unknown_method"),
        (r#"{"id":1,"method":"sessions.history"}"#, json!(1), -32602, "invalid_params"),
        (r#"{"id":1,"method":"status","params":[]}"#, json!(1), 0, ""),
        (r#"{"id":1,"method":"sessions.list","params":[]}"#, json!(1), -32602, "invalid_params"),
    ];
    for (text, id, rpc, code) in table {
        client.say(text).await;
        let frame = client.frame().await;
        assert_eq!(frame["id"], id, "{text}");
        if rpc == 0 {
            assert!(frame["result"].is_object(), "{text}: {frame}");
            continue;
        }
        assert_eq!(frame["error"]["code"], rpc, "{text}: {frame}");
        assert_eq!(frame["error"]["data"]["code"], code, "{text}");
    }
    client.socket.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    assert_eq!(client.frame().await["error"]["data"]["code"], "invalid_request");
    ping(&mut client).await;
    gateway.stop().await;
}

#[tokio::test]
async fn parameter_errors_name_the_parameter() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    let without = |field: &str| {
        let mut params = message("ada", "hi");
        params.as_object_mut().unwrap().remove(field);
        params
    };
    let with = |field: &str, value: Value| {
        let mut params = message("ada", "hi");
        params[field] = value;
        params
    };
    let steer = |field: &str, value: &str| {
        let mut params = with("mode", json!("steer"));
        params[field] = json!(value);
        params
    };
    let table = [
        (without("channel"), "missing field `channel`"),
        (without("account"), "missing field `account`"),
        (without("peer"), "missing field `peer`"),
        (without("content"), "missing field `content`"),
        (json!(null), "missing field"),
        (with("colour", json!("red")), "unknown field `colour`"),
        (with("content", json!(7)), "parameter `content`"),
        (with("content", json!("")), "`content` is empty"),
        (with("peer", json!("a:b")), "parameter `peer`"),
        (with("peer", json!("")), "parameter `peer`"),
        (with("conversation", json!("a:b")), "parameter `conversation`"),
        (with("conversation", json!("x".repeat(255))), "parameter `peer`"),
        // Else a peer could be another one's conversation.
        (with("peer", json!("a~b")), "parameter `peer`"),
        (with("conversation", json!("a~b")), "parameter `conversation`"),
        (with("mode", json!("shout")), "parameter `mode`"),
        (steer("reasoning", "low"), "are of a turn, and `steer` adds"),
        (steer("model", "openai/gpt-4o"), "are of a turn, and `steer` adds"),
        (with("reasoning", json!("much")), "parameter `reasoning`"),
        (with("reasoning", json!(9)), "parameter `reasoning`"),
        (with("agent", json!("no spaces")), "parameter `agent`"),
        (with("idempotency_key", json!("")), "parameter `idempotency_key`"),
    ];
    for (params, named) in table {
        client.call(1, "chat.send", params).await;
        let frames = client.stream().await;
        assert_eq!(events(&frames), ["error", "done"], "{named}");
        assert_eq!(frames[0]["data"]["code"], "invalid_params");
        let said = frames[0]["data"]["message"].as_str().unwrap();
        assert!(said.contains(named), "`{named}` is not in `{said}`");
        assert_eq!(frames[1]["data"], json!({}));
    }
    assert!(gateway.node.sent.peek(Vec::is_empty));
    client.call(2, "chat.cancel", json!({"session": "default:a:b:c", "turn": "x"})).await;
    let said = client.frame().await["error"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains("parameter `turn`"), "{said}");
    for (method, params) in [
        ("sessions.list", json!({"limit": 1001})),
        ("events.list", json!({"limit": 0})),
        ("events.list", json!({"wait_ms": 10_001})),
        ("cluster.tree", json!({"nodes": "all"})),
    ] {
        client.call(3, method, params).await;
        assert_eq!(client.frame().await["error"]["data"]["code"], "invalid_params");
    }
    gateway.stop().await;
}

/// Clients of another protocol send no method, but a type; whatever else is in it, things stop.
#[tokio::test]
async fn a_frame_of_type_panic_stops_everything_or_what_it_names() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    for (frame, scope, why) in [
        (json!({"type": "panic"}), "all", ""),
        (json!({"type": "panic", "id": 7, "timestamp": "now", "payload": {}}), "all", ""),
        (json!({"type": "panic", "payload": {"scope": 3, "reason": "enough"}}), "all", "enough"),
        (json!({"type": "panic", "payload": {"scope": "tool:exec"}}), "tool:exec", ""),
    ] {
        client.say(frame.to_string()).await;
        let answer = client.frame().await;
        assert_eq!(answer["id"], frame["id"]);
        let switch = &answer["result"]["latch"];
        assert_eq!((&switch["scope"], &switch["by"]), (&json!(scope), &json!("the token")));
        assert_eq!(switch.get("why").cloned().unwrap_or_else(|| json!("")), why, "{answer}");
    }
    client.call(8, "panic", json!({"scope": "tenant:x"})).await;
    assert_eq!(client.frame().await["error"]["data"]["code"], "invalid_params");
    client.call(9, "panic", json!({"wait_ms": 10_001})).await;
    assert_eq!(client.frame().await["error"]["data"]["code"], "invalid_params");
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_over_1_mib_is_refused_and_the_socket_lives() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.send(1, "ada", &"x".repeat((1 << 20) + 1)).await;
    let frames = client.stream().await;
    assert_eq!(frames[0]["data"]["code"], "too_large");
    client.send(2, "ada", &format!("hold {}", "x".repeat((1 << 20) - 5))).await;
    assert_eq!(client.frame().await["event"], "accepted");
    gateway.node.done(gateway.node.sent.peek(|sent| super::node::turn_of(&sent[0])));
    client.stream().await;
    ping(&mut client).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_frame_over_4_mib_is_named_before_the_goodbye() {
    let gateway = Gateway::start().await;
    let client = gateway.connect().await;
    let (mut write, mut read) = client.socket.split();
    let sending = tokio::spawn(async move {
        // The gateway stops reading in the middle of it.
        write.send(Message::text("x".repeat((4 << 20) + 1))).await.ok();
        write
    });
    let answer = patiently("an answer", read.next()).await.unwrap().unwrap();
    let frame: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!(frame["error"]["data"]["code"], "too_large");
    let goodbye = patiently("a goodbye", read.next()).await.unwrap().unwrap();
    assert!(matches!(goodbye, Message::Close(Some(close)) if u16::from(close.code) == 1009));
    drop((sending.await.unwrap(), read));
    gateway.stop().await;
}

#[tokio::test]
async fn a_goodbye_is_returned() {
    let gateway = Gateway::start().await;
    let mut client = gateway.connect().await;
    client.socket.close(None).await.unwrap();
    let last = patiently("a goodbye", client.socket.next()).await;
    assert!(matches!(last, Some(Ok(Message::Close(_)))), "{last:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_plain_request_to_the_socket_says_so() {
    let gateway = Gateway::start().await;
    let response = gateway.get("/ws").bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(response.status(), 400);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["code"], "invalid_request");
    gateway.stop().await;
}

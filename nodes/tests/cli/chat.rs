//! The chat, scripted: a turn a line, over connections that break.

use std::process::Stdio;

use clawnode_proto::{
    CallId, Timestamp, TurnId,
    policy::{Action, Approval},
    tool::{EffectClass, Risk},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::harness::{Act, Ended, Home, Node, accepted, completed, cursor, done, text};

/// Runs `chat` against a node that plays `sockets`.
async fn chat(sockets: Vec<Vec<Act>>, input: &str) -> (Ended, Node) {
    let home = Home::new();
    let node = Node::streaming(sockets).await;
    home.announce(&node);
    (home.run_with(&["chat"], &[], input).await, node)
}

#[tokio::test]
async fn a_line_is_a_turn_and_a_reply_is_a_line() {
    let turn = |reply: [&str; 2]| {
        [Act::Expect("chat.send"), accepted(), text(reply[0], 1), text(reply[1], 2), completed()]
    };
    let acts = [turn(["Hel", "lo"]), turn(["Good", "bye"])].concat();
    let (ended, node) = chat(vec![acts], "hi there\n\n  bye  \n").await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "Hello\nGoodbye\n"), "{}", ended.err);
    assert_eq!(ended.err, format!("ready {}\n", node.url));
    let sent = node.seen("chat.send");
    let said: Vec<_> = sent.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["hi there", "bye"]);
    for message in &sent {
        assert_eq!(
            [&message["channel"], &message["account"], &message["peer"]],
            ["cli", "local", "ada"]
        );
    }
    assert_ne!(sent[0]["idempotency_key"], sent[1]["idempotency_key"]);
    // Bindings choose the agent of a new conversation once.
    assert!(sent[0]["conversation"].is_string() && sent[0]["agent"].is_null(), "{}", sent[0]);
    assert!(sent[1]["conversation"].is_null(), "{}", sent[1]);
    assert_eq!(sent[1]["agent"], "default");
}

#[tokio::test]
async fn a_bad_line_is_told_and_the_next_one_is_a_turn() {
    let home = Home::new();
    let acts = vec![Act::Expect("chat.send"), accepted(), text("hello", 1), completed()];
    let node = Node::streaming(vec![acts]).await;
    home.announce(&node);
    let mut child = home.command(&["chat"], &[]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let long = [&b"\xff\n"[..], &vec![b'x'; 3 << 20], b"\nhi\n"].concat();
    stdin.write_all(&long).await.unwrap();
    drop(stdin);
    let ended = home.end(child).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "hello\n"), "{}", ended.err);
    assert!(ended.err.contains("not UTF-8"), "{}", ended.err);
    assert!(ended.err.contains("over 1048576 bytes"), "{}", ended.err);
    assert_eq!(node.seen("chat.send").len(), 1);
}

#[tokio::test]
async fn a_lost_connection_is_resumed_from_the_cursor() {
    let first = vec![Act::Expect("chat.send"), accepted(), text("Hel", 4), Act::Cut];
    let second = vec![Act::Expect("sessions.resume"), text("lo", 5), completed()];
    let (ended, node) = chat(vec![first, second], "hi\n").await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "Hello\n"), "{}", ended.err);
    assert_eq!(node.seen("sessions.resume")[0]["cursor"], cursor(4));
    assert_eq!(node.seen("chat.send").len(), 1, "what is stored is not sent again");
    let lost = format!("lost the node at {} (", node.url);
    assert!(ended.err.contains(&lost), "{}", ended.err);
    assert!(ended.err.contains(&format!("connected to {}\n", node.url)), "{}", ended.err);
}

#[tokio::test]
async fn a_lost_gateway_is_replaced_by_any_other_that_is_named() {
    let home = Home::new();
    let first = vec![Act::Expect("chat.send"), accepted(), text("Hel", 4), Act::Cut];
    // Whatever the other one repeats is not shown again.
    let second = vec![Act::Expect("sessions.resume"), text("l", 3), text("lo", 5), completed()];
    let (one, other) = (Node::streaming(vec![first]).await, Node::streaming(vec![second]).await);
    home.announce(&one);
    let token = home.data().join("token").to_string_lossy().into_owned();
    let urls = format!("{}, {}/", one.url, other.url);
    let args = ["chat", "--url", &urls, "--token-file", &token];
    let ended = home.run_with(&args, &[], "hi\n").await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "Hello\n"), "{}", ended.err);
    assert_eq!(other.seen("sessions.resume")[0]["cursor"], cursor(4));
    assert!(other.seen("chat.send").is_empty());
    // A command that asks once asks the first that answers.
    let gone = format!("http://127.0.0.1:1,{}", other.url);
    let args = ["sessions", "list", "--url", &gone, "--token-file", &token];
    let ended = home.run(&args).await;
    assert!(ended.err.contains("unexpected answer from"), "it was asked: {}", ended.err);
    assert_eq!(other.seen("sessions.list").len(), 1);
}

#[tokio::test]
async fn a_message_that_nobody_serves_is_said_to_wait() {
    let home = Home::new();
    let warning = json!({ "name": "nodes.no_worker", "message": "m", "hint": "h" });
    let status = json!({
        "version": "0.1.0", "process": "proc_0000000000000000000000000a", "substrate": "nats",
        "partitions": 4, "model": "m", "sessions": 1, "nodes": [], "quarantined": [],
        "warnings": [warning],
    });
    // The last one never comes: the connection stays.
    let acts = vec![Act::Expect("chat.send"), accepted(), Act::Aside("chat.cancel")];
    let answers = move |method: &str, _: &Value| match method {
        "status" => Ok(status.clone()),
        _ => Ok(json!("pong")),
    };
    let node = Node::start(answers, vec![acts]).await;
    home.announce(&node);
    let mut command = home.command(&["chat"], &[]).stdin(Stdio::piped()).spawn().unwrap();
    command.stdin.as_mut().unwrap().write_all(b"hi\n").await.unwrap();
    let mut err = BufReader::new(command.stderr.take().unwrap()).lines();
    loop {
        let line = err.next_line().await.unwrap().expect("it says so before it ends");
        if line == "no worker is alive; your message is stored and waits" {
            break;
        }
    }
    command.kill().await.unwrap();
}

#[tokio::test]
async fn a_message_that_may_not_be_stored_is_sent_again_with_its_key() {
    let first = vec![Act::Expect("chat.send"), Act::Cut];
    let second = vec![Act::Expect("chat.send"), accepted(), text("once", 1), completed()];
    let (ended, node) = chat(vec![first, second], "hi\n").await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "once\n"), "{}", ended.err);
    let sent = node.seen("chat.send");
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test]
async fn a_reply_that_begins_anew_is_printed_once() {
    let acts = vec![
        Act::Expect("chat.send"),
        accepted(),
        text("Hal", 1),
        Act::Frame("lagged", json!({ "message": "slow" }), None),
        Act::Frame("reset", json!({ "text": "Hel" }), Some(0)),
        text("lo", 1),
        Act::Frame("notice", json!({ "name": "retrying", "message": "trying again" }), Some(2)),
        Act::Frame("from_the_future", json!([1]), Some(3)),
        completed(),
    ];
    let (ended, _) = chat(vec![acts], "hi\n").await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "Hello\n"), "{}", ended.err);
    assert!(ended.err.contains("trying again"), "{}", ended.err);
}

#[tokio::test]
async fn a_failed_turn_is_told_and_the_rest_goes_on() {
    let error = json!({ "code": "provider_timeout", "message": "provider timeout" });
    let failure = json!({ "class": "timeout", "message": "provider timeout" });
    let acts = vec![
        Act::Expect("chat.send"),
        accepted(),
        text("half", 1),
        Act::Frame("error", error, Some(2)),
        done(&json!({ "type": "failed", "failure": failure })),
        Act::Expect("chat.send"),
        accepted(),
        text("whole", 1),
        completed(),
        Act::Expect("chat.send"),
        Act::Frame("error", json!({ "code": "overloaded", "message": "256 wait" }), None),
        Act::Frame("done", json!({}), None),
    ];
    let (ended, _) = chat(vec![acts], "one\ntwo\nthree\n").await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "half\nwhole\n"));
    assert!(ended.err.contains("error: provider timeout\n"), "{}", ended.err);
    assert!(ended.err.contains("error: 256 wait\n"), "{}", ended.err);
}

#[tokio::test]
async fn json_is_a_frame_a_line() {
    let home = Home::new();
    let acts = vec![Act::Expect("chat.send"), accepted(), text("hello", 1), completed()];
    let node = Node::streaming(vec![acts]).await;
    home.announce(&node);
    let ended = home.run_with(&["chat", "--json"], &[], "hi\n").await;
    let frames: Vec<Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = frames.iter().map(|frame| frame["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["accepted", "text", "done"]);
    assert_eq!(frames[1]["data"], "hello");
}

#[tokio::test]
async fn an_interrupt_cancels_the_turn_and_not_the_chat() {
    let home = Home::new();
    let acts = vec![
        Act::Expect("chat.send"),
        accepted(),
        Act::Frame("notice", json!({ "name": "n", "message": "thinking" }), Some(1)),
        Act::Aside("chat.cancel"),
        done(&json!({ "type": "cancelled" })),
        Act::Expect("chat.send"),
        accepted(),
        text("hello", 1),
        completed(),
    ];
    let node = Node::streaming(vec![acts]).await;
    home.announce(&node);
    let mut child = home.command(&["chat"], &[]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"one\n").await.unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    while !talk.next_line().await.unwrap().expect("it says `thinking`").contains("thinking") {}
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    while !talk.next_line().await.unwrap().expect("it says so").contains("was cancelled") {}
    stdin.write_all(b"two\n").await.unwrap();
    drop(stdin);
    let ended = home.end(child).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, "hello\n"), "a cancelled turn failed");
    assert_eq!(node.seen("chat.cancel").len(), 1);
    assert_eq!(node.unused(), 0);
}

/// A call that waits for a person, whose arguments are longer than a frame takes.
fn long_call() -> Approval {
    let arguments =
        format!("{{\"command\":\"echo {}; echo THE-\u{202e}TAIL\"}}", "A".repeat(5_000));
    let action = Action {
        session: "default:cli:local:ada".parse().unwrap(),
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(2),
        tool: "run_command".parse().unwrap(),
        pin: None,
        capability: Some("process".parse().unwrap()),
        class: EffectClass::Once,
        timeout_ms: 1_000,
        arguments,
    };
    let digest = action.digest().unwrap();
    let (asked, expires) = (Timestamp(1), Timestamp(2));
    Approval {
        action,
        digest,
        risk: Risk::Admin,
        reason: None,
        about: None,
        asked,
        expires,
        decided: None,
    }
}

/// What a frame tells of it.
fn cut(approval: &Approval) -> Act {
    let arguments: String = approval.action.arguments.chars().take(4_000).collect();
    let data = json!({
        "id": approval.action.call, "name": approval.action.tool, "arguments": format!("{arguments}…"),
        "action": approval.digest, "risk": approval.risk, "expires": approval.expires,
    });
    Act::Frame("approval_request", data, Some(1))
}

/// Types this at the chat's terminal, and where there is one, the answer once it is asked for; the
/// chat's end.
async fn typed(home: &Home, lines: &str, answer: Option<&str>) -> Ended {
    let mut child = home.on_a_terminal("chat").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).await.unwrap();
    let mut shown = Vec::new();
    if let Some(answer) = answer {
        let out = child.stdout.as_mut().unwrap();
        while !String::from_utf8_lossy(&shown).contains("y or n") {
            assert!(out.read_buf(&mut shown).await.unwrap() > 0, "it ended before it asked");
        }
        stdin.write_all(answer.as_bytes()).await.unwrap();
    }
    drop(stdin);
    let ended = home.end(child).await;
    Ended { out: String::from_utf8_lossy(&shown).into_owned() + &ended.out, ..ended }
}

/// A gateway or worker of an earlier build does not say that a frame is cut.
#[tokio::test]
async fn a_person_is_shown_all_of_what_they_are_asked_about() {
    let (home, call) = (Home::new(), long_call());
    let acts = vec![
        Act::Expect("chat.send"),
        accepted(),
        cut(&call),
        Act::Answer("approvals.show", json!(call)),
        Act::Answer("approvals.approve", json!(call)),
        text("done", 2),
        completed(),
    ];
    let node = Node::streaming(vec![acts]).await;
    home.announce(&node);
    let ended = typed(&home, "hi\ny\n", Some("y\n")).await;
    let (shown, asked) = ended.out.split_once("y or n").expect(&ended.out);
    assert!(shown.contains("AAAA; echo THE-\\u{202e}TAIL"), "{}", ended.out);
    assert!(!asked.contains("y or n"), "it is asked once: {}", ended.out);
    assert!(!ended.out.contains('\u{202e}'));
    assert_eq!(node.seen("approvals.show")[0]["call"], json!(call.action.call));
    let approved = node.seen("approvals.approve");
    assert_eq!(approved.len(), 1);
    assert_eq!(approved[0]["action"], json!(call.digest));
}

#[tokio::test]
async fn a_person_is_not_asked_about_what_cannot_be_shown_whole() {
    let (home, call) = (Home::new(), long_call());
    let mut other = call.clone();
    other.action.arguments = r#"{"command":"ls"}"#.to_owned();
    for answer in [json!({}), json!(other)] {
        let acts = vec![
            Act::Expect("chat.send"),
            accepted(),
            cut(&call),
            Act::Answer("approvals.show", answer),
            text("well", 2),
            completed(),
        ];
        let node = Node::streaming(vec![acts]).await;
        home.announce(&node);
        let ended = typed(&home, "hi\n", None).await;
        let (out, id) = (&ended.out, call.action.call);
        assert!(!out.contains("y or n"), "{out}");
        assert!(out.contains(&format!("`clawnode approvals show {id}`")), "{out}");
        assert!(node.seen("approvals.approve").is_empty());
    }
}

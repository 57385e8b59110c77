//! Commands that speak to a node, and what they say where there is none.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use super::harness::{self, Act, Home, Node, PATIENCE, TOKEN};

/// A node that knows one session.
async fn node() -> Node {
    Node::start(
        |method, params| match method {
            "ping" => Ok(json!("pong")),
            "sessions.list" => Ok(sessions(params)),
            "sessions.history" if params["session"] == "default:cli:local:ada" => Ok(json!({
                "id": "ent_00000000000000000000000001",
                "key": "default:cli:local:ada",
                "state": "idle",
                "turns": [{
                    "turn": "turn_00000000000000000000000001",
                    "messages": [
                        { "role": "user", "content": { "type": "inline", "text": "hi\u{1b}[2J" } },
                        { "role": "assistant", "content": { "type": "inline", "text": "hello" } },
                    ],
                    "outcome": { "type": "completed", "stop": { "type": "end_turn" } },
                    "usage": { "input_tokens": 1, "output_tokens": 2 },
                }],
            })),
            "sessions.delete" => Ok(json!({ "ok": true })),
            _ => Err(json!({
                "code": "not_found",
                "message": "no session `x`",
                "hint": "list them with `clawnode sessions list`",
            })),
        },
        Vec::new(),
    )
    .await
}

/// Five sessions, three a page.
fn sessions(params: &Value) -> Value {
    let from = params["cursor"].as_str().map_or(0, |end| end.parse().unwrap());
    let most = params["limit"].as_u64().unwrap().min(3);
    // So many hours and half a minute ago.
    let now = clawnode_cluster::Clock::now(&clawnode_cluster::SystemClock).0;
    let row = |n: u64| {
        json!({
            "title": format!("question {n}"),
            "id": format!("ent_0000000000000000000000000{n}"),
            "key": format!("default:cli:local:user{n}"),
            "state": "idle", "turns": n, "events": 5 * n, "updated": now - 3_600_000 * (n + 1) - 30_000,
            "usage": { "input_tokens": 10, "output_tokens": 20 },
        })
    };
    let rows: Vec<_> = (from..5).take(usize::try_from(most).unwrap()).map(row).collect();
    let end = from + rows.len() as u64;
    let next = (end < 5).then(|| end.to_string());
    json!({ "sessions": rows, "next": next })
}

#[tokio::test]
async fn without_a_node_commands_say_so() {
    let home = Home::new();
    for args in
        [&["status"][..], &["chat"], &["agents", "list"], &["sessions", "delete", "x", "--yes"]]
    {
        let ended = home.run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (69, ""), "{args:?}");
        assert_eq!(
            ended.err,
            "error: no node runs on `[home]/.local/share/clawnode`\n\
             hint: start one with `clawnode up`, or name one with `--url URL`\n"
        );
    }
    let ended = home.run(&["status", "--json"]).await;
    let error: Value = serde_json::from_str(&ended.err).unwrap();
    assert_eq!(error["error"]["code"], "not_running");
}

#[tokio::test]
async fn a_node_that_is_gone_is_unreachable() {
    let home = Home::new();
    // Held, so that no other process gets it; nothing listens there.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", held.local_addr().unwrap());
    let ended = home.run(&["status", "--url", &url]).await;
    assert_eq!(ended.code, 69, "{}", ended.err);
    assert!(ended.err.contains(&url), "{}", ended.err);
    let ended = home.run(&["status", "--url", "ftp://x"]).await;
    assert_eq!(ended.code, 2, "{}", ended.err);

    // On our own directory, a node that is gone leaves its address behind.
    let node = node().await;
    home.announce(&node);
    assert_eq!(home.run(&["sessions", "list"]).await.code, 0);
    let process = clawnode_proto::ProcessId::from_u128(7);
    let gone = clawnode::node_file::NodeFile { url, socket: None, pid: 1, process };
    gone.write(&home.data()).unwrap();
    assert_eq!(home.run(&["agents", "list"]).await.code, 69);
}

#[tokio::test]
async fn the_token_is_found_in_the_order_that_is_documented() {
    let home = Home::new();
    let node = node().await;
    home.announce(&node);
    let list = ["sessions", "list"];
    assert_eq!(home.run(&list).await.code, 0, "of the data directory");

    let wrong = [("CLAWNODE_TOKEN", "wrong-hunter2")];
    let ended = home.run_with(&list, &wrong, "").await;
    assert_eq!(ended.code, 77, "of the environment: {}", ended.err);
    assert!(ended.err.contains("CLAWNODE_TOKEN"), "{}", ended.err);
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);

    let file = home.write("token", TOKEN);
    let args = ["sessions", "list", "--token-file", &file];
    assert_eq!(home.run_with(&args, &wrong, "").await.code, 0, "of the flag");

    let args = ["sessions", "list", "--url", &node.url];
    assert_eq!(home.run(&args).await.code, 77, "our own token is not for other nodes");
    let right = [("CLAWNODE_TOKEN", TOKEN), ("CLAWNODE_URL", &node.url)];
    assert_eq!(Home::new().run_with(&list, &right, "").await.code, 0);
}

#[tokio::test]
async fn sessions_are_listed_page_by_page() {
    let home = Home::new();
    let node = node().await;
    home.announce(&node);
    let ended = home.run(&["sessions", "list"]).await;
    insta::assert_snapshot!("sessions_list", ended.out.trim_end());
    assert_eq!(node.seen("sessions.list").len(), 2);

    let ended = home.run(&["sessions", "list", "--limit", "2", "--json"]).await;
    let list: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(list["next"], "2");
    let ended = home.run(&["sessions", "list", "--limit", "2"]).await;
    assert!(ended.err.contains("--cursor 2"), "{}", ended.err);
}

#[tokio::test]
async fn a_session_is_shown_without_orders_to_the_terminal() {
    let home = Home::new();
    home.announce(&node().await);
    let ended = home.run(&["sessions", "show", "default:cli:local:ada"]).await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("user: hi\\u{1b}[2J\nassistant: hello\n"), "{}", ended.out);

    let ended = home.run(&["sessions", "show", "x"]).await;
    assert_eq!(ended.code, 1);
    assert_eq!(ended.err, "error: no session `x`\nhint: list them with `clawnode sessions list`\n");
}

#[tokio::test]
async fn nothing_is_deleted_without_being_asked_twice() {
    let home = Home::new();
    let node = node().await;
    home.announce(&node);
    let ended = home.run(&["sessions", "delete", "x"]).await;
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("--yes"), "{}", ended.err);
    assert!(node.seen("sessions.delete").is_empty());
    assert_eq!(home.run(&["sessions", "delete", "x", "--yes"]).await.code, 0);
    assert_eq!(node.seen("sessions.delete"), [json!({ "session": "x" })]);
}

#[tokio::test]
async fn the_command_line_is_judged_before_anything_happens() {
    let home = Home::new();
    for args in [
        &[][..],
        &["nonsense"],
        &["run"],
        &["--role", "worker", "status"],
        &["--role", "king"],
        &["--listen", "here", "up"],
        &["--model", "nameless", "up"],
    ] {
        let ended = home.run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{args:?}: {}", ended.err);
        assert!(ended.err.contains("--help") || args.is_empty(), "{args:?}: {}", ended.err);
    }
}

#[tokio::test]
async fn tail_follows_the_running_turn_and_the_next() {
    let home = Home::new();
    // The history has one turn more each time it is asked for, up to two.
    let asked = std::sync::atomic::AtomicU32::new(0);
    let turn = |n: u32, outcome: Value| {
        json!({
            "turn": format!("turn_0000000000000000000000000{n}"),
            "messages": [
                { "role": "user", "content": { "type": "inline", "text": format!("question {n}") } },
            ],
            "outcome": outcome,
            "usage": { "input_tokens": 1, "output_tokens": 2 },
        })
    };
    let answers = move |method: &str, _: &Value| {
        if method != "sessions.history" {
            return Ok(json!("pong"));
        }
        let ended = json!({ "type": "completed", "stop": { "type": "end_turn" } });
        let turns = match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 | 1 => vec![turn(1, Value::Null)],
            _ => vec![turn(1, ended), turn(2, Value::Null)],
        };
        Ok(json!({
            "id": "ent_00000000000000000000000001",
            "key": "default:cli:local:ada", "state": "running", "turns": turns,
        }))
    };
    let follow =
        |reply| vec![Act::Expect("sessions.resume"), harness::text(reply, 1), harness::completed()];
    // The second turn is lost in the middle.
    let cut = vec![Act::Expect("sessions.resume"), harness::text("answer", 0), Act::Cut];
    let rest = vec![Act::Expect("sessions.resume"), harness::text(" 2", 1), harness::completed()];
    let node = Node::start(answers, vec![follow("answer 1"), cut, rest]).await;
    home.announce(&node);
    let mut child =
        home.command(&["sessions", "tail", "default:cli:local:ada", "-f"], &[]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &String| !line.contains("answer 2")) {
        seen.push(timeout(PATIENCE, out.next_line()).await.unwrap().unwrap().expect("it goes on"));
    }
    let count = |word: &str| seen.iter().filter(|line| line.contains(word)).count();
    assert_eq!(["answer 1", "answer 2", "question 2"].map(count), [1, 1, 1], "{seen:?}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn a_journal_is_shown_to_its_end() {
    let home = Home::new();
    let event = |n: u64| {
        json!({
            "n": n, "kind": "claim", "eid": "ev_00000000000000000000000001", "epoch": 1,
            "incarnation": { "process": "proc_00000000000000000000000001", "counter": 1 },
            "ts": 1_700_000_000_000_u64, "hash": "0".repeat(64), "body": { "text": "x".repeat(200) },
        })
    };
    let answers = move |method: &str, params: &Value| {
        if method != "journal.show" {
            return Ok(json!("pong"));
        }
        let after: u64 = params["cursor"].as_str().map_or(0, |end| end.parse().unwrap());
        let end = (after + params["limit"].as_u64().unwrap()).min(1_500);
        let events: Vec<Value> = (after + 1..=end).map(event).collect();
        Ok(json!({ "events": events, "next": (end < 1_500).then(|| end.to_string()) }))
    };
    home.announce(&Node::start(answers, Vec::new()).await);
    let ended = home.run(&["journal", "show", "default:cli:local:ada"]).await;
    assert_eq!(ended.out.lines().count(), 1_501, "{}", ended.err);
    assert!(ended.out.lines().nth(1500).is_some_and(|line| line.starts_with("1500 ")));
    assert!(ended.out.contains("xxx…") && !ended.out.contains(&"x".repeat(100)), "cut");
    let ended = home.run(&["journal", "show", "default:cli:local:ada", "--full"]).await;
    assert!(ended.out.contains(&"x".repeat(200)) && !ended.out.contains('…'), "whole");
    let ended = home.run(&["journal", "show", "default:cli:local:ada", "--json"]).await;
    let whole: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(whole[1_499]["n"], 1_500);
}

#[tokio::test]
async fn sessions_are_not_deleted_with_a_point_without_a_confirmation() {
    let home = Home::new();
    let node = Node::start(|_, _| Ok(json!("pong")), Vec::new()).await;
    home.announce(&node);
    let point = "point_00000000000000000000000001";
    let refused = home.run(&["memory", "forget", "default/all", point, "--sources"]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("nothing was forgotten"), "{}", refused.err);
    assert!(refused.err.contains("add `--yes`"), "{}", refused.err);
    // As a script may that lost the id.
    let refused =
        home.run(&["memory", "forget", "default/all", "--sources", "--yes", "--now"]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("`--sources` needs the points"), "{}", refused.err);
    assert_eq!(node.seen("memory.forget").len(), 0);
}

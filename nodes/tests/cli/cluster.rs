//! The operator's commands, against a node that answers with a cluster.

use serde_json::{Value, json};

use super::harness::{Home, Node};

const WORKER: &str = "proc_0000000000000000000000000a";
const OTHER: &str = "proc_0000000000000000000000000b";
const SESSION: &str = "ent_00000000000000000000000001";

fn node_view(name: &str, process: &str, role: &str, config: &str) -> Value {
    json!({
        "node": name, "process": process, "version": "0.1.0", "roles": [role],
        "started": 1_700_000_000_000_u64, "draining": false, "cordoned": role == "worker",
        "entities": 3, "config": config.repeat(64), "first_of": 3, "shed": 1,
        "capabilities": ["gpu"], "speaks": { "oldest": 1, "newest": 2 },
        "load": {
            "cpu_permille": 123, "memory_bytes": 41_943_040, "turns_running": 2,
            "turns_done": 17, "clients": 5,
        },
    })
}

fn status() -> Value {
    let store = |name: &str, behind: u8| {
        json!({
            "name": name, "replicas": 3, "leader": "n2", "behind": behind,
            "lag": 12 * u64::from(behind), "records": 1_000, "bytes": 5_000_000,
        })
    };
    json!({
        "version": "0.1.0", "process": WORKER, "substrate": "nats nats://bus:4222",
        "partitions": 4, "model": "demo/demo (nothing else was found)", "sessions": 12_345,
        "nodes": [
            node_view("front", OTHER, "gateway", "a"),
            node_view("worker-1", WORKER, "worker", "b"),
        ],
        "dead": [{ "process": "proc_0000000000000000000000000c", "node": "worker-9" }],
        "bus": {
            "server": "n1", "cluster": "C", "servers": ["n1:4222", "n2:4222", "n3:4222"],
            "answers_us": 1_400, "stores": [store("CN_JOURNAL", 0), store("CN_INBOX", 1)],
        },
        "quarantined": [SESSION], "looked": { "sessions": 2_000, "age_ms": 4_200 },
        "warnings": [{
            "name": "agents.config_differs", "message": "the nodes have 2 different ones",
            "hint": "give every node the same",
        }],
    })
}

fn partitions() -> Value {
    let partition = |n: u16, serve: &[&str], waiting: u64| json!({ "partition": n, "serve": serve, "waiting": waiting, "in_hand": 1 });
    json!({
        "partitions": [
            partition(0, &[WORKER, OTHER], 4), partition(1, &[OTHER, WORKER], 0),
            partition(2, &[WORKER, OTHER], 3), partition(3, &[], 9),
        ],
        "nodes": { WORKER: "worker-1", OTHER: "worker-2" },
    })
}

fn tree() -> Value {
    let leaf = |name: &str, kind: &str, state: &str, restarts: u32| json!({ "name": name, "kind": kind, "state": state, "restarts": restarts, "more": 0 });
    let dispatcher = json!({
        "name": "dispatcher.3", "kind": "dispatcher", "state": "up", "restarts": 0,
        "children": [leaf(SESSION, "entity", "active", 0)], "more": 6,
    });
    json!({
        "processes": [{
            "process": WORKER, "node": "worker-1", "roles": ["worker"],
            "branches": [
                leaf("membership", "task", "up", 2),
                leaf("agent.default", "agent", "restarting", 1),
                { "name": "dispatchers", "kind": "group", "state": "up", "detail": "4 partitions",
                  "children": [dispatcher], "more": 3 },
            ],
        }],
        "silent": ["worker-2"],
    })
}

fn events(params: &Value) -> Value {
    let row = |n: u64, what: &Value| {
        json!({ "n": n, "event": {
            "at": 1_700_000_000_000_u64, "node": "worker-1", "process": WORKER, "what": what,
        }})
    };
    if params["cursor"] == "7" {
        let left = row(9, &json!({ "type": "node_left" }));
        return json!({ "events": [left], "next": "9", "missed": 1 });
    }
    let whats = [
        json!({ "type": "node_joined", "version": "0.1.0", "roles": ["worker"] }),
        json!({ "type": "turn_ended", "session": SESSION, "outcome": "completed",
                "turn": "turn_00000000000000000000000001" }),
        json!({ "type": "node_dead", "process": OTHER, "node": "worker-2" }),
        json!({ "type": "of_a_newer_program", "x": 1 }),
    ];
    let rows: Vec<_> = whats.iter().zip(4..).map(|(what, n)| row(n, what)).collect();
    json!({ "events": rows, "next": "7", "missed": 3 })
}

fn quarantine() -> Value {
    json!({
        "id": SESSION, "key": "default:web:site:ada", "state": "quarantined",
        "reason": "5 claims without progress", "since": 1_700_000_000_000_u64,
        "events": 40, "parked": 1, "waiting": 2,
    })
}

fn parked() -> Value {
    json!({
        "session": SESSION, "key": "default:web:site:ada", "at": "journal",
        "reason": "5 claims without progress", "ts": 1_700_000_000_000_u64, "bytes": 2_048,
    })
}

async fn cluster() -> (Home, Node) {
    let home = Home::new();
    let node = Node::start(
        |method, params| match method {
            "ping" => Ok(json!("pong")),
            "status" => Ok(status()),
            "nodes.list" => Ok(json!({ "nodes": status()["nodes"], "dead": status()["dead"] })),
            "partitions.list" => Ok(partitions()),
            "cluster.tree" => Ok(tree()),
            "events.list" => Ok(events(params)),
            // A page without anything is not the end.
            "quarantine.list" if params["cursor"].is_null() => {
                Ok(json!({ "sessions": [], "next": "ent_00000000000000000000000000" }))
            }
            "quarantine.list" => Ok(json!({ "sessions": [quarantine()] })),
            "quarantine.show" => Ok(json!({ "session": quarantine(), "inputs": [parked()] })),
            "quarantine.replay" | "quarantine.drop" => {
                Ok(json!({ "id": SESSION, "key": "default:web:site:ada", "inputs": 3 }))
            }
            "parked.list" => Ok(json!({ "parked": [parked()] })),
            "parked.drop" => Ok(json!({ "ok": true })),
            _ => Err(json!({ "code": "unknown_method", "message": "no such method" })),
        },
        Vec::new(),
    )
    .await;
    home.announce(&node);
    (home, node)
}

#[tokio::test]
async fn what_operators_read_is_as_approved() {
    let (home, node) = cluster().await;
    for args in [
        &["status"][..],
        &["status", "-o", "wide"],
        &["nodes"],
        &["nodes", "-o", "wide"],
        &["partitions"],
        &["partitions", "-o", "wide"],
        &["tree"],
        &["events"],
        &["quarantine", "list"],
        &["quarantine", "show", SESSION],
        &["quarantine", "replay", SESSION],
        &["quarantine", "drop", SESSION, "--yes"],
        &["parked"],
        &["parked", "-o", "wide"],
        &["parked", "drop", "letter-1", "--yes"],
    ] {
        let ended = home.run(args).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{args:?}");
        let name = args.join("_").replace("--", "");
        let shown = ended.out.replace(&node.url, "[address]");
        insta::assert_snapshot!(name, shown.trim_end());
    }
}

#[tokio::test]
async fn json_is_the_document_itself_however_it_is_asked_for() {
    let (home, _node) = cluster().await;
    for args in [&["status", "--json"][..], &["status", "-o", "json"], &["-o", "json", "status"]] {
        let ended = home.run(args).await;
        let shown: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(shown["sessions"], 12_345, "{args:?}");
        assert_eq!(shown["bus"]["stores"][1]["lag"], 12);
        assert_eq!(shown["nodes"][1]["load"]["turns_done"], 17);
    }
    let table = home.run(&["nodes", "-o", "table"]).await.out;
    assert_eq!(table, home.run(&["nodes"]).await.out);
    for args in [&["nodes", "-o", "yaml"][..], &["nodes", "--json", "-o", "wide"]] {
        assert_eq!(home.run(args).await.code, 2, "{args:?}");
    }
    // Events are lines, so that a program can read while it goes on.
    let ended = home.run(&["events", "--json"]).await;
    let rows: Vec<Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[3]["event"]["what"]["type"], "unknown");
}

#[tokio::test]
async fn following_says_what_is_missing_and_goes_on_from_there() {
    let (home, node) = cluster().await;
    let mut command = home.command(&["events", "-f", "-n", "0"], &[]).spawn().unwrap();
    let out = command.stdout.take().unwrap();
    let err = command.stderr.take().unwrap();
    let (mut out, mut err) = (lines(out), lines(err));
    assert!(out.next_line().await.unwrap().unwrap().contains("node_left"));
    assert_eq!(err.next_line().await.unwrap().unwrap(), "1 event missing here");
    // The answer to the next question.
    assert!(out.next_line().await.unwrap().unwrap().contains("node_joined"));
    command.kill().await.unwrap();
    let asked = node.seen("events.list");
    assert_eq!(asked[1]["cursor"], "7");
    assert_eq!(asked[2]["cursor"], "9");
    assert!(asked[1]["wait_ms"].as_u64().unwrap() > 0, "it waits, and does not ask all the time");
}

#[tokio::test]
async fn following_goes_on_at_another_gateway() {
    let one = Node::start(
        |method, params| match method {
            "ping" => Ok(json!("pong")),
            "events.list" if params["cursor"].is_null() => Ok(events(params)),
            _ => Err(json!({ "code": "unavailable", "message": "it stops" })),
        },
        Vec::new(),
    )
    .await;
    let other = Node::start(
        |method, params| match method {
            "ping" => Ok(json!("pong")),
            // What the first one told is remembered here as well, under other numbers.
            "events.list" if params["cursor"].is_null() => {
                let mut page = events(params);
                let left = events(&json!({ "cursor": "7" }))["events"][0].clone();
                page["events"].as_array_mut().unwrap().push(left);
                Ok(page)
            }
            _ => Err(json!({ "code": "unavailable", "message": "it stops" })),
        },
        Vec::new(),
    )
    .await;
    let home = Home::new();
    home.announce(&one);
    let token = home.data().join("token").to_string_lossy().into_owned();
    let urls = format!("{},{}", one.url, other.url);
    let args = ["events", "-f", "--url", &urls, "--token-file", &token];
    let mut command = home.command(&args, &[]).spawn().unwrap();
    let out = command.stdout.take().unwrap();
    let err = command.stderr.take().unwrap();
    let (mut out, mut err) = (lines(out), lines(err));
    for expected in ["node_joined", "turn_ended", "node_dead", "unknown", "node_left"] {
        let line = out.next_line().await.unwrap().unwrap();
        assert!(line.contains(expected), "{expected}: {line}");
    }
    let lost = format!("{} cannot continue now (it stops); trying again", one.url);
    assert_eq!(err.next_line().await.unwrap().unwrap(), lost);
    assert_eq!(err.next_line().await.unwrap().unwrap(), format!("connected to {}", other.url));
    assert_eq!(err.next_line().await.unwrap().unwrap(), "events may be missing here");
    command.kill().await.unwrap();
    assert_eq!(other.seen("events.list")[0].get("cursor"), None);
}

#[tokio::test]
async fn sessions_in_events_have_their_keys_and_notes_are_json_if_asked_for() {
    let node = Node::start(
        |method, params| match method {
            "ping" => Ok(json!("pong")),
            "events.list" if params["cursor"].is_null() => Ok(events(params)),
            "sessions.list" => Ok(json!({ "sessions": [{
                "id": SESSION, "key": "default:web:site:ada", "state": "idle", "turns": 1, "events": 9,
                "updated": 1, "usage": { "input_tokens": 1, "output_tokens": 2 },
            }] })),
            _ => Err(json!({ "code": "unavailable", "message": "it stops" })),
        },
        Vec::new(),
    )
    .await;
    let home = Home::new();
    home.announce(&node);
    let table = home.run(&["events"]).await.out;
    assert!(table.contains("turn_ended     default:web:site:ada completed\n"), "{table}");
    let wide = home.run(&["events", "-o", "wide"]).await.out;
    assert!(wide.contains("ada turn_00000000000000000000000001 completed\n"), "{wide}");

    let mut command = home.command(&["events", "-f", "--json"], &[]).spawn().unwrap();
    let mut err = lines(command.stderr.take().unwrap());
    let told: Value = serde_json::from_str(&err.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(told["event"], "note");
    assert!(told["message"].as_str().unwrap().contains("cannot continue now"), "{told}");
    command.kill().await.unwrap();
}

fn lines<R: tokio::io::AsyncRead + Unpin>(from: R) -> tokio::io::Lines<tokio::io::BufReader<R>> {
    use tokio::io::AsyncBufReadExt as _;
    tokio::io::BufReader::new(from).lines()
}

#[tokio::test]
async fn what_cannot_be_taken_back_is_asked_for_twice() {
    let (home, node) = cluster().await;
    for args in [&["quarantine", "drop", SESSION][..], &["parked", "drop", "letter-1"]] {
        let ended = home.run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{args:?}");
        assert!(ended.err.contains("--yes"), "{}", ended.err);
    }
    assert!(node.seen("quarantine.drop").is_empty() && node.seen("parked.drop").is_empty());
}

#[tokio::test]
async fn top_wants_a_terminal() {
    let (home, _node) = cluster().await;
    let ended = home.run(&["top"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    assert!(ended.err.contains("terminal"), "{}", ended.err);
    assert!(ended.err.contains("status --json"), "{}", ended.err);
    assert_eq!(home.run(&["top", "--every", "0"]).await.code, 2);
}

#[tokio::test]
async fn without_a_node_operators_are_told() {
    let home = Home::new();
    for args in
        [&["nodes"][..], &["partitions"], &["tree"], &["events"], &["quarantine", "replay", "x"]]
    {
        let ended = home.run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (69, ""), "{args:?}");
        assert!(ended.err.contains("clawnode up"), "{}", ended.err);
    }
}

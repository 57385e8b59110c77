//! Ids by their first characters, and what jobs were.

use clawnode_proto::{
    CallId, Timestamp, TurnId,
    policy::{Action, Approval},
    tool::{EffectClass, Risk},
};
use serde_json::{Value, json};

use super::harness::{Home, Node};

/// Two calls whose ids differ in the character after the first twelve.
const CALLS: [u128; 2] = [2 << 68, 3 << 68];

fn call(id: u128) -> Approval {
    let action = Action {
        session: "default:cli:local:ada".parse().unwrap(),
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(id),
        tool: "run_command".parse().unwrap(),
        pin: None,
        capability: Some("process".parse().unwrap()),
        class: EffectClass::Once,
        timeout_ms: 1_000,
        arguments: "{}".to_owned(),
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

fn job(id: char, arguments: &str) -> Value {
    json!({
        "job": format!("job_{id}0000000000000000000000001"), "status": "done",
        "session": "default:cli:local:ada", "turn": "turn_00000000000000000000000001",
        "call": format!("call_{id}0000000000000000000000002"), "tool": "run_command",
        "capability": "process", "arguments": arguments, "runs": [],
    })
}

async fn scene() -> (Home, Node) {
    let home = Home::new();
    let node = Node::start(
        |method, params| match method {
            "ping" => Ok(json!("pong")),
            "approvals.list" => Ok(json!({ "approvals": CALLS.map(call) })),
            "approvals.show" | "approvals.approve" => Ok(json!(call(CALLS[0]))),
            "jobs.list" if params["agent"] == "absent" => Ok(json!({ "jobs": [], "more": 0 })),
            "jobs.list" => {
                let long = format!("{{\"path\":\"{}\"}}", "a".repeat(100));
                let jobs = [job('1', "{\"command\":\"make release\"}"), job('2', &long)];
                Ok(json!({ "jobs": jobs, "more": 0 }))
            }
            "jobs.show" => Ok(job('1', "{}")),
            _ => Err(json!({ "code": "unknown_method", "message": "no such method" })),
        },
        Vec::new(),
    )
    .await;
    home.announce(&node);
    (home, node)
}

#[tokio::test]
async fn a_call_is_approved_by_the_first_characters_of_its_id() {
    let (home, node) = scene().await;
    let whole = CallId::from_u128(CALLS[0]).to_string();
    let short: String = whole.chars().take(18).collect();
    let ended = home.run(&["approvals", "approve", &short]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{short} of {whole}");
    assert_eq!(node.seen("approvals.approve")[0]["call"], json!(whole));

    let ambiguous: String = whole.chars().take(8).collect();
    let ended = home.run(&["approvals", "approve", &ambiguous]).await;
    assert_eq!(ended.code, 2, "{}", ended.err);
    for id in CALLS {
        assert!(ended.err.contains(&CallId::from_u128(id).to_string()), "{}", ended.err);
    }
    assert_eq!(node.seen("approvals.approve").len(), 1, "nothing was decided");
    let ended = home.run(&["approvals", "approve", "call_zz"]).await;
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("no waiting call has an id that begins with `call_zz`"));
    // A whole id is not looked up.
    let lists = node.seen("approvals.list").len();
    home.run(&["approvals", "show", &whole]).await;
    assert_eq!(node.seen("approvals.list").len(), lists);
}

#[tokio::test]
async fn a_list_of_jobs_says_what_each_was() {
    let (home, node) = scene().await;
    let table = home.run(&["jobs", "list"]).await.out;
    assert!(table.contains("  make release  "), "{table}");
    assert!(table.contains(&format!("{{\"path\":\"{}…", "a".repeat(31))), "cut\n{table}");
    let wide = home.run(&["jobs", "list", "-o", "wide"]).await.out;
    assert!(wide.contains(&"a".repeat(100)), "{wide}");
    assert_eq!(home.run(&["jobs", "list", "--agent", "absent"]).await.out, "no job matches\n");
    for short in ["job_1", "1", "call_1"] {
        let ended = home.run(&["jobs", "show", short]).await;
        assert_eq!(ended.code, 0, "{short}: {}", ended.err);
    }
    let asked: Vec<Value> =
        node.seen("jobs.show").iter().map(|params| params["job"].clone()).collect();
    let (job, call) = ("job_10000000000000000000000001", "call_10000000000000000000000002");
    assert_eq!(asked, [json!(job), json!(job), json!(call)]);
}

//! A client that an independent generator makes of `docs/openapi.json`, against a node.

use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, ModelServer, Script},
    process::{Home, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::{document::DOCUMENT, python};

const SESSION: &str = "default:shop:main:ada";

/// It sends a message, follows the turn, approves the tool call that waits, and pages through a list.
#[tokio::test]
async fn a_generated_client_sends_follows_and_approves() -> Result<(), ProcessError> {
    let acts = [
        Act::tools([("effect_asked", json!({ "what": "push" }))]),
        Act::say("pushed"),
        Act::say("well"),
    ];
    let server = ModelServer::start(Script::queue(acts)).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = "[agents.default]\ntools = [\"effect_asked\"]\n";
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let program = ["generated_client.py", DOCUMENT, SESSION];
    let mut saw: Value = python(&program, home.path(), &client).await;
    let events: Vec<String> = serde_json::from_value(saw["events"].take()).unwrap();
    let at = |name: &str| events.iter().position(|event| event == name);
    assert!(at("accepted").is_some() && at("approval_request") < at("tool_result"), "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("done"), "{events:?}");
    let expected = json!({
        "events": null,
        "approved": { "tool": "effect_asked", "decision": "approve" },
        "reply": "pushed",
        "other": "well",
        "sessions": [format!("{SESSION}2"), SESSION],
        "refused": "invalid_params",
    });
    assert_eq!(saw, expected);
    let effects: usize = counter.counts().unwrap().values().sum();
    assert_eq!((effects, server.count()), (1, 3), "each was done once");
    node.stop().await
}

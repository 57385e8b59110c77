//! The official `OpenAI` client for Python against `/v1` of a real node.

use std::path::{Path, PathBuf};

use clawnode_tests::{
    model::{ModelServer, Reply, Script},
    process::{Ground, Home, Node, ProcessError, sound},
};
use serde_json::{Value, json};
use tokio::process::Command;

/// What brings the package.
const INSTALL: &str = "python3 -m pip install --target .tools/python openai";

#[tokio::test]
async fn the_official_client_lists_models_and_streams_a_chat() -> Result<(), ProcessError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let named = std::env::var_os("CLAWNODE_TEST_PYTHONPATH").map(PathBuf::from);
    let packages = named.unwrap_or_else(|| root.join(".tools/python"));

    let on = [("hello there".to_owned(), [Reply::text(["Hel", "lo", "!"]).into()].into())];
    let script = Script { on: on.into(), ..Script::default() };
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(Ground::Local)?.openai(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let python = std::env::var("CLAWNODE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let ran = Command::new(python)
        .arg(root.join("tests/python/stream_chat.py"))
        .env("PYTHONPATH", &packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENAI_BASE_URL", format!("{}/v1", client.url()))
        .env("OPENAI_API_KEY", client.token())
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let complaint = String::from_utf8_lossy(&ran.stderr);
    let missing = complaint.contains("No module named 'openai'");
    assert!(!missing, "the OpenAI client is missing; run `{INSTALL}`");
    assert!(ran.status.success(), "{complaint}");
    let mut said: Value = serde_json::from_slice(&ran.stdout).unwrap();

    // How tokens are grouped into chunks is nobody's promise.
    let pieces: Vec<String> = serde_json::from_value(said["pieces"].take()).unwrap();
    assert_eq!(pieces.concat(), "Hello!");
    assert!(said["usage"].take().as_u64().is_some_and(|tokens| tokens > 0));
    let expected = json!({
        "models": ["default"],
        "model": "default",
        "roles": ["assistant"],
        "pieces": null,
        "finish": "stop",
        "usage": null,
        "whole": "reply to: two",
        "whole_finish": "stop",
        "sessions": ["reply to: remember", "reply to: what?"],
        "errors": {
            "model": { "status": 404, "class": "NotFoundError" },
            "n": { "status": 400, "class": "BadRequestError" },
            "key": { "status": 401, "class": "AuthenticationError" },
        },
    });
    assert_eq!(said, expected);
    // Two fresh sessions, and one that `user` names.
    assert_eq!(sound(&home).await?, 3);
    node.stop().await
}

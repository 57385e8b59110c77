//! `docs/openapi.json` against a node, judged by an independent program.

use clawnode_tests::{
    model::{ModelServer, Script},
    process::{Home, Message, Node, ProcessError, TestBackend},
};
use serde::Deserialize;

use super::python;

pub(crate) const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
/// A run with this seed asks the same each time.
const SEED: &str = "1";
/// As many are asked at least; another version of the judge may ask more.
const ASKED_LEAST: u64 = 1_000;

#[derive(Deserialize)]
struct Judged {
    /// What is not valid in the document itself.
    invalid: Vec<String>,
    exit: i32,
    output: String,
}

/// The document is valid. No answer is a 5xx, and none is outside its schema, its statuses or its media types.
#[tokio::test]
async fn schemathesis_finds_nothing_wrong() -> Result<(), ProcessError> {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::typed("hello")).await?;
    let judged: Judged = python(&["try_api.py", DOCUMENT, SEED], home.path(), &client).await;
    assert!(judged.invalid.is_empty(), "{:#?}", judged.invalid);
    assert_eq!(judged.exit, 0, "{}", judged.output);
    let passed = |line: &str| line.strip_suffix(" passed")?.rsplit(' ').next()?.parse().ok();
    let passed: u64 = judged.output.lines().filter_map(passed).max().unwrap_or(0);
    assert!(passed > ASKED_LEAST, "{passed}: {}", judged.output);
    client.chat(&Message::typed("still there?")).await?;
    node.stop().await
}

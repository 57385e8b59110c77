//! Snapshots, deletion, export, backup and restore.

use clawnode_tests::{
    model::Script,
    process::{Ground, Home, Message, Node},
};
use serde_json::{Value, json};

use super::{Outcome, said, scene};

#[tokio::test]
async fn snapshots_shorten_the_journal_and_lose_nothing() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let home = home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for n in 0..12 {
        client.chat(&Message::new("ada", &format!("message {n}"))).await?;
    }
    let session = Message::new("ada", "").session();
    let journal: Vec<Value> =
        client.call("journal.show", json!({ "session": session, "limit": 1000 })).await?;
    let kinds = |kind: &str| journal.iter().filter(|event| event["kind"] == kind).count();
    assert!(kinds("snapshot") >= 3, "{} snapshots", kinds("snapshot"));
    let numbers: Vec<u64> = journal.iter().map(|event| event["n"].as_u64().unwrap()).collect();
    let dense: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, dense, "I1: archived events are shown as well");
    node.kill().await?;
    let node = Node::up(&home).await?;
    let history = node.client()?.finished(&session, 12).await?;
    for (n, turn) in history.turns.iter().enumerate() {
        assert_eq!(said(turn), [format!("message {n}"), format!("reply to: message {n}")]);
    }
    node.stop().await?;
    for check in [["journal", "verify"], ["journal", "replay"]] {
        let verdict = home.run(&check).await?;
        assert_eq!(verdict.code, 0, "{check:?}: {verdict:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_may_begin_anew() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let home = home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for n in 0..4 {
        client.chat(&Message::new("ada", &format!("my secret {n}"))).await?;
    }
    let session = Message::new("ada", "").session();
    let exported: Value = client.call("sessions.export", json!({ "session": session })).await?;
    assert!(exported.to_string().contains("my secret 2"));
    let _: Value = client.call("sessions.delete", json!({ "session": session })).await?;
    let list: Value = client.call("sessions.list", json!({})).await?;
    assert_eq!(list["sessions"][0]["state"], "deleted");
    assert!(!list.to_string().contains("ada"), "{list}");
    let journal: Value = client.call("journal.show", json!({ "session": session })).await?;
    assert!(!journal.to_string().contains("secret"), "{journal}");
    assert!(!journal.to_string().contains("test:a:ada"), "{journal}");
    let blobs = home.data().join("blobs");
    let left = std::fs::read_dir(blobs).unwrap().count();
    assert_eq!(left, 0, "archives of a deleted session stayed");
    // A further message begins a conversation that knows nothing of the first.
    client.chat(&Message::new("ada", "hello again")).await?;
    let request = server.calls().pop().unwrap();
    assert!(!String::from_utf8_lossy(&request.body).contains("secret"));
    node.stop().await?;
    assert_eq!(home.run(&["journal", "verify"]).await?.code, 0);
    Ok(())
}

#[tokio::test]
async fn a_backup_brings_everything_back() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    node.client()?.chat(&Message::new("ada", "keep this")).await?;
    let file = home.path().join("kept.tar");
    let file = file.to_str().unwrap();
    let busy = home.run(&["backup", file]).await?;
    assert_eq!(busy.code, 1, "a backup beside a node is refused: {busy:?}");
    node.stop().await?;
    let kept = home.run(&["backup", file]).await?;
    assert_eq!(kept.code, 0, "{kept:?}");
    let other = Home::new(Ground::Local)?.anthropic(&server);
    let back = other.run(&["restore", file]).await?;
    assert_eq!(back.code, 0, "{back:?}");
    let again = other.run(&["restore", file]).await?;
    assert_eq!(again.code, 1, "a restore overwrites nothing: {again:?}");
    let node = Node::up(&other).await?;
    let session = Message::new("ada", "").session();
    let history = node.client()?.finished(&session, 1).await?;
    assert_eq!(said(&history.turns[0]), ["keep this", "reply to: keep this"]);
    node.client()?.chat(&Message::new("ada", "and go on")).await?;
    node.stop().await?;
    assert_eq!(other.run(&["journal", "verify"]).await?.code, 0);
    Ok(())
}

//! Journals that were recorded by each version are read, verified and replayed by this one.
//!
//! `cargo test -p clawnode-tests --test crash -- --ignored --exact journals::record` records those
//! of this version into `tests/fixtures/journals/VERSION/`; they are committed and never changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use clawnode_tests::{
    journals::Recording,
    model::{Act, Reply, Script, Step},
    process::{Client, Home, Message, Node, Start},
};
use serde_json::{Value, json};

use super::{
    streams::stuck_script,
    support::{Outcome, Scene},
};

/// What each version must have recorded at least.
const NAMES: [&str; 8] =
    ["simple", "steered", "cancelled", "failed", "repeated", "snapshot", "quarantined", "deleted"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journals")
}

fn read(path: &Path) -> io::Result<Recording> {
    serde_json::from_str(&std::fs::read_to_string(path)?).map_err(io::Error::other)
}

#[tokio::test]
async fn journals_of_every_version_are_sound_and_replayed_alike() -> Outcome {
    let mut versions = 0;
    for version in std::fs::read_dir(folder()).unwrap() {
        let version = version.unwrap().path();
        if !version.is_dir() {
            continue;
        }
        versions += 1;
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&version)
            .unwrap()
            .map(|found| found.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        paths.sort();
        for name in NAMES {
            assert!(paths.contains(&version.join(format!("{name}.json"))), "{name}");
        }
        for path in paths {
            let recording = read(&path).unwrap();
            let home = Home::new(clawnode_tests::process::TestBackend::Local)?;
            let facts = recording.put(&home.data()).await.unwrap();
            assert_eq!(facts, recording.facts, "{}: {}", path.display(), recording.about);
        }
    }
    assert!(versions > 0, "there are recorded journals");
    Ok(())
}

#[tokio::test]
async fn a_session_of_an_earlier_version_goes_on() -> Outcome {
    let version = folder().join("0.1.0");
    for name in ["simple", "repeated", "snapshot", "deleted"] {
        let recording = read(&version.join(format!("{name}.json"))).unwrap();
        let scene = Scene::new(Script::default()).await;
        recording.put(&scene.home.data()).await.unwrap();
        let node = Node::up(&scene.home).await?;
        let more = Message::new("ada", "and one more");
        assert_eq!(node.client()?.chat(&more).await?, "reply to: and one more", "{name}");
        node.stop().await?;
        for check in ["verify", "replay"] {
            let ended = scene.home.run(&["journal", check]).await?;
            assert_eq!(ended.code, 0, "{name}: {ended:?}");
        }
    }
    Ok(())
}

// === recording ===

/// Sends these to one session, one after the other.
async fn say(client: &Client, texts: impl IntoIterator<Item = String>) -> Outcome {
    for text in texts {
        client.chat(&Message::new("ada", &text)).await?;
    }
    Ok(())
}

async fn keep(scene: &Scene, name: &str, about: &str) -> Outcome {
    let recording = Recording::take(about, &scene.home.data()).await.unwrap();
    let folder = folder().join(env!("CARGO_PKG_VERSION"));
    std::fs::create_dir_all(&folder).unwrap();
    let text = serde_json::to_string_pretty(&recording).unwrap();
    std::fs::write(folder.join(format!("{name}.json")), text + "\n").unwrap();
    Ok(())
}

#[tokio::test]
#[ignore = "writes the fixtures of this version"]
async fn record() -> Outcome {
    simple().await?;
    steered().await?;
    cancelled().await?;
    failed().await?;
    repeated().await?;
    snapshot().await?;
    quarantined().await?;
    deleted().await
}

#[tokio::test]
#[ignore = "writes the fixtures of this version"]
async fn record_contexts() -> Outcome {
    bounded().await?;
    rules().await
}

/// The same node with these rules of context.
fn with_context(scene: Scene, settings: &str) -> Scene {
    let path = scene.home.path().join("config.toml");
    std::fs::write(&path, format!("[agents.default]\n{settings}")).unwrap();
    scene.with_var("CLAWNODE_CONFIG", path.to_str().unwrap())
}

/// Less than five turns of these tests fit.
const BOUNDED: &str = "context = \"bounded\"\ncontext_tokens = 256\nrecent_turns = 2\n";

fn long(n: usize) -> String {
    format!("message {n} {}", "remember this well ".repeat(6))
}

async fn bounded() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let scene = with_context(scene.with_var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "30"), BOUNDED);
    let node = Node::up(&scene.home).await?;
    say(&node.client()?, (1..=12).map(long)).await?;
    node.stop().await?;
    keep(&scene, "bounded", "twelve turns in a bounded context, snapshots in between").await
}

async fn rules() -> Outcome {
    let mut scene = Scene::new(Script::default()).await;
    let mut turns = 1_usize..;
    for settings in ["context = \"window\"\n", BOUNDED, "context = \"auto\"\n"] {
        scene = with_context(scene, settings);
        let node = Node::up(&scene.home).await?;
        say(&node.client()?, turns.by_ref().take(4).map(long)).await?;
        node.stop().await?;
    }
    keep(&scene, "rules", "four turns each by the window, in a bounded context, and by default")
        .await
}

#[tokio::test]
#[ignore = "writes the fixtures of this version"]
async fn record_kept() -> Outcome {
    // The first four turns are short for a quarter of this window. Later ones leave the state once eight more are there.
    let auto = "context = \"auto\"\nwindow_tokens = 1200\ncontext_tokens = 256\nrecent_turns = 2\n";
    let scene = Scene::new(Script::default()).await;
    let scene = with_context(scene.with_var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "30"), auto);
    let node = Node::up(&scene.home).await?;
    say(&node.client()?, (1..=16).map(long)).await?;
    node.stop().await?;
    let about = "sixteen turns by default, whole first and bounded then, of which the oldest left";
    keep(&scene, "kept", about).await
}

async fn simple() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let node = Node::up(&scene.home).await?;
    say(&node.client()?, (1..=3).map(|n| format!("message {n}"))).await?;
    node.stop().await?;
    keep(&scene, "simple", "three turns, one after the other").await
}

async fn steered() -> Outcome {
    let steps = vec![
        Step::Text { text: "reply to: slow".to_owned() },
        Step::Gate { name: "go".to_owned() },
        Step::Text { text: " and more".to_owned() },
    ];
    let acts = [Reply::steps(steps).into()];
    let script = Script { on: [("slow".to_owned(), acts.into())].into(), ..Script::default() };
    let scene = Scene::new(script).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "slow")).await?;
    turn.begun().await?;
    client.send(&Message::new("ada", "rather this").steering()).await?;
    scene.server.open("go");
    turn.completed().await?;
    client.finished(&Message::new("ada", "").session(), 1).await?;
    node.stop().await?;
    keep(&scene, "steered", "a turn that a second message joined while its call ran").await
}

async fn cancelled() -> Outcome {
    let scene = Scene::new(stuck_script("never", "slow")).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "slow")).await?;
    turn.begun().await?;
    let params = json!({ "session": turn.session, "turn": turn.turn });
    let _: Value = client.call("chat.cancel", params).await?;
    client.finished(&turn.session, 1).await?;
    say(&client, ["and on".to_owned()]).await?;
    node.stop().await?;
    keep(&scene, "cancelled", "a turn cancelled in the middle of its call, and one after it").await
}

async fn failed() -> Outcome {
    let fails = [Act::status(400, "no")];
    let script = Script { on: [("fail".to_owned(), fails.into())].into(), ..Script::default() };
    let scene = Scene::new(script).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "fail")).await?;
    assert!(turn.completed().await.is_err());
    say(&client, ["and on".to_owned()]).await?;
    node.stop().await?;
    keep(&scene, "failed", "a call that the provider refused, and a turn after it").await
}

async fn repeated() -> Outcome {
    let scene = Scene::new(stuck_script("never", "slow")).await;
    let node = Node::up(&scene.home).await?;
    let mut turn = node.client()?.send(&Message::new("ada", "slow")).await?;
    turn.begun().await?;
    node.kill().await?;
    let node = Node::up(&scene.home).await?;
    node.client()?.finished(&turn.session, 1).await?;
    node.stop().await?;
    keep(&scene, "repeated", "a process killed in the middle of a call, which was made again").await
}

async fn snapshot() -> Outcome {
    let mut scene = Scene::new(Script::default()).await;
    scene.home = scene.home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12");
    let node = Node::up(&scene.home).await?;
    say(&node.client()?, (1..=8).map(|n| format!("message {n}"))).await?;
    node.stop().await?;
    keep(&scene, "snapshot", "eight turns, snapshots in between, their archives behind them").await
}

async fn quarantined() -> Outcome {
    const POISON: &str = "poison:xyzzy";
    let mut scene = Scene::new(Script::default()).await;
    scene.die_at(POISON, &Message::new("ada", "something xyzzy")).await?;
    for _ in 0..4 {
        scene.die_at_start(POISON).await?;
    }
    let node = Node::start(&scene.home, Start::killed(POISON)).await?;
    assert!(node.client()?.chat(&Message::new("ada", "parked")).await.is_err());
    node.stop().await?;
    keep(&scene, "quarantined", "five processes died of it; a message after that is parked").await
}

async fn deleted() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    say(&client, (1..=2).map(|n| format!("message {n}"))).await?;
    let session = Message::new("ada", "").session();
    let _: Value = client.call("sessions.delete", json!({ "session": session })).await?;
    node.stop().await?;
    keep(&scene, "deleted", "two turns, then a tombstone").await
}

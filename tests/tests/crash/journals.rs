//! Journals that were recorded by each version are read, verified and replayed by this one.
//!
//! `cargo test -p clawnode-tests --test crash -- --ignored --exact journals::record` records those
//! of this version into `tests/fixtures/journals/VERSION/`; they are committed and never changed. `journals::record_contexts`
//! and `journals::record_kept` record others, and after them `journals::record_every_kind` adds events of each kind.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use clawnode_kernel::written::Written;
use clawnode_proto::{
    EntityId, Input, Kind, Position, Timestamp,
    kernel::{Accepted, KernelEvent},
    memory::{MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{
        JoinedPoint, LearnedPoint, MemoryEvent, MemoryInput, MemoryPoint, PointAdded, PointContent,
        PointRefusal, PointRefused, PointsConsolidated, PointsMasked,
    },
};
use clawnode_simulator::{
    SimOptions,
    journals::{RunJournals, journals_of},
};
use clawnode_tests::{
    journals::{Recording, every_kind, kinds_of, writable},
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

/// The recordings of one version, by their paths.
fn paths(version: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(version).unwrap().map(|found| found.unwrap().path());
    let mut paths: Vec<PathBuf> = found
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    paths
}

/// The kinds of events that no recording of this version has.
fn unrecorded() -> BTreeSet<&'static str> {
    let mut missing = every_kind();
    // It is in a journal only until its purge ends; `purges` kills nodes there.
    missing.remove("purge_begun");
    for path in paths(&folder().join(env!("CARGO_PKG_VERSION"))) {
        let kinds = read(&path).unwrap().kinds().unwrap();
        missing.retain(|kind| !kinds.contains(*kind));
    }
    missing
}

#[test]
fn journals_of_this_version_have_events_of_every_kind() {
    let missing = unrecorded();
    assert!(missing.is_empty(), "`journals::record_every_kind` is to record {missing:?}");
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
        let paths = paths(&version);
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
    write(name, &Recording::take(about, &scene.home.data()).await.unwrap());
    Ok(())
}

fn write(name: &str, recording: &Recording) {
    let folder = folder().join(env!("CARGO_PKG_VERSION"));
    std::fs::create_dir_all(&folder).unwrap();
    let text = serde_json::to_string_pretty(recording).unwrap();
    std::fs::write(folder.join(format!("{name}.json")), text + "\n").unwrap();
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

// === recording events of every kind ===

/// Seeds of each simulated world that are looked through.
const SEEDS: u64 = 24;
/// Bytes of a recording's file.
const FILE_MOST: usize = 1 << 20;

#[tokio::test]
#[ignore = "writes the fixtures of this version"]
async fn record_every_kind() -> Outcome {
    worked().await?;
    limited().await?;
    consolidated().await;
    played().await;
    assert_eq!(unrecorded(), BTreeSet::new(), "nothing has events of these kinds");
    Ok(())
}

/// A turn with a skill, tools and entries of the ledger, and one that is reminded of the name; and the memory.
async fn worked() -> Outcome {
    const CONFIG: &str = "[agents.default]\ntools = [\"ledger_append\", \"calculate\"]\n\
                          [agents.default.memory]\n";
    let scene = Scene::new(Script::default()).await;
    scene.configure(CONFIG);
    let skill = scene.home.path().join(".config/clawnode/skills/notes");
    std::fs::create_dir_all(&skill).unwrap();
    let text = "---\nname: notes\ndescription: Writes notes.\nmetadata:\n  \
                triggers: release notes\n---\nOne line each.\n";
    std::fs::write(skill.join("SKILL.md"), text).unwrap();
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    scene.server.push(Act::tools([("calculate", json!({ "expression": "6*7" }))]));
    let entry = json!({ "type": "step", "text": "I found the answer" });
    scene.server.push(Act::tools([("ledger_append", entry)]));
    say(&client, ["My name is Ada. Write the release notes.".to_owned()]).await?;
    for turn in 1.. {
        assert!(turn < 20, "no turn was reminded of the name");
        say(&client, [format!("{turn}: what is my name?")]).await?;
        let journal: Vec<Value> = client.journal(&Message::new("ada", "").session()).await?;
        if journal.iter().any(|event| event["kind"] == "recalled") {
            break;
        }
    }
    node.stop().await?;
    let about = "a skill, tools, the ledger, what was learned, and a turn that is reminded of it";
    for recording in Recording::take_all(about, &scene.home.data()).await.unwrap() {
        let is_memory = recording.kinds().unwrap().contains("memory_added");
        write(if is_memory { "worked-memory" } else { "worked" }, &recording);
    }
    Ok(())
}

/// A turn that reaches its limit of steps, and waits in vain for a person who allows more.
async fn limited() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    let config = "[agents.default]\ntools = [\"calculate\"]\nstep_limit = 1\nstep_wait = \"1s\"\n";
    scene.configure(config);
    let node = Node::up(&scene.home).await?;
    scene.server.push(Act::tools([("calculate", json!({ "expression": "6*7" }))]));
    let ended = node.client()?.chat(&Message::new("ada", "calculate")).await;
    assert!(ended.is_err(), "the turn fails: {ended:?}");
    node.stop().await?;
    keep(&scene, "limited", "a turn that reached its limit of steps").await
}

/// A memory of which points left in each way, event by event.
async fn consolidated() {
    const MEMORY: &str = "default/all";
    let data = tempfile::tempdir().unwrap();
    let (storage, control) = writable(data.path()).await.unwrap();
    let mut memory = Written::born(&storage, Kind::MEMORY, MEMORY, 100).await.unwrap();
    let points: Vec<MemoryPoint> = (0..5).map(point).collect();
    let id = |at: usize| points[at].id();
    let learned = points.iter().map(|point| LearnedPoint {
        content: point.content.clone(),
        source: Some(point.source.clone()),
    });
    let put = MemoryInput::Put { points: learned.collect() };
    let by = "an operator".to_owned();
    let forget = MemoryInput::Forget { points: vec![id(3)], by: by.clone(), now: false };
    let accepted = |name: &str, body: &MemoryInput| {
        let name = name.parse().unwrap();
        let input = Input::new(Kind::MEMORY, MEMORY, name, Timestamp(100), body).unwrap();
        KernelEvent::from(Accepted { input })
    };
    memory.append(200, &[accepted("put", &put)]).await.unwrap();
    let (supersedes, superseded_by) = (Vec::new(), None);
    let added = |point| PointAdded { point, supersedes: supersedes.clone(), superseded_by };
    let added = points[..4].iter().cloned().map(|point| MemoryEvent::from(added(point)));
    let mut events: Vec<MemoryEvent> = added.collect();
    events.push(PointRefused { point: id(4), reason: PointRefusal::Invalid }.into());
    let joined = vec![JoinedPoint { point: id(1), into: id(0) }];
    let archived = vec![id(2)];
    events.push(PointsConsolidated { joined, archived, daily: false }.into());
    memory.append(300, &events).await.unwrap();
    memory.append(400, &[accepted("forget", &forget)]).await.unwrap();
    let masked: MemoryEvent = PointsMasked { points: vec![id(3)], by }.into();
    memory.append(500, &[masked]).await.unwrap();
    let records = storage.journal.read(memory.id, Position(0)).await.unwrap();
    let records: Vec<_> = records.into_iter().map(|record| record.bytes).collect();
    storage.health.close().await;
    drop((storage, control));
    let about = "points that joined, were archived, masked and refused";
    let blobs = BTreeMap::new();
    let recording = Recording::of_records(about, memory.id, &records, &blobs).await.unwrap();
    write("consolidated", &recording);
}

fn point(at: u32) -> MemoryPoint {
    let content = PointContent {
        layer: MemoryLayer::Semantic,
        text: format!("Tea number {at} is at four."),
        subject: None,
        predicate: None,
        object: None,
        confidence: 100,
        importance: 5,
        trust: MemoryTrust::Agent,
    };
    let entity = EntityId::derive(Kind::SESSION, "default:test:a:ada");
    MemoryPoint { content, source: MemorySource { entity, event: 3, part: at, at: Timestamp(50) } }
}

/// Simulated worlds in which more things happen.
fn worlds(seed: u64) -> [SimOptions; 9] {
    let plain = SimOptions { seed, ..SimOptions::default() };
    [
        plain,
        SimOptions { hooks: true, ..plain },
        SimOptions { schemas: true, ..plain },
        SimOptions { recalls: true, reflections: true, ..plain },
        SimOptions { memories: 3, ..plain },
        SimOptions { budgets: 2, session_budgets: true, limits_change: true, ..plain },
        SimOptions { summaries: true, ..plain },
        SimOptions { lanes: true, ..plain },
        SimOptions { runaways: true, ..plain },
    ]
}

/// Journals of simulated worlds, until each kind of event is in one of them. A simulated session is made by the code of a
/// node.
async fn played() {
    let mut missing = unrecorded();
    for options in (0..SEEDS).flat_map(worlds) {
        if missing.is_empty() {
            break;
        }
        // Another test says what is wrong with a seed.
        let run = tokio::task::spawn_blocking(move || journals_of(&options)).await.unwrap();
        let Ok(RunJournals { journals, blobs }) = run else { continue };
        let mut journals: Vec<_> = journals.into_iter().collect();
        journals.sort_by_key(|(_, records)| records.iter().map(bytes::Bytes::len).sum::<usize>());
        for (entity, records) in journals {
            let kinds = kinds_of(records.clone(), &blobs);
            let new: Vec<&str> =
                missing.iter().copied().filter(|kind| kinds.contains(*kind)).collect();
            let Some(first) = new.first() else { continue };
            let about = format!("of a simulated world, for {}", new.join(", "));
            let recorded = Recording::of_records(&about, entity, &records, &blobs).await;
            // Some journals of these worlds are damaged.
            let Ok(recording) = recorded else { continue };
            if serde_json::to_string(&recording).unwrap().len() > FILE_MOST {
                continue;
            }
            write(&format!("played-{}", first.replace('_', "-")), &recording);
            missing.retain(|kind| !kinds.contains(*kind));
        }
    }
}

//! Snapshots, deletion, export, backup and restore.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use clawnode_tests::{
    model::{ModelServer, Reply, Script, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use futures_util::TryStreamExt as _;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::{Outcome, said, scene};

/// What nothing but the messages of a test says.
pub(super) const SECRET: &str = "the-walrus-was-paul";

/// Whether any file below a folder has the secret, byte by byte.
pub(super) fn has_secret(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return has_secret(&path);
        }
        // A segment may go while this looks.
        is_secret(&fs::read(&path).unwrap_or_default())
    })
}

fn is_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

/// A message of so many bytes that has the secret at its end.
fn secret(n: usize, bytes: usize) -> Message {
    let content = format!("{n} {}{SECRET}", "x".repeat(bytes));
    Message { key: format!("k-{n}"), ..Message::new("ada", &content) }
}

/// Bytes in all blobs of a data directory, and the largest of them.
fn blob_bytes(home: &Home) -> (u64, u64) {
    let files = fs::read_dir(home.data().join("blobs")).unwrap();
    let sizes: Vec<u64> = files.map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
    (sizes.iter().sum(), sizes.iter().copied().max().unwrap_or(0))
}

pub(super) async fn delete(client: &Client) -> Result<(), ProcessError> {
    let session = secret(0, 0).session();
    let _: Value = client.call("sessions.delete", json!({ "session": session })).await?;
    let list: Value = client.call("sessions.list", json!({ "state": "deleted" })).await?;
    assert_eq!(list["sessions"][0]["state"], "deleted");
    Ok(())
}

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
    let journal: Vec<Value> = client.journal(&session).await?;
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
    let list: Value = client.call("sessions.list", json!({ "state": "deleted" })).await?;
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
async fn a_deleted_session_leaves_nothing_on_the_disk() -> Outcome {
    // What is thought is kept in the event, and what is long beside it.
    let think = |bytes: usize| Step::Thinking { text: format!("{}{SECRET}", "t".repeat(bytes)) };
    let say = || Step::Text { text: "so".to_owned() };
    let reply = Reply::steps([think(9), say(), think(40_000), say()]);
    let script = Script::default().turn(&secret(0, 40_000).content, [reply.into()]);
    let (_server, home) = scene(script).await;
    let home = home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&secret(0, 40_000)).await?;
    assert!(blob_bytes(&home).0 > 40_000, "a long thought is beside the journal");
    for n in 1..16 {
        client.chat(&secret(n, 40_000)).await?;
    }
    let (_, largest) = blob_bytes(&home);
    assert!(largest > 256 << 10, "no state was stored beside the journal: {largest}");
    assert!(has_secret(&home.data()));
    delete(&client).await?;
    let (left, _) = blob_bytes(&home);
    assert_eq!(left, 0, "blobs of a deleted session stayed");
    // The log is cleaned soon after, also of records that were dead before.
    until("a log without the text", async || Ok((!has_secret(&home.data())).then_some(()))).await?;
    node.stop().await?;
    assert_eq!(home.run(&["journal", "verify"]).await?.code, 0);
    Ok(())
}

/// A long soul is in a blob of each session, and neither in the journal nor in a snapshot.
#[tokio::test]
async fn a_long_soul_is_beside_the_journal_and_goes_with_its_session() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let (config, soul) = (home.path().join("config.toml"), home.path().join("SOUL.md"));
    let write = |end: &str| fs::write(&soul, format!("{}{end}", "s".repeat(100_000))).unwrap();
    fs::write(&config, format!("[agents.default]\nsoul = \"{}\"\n", soul.display())).unwrap();
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    let home = home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12");
    let body = || String::from_utf8_lossy(&server.calls().pop().unwrap().body).into_owned();
    write(SECRET);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for n in 0..4 {
        client.chat(&Message::new("ada", &format!("message {n}"))).await?;
        assert!(body().contains(SECRET), "turn {n}");
    }
    assert!(blob_bytes(&home).1 > 100_000, "the soul is in a blob");
    let session = Message::new("ada", "").session();
    let journal: Vec<Value> = client.journal(&session).await?;
    assert!(!json!(journal).to_string().contains(SECRET));
    node.stop().await?;

    write("calm");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::new("ada", "and now")).await?;
    assert!(!body().contains(SECRET) && body().contains("calm"));
    let shown = async |at: &str| -> Result<String, ProcessError> {
        let params = json!({ "session": session, "at": at });
        let context: Value = client.call("sessions.context", params).await?;
        assert_eq!(context["verified"], true, "{at}");
        Ok(context.to_string())
    };
    assert!(shown("2").await?.contains(SECRET), "an earlier turn had the earlier soul");
    assert!(!shown("5").await?.contains(SECRET));
    node.stop().await?;
    for check in [["journal", "verify"], ["journal", "replay"]] {
        let verdict = home.run(&check).await?;
        assert_eq!(verdict.code, 0, "{check:?}: {verdict:?}");
    }

    assert!(has_secret(&home.data()));
    let node = Node::up(&home).await?;
    delete(&node.client()?).await?;
    assert_eq!(blob_bytes(&home).0, 0, "blobs of a deleted session stayed");
    until("a disk without the soul", async || Ok((!has_secret(&home.data())).then_some(())))
        .await?;
    node.stop().await
}

#[tokio::test]
async fn a_deleted_session_leaves_no_message_on_the_bus() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let server = ModelServer::start(Script::default()).await.unwrap();
    let backend = TestBackend::Nats { url: nats.url(), prefix: "keeps".to_owned() };
    let home = Home::new(backend)?.anthropic(&server);
    let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
    let home = home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let bus = async_nats::connect(nats.url()).await.unwrap();
    let bus = async_nats::jetstream::new(bus);
    let messages = async || {
        let mut found = Vec::new();
        for name in bus.stream_names().try_collect::<Vec<String>>().await.unwrap() {
            let mut stream = bus.get_stream(&name).await.unwrap();
            let state = stream.info().await.unwrap().state.clone();
            for sequence in state.first_sequence..=state.last_sequence {
                // Not all are there any more.
                if let Ok(message) = stream.get_raw_message(sequence).await
                    && is_secret(&message.payload)
                {
                    found.push(message.subject.to_string());
                }
            }
        }
        found
    };
    client.chat(&secret(0, 40_000)).await?;
    // A snapshot takes these records away later on.
    let journaled = messages().await;
    assert!(journaled.iter().any(|subject| subject.contains(".j.")), "{journaled:?}");
    for n in 1..12 {
        client.chat(&secret(n, 40_000)).await?;
    }
    let archived = messages().await;
    assert!(archived.iter().any(|subject| subject.contains(".blob.")), "{archived:?}");
    delete(&client).await?;
    until("a bus without the text", async || Ok(messages().await.is_empty().then_some(()))).await?;
    node.stop().await
}

#[tokio::test]
async fn what_is_stored_of_a_session_grows_with_what_was_said() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let home = home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "20");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut stored = Vec::new();
    for n in 0..100 {
        client.chat(&secret(n, 10_000)).await?;
        if (n + 1) % 50 == 0 {
            let (blobs, _) = blob_bytes(&home);
            // What was asked, and what was answered.
            let content = 2 * 10_000 * (n as u64 + 1);
            assert!(blobs <= 3 * content, "{blobs} bytes of blobs for {content}");
            stored.push(blobs);
        }
    }
    assert!(stored[1] <= 3 * stored[0], "{stored:?}");
    let session = secret(0, 0).session();
    let journal: Vec<Value> = client.journal(&session).await?;
    let numbers = journal.iter().map(|event| event["n"].as_u64().unwrap());
    assert!(numbers.eq(1..=journal.len() as u64) && journal.len() > 600, "I1: {}", journal.len());
    node.kill().await?;
    let node = Node::up(&home).await?;
    assert_eq!(node.client()?.finished(&session, 100).await?.turns.len(), 100);
    node.stop().await?;
    for check in [["journal", "verify"], ["journal", "replay"]] {
        let verdict = home.run(&check).await?;
        assert_eq!(verdict.code, 0, "{check:?}: {verdict:?}");
    }
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
    let other = Home::new(TestBackend::Local)?.anthropic(&server);
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

/// An address that a node left behind may be another's by now.
#[tokio::test]
async fn what_needs_the_directory_alone_asks_its_lock_and_no_stranger() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    node.client()?.chat(&Message::new("ada", "hello")).await?;
    for check in [&["journal", "repair"][..], &["backup", "beside.tar"]] {
        let refused = home.run(check).await?;
        assert_eq!(refused.code, 1, "{check:?} beside a node: {refused:?}");
        assert!(refused.err.contains(&format!("process {}", node.pid())), "{refused:?}");
    }
    node.stop().await?;

    let other = Home::new(TestBackend::Local)?;
    let stranger = Node::up(&other).await?;
    std::fs::copy(other.data().join("node.json"), home.data().join("node.json")).unwrap();
    for check in [&["journal", "repair"][..], &["backup", "kept.tar"]] {
        let done = home.run(check).await?;
        assert_eq!(done.code, 0, "{check:?}: {done:?}");
    }
    stranger.stop().await?;
    Ok(())
}

#[tokio::test]
async fn what_a_node_writes_is_its_owners_alone() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let private = |path: &Path| {
        // Some files come and go.
        let Ok(about) = std::fs::metadata(path) else { return };
        let mode = about.permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    };
    std::fs::create_dir_all(home.data()).unwrap();
    std::fs::set_permissions(home.data(), Permissions::from_mode(0o755)).unwrap();
    let node = Node::up(&home).await?;
    node.client()?.chat(&Message::new("ada", "hello")).await?;
    let mut folders = vec![home.data()];
    while let Some(folder) = folders.pop() {
        private(&folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            private(&path);
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    node.stop().await?;
    let kept = home.run(&["backup", "kept.tar"]).await?;
    assert_eq!(kept.code, 0, "{kept:?}");
    private(&home.path().join("kept.tar"));
    Ok(())
}

/// Whatever the soft limit is; `doctor` raises it as a node does.
#[tokio::test]
async fn a_process_raises_its_limit_of_open_files() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(10_000);
    let doctor = home.command(&["doctor", "--json"]);
    let doctor = doctor.as_std();
    let mut shell = tokio::process::Command::new("/bin/sh");
    // Few, and not more than the kernel takes; what is raised is the soft limit.
    shell.args(["-c", &format!("ulimit -Sn 64; ulimit -Hn {hard}; exec \"$0\" \"$@\"")]);
    shell.arg(doctor.get_program()).args(doctor.get_args()).env_clear();
    shell.envs(doctor.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let told: Value = serde_json::from_slice(&shell.output().await.unwrap().stdout).unwrap();
    let checks = told["checks"].as_array().cloned().unwrap_or_default();
    let files = checks.iter().find(|check| check["name"] == "limits.files");
    let found = files.and_then(|check| check["found"].as_str()).unwrap_or_default();
    assert!(found.starts_with(&format!("{hard} open files")), "{told}");
    Ok(())
}

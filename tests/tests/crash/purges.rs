//! What is forgotten leaves every file and every message, wherever the process dies that removes it (C27).

use std::{fs, path::Path};

use clawnode_proto::{
    MemoryPointId, SessionKey,
    memory::MemoryKey,
    memory_view::{MemoryForgetView, MemoryPoints, MemoryPutView, MemoryStats},
    view::EventView,
};
use clawnode_tests::{
    model::Script,
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, Start, TestBackend, sound},
    wait::until,
};
use futures_util::{TryStreamExt as _, future::try_join_all};
use serde_json::{Value, json};

use super::support::{Outcome, Scene};

/// What nothing but the point that is forgotten says.
pub(super) const SECRET: &str = "the-walrus-was-paul";
pub(super) const MEMORY: &str = "default/all";
/// Points that stay.
const OTHERS: usize = 96;
/// Where a process dies that purges: before and after each of its writes, and between any two removals.
const KILLS: [&str; 11] = [
    "after-put",
    "before-accepted",
    "after-accepted",
    "before-purge",
    "after-purge",
    "before-removal:1",
    "before-removal:2",
    "before-removal:3",
    "before-snapshot",
    "after-snapshot",
    "before-ack",
];

fn is_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

/// Whether any file below a folder has the secret, byte by byte.
pub(super) fn has_secret(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        // A segment may go while this looks.
        if path.is_dir() {
            has_secret(&path)
        } else {
            is_secret(&fs::read(path).unwrap_or_default())
        }
    })
}

/// The subjects of messages on the bus of this scene that have the secret: in their content, headers or subject.
pub(super) async fn messages(nats: &NatsServer, prefix: &str) -> Vec<String> {
    let bus = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let mut found = Vec::new();
    for name in bus.stream_names().try_collect::<Vec<String>>().await.unwrap() {
        if !name.to_lowercase().contains(prefix) {
            continue;
        }
        let mut stream = bus.get_stream(&name).await.unwrap();
        let state = stream.info().await.unwrap().state.clone();
        for sequence in state.first_sequence..=state.last_sequence {
            // Not all are there any more.
            if let Ok(message) = stream.get_raw_message(sequence).await {
                let about = format!("{} {:?}", message.subject, message.headers);
                if is_secret(&message.payload) || is_secret(about.as_bytes()) {
                    found.push(message.subject.to_string());
                }
            }
        }
    }
    found
}

pub(super) fn texts(from: usize) -> Vec<Value> {
    let text = |n: usize| json!({ "text": format!("{n} {}", "\u{1f4a7}".repeat(900)) });
    (from..from + 32).map(text).collect()
}

/// A memory whose state is beside its journal, with archives; the point that is to be forgotten is in each of them.
async fn filled(home: &Home) -> Result<MemoryPointId, ProcessError> {
    let node = Node::up(home).await?;
    let client = node.client()?;
    let secret = json!({ "memory": MEMORY, "points": [{ "text": SECRET, "subject": SECRET }] });
    let put: MemoryPutView = client.call("memory.put", secret).await?;
    for n in 0..OTHERS / 32 {
        let points = json!({ "memory": MEMORY, "points": texts(n * 32) });
        let _: MemoryPutView = client.call("memory.put", points).await?;
    }
    node.stop().await?;
    Ok(put.added[0])
}

pub(super) fn local() -> Result<Home, ProcessError> {
    Ok(Home::new(TestBackend::Local)?.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12"))
}

pub(super) fn on_bus(nats: &NatsServer, prefix: &str) -> Result<Home, ProcessError> {
    let backend = TestBackend::Nats { url: nats.url(), prefix: prefix.to_owned() };
    let home = Home::new(backend)?.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
    // What a dead node had is delivered again sooner than after the usual 30 s.
    let home = home.var("CLAWNODE_TEST_ACK_WAIT", "3000");
    Ok(home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "12"))
}

pub(super) async fn forgets(
    client: &Client,
    point: MemoryPointId,
) -> Result<MemoryForgetView, ProcessError> {
    let params = json!({ "memory": MEMORY, "point": point.to_string(), "now": true });
    client.call("memory.forget", params).await
}

/// What was not forgotten is all there, and its journal is sound.
async fn keeps_the_rest(client: &Client) -> Outcome {
    let params = json!({ "memory": MEMORY, "all": true, "limit": 1_000 });
    let shown: MemoryPoints = client.call("memory.show", params).await?;
    assert_eq!(shown.points.len(), OTHERS, "MEM-4, and nothing else is lost");
    let stats: MemoryStats = client.call("memory.stats", json!({ "memory": MEMORY })).await?;
    assert_eq!((stats.masked, stats.purges), (1, None));
    Ok(())
}

/// A process dies while it purges; the next one ends it.
async fn dies(home: &Home, kill: &str) -> Result<Node, ProcessError> {
    let point = filled(home).await?;
    let mut node = Node::start(home, Start::killed(kill)).await?;
    match forgets(&node.client()?, point).await {
        Ok(_) => {}
        Err(error) if error.is_lost() => {}
        Err(error) => return Err(error),
    }
    node.ended().await?;
    Node::up(home).await
}

#[tokio::test]
async fn c27_a_purge_that_is_killed_anywhere_leaves_nothing_in_any_file() -> Outcome {
    let case = async |kill: &'static str| {
        let home = local()?;
        let node = dies(&home, kill).await?;
        let gone = async || Ok((!has_secret(&home.data())).then_some(()));
        until(&format!("files without the text after {kill}"), gone).await?;
        keeps_the_rest(&node.client()?).await?;
        node.stop().await?;
        let verified = home.run(&["journal", "verify"]).await?;
        assert_eq!(verified.code, 0, "{kill}: {verified:?}");
        Ok::<_, ProcessError>(())
    };
    for some in KILLS.chunks(4) {
        try_join_all(some.iter().map(|kill| case(kill))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn c27_a_purge_that_is_killed_anywhere_leaves_no_message_on_the_bus() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let case = async |at: usize, kill: &'static str| {
        let prefix = format!("purge{at}x");
        let home = on_bus(&nats, &prefix)?;
        let node = dies(&home, kill).await?;
        let gone = async || Ok(messages(&nats, &prefix).await.is_empty().then_some(()));
        until(&format!("a bus without the text after {kill}"), gone).await?;
        keeps_the_rest(&node.client()?).await?;
        node.stop().await
    };
    for (chunk, some) in KILLS.chunks(4).enumerate() {
        try_join_all((chunk * 4..).zip(some).map(|(at, kill)| case(at, kill))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_purge_says_when_it_is_done_and_the_journal_goes_on_behind_it() -> Outcome {
    let home = local()?;
    let point = filled(&home).await?;
    assert!(has_secret(&home.data().join("blobs")), "no archive has the text");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let masked: MemoryForgetView = client
        .call("memory.forget", json!({ "memory": MEMORY, "point": point.to_string() }))
        .await?;
    assert!(!masked.purged && masked.purges.is_some(), "{masked:?}");
    assert!(has_secret(&home.data().join("blobs")), "it is masked, and purged later");
    // What was masked before is purged, and the answer comes when that is done.
    let purged = forgets(&client, point).await?;
    assert!(purged.purged && purged.purges.is_none() && purged.forgotten == 0, "{purged:?}");
    assert!(!has_secret(&home.data().join("blobs")));
    until("a log without the text", async || Ok((!has_secret(&home.data())).then_some(()))).await?;
    keeps_the_rest(&client).await?;
    let entity = MEMORY.parse::<MemoryKey>().unwrap().entity().to_string();
    let journal: Vec<Value> = client.journal(&entity).await?;
    assert_eq!(journal[0]["kind"], "snapshot", "it begins with what is left");
    // Snapshots and archives behind it, whose past begins with the purge.
    for n in 0..3 {
        let points = json!({ "memory": MEMORY, "points": texts(1_000 + n * 32) });
        let _: MemoryPutView = client.call("memory.put", points).await?;
    }
    node.stop().await?;
    let verified = home.run(&["journal", "verify"]).await?;
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(fs::read_dir(home.data().join("blobs")).unwrap().count() > 1, "no later archive");
    Ok(())
}

/// The point, the conversation that it was learned from, and what the store of memories has of both.
#[tokio::test]
async fn what_a_point_was_learned_from_leaves_every_file_with_it() -> Outcome {
    let scene = Scene::new(Script::default()).await;
    scene.configure("[agents.default.memory]\n");
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let message = Message::new("ada", SECRET);
    client.chat(&message).await?;
    let session: SessionKey = message.session().parse().unwrap();
    let memory = MemoryKey::of_peer(&session).to_string();
    let journal: Vec<EventView> = client.journal(&message.session()).await?;
    let at = journal[2].ts;
    let source = json!({ "entity": session.entity().to_string(), "event": 3, "at": at });
    let points = json!([{ "text": SECRET, "source": source }]);
    let put: MemoryPutView =
        client.call("memory.put", json!({ "memory": memory, "points": points })).await?;
    let store = scene.home.data().join("memory");
    let has_both = async || Ok((store.exists() && has_secret(&store)).then_some(()));
    until("a store that has what was said", has_both).await?;

    let point = put.added[0].to_string();
    let asked = json!({ "memory": memory, "point": point, "now": true, "sources": true });
    let forgotten: MemoryForgetView = client.call("memory.forget", asked).await?;
    assert_eq!(forgotten.deleted_sources, [message.session()]);
    // The log was perhaps cleaned before the session was deleted. A process that begins does it at once.
    node.stop().await?;
    let node = Node::up(&scene.home).await?;
    let gone = async || Ok((!has_secret(&scene.home.data())).then_some(()));
    until("files without what was said", gone).await?;
    assert!(sound(&scene.home).await? > 0);
    node.stop().await
}

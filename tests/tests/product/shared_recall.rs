//! Two nodes of a cluster, each with a store of its own: both recall the same, also when either dies, and when a store is
//! wiped while points are learned.

use std::fs;

use clawnode_proto::memory_view::{MemoryPutView, MemorySearchView};
use clawnode_tests::{
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::{Outcome, recall::has};

const MEMORY: &str = "default/all";
/// Points that each node gets.
const POINTS: usize = 30;

fn home(nats: &NatsServer) -> Result<Home, ProcessError> {
    let home = Home::new(TestBackend::Nats { url: nats.url(), prefix: "both".to_owned() })?;
    let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
    // What a dead node had is delivered again sooner than after the usual 30 s.
    Ok(home.var("CLAWNODE_TEST_ACK_WAIT", "3000"))
}

/// One point after another.
async fn learns(client: &Client, place: &str, points: usize) -> Outcome {
    for n in 0..points {
        let point = json!({ "text": format!("Tea number {n} is at the {place}.") });
        let key = format!("{place}-{n}");
        let asked = json!({ "memory": MEMORY, "points": [point], "key": key });
        let put: MemoryPutView = client.call("memory.put", asked).await?;
        assert_eq!(put.added.len(), 1, "{put:?}");
    }
    Ok(())
}

/// What a node finds of all that was learned, once its store has so much and says that nothing is missing.
async fn finds(client: &Client, points: usize) -> Result<String, ProcessError> {
    let asked = json!({ "memory": MEMORY, "query": "tea number harbour", "limit": 100 });
    until(&format!("{points} points in the store of {}", client.url()), async || {
        let view: MemorySearchView = client.call("memory.search", asked.clone()).await?;
        let is_whole = view.found.len() == points && view.degraded.is_empty();
        Ok(is_whole.then(|| format!("{:?}", view.found)))
    })
    .await
}

/// Removes the store of a running node. It may write a file of it meanwhile, so the first removal may fail.
async fn wipes(home: &Home) -> Outcome {
    let folder = home.data().join("memory");
    let is_filled = async || Ok((folder.exists() && has(&folder, b"Tea number 3 ")).then_some(()));
    until("a store with some points", is_filled).await?;
    until("a store that is gone", async || Ok(fs::remove_dir_all(&folder).ok())).await
}

#[tokio::test]
async fn two_nodes_recall_the_same_whichever_dies_and_whatever_is_wiped_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let homes = [home(&nats)?, home(&nats)?];
    let one = Node::up(&homes[0]).await?;
    let other = Node::up(&homes[1]).await?;
    let (first, second) = (one.client()?, other.client()?);
    let (learned, also, wiped) = tokio::join!(
        learns(&first, "lighthouse", POINTS),
        learns(&second, "harbour", POINTS),
        wipes(&homes[0]),
    );
    learned?;
    also?;
    wiped?;
    let found = finds(&first, 2 * POINTS).await?;
    assert_eq!(found, finds(&second, 2 * POINTS).await?, "in the same order, with the same scores");

    // The memory of a person has one holder, and the other node says who that is.
    let of_ben = json!({ "memory": "default/peer/test:a:ben" });
    let lamp =
        json!({ "memory": "default/peer/test:a:ben", "points": [{ "text": "Ben keeps a lamp." }] });
    let _: Value = first.call("memory.put", lamp).await?;
    until("one node that cannot fill a memory again", async || {
        let one = first.call::<Value>("memory.reindex", of_ben.clone()).await;
        let other = second.call::<Value>("memory.reindex", of_ben.clone()).await;
        let refused = [one, other].into_iter().filter_map(Result::err);
        let refused: Vec<String> = refused.map(|error| error.to_string()).collect();
        let is_one = refused.len() == 1 && refused[0].contains("holds the index of");
        Ok(is_one.then_some(()))
    })
    .await?;

    // Either dies, and comes back without its store.
    one.kill().await?;
    learns(&second, "island", 1).await?;
    finds(&second, 2 * POINTS + 1).await?;
    // Without a store that could be wrong, or old.
    drop(fs::remove_dir_all(homes[0].data().join("memory")));
    let one = Node::up(&homes[0]).await?;
    let first = one.client()?;
    let found = finds(&first, 2 * POINTS + 1).await?;
    other.kill().await?;
    learns(&first, "cape", 1).await?;
    let later = finds(&first, 2 * POINTS + 2).await?;
    assert_ne!(found, later);
    let other = Node::up(&homes[1]).await?;
    assert_eq!(later, finds(&other.client()?, 2 * POINTS + 2).await?, "both find the same again");
    one.stop().await?;
    other.stop().await
}

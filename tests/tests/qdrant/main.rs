//! Nodes whose store of memories is on a Qdrant server: the fixture that speaks its gRPC.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

use std::fs;

use clawnode_proto::{
    memory_view::{MemoryPutView, MemorySearchView},
    view::StatusView,
};
use clawnode_qdrant::fixture::{FixtureOptions, QdrantFixture};
use clawnode_tests::{
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    static_model,
    wait::until,
};
use serde_json::json;

type Outcome = Result<(), ProcessError>;

const MEMORY: &str = "default/all";
const KEY: &str = "qd-9f3b1c";

async fn fixture() -> QdrantFixture {
    let api_key = Some(KEY.to_owned());
    QdrantFixture::start(FixtureOptions { api_key, ..FixtureOptions::default() }).await.unwrap()
}

/// A home whose nodes use this server, and keep what is said to the default agent.
fn home(backend: TestBackend, fixture: &QdrantFixture) -> Result<Home, ProcessError> {
    let home = Home::new(backend)?.var("QDRANT_KEY", KEY);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    let config = format!(
        "[memory]\nstore = \"qdrant\"\nconversations = [\"default\"]\n\
         [memory.qdrant]\nurl = \"{}\"\napi_key_env = \"QDRANT_KEY\"\n",
        fixture.url()
    );
    fs::write(settings.join("config.toml"), config).unwrap();
    Ok(home)
}

async fn learns(client: &Client, text: &str) -> Outcome {
    let asked = json!({ "memory": MEMORY, "points": [{ "text": text }] });
    client.call::<MemoryPutView>("memory.put", asked).await.map(drop)
}

async fn search(client: &Client, query: &str) -> Result<MemorySearchView, ProcessError> {
    client.call("memory.search", json!({ "memory": MEMORY, "query": query })).await
}

fn texts(view: &MemorySearchView) -> Vec<&str> {
    view.found.iter().map(|found| found.text.as_str()).collect()
}

#[tokio::test]
async fn a_node_goes_on_while_the_server_is_away() -> Outcome {
    let mut fixture = fixture().await;
    let home = home(TestBackend::Local, &fixture)?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    learns(&client, "Tea is at four.").await?;
    let view = search(&client, "tea").await?;
    assert_eq!((view.store.as_str(), texts(&view)), ("qdrant", vec!["Tea is at four."]));
    assert_eq!(view.degraded, [""; 0]);
    let ended = home.run(&["doctor", "--json"]).await?;
    assert!(ended.out.contains("Qdrant at") && !ended.out.contains(KEY), "{ended:?}");

    fixture.stop().await;
    learns(&client, "Coffee is at six.").await?;
    let view = search(&client, "coffee tea").await?;
    assert_eq!((texts(&view), view.degraded.as_slice()), (vec![], &[MEMORY.to_owned()][..]));
    let mut turn = client.send(&Message::new("ada", "hello")).await?;
    while turn.next().await?.event != "done" {}
    until("a warning of status", async || {
        let status: StatusView = client.call("status", json!({})).await?;
        let away = status.warnings.into_iter().find(|warning| warning.name == "memory.away");
        Ok(away.filter(|away| away.hint.contains("[memory.qdrant]")))
    })
    .await?;
    let ended = home.run(&["doctor", "--json"]).await?;
    assert!(ended.out.contains("cannot use Qdrant at"), "{ended:?}");

    // What it lacks comes from the journal; after a loss, too.
    for loses in [false, true] {
        if loses {
            fixture.wipe();
        } else {
            fixture.begin().await.unwrap();
        }
        until("both points", async || {
            let view = search(&client, "coffee tea").await?;
            Ok((texts(&view).len() == 2 && view.degraded.is_empty()).then_some(()))
        })
        .await?;
    }
    // A session is filled by the feed alone, so the feed was read again.
    until("what was said", async || Ok(fixture.has_text("hello").then_some(()))).await?;
    node.stop().await?;
    let log = fs::read_to_string(home.log()).unwrap();
    assert!(!log.contains(KEY), "the key is in the log");
    Ok(())
}

/// The server has vectors once, however many nodes make them, and the index of before goes.
#[tokio::test]
async fn a_model_is_added_to_a_server_that_has_memories() -> Outcome {
    let fixture = fixture().await;
    let home = home(TestBackend::Local, &fixture)?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    learns(&client, "My car is red.").await?;
    learns(&client, "The tea is at four.").await?;
    assert_eq!(texts(&search(&client, "car").await?), ["My car is red."]);
    node.stop().await?;
    assert!(fixture.collections().iter().any(|name| name == "clawnode-v1-words"));

    let settings = home.path().join(".config/clawnode");
    static_model::write(
        &settings.join("model"),
        &[("[UNK]", [9.0, 9.0]), ("car", [1.0, 0.1]), ("vehicle", [1.0, 0.0]), ("tea", [0.0, 1.0])],
    )
    .unwrap();
    let config = fs::read_to_string(settings.join("config.toml")).unwrap();
    let with = "[memory]\nembeddings = \"static\"\nembeddings_dir = \"model\"\n";
    fs::write(settings.join("config.toml"), config.replace("[memory]\n", with)).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    assert_eq!(texts(&search(&client, "car").await?)[0], "My car is red.", "at once, by its words");
    until("the nearest first", async || {
        let view = search(&client, "vehicle").await?;
        let best = view.found.first().filter(|best| best.score.meaning == Some(1.0));
        let is_found = best.is_some_and(|best| best.text == "My car is red.");
        Ok((is_found && view.degraded.is_empty()).then_some(()))
    })
    .await?;
    until("the index of words is gone", async || {
        Ok(fixture.collections().iter().all(|name| name.contains("-static_")).then_some(()))
    })
    .await?;
    node.stop().await
}

#[tokio::test]
async fn two_nodes_share_one_server() -> Outcome {
    let fixture = fixture().await;
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let backend = || TestBackend::Nats { url: nats.url(), prefix: "shared".to_owned() };
    let homes = [home(backend(), &fixture)?, home(backend(), &fixture)?];
    let one = Node::up(&homes[0]).await?;
    let other = Node::up(&homes[1]).await?;
    let (first, second) = (one.client()?, other.client()?);
    learns(&first, "Tea is at four.").await?;
    learns(&second, "Coffee is at six.").await?;
    let both = [search(&first, "tea coffee").await?, search(&second, "tea coffee").await?];
    assert_eq!(texts(&both[0]).len(), 2, "{both:?}");
    let [found, same] = both.map(|view| format!("{:?}", view.found));
    assert_eq!(found, same, "in the same order, with the same scores");

    // The one that is left goes on with what the other one put.
    one.kill().await?;
    let ended = homes[1].run(&["memory", "put", MEMORY, "Cake is at eight."]).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    let view = search(&second, "tea coffee cake").await?;
    assert_eq!((texts(&view).len(), view.degraded.len()), (3, 0), "{view:?}");
    other.stop().await
}

/// Points that each node gets while the server loses all that it has.
const POINTS: usize = 30;

async fn learns_many(client: &Client, place: &str) -> Outcome {
    for n in 0..POINTS {
        learns(client, &format!("Tea number {n} is at the {place}.")).await?;
    }
    Ok(())
}

/// What a node finds once it finds so many points, and says that nothing is missing.
async fn finds(client: &Client, points: usize) -> Result<String, ProcessError> {
    let asked = json!({ "memory": MEMORY, "query": "tea number harbour", "limit": 100 });
    until(&format!("{points} points"), async || {
        let view: MemorySearchView = client.call("memory.search", asked.clone()).await?;
        let is_whole = view.found.len() == points && view.degraded.is_empty();
        Ok(is_whole.then(|| format!("{:?}", view.found)))
    })
    .await
}

#[tokio::test]
async fn a_wipe_under_load_loses_nothing_and_either_node_may_die() -> Outcome {
    let fixture = fixture().await;
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let backend = || TestBackend::Nats { url: nats.url(), prefix: "wiped".to_owned() };
    let homes = [home(backend(), &fixture)?, home(backend(), &fixture)?];
    let one = Node::up(&homes[0]).await?;
    let other = Node::up(&homes[1]).await?;
    let (first, second) = (one.client()?, other.client()?);
    let wipes = async {
        for seen in ["number 3 ", "number 9 "] {
            // What is there is stored again after the first wipe, or was never lost.
            let there = async || Ok(fixture.has_text(seen).then_some(()));
            until("points on the server", there).await?;
            fixture.wipe();
        }
        Ok::<_, ProcessError>(())
    };
    let by_first = learns_many(&first, "lighthouse");
    let by_second = learns_many(&second, "harbour");
    tokio::try_join!(by_first, by_second, wipes)?;
    let found = finds(&first, 2 * POINTS).await?;
    assert_eq!(found, finds(&second, 2 * POINTS).await?, "in the same order, with the same scores");

    one.kill().await?;
    learns(&second, "Tea number 0 is at the island.").await?;
    finds(&second, 2 * POINTS + 1).await?;
    let one = Node::up(&homes[0]).await?;
    other.kill().await?;
    let first = one.client()?;
    learns(&first, "Tea number 0 is at the cape.").await?;
    finds(&first, 2 * POINTS + 2).await?;
    one.stop().await
}

//! A process dies before each of the writes that a memory makes, one after the other: points that are put, superseded,
//! forgotten and purged, with snapshots and archives in between. Nothing is lost or doubled, and nothing that was
//! purged is left.

use clawnode_proto::{
    MemoryPointId,
    memory_view::{MemoryPoints, MemoryPutView, MemoryStats, PointState},
};
use clawnode_tests::{
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Node, ProcessError, Start, sound},
    wait::until,
};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::{
    purges::{MEMORY, SECRET, forgets, has_secret, local, messages, on_bus, texts},
    support::Outcome,
};

/// What takes the place of the secret, and stays.
const LATER: &str = "the walrus was john";
/// Points of one request that stay, too.
const OTHERS: usize = 32;
/// Lives that run beside each other.
const TOGETHER: usize = 4;
/// So many writes are made at least: a sweep that ends before has not met them.
const WRITES_LEAST: usize = 15;
/// No sweep is that long.
const WRITES_MOST: usize = 200;

/// A client that asks for one thing after another, each under one key until it is answered.
#[derive(Default)]
struct AskedSteps {
    /// Requests that were answered.
    answered: usize,
    /// The point that is to be forgotten.
    secret: Option<MemoryPointId>,
}

// === impl AskedSteps ===

impl AskedSteps {
    /// The points of each request, in their order.
    fn requests() -> [Vec<Value>; 3] {
        let about = |text: &str| json!({ "text": text, "subject": "walrus", "predicate": "was" });
        [vec![about(SECRET)], texts(0), vec![about(LATER)]]
    }

    /// Asks for what was not answered yet; the node may be lost with each of these requests.
    async fn go_on(&mut self, client: &Client) -> Outcome {
        for (at, points) in Self::requests().into_iter().enumerate().skip(self.answered) {
            let asked =
                json!({ "memory": MEMORY, "points": points, "key": format!("request-{at}") });
            let put: MemoryPutView = client.call("memory.put", asked).await?;
            assert!(put.refused.is_empty(), "{put:?}");
            if at == 0 {
                self.secret = put.added.first().or(put.known.first()).copied();
            }
            self.answered = at + 1;
        }
        let secret = self.secret.unwrap();
        match forgets(client, secret).await {
            // What a lost answer would have said: it is purged, and there is nothing more to do.
            Err(error) if error.refusal().is_some_and(|body| body.message.contains("is gone")) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// Whether a process made all writes before it could die of one. `gone` looks for what nothing may have in the end.
async fn survives(
    home: &Home,
    write: usize,
    gone: impl AsyncFn() -> Result<Option<()>, ProcessError>,
) -> Result<bool, ProcessError> {
    let mut steps = AskedSteps::default();
    let mut node = Node::start(home, Start::killed(&format!("memory-write:{write}"))).await?;
    let survived = match steps.go_on(&node.client()?).await {
        Ok(()) => true,
        Err(error) if error.is_lost() => false,
        Err(error) => return Err(error),
    };
    if survived {
        node.kill().await?;
    } else {
        node.ended().await?;
    }
    let node = Node::up(home).await?;
    let client = node.client()?;
    steps.go_on(&client).await?;
    until(&format!("the end of the text, killed before write {write}"), gone).await?;
    has_the_rest_once(&client, steps.secret, write).await?;
    assert!(sound(home).await? > 0);
    node.stop().await?;
    Ok(survived)
}

/// What was not forgotten is there once, and nothing else.
async fn has_the_rest_once(
    client: &Client,
    secret: Option<MemoryPointId>,
    write: usize,
) -> Outcome {
    let params = json!({ "memory": MEMORY, "all": true, "limit": 1_000 });
    let shown: MemoryPoints = client.call("memory.show", params).await?;
    let mut found: Vec<&str> = shown.points.iter().map(|point| point.text.as_str()).collect();
    found.sort_unstable();
    let others = texts(0);
    let mut wanted: Vec<&str> = others.iter().filter_map(|point| point["text"].as_str()).collect();
    wanted.push(LATER);
    wanted.sort_unstable();
    assert_eq!(wanted.len(), OTHERS + 1);
    assert_eq!(found, wanted, "MEM-3, MEM-4: before write {write}");
    assert!(shown.points.iter().all(|point| point.state == PointState::Live), "write {write}");
    assert!(shown.points.iter().all(|point| Some(point.id) != secret), "MEM-4: write {write}");
    let stats: MemoryStats = client.call("memory.stats", json!({ "memory": MEMORY })).await?;
    assert_eq!((stats.masked, stats.purges), (1, None), "before write {write}");
    Ok(())
}

/// Every `step`-th write from `first` on, until a process makes them all; that many there are.
async fn sweep(
    first: usize,
    step: usize,
    case: impl AsyncFn(usize) -> Result<bool, ProcessError>,
) -> Outcome {
    let mut from = first;
    while from < WRITES_MOST {
        let writes: Vec<usize> = (0..TOGETHER).map(|more| from + more * step).collect();
        let survived = try_join_all(writes.iter().map(|write| case(*write))).await?;
        if let Some(at) = survived.into_iter().position(|survived| survived) {
            assert!(writes[at] > WRITES_LEAST, "all was written before write {}", writes[at]);
            return Ok(());
        }
        from += TOGETHER * step;
    }
    Err(ProcessError::Broken(format!("a memory makes more than {WRITES_MOST} writes")))
}

async fn in_files(first: usize, step: usize) -> Outcome {
    sweep(first, step, async |write| {
        let home = local()?.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "6");
        survives(&home, write, async || Ok((!has_secret(&home.data())).then_some(()))).await
    })
    .await
}

async fn on_nats(first: usize, step: usize) -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    sweep(first, step, async |write| {
        let prefix = format!("write{write}x");
        let home = on_bus(&nats, &prefix)?.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "6");
        survives(&home, write, async || Ok(messages(&nats, &prefix).await.is_empty().then_some(())))
            .await
    })
    .await
}

#[tokio::test]
async fn a_kill_before_any_odd_write_leaves_each_point_once_and_no_purged_byte() -> Outcome {
    in_files(1, 2).await
}

#[tokio::test]
async fn a_kill_before_any_even_write_leaves_each_point_once_and_no_purged_byte() -> Outcome {
    in_files(2, 2).await
}

#[tokio::test]
async fn a_kill_before_every_third_write_leaves_no_purged_message_on_nats() -> Outcome {
    on_nats(1, 3).await
}

#[tokio::test]
async fn a_kill_before_any_write_leaves_no_purged_message_on_nats_soak() -> Outcome {
    on_nats(1, 1).await
}

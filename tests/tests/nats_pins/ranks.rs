//! Prioritized pulls.

use async_nats::HeaderMap;
use clawnode_tests::nats::{NatsCluster, ServerOptions};
use futures_util::StreamExt;
use serde_json::json;

use crate::peer::{PATIENCE, Peer, Result, delivered, one, text, until_it_works};

async fn ranked(peer: &Peer, replicas: u8) -> Result {
    peer.stream("Q", &["q.>"], json!({ "retention": "workqueue", "num_replicas": replicas }))
        .await?;
    let config = json!({
        "max_deliver": -1, "max_ack_pending": -1, "ack_wait": 3_000_000_000_u64,
        "priority_policy": "prioritized", "priority_groups": ["g"],
    });
    peer.consumer("Q", "c", config).await
}

#[tokio::test]
async fn the_lowest_rank_that_pulls_is_served() -> Result {
    let (server, first) = one().await?;
    ranked(&first, 1).await?;
    let second = Peer::connect(&[server.url()]).await?;
    let mut high = second.pull("Q", "c", json!({ "group": "g", "priority": 1 })).await?;
    let mut low = first.pull("Q", "c", json!({ "group": "g", "priority": 0 })).await?;
    for number in 0..10 {
        second.store("q.a", HeaderMap::new(), &number.to_string()).await?;
        let message = low.next().await?;
        assert_eq!(text(&message), number.to_string());
        message.double_ack().await?;
    }
    // What it leaves unacknowledged comes again to the lowest rank that pulls then.
    second.store("q.a", HeaderMap::new(), "left").await?;
    assert_eq!(text(&low.next().await?), "left");
    first.client.drain().await?;
    let again = high.next().await?;
    assert_eq!((text(&again), delivered(&again)?), ("left".to_owned(), 2));
    Ok(())
}

#[tokio::test]
async fn ranks_hold_on_after_the_consumers_leader_is_killed() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let peer = Peer::connect(&cluster.urls()).await?;
    until_it_works(|| ranked(&peer, 3)).await?;
    let mut elections =
        peer.client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.Q.c").await?;
    peer.settle().await?;
    let leader = cluster.consumer_leader_of("Q", "c").await?;
    // A client of the server that dies would be a test of reconnecting.
    let survivors: Vec<String> = cluster
        .urls()
        .into_iter()
        .enumerate()
        .filter_map(|(index, url)| (index != leader).then_some(url))
        .collect();
    let peer = Peer::connect(&survivors).await?;
    cluster.server(leader)?.kill()?;
    tokio::time::timeout(PATIENCE, elections.next()).await?.ok_or("no word of an election")?;
    let mut high = peer.pull("Q", "c", json!({ "group": "g", "priority": 1 })).await?;
    let mut low = peer.pull("Q", "c", json!({ "group": "g", "priority": 0 })).await?;
    until_it_works(|| peer.store("q.a", HeaderMap::new(), "after")).await?;
    tokio::select! {
        message = low.next() => assert_eq!(text(&message?), "after"),
        message = high.next() => return Err(format!("high rank got {}", text(&message?)).into()),
    }
    Ok(())
}

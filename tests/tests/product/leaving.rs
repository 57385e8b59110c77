//! A worker that stops says that it leaves, and is heard.
//!
//! Method: between the worker and the bus is a relay that reads late, while more arrives for the
//! worker all the time. A connection that is closed at such a moment is reset. A NATS server that
//! cannot write to one drops it with all that it has not read yet, and so does the relay.

use std::time::Duration;

use clawnode_proto::{
    ProcessId,
    feed::EventBody,
    overview::{FeedView, NodeList},
    subject::Prefix,
};
use clawnode_tests::{
    model::{ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Home, Node, Start, TestBackend},
};
use serde_json::json;
use tokio::{
    io::{AsyncWriteExt, copy},
    net::{TcpListener, TcpStream, tcp},
    task::JoinSet,
};

use super::Outcome;

/// How late the bus reads.
const LATE: Duration = Duration::from_millis(50);
/// How often something arrives for the worker.
const OFTEN: Duration = Duration::from_millis(1);
/// Bytes that are read at once.
const READ: usize = 65_536;
/// A lucky stop proves nothing.
const STOPS: usize = 3;
const PREFIX: &str = "leaving";

/// Reads what is there a while after it came, and passes it on.
async fn late(from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf) {
    let mut later = tokio::time::interval(LATE);
    let mut some = vec![0; READ];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        later.reset();
        later.tick().await;
        match from.try_read(&mut some) {
            Ok(0) => return,
            Ok(count) => {
                if to.write_all(&some[..count]).await.is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// A way to `server` on which that reads late.
async fn way(listener: TcpListener, server: String) {
    let mut ways = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(&server).await else { return };
        let ((near_out, mut near_in), (mut far_out, far_in)) =
            (near.into_split(), far.into_split());
        ways.spawn(async move {
            tokio::select! {
                () = late(near_out, far_in) => {}
                _ = copy(&mut far_out, &mut near_in) => {}
            }
        });
    }
}

/// Publishes messages all the time that every process gets and none understands.
async fn chatter(url: String) {
    let client = async_nats::connect(url).await.unwrap();
    let prefix: Prefix = PREFIX.parse().unwrap();
    let subject = prefix.heartbeat(ProcessId::from_u128(0));
    let mut often = tokio::time::interval(OFTEN);
    while client.publish(subject.clone(), "?".into()).await.is_ok() {
        often.tick().await;
    }
}

#[tokio::test]
async fn a_worker_on_nats_that_stops_has_left_and_is_not_dead() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let model = ModelServer::start(Script::default()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let late = format!("nats://{}", listener.local_addr().unwrap());
    let mut beside = JoinSet::new();
    beside.spawn(way(listener, nats.url().replace("nats://", "")));
    beside.spawn(chatter(nats.url()));
    let home = |url: String| {
        let home =
            Home::new(TestBackend::Nats { url, prefix: PREFIX.to_owned() })?.anthropic(&model);
        Ok::<_, clawnode_tests::process::ProcessError>(
            home.var("CLAWNODE_CLUSTER__PARTITIONS", "8"),
        )
    };
    let (near, far) = (home(nats.url())?, home(late)?);
    let gateway = Node::start(&near, Start::role("gateway")).await?;
    let client = gateway.client()?;
    for _ in 0..STOPS {
        let worker = Node::start(&far, Start::role("worker")).await?;
        let process = worker.process().unwrap();
        let here = |list: &NodeList| list.nodes.iter().any(|node| node.process == process);
        let _: NodeList = client.call_when("nodes.list", json!({}), here).await?;
        worker.stop().await?;
        let list: NodeList = client.call_when("nodes.list", json!({}), |list| !here(list)).await?;
        assert_eq!(list.dead, [], "it said that it leaves");
    }
    let all = json!({ "limit": 1_000 });
    let told = |feed: &FeedView| {
        feed.events.iter().filter(|row| row.event.what == EventBody::NodeLeft).count() == STOPS
    };
    let feed: FeedView = client.call_when("events.list", all, told).await?;
    let dead = |what: &EventBody| matches!(what, EventBody::NodeDead { .. });
    assert!(!feed.events.iter().any(|row| dead(&row.event.what)), "{feed:?}");
    gateway.stop().await
}

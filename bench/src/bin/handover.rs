//! `cluster::hand_over`: from an owner's `released` to the next owner's `claim`, by the events' own
//! times (one machine, one clock), when a worker is told to stop in the middle of turns.
//!
//! Each session has a call under way and a message that waits behind it. One worker after the
//! other is told to stop; its calls end, and the sessions go on at the one that came for it. Run
//! with `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin handover`.

use std::time::Duration;

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_proto::view::{EventView, StatusView};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Ground, Home, Message, Node, Start},
};
use serde_json::json;

/// The target.
const TARGET_MS: f64 = 200.0;
/// Pieces of a reply, and the time before each: calls last a second and end at different times.
const PIECES: (u32, u64) = (10, 100);
/// Between two looks at who is there.
const LOOK: Duration = Duration::from_millis(50);

/// Measures how long a session belongs to nobody when its worker is told to stop.
#[derive(Debug, Parser)]
struct Args {
    /// Workers that are told to stop, one after the other
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Sessions of one round; a worker has about half of them
    #[arg(long, default_value_t = 16)]
    sessions: usize,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let nats = NatsServer::start(ServerOptions::default()).await.map_err(other)?;
    let default = DefaultReply { tokens: PIECES.0, delay_ms: PIECES.1, flush: true };
    let model = ModelServer::start(Script { default, ..Script::default() }).await?;
    let ground = Ground::Nats { url: nats.url(), prefix: "bench".to_owned() };
    let home = Home::new(ground).map_err(other)?.openai(&model);
    let gateway = Node::start(&home, Start::role("gateway")).await.map_err(other)?;
    let client = gateway.client().map_err(other)?;
    let mut old = Node::start(&home, Start::role("worker")).await.map_err(other)?;
    let mut waits = Vec::new();
    for round in 0..args.rounds {
        let new = Node::start(&home, Start::role("worker")).await.map_err(other)?;
        known(&client, &new).await?;
        let (mut turns, mut sent) = (Vec::new(), Vec::new());
        for n in 0..args.sessions {
            let peer = format!("r{round}s{n}");
            let (first, second) = (Message::new(&peer, "one"), Message::new(&peer, "two"));
            let mut running = client.send(&first).await.map_err(other)?;
            running.begun().await.map_err(other)?;
            turns.push(running);
            turns.push(client.send(&second).await.map_err(other)?);
            sent.push(first);
        }
        let leaving = tokio::spawn(old.stop());
        for turn in &mut turns {
            turn.completed().await.map_err(other)?;
        }
        leaving.await?.map_err(other)?;
        for message in &sent {
            waits.extend(wait(&client, message).await?);
        }
        old = new;
    }
    report(waits)?;
    gateway.stop().await.map_err(other)?;
    old.stop().await.map_err(other)
}

/// How long the session belonged to nobody, if it changed hands with a message waiting.
async fn wait(client: &Client, message: &Message) -> Result<Option<Duration>, Error> {
    let params = json!({ "session": message.session(), "limit": 1_000 });
    let journal: Vec<EventView> = client.call("journal.show", params).await.map_err(other)?;
    let released = journal.iter().position(|event| event.kind == "released");
    let Some((before, after)) = released.map(|at| journal.split_at(at)) else { return Ok(None) };
    let done = before.iter().filter(|event| event.kind == "turn_done").count();
    match after {
        // Both turns were done: it only left memory.
        [_, ..] if done > 1 => Ok(None),
        [released, claim, ..] => Ok(Some(claim.ts.since(released.ts))),
        _ => Ok(None),
    }
}

/// Waits until the gateway hears of a worker.
async fn known(client: &Client, node: &Node) -> Result<(), Error> {
    loop {
        let status: StatusView = client.call("status", json!({})).await.map_err(other)?;
        if status.nodes.iter().any(|it| Some(it.process) == node.process()) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn report(mut waits: Vec<Duration>) -> Result<(), Error> {
    waits.sort_unstable();
    let ms = |of_1000| percentile(&waits, of_1000).as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let count = waits.len() as f64;
    let row = Row::new("cluster::hand_over")
        .figure("count", count)
        .figure("p50_ms", ms(500))
        .figure("p99_ms", ms(990))
        .figure("worst_ms", ms(1_000))
        .at_most("p99 ms", ms(990), TARGET_MS);
    let mut table = Table::default();
    table.add(row);
    Ok(table.json()?)
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}

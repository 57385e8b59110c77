//! `cluster::hand_over`: from an owner's `released` to the next owner's `claim`, by the events' own
//! times (one machine, one clock), when a worker is stopped in the middle of turns.
//!
//! Each session has a call under way and a message that waits behind it. Then another worker comes,
//! and the bench stops the one that has all sessions: its calls end, and the sessions continue at
//! the other. Run with `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench
//! --bin handover`.
#![expect(clippy::print_stderr, reason = "slow hand-overs are printed while the bench runs")]

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_proto::{
    SessionKey,
    view::{EventView, StatusView},
};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, Start, TestBackend},
};
use serde_json::json;

/// The promise that the figure is held against.
const TARGET_MS: f64 = 200.0;
/// Milliseconds before each piece of a reply.
const PIECE_MS: u64 = 100;
/// Between two looks at who is there.
const LOOK: Duration = Duration::from_millis(50);

/// Measures how long a session has no owner when its worker is stopped
#[derive(Debug, Parser)]
struct Args {
    /// Workers that are stopped, one after the other
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Sessions of one round
    #[arg(long, default_value_t = 16)]
    sessions: usize,
    /// Pieces of a reply, each a tenth of a second: calls end at different times. With few pieces,
    /// some calls end as soon as their worker must stop
    #[arg(long, default_value_t = 26)]
    pieces: u32,
    /// Keep the log of all nodes here, in detail, and name the sessions that waited too long
    #[arg(long)]
    log: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let nats = NatsServer::start(ServerOptions::default()).await.map_err(other)?;
    let default = DefaultReply { tokens: args.pieces, delay_ms: PIECE_MS, flush: true };
    let model = ModelServer::start(Script { default, ..Script::default() }).await?;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "bench".to_owned() };
    let mut home = Home::new(backend).map_err(other)?.openai(&model);
    if args.log.is_some() {
        home = home.var("RUST_LOG", "info,clawnode_kernel=debug");
    }
    let gateway = Node::start(&home, Start::role("gateway")).await.map_err(other)?;
    let client = gateway.client().map_err(other)?;
    let mut old = Node::start(&home, Start::role("worker")).await.map_err(other)?;
    let mut waits = Vec::new();
    for round in 0..args.rounds {
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
        // Only now, so that the worker that leaves has all of them: of two, the busier lowers its
        // rank.
        let new = Node::start(&home, Start::role("worker")).await.map_err(other)?;
        known(&client, &new).await?;
        let leaving = tokio::spawn(old.stop());
        for turn in &mut turns {
            turn.completed().await.map_err(other)?;
        }
        leaving.await?.map_err(other)?;
        for message in &sent {
            let Some(wait) = wait(&client, message).await? else { continue };
            if args.log.is_some() && wait.as_secs_f64() * 1_000.0 > TARGET_MS {
                let key: SessionKey = message.session().parse()?;
                eprintln!("{}: {wait:?}", key.entity());
            }
            waits.push(wait);
        }
        old = new;
    }
    report(waits)?;
    gateway.stop().await.map_err(other)?;
    old.stop().await.map_err(other)?;
    match args.log {
        Some(log) => Ok(std::fs::copy(home.log(), log).map(drop)?),
        None => Ok(()),
    }
}

/// How long the session had no owner, if it changed hands with a message waiting.
async fn wait(client: &Client, message: &Message) -> Result<Option<Duration>, Error> {
    let journal: Vec<EventView> = client.journal(&message.session()).await.map_err(other)?;
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
        if status.nodes.iter().any(|other| Some(other.process) == node.process()) {
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

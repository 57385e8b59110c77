//! `lanes::interactive`: how long interactive turns take on one node while more turns of the background run and wait
//! than it has places for, against the same node with nothing else to do.
//!
//! Run with `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin lanes`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Script},
    process::{Client, Ground, Home, Message, Node, ProcessError},
};
use tokio::task::JoinSet;

/// Interactive turns may take so many times as long as alone (p99).
const TARGET: f64 = 2.0;

/// Measures how long people wait while there is work in the background.
#[derive(Debug, Parser)]
struct Args {
    /// Interactive turns, one after the other
    #[arg(long, default_value_t = 100)]
    turns: usize,
    /// Turns of the background
    #[arg(long, default_value_t = 1_000)]
    background: usize,
    /// Turns that the node runs at a time
    #[arg(long, default_value_t = 64)]
    places: usize,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    // A reply takes about half a second.
    let default = DefaultReply { tokens: 25, delay_ms: 20, flush: true };
    let model = ModelServer::start(Script { default, ..Script::default() }).await?;
    let home = Home::new(Ground::Local).map_err(other)?.openai(&model);
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__MAX_TURNS", &args.places.to_string());
    let node = Node::up(&home).await.map_err(other)?;
    let client = node.client().map_err(other)?;
    let idle = interactive(&client, &args, "idle").await?;
    let mut background = JoinSet::new();
    for n in 0..args.background {
        let message = Message::new(&format!("work{n}"), &format!("work {n}")).in_background();
        let mut turn = client.send(&message).await.map_err(other)?;
        background.spawn(async move { turn.completed().await.map(drop) });
    }
    let busy = interactive(&client, &args, "busy").await?;
    while let Some(ended) = background.join_next().await {
        ended?.map_err(other)?;
    }
    node.stop().await.map_err(other)?;
    let ms = |all: &[Duration], of_1000| percentile(all, of_1000).as_secs_f64() * 1_000.0;
    let times = ms(&busy, 990) / ms(&idle, 990);
    let mut table = Table::default();
    table.add(
        Row::new("lanes::interactive".to_owned())
            .figure("idle p99 ms", ms(&idle, 990))
            .figure("busy p50 ms", ms(&busy, 500))
            .figure("busy p99 ms", ms(&busy, 990))
            .figure("busy to idle", times)
            .at_most("busy to idle", times, TARGET),
    );
    Ok(table.json()?)
}

/// How long each of the turns took, the shortest first.
async fn interactive(client: &Client, args: &Args, name: &str) -> Result<Vec<Duration>, Error> {
    let mut all = Vec::new();
    for n in 0..args.turns {
        let began = Instant::now();
        let message = Message::new(&format!("{name}{n}"), &format!("{name} {n}"));
        client.chat(&message).await.map_err(other)?;
        all.push(began.elapsed());
    }
    all.sort_unstable();
    Ok(all)
}

fn other(error: ProcessError) -> Error {
    let text = error.to_string();
    drop(error);
    text.into()
}

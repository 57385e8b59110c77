//! `lanes::interactive`: how long interactive turns take on one node while more turns of the background run and wait
//! than it has places for, against the same node with nothing else to do. `lanes::preempt`: how long it takes from an
//! interactive message to the request of its call, while calls of the background have all places: one of them is ended.
//!
//! Run with `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin lanes`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Reply, Script, Step},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use tokio::task::JoinSet;

/// Interactive turns may take so many times as long as alone (p99).
const TARGET: f64 = 2.0;

/// Milliseconds from a message to its request if a call of the background has to end first (p50).
const PREEMPT_MOST: f64 = 20.0;
/// Calls of the background that have all places meanwhile. Each is ended at most 8 times.
const HOLDING: u64 = 16;

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
    /// Interactive turns for each of which a call of the background ends, at most 128
    #[arg(long, default_value_t = 100)]
    preemptions: usize,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let mut table = Table::default();
    table.add(preempts(&args).await?);
    table.add(beside_background(&args).await?);
    Ok(table.json()?)
}

/// From interactive messages to their requests.
async fn preempts(args: &Args) -> Result<Row, Error> {
    let says = |text: &str| Step::Text { text: text.to_owned() };
    let waits = Step::Gate { name: "go".to_owned() };
    let work = Reply::steps([waits, says("worked.")]);
    let ask = Reply::steps([says("answered.")]);
    let script = Script::default().turn("work", [work.into()]).turn("ask", [ask.into()]);
    let model = ModelServer::start(script).await?;
    let home = Home::new(TestBackend::Local).map_err(other)?.openai(&model);
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__MAX_TURNS", &HOLDING.to_string());
    let node = Node::up(&home).await.map_err(other)?;
    let client = node.client().map_err(other)?;
    let mut background = Vec::new();
    for n in 0..HOLDING {
        let message = Message::new(&format!("work{n}"), "work").in_background();
        background.push(client.send(&message).await.map_err(other)?);
    }
    model.asked(HOLDING).await;
    let mut all = Vec::new();
    for n in 0..args.preemptions {
        let before = model.count();
        let began = Instant::now();
        let message = Message::new(&format!("ask{n}"), "ask");
        let mut turn = client.send(&message).await.map_err(other)?;
        model.asked(before + 1).await;
        all.push(began.elapsed());
        turn.completed().await.map_err(other)?;
        // The call that was ended is made again.
        model.asked(before + 2).await;
    }
    model.open("go");
    for mut turn in background {
        turn.completed().await.map_err(other)?;
    }
    node.stop().await.map_err(other)?;
    all.sort_unstable();
    let ms = |of_1000| percentile(&all, of_1000).as_secs_f64() * 1_000.0;
    Ok(Row::new("lanes::preempt".to_owned())
        .figure("p50 ms", ms(500))
        .figure("p99 ms", ms(990))
        .at_most("p50 ms", ms(500), PREEMPT_MOST))
}

/// Interactive turns of a busy node beside those of an idle one.
async fn beside_background(args: &Args) -> Result<Row, Error> {
    // A reply takes about half a second.
    let default = DefaultReply { tokens: 25, delay_ms: 20, flush: true };
    let model = ModelServer::start(Script { default, ..Script::default() }).await?;
    let home = Home::new(TestBackend::Local).map_err(other)?.openai(&model);
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__MAX_TURNS", &args.places.to_string());
    let node = Node::up(&home).await.map_err(other)?;
    let client = node.client().map_err(other)?;
    let idle = interactive(&client, args, "idle").await?;
    let mut background = JoinSet::new();
    for n in 0..args.background {
        let message = Message::new(&format!("work{n}"), &format!("work {n}")).in_background();
        let mut turn = client.send(&message).await.map_err(other)?;
        background.spawn(async move { turn.completed().await.map(drop) });
    }
    let busy = interactive(&client, args, "busy").await?;
    while let Some(ended) = background.join_next().await {
        ended?.map_err(other)?;
    }
    node.stop().await.map_err(other)?;
    let ms = |all: &[Duration], of_1000| percentile(all, of_1000).as_secs_f64() * 1_000.0;
    let times = ms(&busy, 990) / ms(&idle, 990);
    Ok(Row::new("lanes::interactive".to_owned())
        .figure("idle p99 ms", ms(&idle, 990))
        .figure("busy p50 ms", ms(&busy, 500))
        .figure("busy p99 ms", ms(&busy, 990))
        .figure("busy to idle", times)
        .at_most("busy to idle", times, TARGET))
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

//! `cluster::workers`: turns for each second of processor time of the workers, with one and with
//! three of them: what it costs that a cluster's work is spread.
//!
//! One NATS server, one gateway, a scripted model without delay and the same load for both. Rounds
//! alternate, each with workers of its own; before its time is taken they have settled under load.
//! Counted is the time (user and system) of the worker processes alone, idle time of theirs
//! included. Run with `cargo run --release -p clawnode-bench --bin workers`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_bench::{
    Error, Load, Node, NodeSetup, Pin, Place, Role, Row, Storage, Table, load, model,
};
use clawnode_proto::{node::NodeRole, view::StatusView};
use clawnode_tests::nats::{NatsServer, ServerOptions};
use serde::Deserialize;
use serde_json::json;

/// The target: turns a second of processor time, three workers to one.
const TARGET: f64 = 0.9;
/// How many workers are compared.
const WORKERS: [usize; 2] = [1, 3];
/// Pieces of a reply.
const TOKENS: u32 = 16;
/// Turns of a session.
const TURNS: usize = 10;
/// How long the gateway may take to hear of all workers, and of no others.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at who is there.
const LOOK: Duration = Duration::from_millis(100);

/// Compares what a turn costs one worker and three.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Turns at once
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Rounds with one worker, and as many with three
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// Seconds of a round
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Seconds of load before them
    #[arg(long, default_value_t = 4)]
    warm_up: u64,
    #[command(flatten)]
    place: Place,
}

/// What nodes are started with.
struct Stage<'a> {
    binary: &'a Path,
    dir: &'a Path,
    model: &'a str,
    nats: String,
}

/// What rounds with one number of workers came to.
#[derive(Clone, Copy, Default)]
struct Sum {
    turns: usize,
    cpu: Duration,
    took: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    match &args.role {
        Some(role) => role.play().await,
        None => Box::pin(bench(&args)).await,
    }
}

async fn bench(args: &Args) -> Result<(), Error> {
    let (binary, dir) = (args.place.binary()?, tempfile::tempdir_in(args.place.dir())?);
    let nats = NatsServer::start(ServerOptions::default()).await?;
    let (_model, model) = model(Pin(None), TOKENS).await?;
    let stage = Stage { binary: &binary, dir: dir.path(), model: &model, nats: nats.url() };
    let mut gateway = stage.node("gateway", "gateway").await?;
    let mut table = Table::default();
    let mut sums = [Sum::default(); WORKERS.len()];
    for round in 0..args.rounds {
        for at in 0..WORKERS.len() {
            // Who goes first alternates as well.
            let at = (at + round) % WORKERS.len();
            let one = measure(args, &stage, &gateway.addr, round, WORKERS[at]).await?;
            table.add(row(&format!("{}/round={round}", WORKERS[at]), one));
            sums[at].turns += one.turns;
            sums[at].cpu += one.cpu;
            sums[at].took += one.took;
        }
    }
    for (workers, sum) in WORKERS.into_iter().zip(sums) {
        table.add(row(&workers.to_string(), sum));
    }
    let ratio = sums[1].turns_per_cpu_second() / sums[0].turns_per_cpu_second();
    let compared = Row::new("cluster::workers/3-to-1").figure("ratio", ratio);
    table.add(compared.at_least("turns per CPU-second", ratio, TARGET));
    gateway.process().stop().await?;
    Ok(table.json()?)
}

/// One round with so many workers.
async fn measure(
    args: &Args,
    stage: &Stage<'_>,
    addr: &str,
    round: usize,
    count: usize,
) -> Result<Sum, Error> {
    let mut workers = Vec::new();
    for n in 0..count {
        workers.push(stage.node("worker", &format!("r{round}w{n}of{count}")).await?);
    }
    known(addr, count).await?;
    let plan = |seconds, part: &str| Load {
        addr: addr.to_owned(),
        concurrency: args.concurrency,
        turns_per_session: TURNS,
        one_user: false,
        time: Duration::from_secs(seconds),
        turns: usize::MAX,
        run: format!("{part}{round}of{count}"),
        ends_with: String::new(),
    };
    load(&plan(args.warm_up, "w")).await?;
    let before = cpu(&mut workers).await?;
    let report = load(&plan(args.seconds, "r")).await?;
    let cpu = cpu(&mut workers).await?.saturating_sub(before);
    for worker in &mut workers {
        worker.process().stop().await?;
    }
    Ok(Sum { turns: report.latencies.len(), cpu, took: report.took })
}

async fn cpu(workers: &mut [Node]) -> Result<Duration, Error> {
    let mut all = Duration::ZERO;
    for worker in workers {
        all += worker.process().cpu().await?;
    }
    Ok(all)
}

/// Waits until the gateway hears of exactly so many workers.
async fn known(addr: &str, count: usize) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Answer {
        result: StatusView,
    }
    let (client, began) = (reqwest::Client::new(), Instant::now());
    loop {
        let request = json!({ "id": 1, "method": "status" }).to_string();
        let asked = client.post(format!("http://{addr}/v1/rpc"));
        let asked = asked.header("content-type", "application/json").body(request);
        let answer = asked.send().await?.error_for_status()?.text().await?;
        let Answer { result } = serde_json::from_str(&answer)?;
        let workers = result.nodes.iter().filter(|one| one.roles.contains(&NodeRole::Worker));
        let workers = workers.count();
        if workers == count {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("the gateway hears of {workers} workers, not {count}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "turns are far below 2^52")]
fn row(name: &str, sum: Sum) -> Row {
    Row::new(format!("cluster::workers/{name}"))
        .figure("turns", sum.turns as f64)
        .figure("turns_per_s", sum.turns as f64 / sum.took.as_secs_f64())
        .figure("cpu_us_per_turn", sum.cpu.as_secs_f64() * 1e6 / sum.turns as f64)
        .figure("turns_per_cpu_s", sum.turns_per_cpu_second())
}

// === impl Stage ===

impl Stage<'_> {
    async fn node(&self, role: &'static str, name: &str) -> Result<Node, Error> {
        let dir = self.dir.join(name);
        tokio::fs::create_dir(&dir).await?;
        let storage = Storage::Nats { url: self.nats.clone() };
        let config = format!("[node]\nname = \"{name}\"\n");
        let setup = NodeSetup {
            binary: self.binary,
            dir: &dir,
            model: self.model,
            storage,
            config: &config,
            pin: Pin(None),
            role: Some(role),
        };
        Node::start(&setup).await
    }
}

// === impl Sum ===

impl Sum {
    #[expect(clippy::cast_precision_loss, reason = "turns are far below 2^52")]
    fn turns_per_cpu_second(self) -> f64 {
        self.turns as f64 / self.cpu.as_secs_f64()
    }
}

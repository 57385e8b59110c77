//! `session::turn/concurrency=N`: what a turn costs from a client's message to `done`, beside the
//! floor of the same run.
//!
//! Client, scripted model and node (or floor) share one core. Rounds alternate between the node
//! and the floor, so that a slow moment of the machine falls on both. With `--usage-lag` follows `usage::lag`: how far
//! the counts of usage, which follow the journals, are behind while turns run. Run with
//! `cargo run --release -p clawnode-bench --bin turns`.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use clap::{Parser, Subcommand};
use clawnode_bench::{
    Error, Load, Node, NodeSetup, Pin, Place, Process, Report, Row, Storage, Table, floor, load,
    model, percentile, serve_model,
};

/// What the environment says to the copy of this program that is on its core already.
const PINNED: &str = "CLAWNODE_BENCH_PINNED";
/// Targets by storage backend: p50 at concurrency 1 and turns/s at 64, as ratios to the floor.
const EMBEDDED: (f64, f64) = (1.25, 0.65);
/// On a server with its default `sync_interval`; with `always` they are 2.0 and 0.4, which a client
/// cannot see.
const NATS: (f64, f64) = (1.6, 0.5);
/// The lag of the counts of usage is asked for at so many turns at once, which make so many a second.
const LAG_CONCURRENCY: usize = 64;
const LAG_RATE: f64 = 500.0;
/// Runs before the first round are not counted.
const WARM_UP: Duration = Duration::from_millis(1_500);

/// Measures turns beside their floor.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Turns at once, one run for each
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    concurrency: Vec<usize>,
    /// Rounds of each run, for the node and for the floor
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a round
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Pieces of a reply
    #[arg(long, default_value_t = 16)]
    tokens: u32,
    /// Turns of a session before the next begins
    #[arg(long, default_value_t = 10)]
    turns_per_session: usize,
    /// The core that everything shares
    #[arg(long, default_value_t = 1)]
    core: u16,
    /// Keep everything on this NATS server, the floor's records too
    #[arg(long)]
    nats: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Measure only the node, not the floor: for a profiler
    #[arg(long)]
    node_only: bool,
    /// How far the counts of usage are behind while 64 turns run at once, too
    #[arg(long)]
    usage_lag: bool,
}

/// What the other processes of the bench do.
#[derive(Debug, Subcommand)]
enum Role {
    /// Be the scripted model
    Model {
        #[arg(long)]
        tokens: u32,
    },
    /// Be the floor
    Floor {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        model: String,
        #[arg(long)]
        nats: Option<String>,
    },
}

/// One side of the comparison.
#[derive(Default)]
struct Side {
    reports: Vec<Report>,
    cpu: Duration,
}

fn main() -> Result<ExitCode, Error> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    if args.role.is_none() && std::env::var_os(PINNED).is_none() {
        // The runtime counts cores when it starts: begin again on the one.
        let status = Command::new("taskset")
            .args(["-c", &args.core.to_string()])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(PINNED, "1")
            .status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.role {
            Some(Role::Model { tokens }) => serve_model(*tokens, 0).await,
            Some(Role::Floor { dir, model, nats }) => {
                floor::serve(dir, model, nats.as_deref()).await
            }
            None => Box::pin(bench(&args)).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn bench(args: &Args) -> Result<(), Error> {
    let (binary, parent) = (args.place.binary()?, args.place.dir());
    let dir = tempfile::tempdir_in(parent)?;
    // This process is on its core, and children inherit that.
    let pin = Pin(None);
    let (_model, model) = model(pin, args.tokens).await?;
    let mut node = node(args, &binary, dir.path(), &model).await?;
    let mut command = vec!["floor", "--model", &model, "--dir"];
    let path = dir.path().to_string_lossy();
    command.push(&path);
    if let Some(url) = &args.nats {
        command.extend(["--nats", url]);
    }
    let mut floor = Process::role(pin, &command)?;
    let floor_addr = floor.line().await?;

    let mut table = Table::default();
    let node_addr = node.addr.clone();
    for &concurrency in &args.concurrency {
        let (mut ours, mut theirs) = (Side::default(), Side::default());
        for round in 0..=args.rounds {
            let mut load = plan(args, concurrency, round);
            if !args.node_only {
                floor_addr.clone_into(&mut load.addr);
                theirs.round(round, &load, &floor).await?;
            }
            node_addr.clone_into(&mut load.addr);
            ours.round(round, &load, node.process()).await?;
        }
        table.add(row(args, concurrency, ours, theirs));
    }
    if args.usage_lag {
        table.add(usage_lag(args, &mut node).await?);
    }
    table.json()?;
    Ok(())
}

/// The counts of usage follow the journals of all sessions: looks once a second how far they are.
#[expect(clippy::cast_precision_loss, reason = "counts of turns are far below 2^52")]
async fn usage_lag(args: &Args, node: &mut Node) -> Result<Row, Error> {
    let rounds = u32::try_from(args.rounds.max(1))?;
    let mut load = plan(args, LAG_CONCURRENCY, args.rounds + 1);
    load.time *= rounds;
    node.addr.clone_into(&mut load.addr);
    let mut side = Side::default();
    let mut lags = Vec::new();
    let before = node.process().cpu().await?;
    tokio::select! {
        report = clawnode_bench::load(&load) => side.reports.push(report?),
        failure = looks(node, &mut lags) => return Err(failure),
    }
    side.cpu = node.process().cpu().await?.saturating_sub(before);
    lags.sort_unstable();
    let ms = |of_1000| percentile(&lags, of_1000).as_secs_f64() * 1e3;
    let (p50, most, turns) = (ms(500), ms(1_000), side.turns());
    let (_, _, rate) = side.figures();
    let storage = if args.nats.is_some() { "nats" } else { "embedded" };
    Ok(Row::new(format!("usage::lag/{storage}/concurrency={LAG_CONCURRENCY}"))
        .figure("p50_ms", p50)
        .figure("max_ms", most)
        .figure("max_turns", most / 1e3 * rate)
        .figure("looks", lags.len() as f64)
        .figure("turns_s", rate)
        .figure("node_cpu_us_per_turn", side.cpu.as_secs_f64() * 1e6 / turns as f64)
        .at_least("turns/s", rate, LAG_RATE))
}

/// Looks until it fails.
async fn looks(node: &Node, lags: &mut Vec<Duration>) -> Error {
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    // The first one comes at once, and nothing has happened yet.
    looks.tick().await;
    loop {
        looks.tick().await;
        match node.usage_behind_ms().await {
            Ok(behind) => lags.push(Duration::from_millis(behind)),
            Err(failure) => return failure,
        }
    }
}

async fn node(args: &Args, binary: &Path, dir: &Path, model: &str) -> Result<Node, Error> {
    let storage = match &args.nats {
        Some(url) => Storage::Nats { url: url.clone() },
        None => Storage::Embedded,
    };
    Node::start(&NodeSetup { binary, dir, model, storage, config: "", pin: Pin(None), role: None })
        .await
}

/// The first round only warms up.
fn plan(args: &Args, concurrency: usize, round: usize) -> Load {
    Load {
        addr: String::new(),
        concurrency,
        turns_per_session: args.turns_per_session,
        one_user: false,
        time: if round == 0 { WARM_UP } else { Duration::from_secs(args.seconds) },
        turns: usize::MAX,
        // A server may have sessions of an earlier run, whose last owner is no more.
        run: format!("{}-c{concurrency}-r{round}", std::process::id()),
        ends_with: if args.tokens > 1 { format!(" {}", args.tokens) } else { String::new() },
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of turns are far below 2^52")]
fn row(args: &Args, concurrency: usize, mut ours: Side, mut theirs: Side) -> Row {
    let storage = if args.nats.is_some() { "nats" } else { "embedded" };
    let (most_p50, least_rate) = if args.nats.is_some() { NATS } else { EMBEDDED };
    let (cpu, texts, turns) = (ours.cpu, ours.texts(), ours.turns());
    let (p50, p99, rate) = ours.figures();
    let (floor_p50, floor_p99, floor_rate) = theirs.figures();
    let mut row = Row::new(format!("session::turn/{storage}/concurrency={concurrency}"))
        .figure("p50_ms", p50)
        .figure("floor_p50_ms", floor_p50)
        .figure("ratio", p50 / floor_p50)
        .figure("p99_ms", p99)
        .figure("floor_p99_ms", floor_p99)
        .figure("turns_s", rate)
        .figure("floor_turns_s", floor_rate)
        .figure("ratio", rate / floor_rate)
        .figure("node_cpu_us_per_turn", cpu.as_secs_f64() * 1e6 / turns as f64)
        .figure("floor_cpu_us_per_turn", theirs.cpu.as_secs_f64() * 1e6 / theirs.turns() as f64)
        .figure("text_frames_per_turn", texts as f64 / turns as f64);
    if concurrency == 1 {
        row = row.at_most("p50 / floor", p50 / floor_p50, most_p50);
    }
    if concurrency == 64 {
        row = row.at_least("turns/s / floor", rate / floor_rate, least_rate);
    }
    row
}

// === impl Side ===

impl Side {
    async fn round(&mut self, round: usize, plan: &Load, process: &Process) -> Result<(), Error> {
        let before = process.cpu().await?;
        let report = load(plan).await?;
        if round > 0 {
            self.cpu += process.cpu().await?.saturating_sub(before);
            self.reports.push(report);
        }
        Ok(())
    }

    fn turns(&self) -> usize {
        self.reports.iter().map(|report| report.latencies.len()).sum()
    }

    fn texts(&self) -> usize {
        self.reports.iter().map(|report| report.texts).sum()
    }

    /// p50 and p99 in milliseconds over all rounds, and turns a second.
    #[expect(clippy::cast_precision_loss, reason = "counts of turns are far below 2^52")]
    fn figures(&mut self) -> (f64, f64, f64) {
        let mut all: Vec<Duration> =
            self.reports.iter().flat_map(|report| report.latencies.iter().copied()).collect();
        all.sort_unstable();
        let took: f64 = self.reports.iter().map(|report| report.took.as_secs_f64()).sum();
        let ms = |of_1000| percentile(&all, of_1000).as_secs_f64() * 1e3;
        (ms(500), ms(990), all.len() as f64 / took)
    }
}

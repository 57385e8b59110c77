//! `node::ready/sessions=N`: from the start of the process to its `ready` line.
//!
//! On an empty data directory, and on one with many sessions after a clean stop and after
//! `kill -9`. Run with `cargo run --release -p clawnode-bench --bin startup`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_bench::{
    Error, Node, NodeSetup, Pin, Place, Role, Row, Storage, Table, fill, model, percentile,
};

/// What `ready` may take on an empty directory, in milliseconds.
const TARGET_MS: f64 = 150.0;

/// Measures how long a node takes to serve.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Starts of each kind
    #[arg(long, default_value_t = 15)]
    starts: usize,
    /// Sessions in the directory that is not empty
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// The core that the node is kept on; any unless set
    #[arg(long)]
    core: Option<u16>,
    #[command(flatten)]
    place: Place,
}

/// How a node is ended before it is started again.
#[derive(Clone, Copy)]
enum End {
    Stop,
    Kill,
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
    let (binary, parent) = (args.place.binary()?, args.place.dir());
    let (_model, model) = model(Pin(None), 1).await?;
    let mut table = Table::default();

    let mut empty = Vec::with_capacity(args.starts);
    for _ in 0..args.starts {
        let dir = tempfile::tempdir_in(&parent)?;
        let mut node = start(args, &binary, dir.path(), &model).await?;
        empty.push(node.ready_after);
        node.process().kill().await?;
    }
    let row = row("node::ready/sessions=0", empty);
    let p50 = row.figures.first().map_or(f64::INFINITY, |(_, p50)| *p50);
    table.add(row.at_most("p50_ms", p50, TARGET_MS));

    let dir = tempfile::tempdir_in(&parent)?;
    let mut node = start(args, &binary, dir.path(), &model).await?;
    fill(&node.addr, 0, args.sessions).await?;
    for (end, name) in [(End::Stop, "stopped"), (End::Kill, "killed")] {
        let mut times = Vec::with_capacity(args.starts);
        let mut stops = Vec::with_capacity(args.starts);
        for _ in 0..args.starts {
            let began = Instant::now();
            match end {
                End::Stop => node.process().stop().await?,
                End::Kill => node.process().kill().await?,
            }
            stops.push(began.elapsed());
            node = start(args, &binary, dir.path(), &model).await?;
            times.push(node.ready_after);
        }
        stops.sort_unstable();
        let stop = percentile(&stops, 500).as_secs_f64() * 1e3;
        let name = format!("node::ready/sessions={}/{name}", args.sessions);
        table.add(self::row(&name, times).figure("end_p50_ms", stop));
    }
    Ok(table.json()?)
}

async fn start(args: &Args, binary: &Path, dir: &Path, model: &str) -> Result<Node, Error> {
    let (storage, pin) = (Storage::Embedded, Pin(args.core));
    Node::start(&NodeSetup { binary, dir, model, storage, config: "", pin, role: None }).await
}

fn row(name: &str, mut times: Vec<Duration>) -> Row {
    times.sort_unstable();
    let ms = |of_1000| percentile(&times, of_1000).as_secs_f64() * 1e3;
    Row::new(name).figure("p50_ms", ms(500)).figure("worst_ms", ms(1_000))
}

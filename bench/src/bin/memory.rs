//! `node::memory/…`: what a node keeps in memory (RSS): idle, per resident session, per passivated
//! one.
//!
//! Each session has had one turn. A session's share is the slope between two numbers of sessions,
//! so that what a node needs anyway is in neither. Run with
//! `cargo run --release -p clawnode-bench --bin memory`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Parser, Subcommand};
use clawnode_bench::{
    Error, Node, NodeSetup, Pin, Row, Substrate, Table, fill, model, node_binary, passivated,
    serve_model, slope,
};

/// Targets.
const IDLE_MIB: f64 = 40.0;
const RESIDENT_KIB: f64 = 20.0;
const PASSIVATED_BYTES: f64 = 256.0;
/// After the last one went, for what follows it.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures what sessions cost in memory.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// The smaller number of sessions
    #[arg(long, default_value_t = 10_000)]
    from: usize,
    /// The larger number of sessions
    #[arg(long, default_value_t = 100_000)]
    to: usize,
    /// The node's binary
    #[arg(long)]
    node: Option<PathBuf>,
    /// Where data directories are made: a real disk
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What the other processes of the bench do.
#[derive(Debug, Subcommand)]
enum Role {
    /// Be the scripted model
    Model {
        #[arg(long)]
        tokens: u32,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    match &args.role {
        Some(Role::Model { tokens }) => serve_model(*tokens).await,
        None => Box::pin(bench(&args)).await,
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes in memory are far below 2^52")]
async fn bench(args: &Args) -> Result<(), Error> {
    let binary = node_binary(args.node.clone())?;
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let (_model, model) = model(Pin(None), 1).await?;
    let mut table = Table::default();

    let dir = tempfile::tempdir_in(&parent)?;
    let mut node = start(&binary, dir.path(), &model, "1h").await?;
    tokio::time::sleep(SETTLE).await;
    let idle = node.process().resident_bytes().await? as f64 / f64::from(1 << 20);
    let row = Row::new("node::memory/idle").figure("mib", idle);
    table.add(row.at_most("idle MiB", idle, IDLE_MIB));

    let mut rss = Vec::new();
    for (first, sessions) in [(0, args.from), (args.from, args.to)] {
        fill(&node.addr, first, sessions).await?;
        let resident = node.resident_sessions().await?;
        rss.push((resident as f64, node.process().resident_bytes().await? as f64));
    }
    let kib = slope(&rss) / 1024.0;
    let row = points("node::memory/resident", &rss).figure("kib_per_session", kib);
    table.add(row.at_most("KiB per session", kib, RESIDENT_KIB));
    node.process().kill().await?;
    drop(dir);

    let dir = tempfile::tempdir_in(&parent)?;
    let mut node = start(&binary, dir.path(), &model, "1s").await?;
    let mut rss = Vec::new();
    for (first, sessions) in [(0, args.from), (args.from, args.to)] {
        fill(&node.addr, first, sessions).await?;
        passivated(&node).await?;
        tokio::time::sleep(SETTLE).await;
        rss.push((sessions as f64, node.process().resident_bytes().await? as f64));
    }
    let bytes = slope(&rss);
    let row = points("node::memory/passivated", &rss).figure("bytes_per_session", bytes);
    table.add(row.at_most("bytes per session", bytes, PASSIVATED_BYTES));
    Ok(table.json()?)
}

async fn start(binary: &Path, dir: &Path, model: &str, stay: &str) -> Result<Node, Error> {
    let config = format!("[session]\npassivate_after = \"{stay}\"\n");
    let (substrate, pin) = (Substrate::Embedded, Pin(None));
    Node::start(&NodeSetup { binary, dir, model, substrate, config: &config, pin, role: None })
        .await
}

fn points(name: &str, points: &[(f64, f64)]) -> Row {
    let mut row = Row::new(name);
    for ((sessions, rss), names) in
        points.iter().zip([("sessions", "rss_mib"), ("sessions_then", "rss_mib_then")])
    {
        row = row.figure(names.0, *sessions).figure(names.1, rss / f64::from(1 << 20));
    }
    row
}

//! `node::memory/…`: what a node keeps in memory (RSS): idle, per resident session, per passivated
//! one.
//!
//! Each session has had one turn. A session's share is the slope between two numbers of sessions,
//! so that what a node needs anyway is in neither. Run with
//! `cargo run --release -p clawnode-bench --bin memory`.

use clap::Parser;
use clawnode_bench::{
    Error, Place, Role, Row, Table, slope,
    units::{self, Memory},
};

/// Targets.
const IDLE_MIB: f64 = 40.0;
const RESIDENT_KIB: f64 = 20.0;
const PASSIVATED_BYTES: f64 = 256.0;

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
    #[command(flatten)]
    place: Place,
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
    let Memory { idle, resident, passivated } =
        units::memory(&binary, &parent, args.from, args.to).await?;
    let mut table = Table::default();
    let mib = idle / f64::from(1 << 20);
    let row = Row::new("node::memory/idle").figure("mib", mib);
    table.add(row.at_most("idle MiB", mib, IDLE_MIB));
    let kib = slope(resident) / 1024.0;
    let row = points("node::memory/resident", resident).figure("kib_per_session", kib);
    table.add(row.at_most("KiB per session", kib, RESIDENT_KIB));
    let bytes = slope(passivated);
    let row = points("node::memory/passivated", passivated).figure("bytes_per_session", bytes);
    table.add(row.at_most("bytes per session", bytes, PASSIVATED_BYTES));
    Ok(table.json()?)
}

fn points(name: &str, points: [(f64, f64); 2]) -> Row {
    let mut row = Row::new(name);
    for ((sessions, rss), names) in
        points.into_iter().zip([("sessions", "rss_mib"), ("sessions_then", "rss_mib_then")])
    {
        row = row.figure(names.0, sessions).figure(names.1, rss / f64::from(1 << 20));
    }
    row
}

//! `scale::…`: what one of each thing costs, and what a million resident and a billion archived
//! sessions, 20,000 turns at once and 100 workers need, and which limit comes first.
//!
//! The costs are measured in the same run; the arithmetic is `clawnode_bench::capacity`. Needs a
//! NATS server (`CLAWNODE_NATS_SERVER`, or `.tools/nats`). Run with
//! `cargo run --release -p clawnode-bench --bin scale`. With `--simulate 1000000` it simulates so
//! many sessions instead.
#![expect(clippy::print_stdout, reason = "figures are a bench's output")]

use std::time::Instant;

use clap::Parser;
use clawnode_bench::{
    Error, Place, Role, Row, Table,
    capacity::{Bound, Costs, Given, Load, first_limit, needs},
    resident_bytes, slope,
    units::{self, OnNats, Turns},
};
use clawnode_proto::limits::PARTITIONS_NATS;
use clawnode_simulator::{SimOptions, run};

/// The loads that are asked about.
const LOADS: [(&str, Load); 4] = [
    ("resident sessions", Load::Resident(1e6)),
    ("archived sessions", Load::Archived(1e9)),
    ("turns at once", Load::Turns(20_000.0)),
    ("workers", Load::Workers(100.0)),
];
/// The workers of the last.
const WORKERS: u128 = 100;
/// Turns of a session by which the cost of a turn is separated from that of its session.
const TURNS_OF_ONE: usize = 10;

/// Measures what one of each costs, and says what very many need.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// The smaller number of sessions whose memory is measured
    #[arg(long, default_value_t = 5_000)]
    from: usize,
    /// The larger number of sessions
    #[arg(long, default_value_t = 30_000)]
    to: usize,
    /// Turns of each measurement on NATS
    #[arg(long, default_value_t = 6_400)]
    turns: usize,
    /// The smaller number of subjects of a stream
    #[arg(long, default_value_t = 200_000)]
    subjects_from: usize,
    /// The larger number of subjects
    #[arg(long, default_value_t = 1_000_000)]
    subjects_to: usize,
    /// Simulate so many sessions, in virtual time, and measure nothing
    #[arg(long)]
    simulate: Option<usize>,
    /// The seed of the simulation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: Place,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    match (&args.role, args.simulate) {
        (Some(role), _) => role.play().await,
        (None, Some(sessions)) => simulate(args.seed, sessions).await,
        (None, None) => Box::pin(bench(&args)).await,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
async fn simulate(seed: u64, sessions: usize) -> Result<(), Error> {
    let began = Instant::now();
    let options = SimOptions { seed, sessions: Some(sessions), ..SimOptions::default() };
    let report = run(&options).map_err(|failure| failure.to_string())?;
    let resident = resident_bytes(std::process::id()).await?;
    let row = Row::new(format!("scale::simulation/sessions={sessions}"))
        .figure("turns", report.turns as f64)
        .figure("calls", report.calls as f64)
        .figure("steps", report.steps as f64)
        .figure("virtual_s", report.millis as f64 / 1e3)
        .figure("took_s", began.elapsed().as_secs_f64())
        .figure("rss_gib", resident as f64 / f64::from(1 << 30));
    let mut table = Table::default();
    table.add(row);
    Ok(table.json()?)
}

async fn bench(args: &Args) -> Result<(), Error> {
    let mut table = Table::default();
    let costs = measure(args, &mut table).await?;
    let given = Given::default();
    for (name, load) in LOADS {
        let needs = needs(load, &costs, &given);
        let (Load::Resident(count)
        | Load::Archived(count)
        | Load::Turns(count)
        | Load::Workers(count)) = load;
        println!("\n{count} {name}");
        for need in &needs {
            let bound = match need.bound {
                Bound::Hosts => "hosts",
                Bound::One => "times what there is",
            };
            let (what, unit, formula) = (need.what, need.unit, &need.formula);
            println!(
                "  {what:<32} {:>12.2} {unit:<11} {:>10.3} {bound:<20} {formula}",
                need.amount,
                need.ratio()
            );
        }
        if let Some(first) = first_limit(&needs) {
            println!("  first: {}", first.what);
            table.add(
                Row::new(format!("scale::first/{}={count}", name.replace(' ', "_")))
                    .figure("ratio", first.ratio()),
            );
        }
    }
    Ok(table.json()?)
}

async fn measure(args: &Args, table: &mut Table) -> Result<Costs, Error> {
    let (binary, parent) = (args.place.binary()?, args.place.dir());
    // They scan for a minute first, so they start before the rest is measured.
    let mut node = OnNats::start(&binary, &parent, false).await?;
    let scanning = node.scanning().await?;
    let mut talker = OnNats::start(&binary, &parent, true).await?;
    let subjects = units::subjects(args.subjects_from, args.subjects_to).await?;
    table.add(
        Row::new("scale::unit/subject")
            .figure("server_bytes", subjects.memory)
            .figure("disk_bytes", subjects.disk)
            .figure("restart_us", subjects.restart * 1e6),
    );
    let memory = units::memory(&binary, &parent, args.from, args.to).await?;
    table.add(
        Row::new("scale::unit/session")
            .figure("node_idle_mib", memory.idle / f64::from(1 << 20))
            .figure("resident_bytes", slope(memory.resident))
            .figure("passivated_bytes", slope(memory.passivated)),
    );
    let rest = node.rest().await?;
    table.add(
        Row::new("scale::unit/node")
            .figure("scanning_messages_s", scanning)
            .figure("rest_messages_s", rest.messages)
            .figure("heartbeat_bytes", rest.heartbeat)
            .figure("heartbeat_us", rest.heartbeat_us),
    );
    let single = node.turns("single", args.turns, 1).await?;
    let many = node.turns("many", args.turns, TURNS_OF_ONE).await?;
    drop(node);
    let long = talker.turns("long", args.turns / 4, 1).await?;
    for (name, turns) in [("turns=1", single), ("turns=10", many), ("long", long)] {
        table.add(row(name, turns));
    }
    let of_frame = |less: f64, more: f64| ((more - less) / (long.frames - single.frames)).max(0.0);
    let turn_stored = stored_by_turn(single.stored, many.stored);
    Ok(Costs {
        node_bytes: memory.idle,
        resident_bytes: slope(memory.resident),
        passivated_bytes: slope(memory.passivated),
        turn_us: many.node_us,
        frame_us: of_frame(single.node_us, long.node_us),
        bus_turn_us: many.bus_us,
        bus_frame_us: of_frame(single.bus_us, long.bus_us),
        turn_messages: many.messages,
        frame_messages: of_frame(single.messages, long.messages),
        turn_records: many.records,
        session_stored: single.stored - turn_stored,
        turn_stored,
        subject_bytes: subjects.memory,
        subject_restart: subjects.restart,
        heartbeat_bytes: rest.heartbeat,
        heartbeat_us: rest.heartbeat_us,
        rest_messages: rest.messages,
        scan_messages: scanning - rest.messages,
        most_partitions: units::most_partitions(PARTITIONS_NATS, WORKERS),
    })
}

/// Of sessions with one turn and with [`TURNS_OF_ONE`], by turn: what each turn more stores.
#[expect(clippy::cast_precision_loss, reason = "a few turns")]
fn stored_by_turn(single: f64, many: f64) -> f64 {
    let turns = TURNS_OF_ONE as f64;
    (many * turns - single) / (turns - 1.0)
}

fn row(name: &str, turns: Turns) -> Row {
    Row::new(format!("scale::unit/turn/{name}"))
        .figure("node_us", turns.node_us)
        .figure("nats_us", turns.bus_us)
        .figure("messages", turns.messages)
        .figure("frames", turns.frames)
        .figure("journal_records", turns.records)
        .figure("journal_bytes", turns.stored)
}

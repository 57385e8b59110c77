//! `session::grow/…`: what a session costs with its age: memory of a resident session, its snapshot, and processor time of
//! a turn.
//!
//! Many sessions side by side, one a connection, in groups of the same age. The memory of a session is what the node has
//! more after its group than before. Its snapshot is what a state would be stored as, read from the data directory once the
//! node has stopped. Processor time is the node's alone, around turn 5 to 15 and in the last ten turns. Turns are of usual
//! size, some 500 tokens: with short ones a history stays whole for longer, see `docs/internals/snapshots-and-deletion.md`.
//! Run with `cargo run --release -p clawnode-bench --bin grow`.

#![expect(clippy::cast_precision_loss, reason = "bytes and sessions are far below 2^52")]

use std::{path::Path, time::Duration};

use clap::Parser;
use clawnode_actors::session::Session;
use clawnode_bench::{
    Error, Load, Node, NodeSetup, Pin, Place, Role, Row, Storage, Table, load, model,
};
use clawnode_kernel::{Entity, journal_reader};
use clawnode_local as local;
use clawnode_proto::{EntityId, Kind};

/// How much more an old session may need than one of ten turns, as ratios.
const MEMORY_TARGET: f64 = 1.5;
const CPU_TARGET: f64 = 1.1;
/// The largest snapshot, in KiB.
const SNAPSHOT_TARGET: f64 = 64.0;
/// Pieces of a reply, a number each.
const TOKENS: u32 = 400;
/// Turns before the early ones that are measured, and how many are measured early and late.
const BEFORE: usize = 5;
const MEASURED: usize = 10;
/// Turns of a young session, and of one that is not.
const YOUNG: usize = 10;
const MIDDLE: usize = 100;
/// How long a node may tidy up before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(3);

/// Compares old sessions to young ones
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Turns of an old session
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(40..))]
    turns: u16,
    /// Sessions of each age, side by side
    #[arg(long, default_value_t = 100)]
    sessions: usize,
    #[command(flatten)]
    place: Place,
}

/// Sessions of one age.
#[derive(Debug)]
struct Group {
    name: &'static str,
    turns: usize,
    /// What each has in memory.
    kib: f64,
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
    let (_model, model) = model(Pin(None), TOKENS).await?;
    let setup = NodeSetup {
        binary: &binary,
        dir: dir.path(),
        model: &model,
        storage: Storage::Embedded,
        config: "[session]\npassivate_after = \"1h\"\n",
        pin: Pin(None),
        role: None,
    };
    let mut node = Node::start(&setup).await?;
    let (old, sessions) = (usize::from(args.turns), args.sessions);
    // Other sessions first, so that what a node needs once is not counted.
    age(&mut node, "before", sessions, 1).await?;
    let mut resident = resident_after(&mut node).await?;
    let mut each = |now: f64| (now - std::mem::replace(&mut resident, now)) / sessions as f64;
    age(&mut node, "young", sessions, YOUNG).await?;
    let young = each(resident_after(&mut node).await?) / 1024.0;
    age(&mut node, "middle", sessions, MIDDLE).await?;
    let middle = each(resident_after(&mut node).await?) / 1024.0;
    age(&mut node, "old", sessions, BEFORE).await?;
    let early = age(&mut node, "old", sessions, MEASURED).await?;
    age(&mut node, "old", sessions, old - BEFORE - 2 * MEASURED).await?;
    let late = age(&mut node, "old", sessions, MEASURED).await?;
    let aged = each(resident_after(&mut node).await?) / 1024.0;
    node.process().stop().await?;
    let groups = [
        Group { name: "young", turns: YOUNG, kib: young },
        Group { name: "middle", turns: MIDDLE, kib: middle },
        Group { name: "old", turns: old, kib: aged },
    ];
    let mut table = Table::default();
    for Group { name, turns, kib } in groups {
        let (ratio, snapshot) = (kib / young, snapshot_kib(&dir.path().join("data"), name).await?);
        let row = Row::new(format!("session::grow/turns={turns}"))
            .figure("kib", kib)
            .figure("ratio", ratio)
            .figure("snapshot_kib", snapshot)
            .at_most("snapshot", snapshot, SNAPSHOT_TARGET);
        let is_old = name == "old";
        table.add(if is_old { row.at_most("memory", ratio, MEMORY_TARGET) } else { row });
    }
    let us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / (sessions * MEASURED) as f64;
    let (early, late) = (us(early), us(late));
    let (row, ratio) = (Row::new("session::grow/cpu"), late / early);
    let row = row.figure("early_us", early).figure("late_us", late).figure("ratio", ratio);
    table.add(row.at_most("processor time", ratio, CPU_TARGET));
    Ok(table.json()?)
}

/// So many more turns in each session of this group; returns the processor time that the node took.
async fn age(
    node: &mut Node,
    group: &str,
    sessions: usize,
    turns: usize,
) -> Result<Duration, Error> {
    let before = node.process().cpu().await?;
    let plan = Load {
        addr: node.addr.clone(),
        concurrency: sessions,
        turns_per_session: usize::MAX,
        one_user: false,
        time: Duration::MAX,
        turns,
        run: group.to_owned(),
        ends_with: String::new(),
    };
    load(&plan).await?;
    Ok(node.process().cpu().await?.saturating_sub(before))
}

/// The memory of a node that has tidied up, in bytes.
async fn resident_after(node: &mut Node) -> Result<f64, Error> {
    tokio::time::sleep(SETTLE).await;
    Ok(node.process().resident_bytes().await? as f64)
}

/// The state of the first session of this group as a snapshot would have it, in KiB.
async fn snapshot_kib(data: &Path, group: &str) -> Result<f64, Error> {
    let data = data.to_owned();
    let opened = tokio::task::spawn_blocking(move || local::open_read_only(&data)).await?;
    let (storage, _control) = opened?;
    let id = EntityId::derive(Kind::SESSION, &format!("default:bench:{group}:0-0"));
    let loaded = journal_reader::journal(&storage, id).await?;
    let entity = Entity::<Session>::of(id, &loaded)?;
    Ok(entity.snapshot()?.len() as f64 / 1024.0)
}

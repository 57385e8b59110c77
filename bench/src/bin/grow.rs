//! `session::grow/…`: what a session costs with its age: memory of a resident session, its snapshot, and processor time of
//! a turn.
//!
//! Many sessions side by side, one a connection, in groups of the same age. Each group has a node process of its own, so
//! that none uses pages which an earlier group left to the allocator. The memory of a session is what the node has more
//! after its group than before: also what turns left to the allocator. Its snapshot is what a state would be stored as,
//! read from the data directory once the node has stopped. Processor time is the node's alone, around turn 5 to 15 and in
//! the last ten turns of the oldest group. Turns are of usual size, some 500 tokens: with short ones a history stays whole
//! for longer, see `docs/internals/snapshots-and-deletion.md`.
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
/// The group whose processor time is measured, too.
const OLD: &str = "old";
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

/// Sessions of one age, in a node of their own.
#[derive(Debug)]
struct Group {
    name: &'static str,
    turns: usize,
}

/// What sessions of one age cost.
#[derive(Debug)]
struct GroupCost {
    /// What each has in memory.
    kib: f64,
    snapshot_kib: f64,
    /// Processor time of the node for turns after the first ones, and for the last ones; of the oldest group alone.
    cpu: Option<(Duration, Duration)>,
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
    let (_model, model) = model(Pin(None), TOKENS).await?;
    let sessions = args.sessions;
    let groups = [
        Group { name: "young", turns: YOUNG },
        Group { name: "middle", turns: MIDDLE },
        Group { name: OLD, turns: usize::from(args.turns) },
    ];
    let mut table = Table::default();
    let mut young_kib = None;
    for group in groups {
        let dir = tempfile::tempdir_in(&parent)?;
        let cost = group.measure(&binary, dir.path(), &model, sessions).await?;
        let ratio = cost.kib / *young_kib.get_or_insert(cost.kib);
        let row = Row::new(format!("session::grow/turns={}", group.turns))
            .figure("kib_per_session", cost.kib)
            .figure("ratio", ratio)
            .figure("snapshot_kib", cost.snapshot_kib)
            .at_most("snapshot", cost.snapshot_kib, SNAPSHOT_TARGET);
        let Some((early, late)) = cost.cpu else {
            table.add(row);
            continue;
        };
        table.add(row.at_most("memory", ratio, MEMORY_TARGET));
        let us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / (sessions * MEASURED) as f64;
        let (early, late) = (us(early), us(late));
        let (row, ratio) = (Row::new("session::grow/cpu"), late / early);
        let row = row.figure("early_us", early).figure("late_us", late).figure("ratio", ratio);
        table.add(row.at_most("processor time", ratio, CPU_TARGET));
    }
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

// === impl Group ===

impl Group {
    /// Starts a node in this directory, has the turns of the group in it, and stops it.
    async fn measure(
        &self,
        binary: &Path,
        dir: &Path,
        model: &str,
        sessions: usize,
    ) -> Result<GroupCost, Error> {
        let setup = NodeSetup {
            binary,
            dir,
            model,
            storage: Storage::Embedded,
            config: "[session]\npassivate_after = \"1h\"\n",
            pin: Pin(None),
            role: None,
        };
        let mut node = Node::start(&setup).await?;
        // Other sessions first, so that what a node needs once is not counted.
        age(&mut node, "before", sessions, 1).await?;
        let before = resident_after(&mut node).await?;
        let cpu = if self.name == OLD {
            age(&mut node, OLD, sessions, BEFORE).await?;
            let early = age(&mut node, OLD, sessions, MEASURED).await?;
            age(&mut node, OLD, sessions, self.turns - BEFORE - 2 * MEASURED).await?;
            let late = age(&mut node, OLD, sessions, MEASURED).await?;
            Some((early, late))
        } else {
            age(&mut node, self.name, sessions, self.turns).await?;
            None
        };
        let after = resident_after(&mut node).await?;
        let resident = node.resident_sessions().await?;
        if resident < u64::try_from(2 * sessions)? {
            return Err(format!("{resident} sessions are left in memory: too few").into());
        }
        node.process().stop().await?;
        let kib = (after - before) / sessions as f64 / 1024.0;
        let snapshot_kib = snapshot_kib(&dir.join("data"), self.name).await?;
        Ok(GroupCost { kib, snapshot_kib, cpu })
    }
}

//! A second kind of entities on any backend, served by the kernel that serves sessions: the counter of
//! the tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use async_trait::async_trait;
use clawnode_actors::session::{Sessions, clients::listing::Wanted};
use clawnode_cluster::{Clock, Substrate, SystemClock, membership::Members, placement::Placement};
use clawnode_kernel::{
    Entity, EntityKind, Loaded, MachineOptions, Service,
    counter::{Counter, CounterInput, CounterRunner, CounterState},
    driver::{
        AnswerFrames, Context, Kinds, Lacks, Places, Probations, TakeOrders, Worker, WorkerOptions,
    },
    supervise::Supervisor,
};
use clawnode_proto::{
    EntityId, Frame, JobId, Position, ProcessId, TimerId, Timestamp, TurnId,
    archive::{CleanJobs, CleanView, LogPart},
    envelope::VERSIONS,
    event::decode_record,
    kernel::SNAPSHOT,
    latch::LatchScope,
    node::{Heartbeat, VersionRange},
};
use tokio::sync::watch;

use super::{
    Ground, Result,
    support::{self, eventually, holds, same},
};

/// Events after which a snapshot replaces a journal here.
const SNAPSHOT_EVERY: u64 = 20;

/// What a process that has no turns and no tools answers.
#[derive(Debug)]
struct Nothing;

impl AnswerFrames for Nothing {
    fn frames(&self, _: EntityId, _: TurnId) -> (Vec<Frame>, bool) {
        (Vec::new(), false)
    }
}

#[async_trait]
impl TakeOrders for Nothing {
    fn cordon(&self, _: bool) {}
    fn drain(&self) {}
    fn cancel_job(&self, _: JobId) {}
    async fn latch(&self, _: LatchScope, _: Duration) -> Option<(Position, u32)> {
        None
    }
    async fn job_log(&self, _: JobId, _: u64, _: Duration) -> Option<LogPart> {
        None
    }
    async fn clean_jobs(&self, _: CleanJobs) -> Option<CleanView> {
        None
    }
}

/// A worker of a process of its own on a substrate that others may share.
struct Process {
    worker: Worker,
    supervisor: Supervisor,
    lacks: Lacks,
    view: watch::Sender<Members>,
}

impl Process {
    /// One that serves these kinds, and pulls everything or nothing.
    async fn start(substrate: &Substrate, id: u128, kinds: Kinds, pulls: bool) -> Result<Self> {
        let (view, peers) = watch::channel(Members::default());
        let lacks = Lacks::default();
        let context = Context {
            process: ProcessId::from_u128(id),
            substrate: substrate.clone(),
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            kinds,
            version: env!("CARGO_PKG_VERSION").parse()?,
            activations: AtomicU64::new(1),
            resident: AtomicU64::new(0),
            speaks: VersionRange::from(VERSIONS),
            peers,
            lacks: lacks.clone(),
            probations: Probations::default(),
            places: Places::new(1_000),
            cordoned: Arc::new(AtomicBool::new(false)),
        };
        let supervisor = Supervisor::spawn().await?;
        let (context, options) = (Arc::new(context), WorkerOptions::default());
        let (frames, orders) = (Arc::new(Nothing), Arc::new(Nothing));
        let worker = Worker::spawn(context, frames, orders, options, &supervisor).await?;
        let partitions = substrate.partitions;
        let placement =
            if pulls { Placement::alone(partitions) } else { Placement::nowhere(partitions) };
        worker.place(Arc::new(placement));
        Ok(Self { worker, supervisor, lacks, view })
    }

    async fn stop(self) {
        self.worker.drain().await;
        self.supervisor.stop().await;
    }
}

/// What a worker says of itself that serves counters.
fn heartbeat(process: u128) -> Result<Heartbeat> {
    let capabilities = [Counter::KIND.as_str().parse()?].into();
    Ok(Heartbeat { capabilities, ..support::heartbeat(process)? })
}

fn counters(substrate: &Substrate) -> Kinds {
    let runner = CounterRunner { substrate: substrate.clone() };
    let options = MachineOptions { snapshot_every: SNAPSHOT_EVERY, ..MachineOptions::default() };
    Kinds::default().with::<Counter>(Arc::new(runner), options)
}

fn entity(key: &str) -> EntityId {
    EntityId::derive(Counter::KIND, key)
}

async fn tell(substrate: &Substrate, key: &str, name: &str, input: CounterInput) -> Result {
    substrate.inbox.put(&input.to(key, name.parse()?, Timestamp(1))?).await?;
    Ok(())
}

/// A counter as its journal has it now.
async fn read(substrate: &Substrate, key: &str) -> Result<Entity<Counter>> {
    let records = substrate.journal.read(entity(key), Position(0)).await?;
    Ok(Entity::of(entity(key), &Loaded { records, snapshot: None })?)
}

/// Waits until a counter says this total, and has nothing left to do.
async fn counts(substrate: &Substrate, key: &str, total: u64) -> Result {
    let inbox = &substrate.inbox;
    eventually(&format!("`{key}` counts to {total}"), || async {
        let CounterState { said, ref later, .. } = read(substrate, key).await?.state;
        let waiting = inbox.read(entity(key), Position(0)).await?;
        Ok(said == total && later.is_empty() && waiting.is_empty())
    })
    .await
}

/// Inputs, own events, timers, snapshots, a handover to another process, deletion and a new birth.
pub async fn a_second_kind_is_served(ground: &dyn Ground) -> Result {
    let substrate = ground.fresh().await?;
    let (key, mut total) = ("team/one", 0);
    let first = Process::start(&substrate, 1, counters(&substrate), true).await?;
    for by in 1..=30_u64 {
        // Sent twice, it counts once.
        for _ in 0..2 {
            tell(&substrate, key, &format!("add-{by}"), CounterInput::Add { by }).await?;
        }
        total += by;
    }
    counts(&substrate, key, total).await?;
    let records = substrate.journal.read(entity(key), Position(0)).await?;
    let head = decode_record(&records.first().ok_or("no journal")?.bytes)?;
    same("the first event", head[0].head.kind.as_str(), SNAPSHOT)?;
    first.stop().await;

    // Who looks at sessions sees no counters; who verifies journals checks all.
    let sessions = Sessions::new(substrate.clone(), Arc::new(SystemClock));
    let list = sessions.list(&Wanted { limit: 10, ..Wanted::default() }).await?;
    same("sessions", list.sessions.len(), 0)?;
    let verified = sessions.verify(None).await?.journals;
    let rows: Vec<_> =
        verified.iter().map(|row| (row.kind, row.key.as_deref(), row.problem.clone())).collect();
    same("verified", rows, vec![(Some(Counter::KIND), Some(key), None)])?;
    same("replayed", sessions.replay(entity(key)).await, (0, None))?;

    let second = Process::start(&substrate, 2, counters(&substrate), true).await?;
    let due = ground.now().plus(Duration::from_millis(100));
    for n in 0..3_u128 {
        let later = CounterInput::Later { timer: TimerId::from_u128(n), due, by: 1_000 };
        tell(&substrate, key, &format!("later-{n}"), later).await?;
    }
    total += 3_000;
    counts(&substrate, key, total).await?;
    let incarnation = read(&substrate, key).await?.core.incarnation;
    same("the last owner", incarnation.map(|it| it.process), Some(ProcessId::from_u128(2)))?;

    tell(&substrate, key, "forget", CounterInput::Forget).await?;
    eventually("it is deleted", || async {
        Ok(read(&substrate, key).await?.core.service == Service::Deleted)
    })
    .await?;
    tell(&substrate, key, "again", CounterInput::Add { by: 7 }).await?;
    counts(&substrate, key, 7).await?;
    // What was accepted before the deletion is known again.
    tell(&substrate, key, "add-30", CounterInput::Add { by: 30 }).await?;
    tell(&substrate, key, "last", CounterInput::Add { by: 1 }).await?;
    counts(&substrate, key, 8).await?;
    second.stop().await;
    Ok(())
}

/// An input for a kind that a process does not serve is no dead letter: it goes to a process that says
/// that it serves the kind, and waits until there is one.
pub async fn a_kind_that_is_not_served_waits_for_who_serves_it(ground: &dyn Ground) -> Result {
    let substrate = ground.fresh().await?;
    let key = "team/two";
    let without = Process::start(&substrate, 1, Kinds::default(), true).await?;
    tell(&substrate, key, "one", CounterInput::Add { by: 1 }).await?;
    eventually("somebody misses the kind", || async {
        Ok(without.lacks.told().iter().any(|lack| lack.contains("counter")))
    })
    .await?;
    holds("nothing is written", read(&substrate, key).await?.core.key.is_none())?;
    let letters = clawnode_kernel::letters::list(&substrate).await?;
    same("dead letters", letters.len(), 0)?;

    // The other never pulls: it is asked.
    let with = Process::start(&substrate, 2, counters(&substrate), false).await?;
    let alive = vec![heartbeat(2)?];
    without.view.send_replace(Members { alive, ..Members::default() });
    counts(&substrate, key, 1).await?;
    tell(&substrate, key, "two", CounterInput::Add { by: 2 }).await?;
    counts(&substrate, key, 3).await?;
    eventually("the lack is over", || async { Ok(without.lacks.told().is_empty()) }).await?;
    with.stop().await;
    without.stop().await;
    Ok(())
}

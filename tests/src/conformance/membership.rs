//! Membership over the bus of any backend.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{
    Clock, Peek, Storage,
    membership::{Announcer, ClusterClock, Members, Membership, MembershipOptions},
};
use clawnode_proto::{ProcessId, Timestamp, codec, node::Heartbeat};
use tokio::{sync::watch, task::JoinSet};

use super::{
    BackendFixture, Result,
    support::{self, holds, soon},
};

const TIMES: MembershipOptions = MembershipOptions {
    heartbeat: Duration::from_millis(50),
    dead_after: Duration::from_secs(1),
    probe_every: Duration::from_millis(50),
    probe_again: Duration::from_millis(50),
    quiet: Duration::from_millis(100),
    settle: Duration::from_millis(50),
};

/// Starts the membership of a process; it ends with `tasks`.
fn start(
    storage: &Storage,
    process: u128,
    options: MembershipOptions,
    tasks: &mut JoinSet<()>,
) -> Result<watch::Receiver<Members>> {
    start_with(storage, process, options, &Arc::default(), tasks)
}

fn start_with(
    storage: &Storage,
    process: u128,
    options: MembershipOptions,
    clocks: &Arc<ClusterClock>,
    tasks: &mut JoinSet<()>,
) -> Result<watch::Receiver<Members>> {
    let (view, seen) = watch::channel(Members::default());
    let me = ProcessId::from_u128(process);
    let sample = support::heartbeat(process)?;
    let heartbeat = Arc::new(move || sample.clone());
    let (storage, announcer) = (storage.clone(), Announcer::default());
    let clock = clocks.clone();
    let membership = Membership { storage, me, options, clock, heartbeat, view, announcer };
    tasks.spawn(membership.run());
    Ok(seen)
}

/// A machine whose clock has stopped.
#[derive(Debug)]
struct Stopped(Timestamp);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        self.0
    }
}

async fn until(seen: &mut watch::Receiver<Members>, what: impl Fn(&Members) -> bool) -> Result {
    soon("a view of the cluster", async {
        while !seen.peek(&what) {
            seen.changed().await?;
        }
        Ok(())
    })
    .await?
}

async fn publish(storage: &Storage, heartbeat: &Heartbeat) -> Result {
    let subject = storage.prefix.heartbeat(heartbeat.process);
    let bytes = Bytes::from(codec::encode(heartbeat)?);
    Ok(storage.bus.publish(subject, None, bytes).await?)
}

pub async fn a_process_that_joins_learns_who_died_before(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut tasks = JoinSet::new();
    let mut old = start(&storage, 1, TIMES, &mut tasks)?;
    until(&mut old, |members| members.settled).await?;
    let (dead, new) = (ProcessId::from_u128(7), ProcessId::from_u128(2));
    publish(&storage, &support::heartbeat(7)?).await?;
    until(&mut old, |members| members.dead.contains(&dead)).await?;
    // As a node joins: its first heartbeat has no role, and comes before it listens.
    publish(&storage, &Heartbeat { roles: Vec::new(), ..support::heartbeat(2)? }).await?;
    until(&mut old, |members| members.alive.iter().any(|one| one.process == new)).await?;
    let patient = MembershipOptions { dead_after: Duration::from_hours(1), ..TIMES };
    let mut seen = start(&storage, 2, patient, &mut tasks)?;
    until(&mut seen, |members| members.holds_dead(dead)).await?;
    holds("it has not listened for an hour", !seen.peek(|members| members.heard_all))
}

pub async fn a_process_that_joins_with_a_wrong_clock_soon_has_the_time_of_the_others(
    fixture: &dyn BackendFixture,
) -> Result {
    let storage = fixture.fresh().await?;
    let mut tasks = JoinSet::new();
    for process in [1, 2] {
        let mut seen = start(&storage, process, TIMES, &mut tasks)?;
        until(&mut seen, |members| members.settled).await?;
    }
    let clock = Arc::new(ClusterClock::new(Arc::new(Stopped(Timestamp(1_000)))));
    let patient = MembershipOptions { dead_after: Duration::from_hours(1), ..TIMES };
    let mut seen = start_with(&storage, 3, patient, &clock, &mut tasks)?;
    until(&mut seen, |members| members.alive.len() == 3).await?;
    holds("it has the time of the others", clock.now() > Timestamp(1_000))?;
    holds("it has not listened for an hour", !seen.peek(|members| members.heard_all))
}

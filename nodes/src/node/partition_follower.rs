//! Follows the other processes: which partitions this one pulls, and who looks after the inputs of processes
//! that died, so that no input waits for redelivery.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{
    PeekSeen, Storage,
    membership::Members,
    placement::{Placement, Seat},
    shed::ShedDepth,
};
use clawnode_kernel::driver::Worker;
use clawnode_proto::{Partition, ProcessId, limits::ACK_WAIT};
use futures_util::{StreamExt, stream};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tracing::{debug, info};

use super::process_load::Gauges;

/// How often the partitions that this process serves first are scanned after a death.
const EVERY: Duration = Duration::from_secs(1);
/// How long this process scans partitions that it came to serve first without a death: so it finds
/// inputs that were on their way to the process before it.
const HANDED_OVER: Duration = Duration::from_secs(3);
/// Rounds of scans at the same time. If there are more, a later round finds the same.
const SCANS_MAX: usize = 4;
/// Scans of one round at the same time: fast enough for a takeover, without a burst for the store.
const AT_ONCE: usize = 16;

/// Follows the other processes for one worker.
#[derive(Clone, Debug)]
pub struct PartitionFollower {
    /// Where the inboxes are.
    pub storage: Storage,
    pub me: ProcessId,
    pub worker: Worker,
    /// The gauge with the number of partitions that it serves first.
    pub gauges: Gauges,
    /// The others.
    pub members: watch::Receiver<Members>,
}

/// The members seen so far.
struct FollowedPartitions {
    view: Members,
    seats: Vec<Seat>,
    /// Which of their loads have lasted, and when others may have.
    settling: ShedDepth,
    settles: Option<Instant>,
    /// Until when everything that it serves first is scanned.
    until: Instant,
}

// === impl PartitionFollower ===

impl PartitionFollower {
    /// Places the worker among the others whenever they change, tells it who is dead, and scans
    /// what it serves first: at once and for two `ACK_WAIT`s after a death and after its own start.
    pub async fn run(mut self) {
        // Also at the start: processes that died before were never heard here.
        let until = Instant::now() + ACK_WAIT * 2;
        let mut known = FollowedPartitions {
            view: Members::default(),
            seats: Vec::new(),
            settling: ShedDepth::default(),
            settles: None,
            until,
        };
        let mut handed_over = until;
        let mut scans = JoinSet::new();
        let mut scan = tokio::time::interval(EVERY);
        scan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wanted = Instant::now() < known.until.max(handed_over);
            let settles = known.settles;
            tokio::select! {
                changed = self.members.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = settled(settles) => {}
                _ = scan.tick(), if wanted && scans.is_empty() => {
                    let firsts = self.worker.placement().firsts().collect();
                    scans.spawn(self.clone().scan(firsts));
                    continue;
                }
                Some(_) = scans.join_next() => continue,
            }
            let gained = self.changed(&mut known);
            if !gained.is_empty() {
                handed_over = Instant::now() + HANDED_OVER;
                // Else the next one finds it as well.
                if scans.len() < SCANS_MAX {
                    scans.spawn(self.clone().scan(gained));
                }
            }
        }
    }

    /// Takes a new view; returns the partitions that this process serves first only now.
    fn changed(&mut self, known: &mut FollowedPartitions) -> Vec<Partition> {
        let view = self.members.peek_seen(Clone::clone);
        if view.dead != known.view.dead {
            if view.dead.difference(&known.view.dead).next().is_some() {
                info!("scanning the inboxes that a dead process served");
                known.until = Instant::now() + ACK_WAIT * 2;
            }
            self.worker.dead(&view.dead);
        }
        let (seats, settles) = known.settling.look(Instant::now(), &view.seats());
        known.settles = settles;
        let moved = view.settled && (!known.view.settled || seats != known.seats);
        let mut gained = Vec::new();
        if moved {
            let before = self.worker.placement();
            let now = Arc::new(Placement::of(self.storage.partitions, self.me, &seats));
            let had: Vec<Partition> = before.firsts().collect();
            let has: Vec<Partition> = now.firsts().collect();
            gained = has.iter().copied().filter(|one| had.binary_search(one).is_err()).collect();
            self.gauges.set_first_of(has.len());
            if now != before {
                info!(workers = seats.len(), first_of = has.len(), gained = gained.len(), "placed");
                self.worker.place(now);
            }
            known.seats = seats;
        }
        known.view = Members { settled: known.view.settled || view.settled, ..view };
        gained
    }

    async fn scan(self, partitions: Vec<Partition>) {
        let Self { storage, worker, .. } = &self;
        stream::iter(partitions)
            .for_each_concurrent(AT_ONCE, |partition| async move {
                let Some(dispatcher) = worker.dispatcher(partition) else { return };
                match storage.inbox.scan(partition).await {
                    Ok(entities) if entities.is_empty() => {}
                    Ok(entities) => dispatcher.scanned(entities),
                    Err(failure) => debug!(%partition, %failure, "an inbox cannot be scanned now"),
                }
            })
            .await;
    }
}

/// Returns once this time has come; never without one.
async fn settled(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

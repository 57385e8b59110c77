//! A worker: the dispatchers of all partitions.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clawnode_cluster::{Peek, placement::Placement};
use clawnode_proto::{Partition, ProcessId};
use futures_util::future::{BoxFuture, join_all};
use ractor::SpawnErr;
use tokio::sync::watch;
use tracing::warn;

use super::{
    AnswerFrames, DispatcherHandle, TakeOrders, WorkerContext, answer_requests,
    overdue_timers::restore_overdue,
};
use crate::supervise::{ChildKind, Factory, Supervisor};

/// How long handing over may take once no call runs any more: a store that does not answer must not
/// keep the process.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(10);

/// How a worker runs.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// How long running calls may continue when the worker is drained (default 30 s): longer wastes
    /// fewer calls, shorter stops sooner.
    pub drain_grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { drain_grace: Duration::from_secs(30) }
    }
}

type Slots = Arc<RwLock<Vec<Option<DispatcherHandle>>>>;

/// The only handle to a worker.
#[derive(Clone, Debug)]
pub struct Worker {
    slots: Slots,
    placement: Arc<watch::Sender<Arc<Placement>>>,
    options: WorkerOptions,
    cordoned: Arc<AtomicBool>,
}

impl Worker {
    /// Starts the dispatchers of all partitions under `supervisor`. If other processes may share
    /// the storage, nothing is pulled before [`Self::place`] says what.
    pub fn spawn(
        context: Arc<WorkerContext>,
        frames: Arc<dyn AnswerFrames>,
        orders: Arc<dyn TakeOrders>,
        options: WorkerOptions,
        supervisor: &Supervisor,
    ) -> BoxFuture<'_, Result<Self, SpawnErr>> {
        // Boxed here, so that the crates that await it do not compile it once more.
        Box::pin(Self::spawned(context, frames, orders, options, supervisor))
    }

    async fn spawned(
        context: Arc<WorkerContext>,
        frames: Arc<dyn AnswerFrames>,
        orders: Arc<dyn TakeOrders>,
        options: WorkerOptions,
        supervisor: &Supervisor,
    ) -> Result<Self, SpawnErr> {
        let count = usize::from(context.storage.partitions);
        let slots: Slots = Arc::new(RwLock::new(vec![None; count]));
        let cordoned = Arc::clone(&context.cordoned);
        let placement = if context.storage.shared {
            Placement::nowhere(context.storage.partitions)
        } else {
            Placement::alone(context.storage.partitions)
        };
        let placement = Arc::new(watch::Sender::new(Arc::new(placement)));
        let worker = Self { slots: Arc::clone(&slots), placement, options, cordoned };
        let (requests, answering) = (worker.clone(), Arc::clone(&context));
        supervisor
            .adopt_task("worker.requests", move || {
                let (context, worker) = (Arc::clone(&answering), Some(requests.clone()));
                answer_requests(context, worker, Arc::clone(&frames), Arc::clone(&orders))
            })
            .await?;
        if context.storage.shared {
            // A store of this process alone fires them from the same list that this would look at.
            let (placed, context) = (Arc::clone(&worker.placement), Arc::clone(&context));
            let look = move || {
                let (timers, clock) = (&context.storage.timers, &context.clock);
                restore_overdue(Arc::clone(timers), Arc::clone(clock), placed.subscribe())
            };
            supervisor.adopt_task("worker.overdue", look).await?;
        }
        for partition in context.storage.all_partitions() {
            let (slots, context) = (Arc::clone(&slots), Arc::clone(&context));
            let placement = Arc::clone(&worker.placement);
            let started = Arc::new(AtomicBool::new(false));
            let factory: Factory = Box::new(move |parent| {
                let (slots, context) = (Arc::clone(&slots), Arc::clone(&context));
                let (started, placed) = (Arc::clone(&started), placement.subscribe());
                Box::pin(async move {
                    let again = started.swap(true, Ordering::Relaxed);
                    let spawned =
                        DispatcherHandle::spawn(partition, placed, again, context, parent);
                    let handle = spawned.await?;
                    let cell = handle.cell();
                    if let Some(slot) = write(&slots).get_mut(usize::from(partition.0)) {
                        *slot = Some(handle);
                    }
                    Ok(cell)
                })
            });
            let name = format!("dispatcher.{partition}");
            supervisor.adopt(name, ChildKind::Dispatcher, factory).await?;
        }
        Ok(worker)
    }

    /// The dispatcher of a partition, unless it is just being restarted.
    pub fn dispatcher(&self, partition: Partition) -> Option<DispatcherHandle> {
        let slots = self.slots.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        slots.get(usize::from(partition.0)).cloned().flatten()
    }

    fn dispatchers(&self) -> Vec<DispatcherHandle> {
        let slots = self.slots.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        slots.iter().flatten().cloned().collect()
    }

    /// Sets what is pulled from now on, and at which rank. What runs stays.
    pub fn place(&self, placement: Arc<Placement>) {
        self.placement.send_replace(placement);
    }

    /// What is pulled now.
    pub fn placement(&self) -> Arc<Placement> {
        self.placement.peek(Arc::clone)
    }

    /// Gives all dispatchers the list of processes that are held dead.
    pub fn dead(&self, dead: &BTreeSet<ProcessId>) {
        for dispatcher in self.dispatchers() {
            dispatcher.dead(dead.clone());
        }
    }

    /// Takes no more entities and keeps those that it has, or takes them again.
    pub fn cordon(&self, is_cordoned: bool) {
        // First, so that a dispatcher which is just being restarted sees it.
        self.cordoned.store(is_cordoned, Ordering::Relaxed);
        for dispatcher in self.dispatchers() {
            dispatcher.cordon(is_cordoned);
        }
    }

    /// Takes nothing new, lets running calls end for `drain_grace`, hands every entity over.
    pub fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.drained())
    }

    async fn drained(&self) {
        let dispatchers = self.dispatchers();
        let drained = join_all(dispatchers.iter().map(DispatcherHandle::drain));
        tokio::pin!(drained);
        if tokio::time::timeout(self.options.drain_grace, &mut drained).await.is_err() {
            warn!(grace = ?self.options.drain_grace, "running calls are given up");
            for dispatcher in &dispatchers {
                dispatcher.give_up();
            }
            if tokio::time::timeout(HAND_OVER_WITHIN, drained).await.is_err() {
                warn!("not everything could be handed over; its inputs are delivered again");
            }
        }
    }
}

fn write(slots: &Slots) -> std::sync::RwLockWriteGuard<'_, Vec<Option<DispatcherHandle>>> {
    slots.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

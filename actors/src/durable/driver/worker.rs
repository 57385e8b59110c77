//! A worker: the dispatchers of all partitions, and the requests of other processes.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, RwLock},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{BusEvent, BusMessage, placement::Placement};
use clawnode_proto::{
    EntityId, Frame, Partition, ProcessId, TurnId, codec,
    node::{NodeReply, NodeRequest},
};
use futures_util::{StreamExt, future::join_all};
use ractor::SpawnErr;
use tokio::sync::{oneshot, watch};
use tracing::{debug, warn};

use super::{Context, DispatcherHandle};
use crate::{
    durable::EntityKind,
    supervise::{ChildKind, Factory, Supervisor},
};

/// Requests of other processes that are answered at the same time.
const REQUESTS_MAX: usize = 256;
/// How long an answer may take: whoever asked has given up by then, and a store that does not
/// answer must not use up all places.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How a worker runs.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// How long running calls may go on when the worker is drained (default 30 s): longer wastes
    /// fewer calls, shorter stops sooner.
    pub drain_grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { drain_grace: Duration::from_secs(30) }
    }
}

/// Answers for the frames that this process still has of a turn.
pub trait AnswerFrames: Send + Sync + fmt::Debug + 'static {
    /// The turn's frames in order, and whether older ones are missing.
    fn frames(&self, entity: EntityId, turn: TurnId) -> (Vec<Frame>, bool);
}

/// Says which partitions are pulled, and at which rank.
pub(super) type Placed = watch::Receiver<Arc<Placement>>;
type Slots = Arc<RwLock<Vec<Option<DispatcherHandle>>>>;

/// The only door to a worker.
#[derive(Clone, Debug)]
pub struct Worker {
    slots: Slots,
    placement: Arc<watch::Sender<Arc<Placement>>>,
    options: WorkerOptions,
}

impl Worker {
    /// Starts the dispatchers of all partitions under `supervisor`. Where others may share the
    /// substrate, nothing is pulled before [`Self::place`] says what.
    pub async fn spawn<K: EntityKind>(
        context: Arc<Context<K>>,
        frames: Arc<dyn AnswerFrames>,
        options: WorkerOptions,
        supervisor: &Supervisor,
    ) -> Result<Self, SpawnErr> {
        let count = usize::from(context.substrate.partitions);
        let slots: Slots = Arc::new(RwLock::new(vec![None; count]));
        let placement = if context.substrate.shared {
            Placement::nowhere(context.substrate.partitions)
        } else {
            Placement::alone(context.substrate.partitions)
        };
        let placement = Arc::new(watch::Sender::new(Arc::new(placement)));
        let worker = Self { slots: Arc::clone(&slots), placement, options };
        let (requests, answering) = (worker.clone(), Arc::clone(&context));
        supervisor
            .adopt_task("worker.requests", move || {
                answer(requests.clone(), Arc::clone(&answering), Arc::clone(&frames))
            })
            .await?;
        for partition in context.substrate.all_partitions() {
            let (slots, context) = (Arc::clone(&slots), Arc::clone(&context));
            let placement = Arc::clone(&worker.placement);
            let factory: Factory = Box::new(move |parent| {
                let (slots, context) = (Arc::clone(&slots), Arc::clone(&context));
                let placed = placement.subscribe();
                Box::pin(async move {
                    let spawned = DispatcherHandle::spawn(partition, placed, context, parent);
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

    /// What is pulled from now on, and at which rank. What runs stays.
    pub fn place(&self, placement: Arc<Placement>) {
        self.placement.send_replace(placement);
    }

    /// What is pulled now.
    pub fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement.borrow())
    }

    /// Tells all dispatchers which processes are held dead.
    pub fn dead(&self, dead: &BTreeSet<ProcessId>) {
        for dispatcher in self.dispatchers() {
            dispatcher.dead(dead.clone());
        }
    }

    /// Takes nothing new, lets running calls end for `drain_grace`, hands every entity over.
    pub async fn drain(&self) {
        let dispatchers = self.dispatchers();
        let drained = join_all(dispatchers.iter().map(DispatcherHandle::drain));
        tokio::pin!(drained);
        if tokio::time::timeout(self.options.drain_grace, &mut drained).await.is_err() {
            warn!(grace = ?self.options.drain_grace, "running calls are given up");
            for dispatcher in &dispatchers {
                dispatcher.give_up();
            }
            if tokio::time::timeout(self.options.drain_grace, drained).await.is_err() {
                warn!("not everything could be handed over; its inputs are delivered again");
            }
        }
    }
}

fn write(slots: &Slots) -> std::sync::RwLockWriteGuard<'_, Vec<Option<DispatcherHandle>>> {
    slots.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Answers the requests of other processes.
async fn answer<K: EntityKind>(
    worker: Worker,
    context: Arc<Context<K>>,
    frames: Arc<dyn AnswerFrames>,
) {
    let subject = context.substrate.prefix.rpc(context.process);
    let requests = match context.substrate.bus.subscribe(subject).await {
        Ok(requests) => requests,
        Err(failure) => {
            warn!(%failure, "cannot listen for requests; trying again");
            return;
        }
    };
    requests
        .for_each_concurrent(REQUESTS_MAX, |event| {
            let (worker, context, frames) =
                (worker.clone(), Arc::clone(&context), Arc::clone(&frames));
            async move {
                if let BusEvent::Message(message) = event {
                    answer_one(&worker, &context, frames.as_ref(), message).await;
                }
            }
        })
        .await;
}

async fn answer_one<K: EntityKind>(
    worker: &Worker,
    context: &Context<K>,
    frames: &dyn AnswerFrames,
    message: BusMessage,
) {
    let request = match codec::decode::<NodeRequest>(&message.payload) {
        Ok(request) => request,
        Err(failure) => {
            debug!(%failure, "a request of another process is not readable");
            return;
        }
    };
    let partitions = context.substrate.partitions;
    let reply = match request {
        NodeRequest::Ping => Some(NodeReply::Ok),
        NodeRequest::Fenced { entity, epoch } => {
            if let Some(dispatcher) = worker.dispatcher(entity.partition(partitions)) {
                dispatcher.fenced(entity, epoch);
            }
            Some(NodeReply::Ok)
        }
        NodeRequest::Ask { entity, input } => {
            let (reply, answer) = oneshot::channel();
            match worker.dispatcher(entity.partition(partitions)) {
                Some(dispatcher) => dispatcher.asked(entity, input, reply),
                None => drop(reply),
            }
            tokio::time::timeout(ANSWER_WITHIN, answer).await.ok().and_then(Result::ok)
        }
        NodeRequest::Cordon { .. } | NodeRequest::Drain => {
            debug!("not answered yet");
            None
        }
        NodeRequest::Frames { entity, turn } => {
            let (frames, truncated) = frames.frames(entity, turn);
            Some(NodeReply::Frames { frames, truncated })
        }
    };
    let (Some(reply), Some(to)) = (reply, message.reply) else { return };
    match codec::encode(&reply) {
        Ok(bytes) => {
            if let Err(failure) = context.substrate.bus.publish(to, None, Bytes::from(bytes)).await
            {
                debug!(%failure, "an answer to another process was lost");
            }
        }
        Err(failure) => warn!(%failure, "an answer cannot be written"),
    }
}

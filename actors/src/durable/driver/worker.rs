//! A worker: the dispatchers of all partitions, and the requests of other processes.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{BusEvent, BusMessage};
use clawnode_proto::{
    EntityId, Frame, Partition, ProcessId, TurnId, codec,
    limits::ANSWER_BYTES,
    node::{NodeReply, NodeRequest},
};
use futures_util::{StreamExt, future::join_all};
use ractor::SpawnErr;
use tokio::sync::oneshot;
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
    /// The rank at which each partition is pulled.
    pub rank: u8,
    /// How long running calls may go on when the worker is drained (default 30 s): longer wastes
    /// fewer calls, shorter stops sooner.
    pub drain_grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { rank: 0, drain_grace: Duration::from_secs(30) }
    }
}

/// Answers for the frames that this process still has of a turn.
pub trait AnswerFrames: Send + Sync + fmt::Debug + 'static {
    /// The turn's frames in order, and whether older ones are missing.
    fn frames(&self, entity: EntityId, turn: TurnId) -> (Vec<Frame>, bool);
}

type Slots = Arc<RwLock<Vec<Option<DispatcherHandle>>>>;

/// The only door to a worker.
#[derive(Clone, Debug)]
pub struct Worker {
    slots: Slots,
    options: WorkerOptions,
}

impl Worker {
    /// Starts the dispatchers of all partitions under `supervisor`.
    pub async fn spawn<K: EntityKind>(
        context: Arc<Context<K>>,
        frames: Arc<dyn AnswerFrames>,
        options: WorkerOptions,
        supervisor: &Supervisor,
    ) -> Result<Self, SpawnErr> {
        let count = usize::from(context.substrate.partitions);
        let slots: Slots = Arc::new(RwLock::new(vec![None; count]));
        let worker = Self { slots: Arc::clone(&slots), options };
        let (requests, answering) = (worker.clone(), Arc::clone(&context));
        supervisor
            .adopt_task("worker.requests", move || {
                answer(requests.clone(), Arc::clone(&answering), Arc::clone(&frames))
            })
            .await?;
        for partition in context.substrate.all_partitions() {
            let (slots, context) = (Arc::clone(&slots), Arc::clone(&context));
            let rank = worker.options.rank;
            let started = Arc::new(AtomicBool::new(false));
            let factory: Factory = Box::new(move |parent| {
                let (slots, context) = (Arc::clone(&slots), Arc::clone(&context));
                let started = Arc::clone(&started);
                Box::pin(async move {
                    let again = started.swap(true, Ordering::Relaxed);
                    let handle =
                        DispatcherHandle::spawn(partition, rank, again, context, parent).await?;
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

/// The newest frames that fit into `most` bytes, in order, and whether any do not.
fn newest(mut frames: Vec<Frame>, most: usize) -> (Vec<Frame>, bool) {
    let mut room = most;
    let fits = |frame: &Frame| {
        let size = codec::encode(frame).map_or(usize::MAX, |bytes| bytes.len());
        room = room.checked_sub(size)?;
        Some(())
    };
    let count = frames.iter().rev().map_while(fits).count();
    let kept = frames.split_off(frames.len() - count);
    (kept, !frames.is_empty())
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
            let (frames, cut) = newest(frames, ANSWER_BYTES);
            Some(NodeReply::Frames { frames, truncated: truncated || cut })
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

#[cfg(test)]
mod tests {
    use clawnode_proto::{Attempt, CallId, FrameBody, FrameKey};

    use super::*;

    #[test]
    fn frames_that_do_not_fit_are_cut_from_the_oldest() {
        let turn = TurnId::from_u128(1);
        let frame = |index| Frame {
            key: FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index },
            body: FrameBody::Text { delta: "x".repeat(1_000) },
        };
        let all: Vec<Frame> = (0..2_000).map(frame).collect();
        let (kept, cut) = newest(all.clone(), ANSWER_BYTES);
        assert!(cut && !kept.is_empty() && kept.len() < all.len());
        assert_eq!(kept, all[all.len() - kept.len()..], "the newest, in order");
        let reply = NodeReply::Frames { frames: kept, truncated: true };
        // What NATS carries unless told otherwise.
        assert!(codec::encode(&reply).unwrap().len() <= 1 << 20);
        assert_eq!(newest(all[..3].to_vec(), ANSWER_BYTES), (all[..3].to_vec(), false));
    }
}

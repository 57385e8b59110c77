//! What a partition's dispatcher has, and how it does what its machine says.

use std::{collections::HashMap, sync::Arc, time::Duration};

use clawnode_cluster::{AckHandle, Delivery, StoreError, WaitingInput};
use clawnode_proto::{EntityId, InputId, Partition as PartitionId, Timestamp, node::NodeReply};
use ractor::{ActorId, ActorRef};
use tokio::{sync::oneshot, task::JoinSet};
use tracing::{debug, error};

use super::{DispatcherHandle, handle::DispatcherMessage, pump::pump};
use crate::{
    driver::{
        Placed, WorkerContext,
        entity::{EntityHandle, Start},
        forward::{forward, ring, ring_next},
        reads::{arrived, ask_owner, read_inbox, read_tail, set_aside},
        task_panics::fused,
    },
    partition::{AskId, Gone, HandleId, Partition, PartitionInput, PartitionOutput},
};

/// Every how many ticks the entities hear of it: passivation need not be precise.
const ENTITY_TICKS: u32 = 5;
/// Entities that are asked at a tick to make room for others, and the share of all that is: not all
/// at once, for each may write that it is given up.
const MAKE_ROOM: (usize, usize) = (64, 4);
/// How long the last messages of a drained dispatcher may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct DispatcherState {
    pub(super) partition: PartitionId,
    pub(super) placed: Placed,
    pub(super) machine: Partition,
    /// The machine measures waits alone, so its time does not jump with the clock.
    pub(super) started: tokio::time::Instant,
    pub(super) context: Arc<WorkerContext>,
    pub(super) entities: HashMap<EntityId, Arc<dyn EntityHandle>>,
    pub(super) cells: HashMap<ActorId, EntityId>,
    pub(super) handles: HashMap<HandleId, Arc<dyn AckHandle>>,
    pub(super) asks: HashMap<AskId, oneshot::Sender<NodeReply>>,
    pub(super) drained: Vec<oneshot::Sender<()>>,
    pub(super) next: u64,
    pub(super) ticks: u32,
    pub(super) taken: Taken,
    pub(super) pump: Option<tokio::task::AbortHandle>,
    pub(super) tasks: JoinSet<()>,
}

/// The places that it has taken; they are given back when it ends, for any reason.
pub(super) struct Taken(pub(super) Arc<WorkerContext>, pub(super) usize);

impl Taken {
    fn are(&mut self, now: usize) {
        self.0.places.moved(self.1, now);
        self.1 = now;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.are(0);
    }
}

// === impl DispatcherState ===

impl DispatcherState {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn question(&mut self, reply: oneshot::Sender<NodeReply>) -> AskId {
        let ask = AskId(self.number());
        self.asks.insert(ask, reply);
        ask
    }

    /// Pulls the inbox, or leaves it to others.
    pub(super) fn pull(&mut self, myself: &ActorRef<DispatcherMessage>, is_pulling: bool) {
        if !is_pulling {
            if let Some(pump) = self.pump.take() {
                pump.abort();
            }
        } else if self.pump.is_none() {
            let context = Arc::clone(&self.context);
            let pump = pump(self.partition, self.placed.clone(), context, myself.clone());
            self.pump = Some(self.spawn(myself, pump));
        }
    }

    /// Runs work beside the actor; if the work panics, the actor ends.
    fn spawn(
        &mut self,
        myself: &ActorRef<DispatcherMessage>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::AbortHandle {
        self.tasks.spawn(fused(myself.clone(), || DispatcherMessage::Broke, work))
    }

    pub(super) fn delivered(&mut self, delivery: Delivery) -> PartitionInput {
        let handle = HandleId(self.number());
        self.handles.insert(handle, delivery.handle);
        let Delivery { entity, position, redelivered, foremost, bytes, .. } = delivery;
        // An entity that is not active reads its inbox anyway.
        let foremost = (foremost && self.entities.contains_key(&entity))
            .then(|| arrived(&self.context, entity, WaitingInput { position, bytes }));
        PartitionInput::Delivered { entity, position, handle, redelivered, foremost }
    }

    pub(super) fn tick(&mut self) {
        self.ticks = (self.ticks + 1) % ENTITY_TICKS;
        if self.ticks == 0 {
            for handle in self.entities.values() {
                handle.tick();
            }
        }
    }

    pub(super) async fn step(
        &mut self,
        myself: &ActorRef<DispatcherMessage>,
        input: PartitionInput,
    ) {
        if let PartitionInput::Gone(entity, _) | PartitionInput::TooNew(entity, _) = &input
            && let Some(handle) = self.entities.remove(entity)
        {
            self.cells.remove(&handle.cell().get_id());
        }
        let millis = self.started.elapsed().as_millis();
        let now = Timestamp(u64::try_from(millis).unwrap_or(u64::MAX));
        let outs = self.machine.handle(now, input);
        self.taken.are(self.machine.entities());
        for out in outs {
            self.perform(myself, out).await;
        }
    }

    /// Asks some idle entities to leave memory, if there is no room for others.
    pub(super) fn make_room(&self) {
        if self.context.places.left() > 0 || self.entities.is_empty() {
            return;
        }
        let first = rand::random_range(0..self.entities.len());
        let some = self.entities.values().skip(first).chain(self.entities.values());
        let most = MAKE_ROOM.0.max(self.entities.len() / MAKE_ROOM.1).min(self.entities.len());
        for handle in some.take(most) {
            handle.make_room();
        }
    }

    #[expect(clippy::too_many_lines, reason = "one flat match over all that there is to do")]
    async fn perform(&mut self, myself: &ActorRef<DispatcherMessage>, out: PartitionOutput) {
        let (context, actor, myself) = (Arc::clone(&self.context), myself.clone(), myself.clone());
        match out {
            PartitionOutput::ReadInbox(entity, after) => {
                self.spawn(&actor, async move {
                    tell(&myself, read_inbox(&context, entity, after).await);
                });
            }
            PartitionOutput::ReadTail(entity) => {
                self.spawn(&actor, async move { tell(&myself, read_tail(&context, entity).await) });
            }
            PartitionOutput::AskOwner(process, entity, input) => {
                self.spawn(&actor, async move {
                    let says = ask_owner(&context, process, entity, input).await;
                    tell(&myself, PartitionInput::OwnerSaid(entity, says));
                });
            }
            PartitionOutput::SetAside(entity, position, bytes, reason) => {
                self.spawn(&actor, async move {
                    let aside = set_aside(&context, entity, position, bytes, reason).await;
                    tell(&myself, aside);
                });
            }
            PartitionOutput::Activate(entity, kind, activation, previous_owner) => {
                let Some(kind) = context.kinds.get(kind) else {
                    // What arrives for such entities is forwarded, so none is activated here.
                    error!(%entity, %kind, "an entity of a kind that is not served was activated");
                    return tell(&myself, PartitionInput::Gone(entity, Gone::Unservable));
                };
                let dispatcher = DispatcherHandle(myself.clone());
                let start = Start {
                    id: entity,
                    activation,
                    previous_owner,
                    context: context.clone(),
                    dispatcher,
                };
                match Arc::clone(kind).start(start, myself.get_cell()).await {
                    Ok(handle) => {
                        self.cells.insert(handle.cell().get_id(), entity);
                        self.entities.insert(entity, handle);
                    }
                    Err(cause) => {
                        error!(%entity, %cause, "an entity's actor cannot be started");
                        tell(&myself, PartitionInput::Gone(entity, Gone::Lost));
                    }
                }
            }
            PartitionOutput::Deliver(entity, inputs) => {
                if let Some(handle) = self.entities.get(&entity) {
                    handle.deliver(inputs);
                }
            }
            PartitionOutput::AskActor(ask, entity, input) => {
                self.ask_actor(ask, Some((entity, input)));
            }
            PartitionOutput::AnswerNotMine(ask) => self.ask_actor(ask, None),
            PartitionOutput::AnswerHeld(ask) => {
                if let Some(reply) = self.asks.remove(&ask) {
                    answer(reply, NodeReply::Held);
                }
            }
            PartitionOutput::AnswerRung(ask) => {
                if let Some(reply) = self.asks.remove(&ask) {
                    answer(reply, NodeReply::Ok);
                }
            }
            PartitionOutput::Ring(process, entity, input) => {
                self.spawn(&actor, async move {
                    let came = ring(&context, process, entity, input).await;
                    debug!(%entity, %process, ?came, "an entity was given up, another process is notified");
                });
            }
            PartitionOutput::RingNext(entity, input) => {
                self.spawn(&actor, async move { ring_next(&context, entity, input).await });
            }
            PartitionOutput::Forward(entity, input, needs) => {
                self.spawn(&actor, async move {
                    tell(&myself, forward(&context, entity, input, needs).await);
                });
            }
            PartitionOutput::Ack(handle) => {
                if let Some(handle) = self.handles.remove(&handle) {
                    self.spawn(&actor, async move { said(handle.ack().await, "acknowledge") });
                }
            }
            PartitionOutput::Progress(handle) => {
                if let Some(handle) = self.handles.get(&handle).cloned() {
                    self.spawn(&actor, async move { said(handle.progress().await, "hold") });
                }
            }
            PartitionOutput::Nak(handle, delay) => {
                if let Some(handle) = self.handles.remove(&handle) {
                    self.spawn(&actor, async move { said(handle.nak(delay).await, "give back") });
                }
            }
            PartitionOutput::Forget(handle) => {
                self.handles.remove(&handle);
            }
            PartitionOutput::Drained => {
                let tasks = std::mem::take(&mut self.tasks);
                // Detached: it ends by itself, soon, and this actor's end must not cut it short.
                drop(tokio::spawn(last_words(tasks, std::mem::take(&mut self.drained))));
            }
        }
    }
}

impl DispatcherState {
    /// Answers another process: the entity's actor does, if there is one.
    fn ask_actor(&mut self, ask: AskId, asked: Option<(EntityId, InputId)>) {
        let Some(reply) = self.asks.remove(&ask) else { return };
        match asked.and_then(|(entity, input)| Some((self.entities.get(&entity)?, input))) {
            Some((handle, input)) => handle.ask(input, reply),
            None => answer(reply, NodeReply::NotMine),
        }
    }
}

/// Inputs that were given back, and notifications, must be sent before the process may end.
async fn last_words(mut tasks: JoinSet<()>, drained: Vec<oneshot::Sender<()>>) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_WORDS, all).await.is_err() {
        debug!("not everything was given back in time; it is delivered again");
    }
    for done in drained {
        if done.send(()).is_err() {
            debug!("the caller that drained a dispatcher is gone");
        }
    }
}

fn tell(myself: &ActorRef<DispatcherMessage>, input: PartitionInput) {
    if myself.cast(DispatcherMessage::Feed(input)).is_err() {
        debug!("a dispatcher stopped while a task of its own ran");
    }
}

fn answer(reply: oneshot::Sender<NodeReply>, says: NodeReply) {
    if reply.send(says).is_err() {
        debug!("the process that asked for an input is gone");
    }
}

/// Answers to deliveries are best effort: the next delivery repairs what is lost.
fn said(outcome: Result<(), StoreError>, what: &'static str) {
    if let Err(failure) = outcome {
        debug!(%failure, what, "a delivery's answer was lost");
    }
}

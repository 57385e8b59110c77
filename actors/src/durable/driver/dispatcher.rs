//! The actor of one partition: pulls its inbox, and activates and feeds its entities.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::{AckHandle, Delivery, StoreError};
use clawnode_proto::{
    EntityId, Epoch, InputId, Partition as PartitionId, ProcessId, Timestamp, node::NodeReply,
};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::JoinSet,
};
use tracing::{debug, error, warn};

use super::{
    Context,
    entity::{Arguments as EntityArguments, EntityHandle, GOODBYE, fenced},
    reads::{ask_owner, read_inbox, read_tail, set_aside},
};
use crate::durable::{
    EntityKind, In as EntityIn,
    partition::{AskId, Gone, HandleId, In, Out, Partition},
};

/// Deliveries that wait for the dispatcher; beyond it nothing more is pulled.
const DELIVERIES_MAX: usize = 256;
/// How often the machine hears that time has passed.
const TICK: Duration = Duration::from_secs(1);
/// Every how many ticks the entities hear of it: passivation need not be precise.
const ENTITY_TICKS: u32 = 5;
/// How long an inbox whose consumer failed is left alone.
const CONSUME_AGAIN: Duration = Duration::from_millis(500);
/// Tries at the scan of a dispatcher that follows another; after them redelivery has found it all.
const SCANS_MAX: u32 = 60;
/// How long one whose store is closed is left alone.
const CLOSED_AGAIN: Duration = Duration::from_secs(10);

/// The only door to a partition's dispatcher.
#[derive(Clone, Debug)]
pub struct DispatcherHandle(ActorRef<Message>);

/// What a dispatcher looks like from outside.
#[derive(Clone, Copy, Debug, Default)]
pub struct DispatcherView {
    /// Entities active or about to be.
    pub entities: usize,
}

pub(super) enum Message {
    Delivered(Delivery, OwnedSemaphorePermit),
    Feed(In),
    Asked(EntityId, InputId, oneshot::Sender<NodeReply>),
    Fenced(EntityId, Epoch),
    Tick,
    Drain(oneshot::Sender<()>),
    GiveUp,
    View(oneshot::Sender<DispatcherView>),
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered(delivery, _) => write!(f, "Delivered({delivery:?})"),
            Self::Feed(input) => write!(f, "Feed({input:?})"),
            Self::Asked(entity, input, _) => write!(f, "Asked({entity}, {input})"),
            Self::Fenced(entity, epoch) => write!(f, "Fenced({entity}, {epoch})"),
            Self::Tick => f.write_str("Tick"),
            Self::Drain(_) => f.write_str("Drain"),
            Self::GiveUp => f.write_str("GiveUp"),
            Self::View(_) => f.write_str("View"),
        }
    }
}

struct DispatcherActor<K>(std::marker::PhantomData<fn(K)>);

struct State<K: EntityKind> {
    machine: Partition,
    /// The machine measures waits alone, so its time does not jump with the clock.
    started: tokio::time::Instant,
    context: Arc<Context<K>>,
    entities: HashMap<EntityId, EntityHandle<K>>,
    cells: HashMap<ActorId, EntityId>,
    handles: HashMap<HandleId, Arc<dyn AckHandle>>,
    asks: HashMap<AskId, oneshot::Sender<NodeReply>>,
    drained: Vec<oneshot::Sender<()>>,
    next: u64,
    ticks: u32,
    pump: Option<tokio::task::AbortHandle>,
    tasks: JoinSet<()>,
}

// === impl DispatcherHandle ===

impl DispatcherHandle {
    /// Starts a partition's dispatcher and pulls its inbox at `rank`. One that follows another
    /// (`again`) scans its inbox at once: what that one had in hand is not delivered before its
    /// time is over.
    pub(super) async fn spawn<K: EntityKind>(
        partition: PartitionId,
        rank: u8,
        again: bool,
        context: Arc<Context<K>>,
        parent: ActorCell,
    ) -> Result<Self, SpawnErr> {
        let actor = DispatcherActor(std::marker::PhantomData);
        let scans = again.then(|| Arc::clone(&context));
        let arguments = (partition, rank, context);
        let (actor, _) = DispatcherActor::spawn_linked(None, actor, arguments, parent).await?;
        if let Some(context) = scans {
            // Detached: it ends with its scan, or as soon as its dispatcher is gone.
            drop(tokio::spawn(scan(partition, context, actor.clone())));
        }
        Ok(Self(actor))
    }

    fn tell(&self, message: Message) {
        if self.0.cast(message).is_err() {
            debug!("a dispatcher stopped before it was told something");
        }
    }

    pub(super) fn completed(&self, entity: EntityId, input: InputId) {
        self.tell(Message::Feed(In::Completed(entity, input)));
    }

    pub(super) fn gone(&self, entity: EntityId, why: Gone) {
        self.tell(Message::Feed(In::Gone(entity, why)));
    }

    /// Entities with inputs that were found waiting.
    pub fn scanned(&self, entities: Vec<EntityId>) {
        self.tell(Message::Feed(In::Scanned(entities)));
    }

    /// Which other processes are held dead now.
    pub fn dead(&self, dead: BTreeSet<ProcessId>) {
        self.tell(Message::Feed(In::Dead(dead)));
    }

    /// Another process asks for an input.
    pub fn asked(&self, entity: EntityId, input: InputId, reply: oneshot::Sender<NodeReply>) {
        self.tell(Message::Asked(entity, input, reply));
    }

    /// Another process says that it has claimed an entity.
    pub fn fenced(&self, entity: EntityId, epoch: Epoch) {
        self.tell(Message::Fenced(entity, epoch));
    }

    /// Hands everything over; ends when nothing is left.
    pub async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.tell(Message::Drain(done));
        if drained.await.is_err() {
            debug!("a dispatcher stopped while it was drained");
        }
    }

    /// Gives running calls up; `drain` goes on from there.
    pub fn give_up(&self) {
        self.tell(Message::GiveUp);
    }

    /// What it looks like now.
    pub async fn view(&self) -> Option<DispatcherView> {
        let (reply, answer) = oneshot::channel();
        self.tell(Message::View(reply));
        answer.await.ok()
    }

    /// Its actor, for the supervisor.
    pub(super) fn cell(&self) -> ActorCell {
        self.0.get_cell()
    }
}

// === impl DispatcherActor ===

impl<K: EntityKind> Actor for DispatcherActor<K> {
    type Msg = Message;
    type State = State<K>;
    type Arguments = (PartitionId, u8, Arc<Context<K>>);

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        (partition, rank, context): Self::Arguments,
    ) -> Result<State<K>, ActorProcessingErr> {
        let shared = context.substrate.shared;
        let machine = Partition::new(context.process, shared, Timestamp(0));
        let mut tasks = JoinSet::new();
        let pump = tasks.spawn(pump(partition, rank, Arc::clone(&context), myself.clone()));
        myself.send_interval(TICK, || Message::Tick);
        Ok(State {
            machine,
            started: tokio::time::Instant::now(),
            context,
            entities: HashMap::new(),
            cells: HashMap::new(),
            handles: HashMap::new(),
            asks: HashMap::new(),
            drained: Vec::new(),
            next: 0,
            ticks: 0,
            pump: Some(pump),
            tasks,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State<K>,
    ) -> Result<(), ActorProcessingErr> {
        while state.tasks.try_join_next().is_some() {}
        let input = match message {
            Message::Delivered(delivery, _permit) => state.delivered(delivery),
            Message::Feed(input) => input,
            Message::Asked(entity, input, reply) => {
                let ask = AskId(state.number());
                state.asks.insert(ask, reply);
                In::Asked(ask, entity, input)
            }
            Message::Fenced(entity, epoch) => {
                if let Some(handle) = state.entities.get(&entity) {
                    handle.feed(fenced(epoch));
                }
                return Ok(());
            }
            Message::Tick => {
                state.tick();
                In::Tick
            }
            Message::Drain(done) => {
                if let Some(pump) = state.pump.take() {
                    pump.abort();
                }
                state.drained.push(done);
                for handle in state.entities.values() {
                    handle.feed(EntityIn::Drain);
                }
                In::Drain
            }
            Message::GiveUp => {
                for handle in state.entities.values() {
                    handle.feed(EntityIn::GiveUp);
                }
                return Ok(());
            }
            Message::View(reply) => {
                let view = DispatcherView { entities: state.machine.entities() };
                if reply.send(view).is_err() {
                    debug!("whoever looked at a dispatcher did not wait");
                }
                return Ok(());
            }
        };
        state.step(&myself, input).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State<K>,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, cause) = match event {
            SupervisionEvent::ActorFailed(cell, cause) => (cell, Some(cause.to_string())),
            SupervisionEvent::ActorTerminated(_, _, Some(reason)) if reason == GOODBYE => {
                return Ok(());
            }
            SupervisionEvent::ActorTerminated(cell, ..) => (cell, None),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return Ok(());
            }
        };
        let Some(entity) = state.cells.remove(&cell.get_id()) else { return Ok(()) };
        if state.entities.get(&entity).is_some_and(|it| it.cell().get_id() == cell.get_id()) {
            state.entities.remove(&entity);
            // It did not say goodbye: it died.
            let cause = cause.unwrap_or_else(|| "stopped without a word".to_owned());
            error!(%entity, cause, "an entity's actor died; it is started again");
            state.step(&myself, In::Gone(entity, Gone::Lost)).await;
        }
        Ok(())
    }
}

// === impl State ===

impl<K: EntityKind> State<K> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn delivered(&mut self, delivery: Delivery) -> In {
        let handle = HandleId(self.number());
        self.handles.insert(handle, delivery.handle);
        let Delivery { entity, position, redelivered, .. } = delivery;
        In::Delivered { entity, position, handle, redelivered }
    }

    fn tick(&mut self) {
        self.ticks = (self.ticks + 1) % ENTITY_TICKS;
        if self.ticks == 0 {
            for handle in self.entities.values() {
                handle.feed(EntityIn::Tick);
            }
        }
    }

    async fn step(&mut self, myself: &ActorRef<Message>, input: In) {
        if let In::Gone(entity, _) = &input
            && let Some(handle) = self.entities.remove(entity)
        {
            self.cells.remove(&handle.cell().get_id());
        }
        let millis = self.started.elapsed().as_millis();
        let now = Timestamp(u64::try_from(millis).unwrap_or(u64::MAX));
        for out in self.machine.handle(now, input) {
            self.perform(myself, out).await;
        }
    }

    #[expect(clippy::too_many_lines, reason = "one flat match over what the machine says")]
    async fn perform(&mut self, myself: &ActorRef<Message>, out: Out) {
        let (context, myself) = (Arc::clone(&self.context), myself.clone());
        match out {
            Out::ReadInbox(entity, after) => {
                self.tasks.spawn(async move {
                    tell(&myself, read_inbox(&context, entity, after).await);
                });
            }
            Out::ReadTail(entity) => {
                self.tasks.spawn(async move { tell(&myself, read_tail(&context, entity).await) });
            }
            Out::AskOwner(process, entity, input) => {
                self.tasks.spawn(async move {
                    let says = ask_owner(&context, process, entity, input).await;
                    tell(&myself, In::OwnerSaid(entity, says));
                });
            }
            Out::SetAside(entity, position, bytes, reason) => {
                self.tasks.spawn(async move {
                    let aside = set_aside(&context, entity, position, bytes, reason).await;
                    tell(&myself, aside);
                });
            }
            Out::Activate(entity, activation) => {
                let dispatcher = DispatcherHandle(myself.clone());
                let arguments = EntityArguments { id: entity, activation, context, dispatcher };
                match EntityHandle::spawn(arguments, myself.get_cell()).await {
                    Ok(handle) => {
                        self.cells.insert(handle.cell().get_id(), entity);
                        self.entities.insert(entity, handle);
                    }
                    Err(cause) => {
                        error!(%entity, %cause, "an entity's actor cannot be started");
                        tell(&myself, In::Gone(entity, Gone::Lost));
                    }
                }
            }
            Out::Deliver(entity, inputs) => {
                if let Some(handle) = self.entities.get(&entity) {
                    handle.feed(EntityIn::Deliver(inputs));
                }
            }
            Out::AskActor(ask, entity, input) => self.ask_actor(ask, Some((entity, input))),
            Out::AnswerNotMine(ask) => self.ask_actor(ask, None),
            Out::Ack(handle) => {
                if let Some(handle) = self.handles.remove(&handle) {
                    self.tasks.spawn(async move { said(handle.ack().await, "acknowledge") });
                }
            }
            Out::Progress(handle) => {
                if let Some(handle) = self.handles.get(&handle).cloned() {
                    self.tasks.spawn(async move { said(handle.progress().await, "hold") });
                }
            }
            Out::Nak(handle, delay) => {
                if let Some(handle) = self.handles.remove(&handle) {
                    self.tasks.spawn(async move { said(handle.nak(delay).await, "give back") });
                }
            }
            Out::Forget(handle) => {
                self.handles.remove(&handle);
            }
            Out::Drained => {
                for done in self.drained.drain(..) {
                    if done.send(()).is_err() {
                        debug!("whoever drained a dispatcher did not wait");
                    }
                }
            }
        }
    }
}

impl<K: EntityKind> State<K> {
    /// Answers another process: the entity's actor does, if there is one.
    fn ask_actor(&mut self, ask: AskId, of: Option<(EntityId, InputId)>) {
        let Some(reply) = self.asks.remove(&ask) else { return };
        match of.and_then(|(entity, input)| Some((self.entities.get(&entity)?, input))) {
            Some((handle, input)) => handle.ask(input, reply),
            None => answer(reply, NodeReply::NotMine),
        }
    }
}

fn tell(myself: &ActorRef<Message>, input: In) {
    if myself.cast(Message::Feed(input)).is_err() {
        debug!("a dispatcher stopped while a task of its own ran");
    }
}

fn answer(reply: oneshot::Sender<NodeReply>, says: NodeReply) {
    if reply.send(says).is_err() {
        debug!("whoever asked for an input did not wait");
    }
}

/// Answers to deliveries are best effort: the next delivery repairs what is lost.
fn said(outcome: Result<(), StoreError>, what: &'static str) {
    if let Err(failure) = outcome {
        debug!(%failure, what, "a delivery's answer was lost");
    }
}

/// Pulls deliveries for as long as the dispatcher lives; no more than it has room for.
async fn pump<K: EntityKind>(
    partition: PartitionId,
    rank: u8,
    context: Arc<Context<K>>,
    dispatcher: ActorRef<Message>,
) {
    let room = Arc::new(Semaphore::new(DELIVERIES_MAX));
    loop {
        let mut consumer = match context.substrate.inbox.consume(partition, rank).await {
            Ok(consumer) => consumer,
            Err(failure) => {
                warn!(%partition, %failure, "inbox cannot be pulled now; trying again");
                tokio::time::sleep(again(&failure)).await;
                continue;
            }
        };
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match consumer.next().await {
                Ok(delivery) => {
                    if dispatcher.cast(Message::Delivered(delivery, permit)).is_err() {
                        return;
                    }
                }
                Err(failure) => {
                    warn!(%partition, %failure, "inbox pull broke off; pulling again");
                    tokio::time::sleep(again(&failure)).await;
                    break;
                }
            }
        }
    }
}

/// Finds what waits in the partition, and rings for it.
async fn scan<K: EntityKind>(
    partition: PartitionId,
    context: Arc<Context<K>>,
    dispatcher: ActorRef<Message>,
) {
    for _ in 0..SCANS_MAX {
        match context.substrate.inbox.scan(partition).await {
            Ok(entities) => return tell(&dispatcher, In::Scanned(entities)),
            Err(failure) => {
                warn!(%partition, %failure, "inbox cannot be scanned now; trying again");
                tokio::time::sleep(again(&failure)).await;
            }
        }
    }
}

/// A pull that ended while its dispatcher lives is never left: nobody would notice that a
/// partition is deaf.
const fn again(failure: &StoreError) -> Duration {
    match failure {
        StoreError::Closed { .. } => CLOSED_AGAIN,
        _ => CONSUME_AGAIN,
    }
}

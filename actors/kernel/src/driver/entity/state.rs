//! The actor of one resident entity.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    sync::atomic::Ordering,
};

use bytes::Bytes;
use clawnode_proto::{
    EntityId, Epoch, Incarnation, Input, InputId, ProcessId, Timestamp, codec,
    node::{NodeReply, NodeRequest},
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Context, DispatcherHandle,
    erase::erase,
    fuse::fused,
    kinds::{EntityHandle, Served, Start},
    store::{append, archive, discard, load, read_back, scrub},
};
use crate::{EntityKind, In, Machine, Now, Out, OwnerSays, Slim, Stop, partition::Gone};

/// Why an actor stopped that told its dispatcher itself; the supervision event may come first.
pub(super) const GOODBYE: &str = "told its dispatcher";

/// The handle of an entity's actor, whose kind is known.
#[derive(Debug)]
struct Handle<K: EntityKind>(ActorRef<Message<K>>);

/// Where an effect's runner tells how it went.
#[derive(Debug)]
pub struct Port<K: EntityKind>(ActorRef<Message<K>>);

#[derive(Debug)]
pub(super) enum Message<K: EntityKind> {
    /// Boxed, because a mailbox keeps room for 32 messages for as long as its entity is resident.
    Feed(Box<In<K>>),
    Ask(InputId, oneshot::Sender<NodeReply>),
    /// A task of it panicked: nobody will say what it waits for.
    Broke,
}

struct EntityActor<K>(std::marker::PhantomData<fn(K)>);

struct State<K: EntityKind> {
    id: EntityId,
    machine: Machine<K>,
    /// Waits are measured from here, so that they do not jump with the clock.
    started: tokio::time::Instant,
    context: Arc<Context>,
    served: Arc<Served<K>>,
    dispatcher: DispatcherHandle,
    /// Dropping it aborts whatever still runs for this activation.
    tasks: JoinSet<()>,
    calls: BTreeMap<K::Effect, CancellationToken>,
    handed: Vec<InputId>,
    resident: Resident,
}

/// Counts the entity as resident while it lives, also when it panics.
struct Resident(Arc<Context>, EntityId);

impl Drop for Resident {
    fn drop(&mut self) {
        self.0.resident.fetch_sub(1, Ordering::Relaxed);
        self.0.probations.lost(self.1);
    }
}

/// Starts the actor of one entity.
pub(super) async fn start<K: EntityKind>(
    served: Arc<Served<K>>,
    start: Start,
    parent: ActorCell,
) -> Result<Arc<dyn EntityHandle>, SpawnErr> {
    let actor = EntityActor(std::marker::PhantomData);
    let spawned = EntityActor::spawn_linked(None, actor, (served, start), parent).await;
    Ok(Arc::new(Handle::<K>(spawned?.0)))
}

// === impl Handle ===

impl<K: EntityKind> Handle<K> {
    fn feed(&self, input: In<K>) {
        if self.0.cast(Message::Feed(Box::new(input))).is_err() {
            debug!("an entity's actor stopped before it was told something");
        }
    }
}

impl<K: EntityKind> EntityHandle for Handle<K> {
    fn deliver(&self, inputs: Vec<Input>) {
        self.feed(In::Deliver(inputs));
    }

    fn tick(&self) {
        self.feed(In::Tick);
    }

    fn make_room(&self) {
        self.feed(In::MakeRoom);
    }

    fn fenced(&self, epoch: Epoch) {
        self.feed(In::FencedHint(epoch));
    }

    fn drain(&self) {
        self.feed(In::Drain);
    }

    fn give_up(&self) {
        self.feed(In::GiveUp);
    }

    fn ask(&self, input: InputId, reply: oneshot::Sender<NodeReply>) {
        if self.0.cast(Message::Ask(input, reply)).is_err() {
            debug!("an entity's actor stopped before it was asked something");
        }
    }

    fn cell(&self) -> ActorCell {
        self.0.get_cell()
    }
}

// === impl Port ===

impl<K: EntityKind> Clone for Port<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: EntityKind> Port<K> {
    pub(super) fn tell(&self, input: In<K>) {
        if self.0.cast(Message::Feed(Box::new(input))).is_err() {
            debug!("an effect outlived its entity's actor");
        }
    }

    /// The call may start.
    pub fn granted(&self, effect: K::Effect, grant: K::Grant) {
        self.tell(In::Granted(effect, grant));
    }

    /// The call must wait.
    pub fn deferred(&self, effect: K::Effect) {
        self.tell(In::Deferred(effect));
    }

    /// Nobody will answer for the call any more.
    pub fn forgotten(&self, effect: K::Effect) {
        self.tell(In::Forgotten(effect));
    }

    /// The call may not be made.
    pub fn refused(&self, effect: K::Effect, outcome: K::Outcome) {
        self.tell(In::Refused(effect, outcome));
    }

    /// The call has ended.
    pub fn ended(&self, effect: K::Effect, outcome: K::Outcome) {
        self.tell(In::Ended(effect, outcome));
    }

    /// What was aborted is gone without an outcome.
    pub fn gone(&self, effect: K::Effect) {
        self.tell(In::Gone(effect));
    }

    /// The emission is confirmed.
    pub fn confirmed(&self, effect: K::Effect) {
        self.tell(In::Confirmed(effect));
    }

    /// Whether the entity's actor is gone.
    pub fn is_closed(&self) -> bool {
        matches!(self.0.get_status(), ractor::ActorStatus::Stopping | ractor::ActorStatus::Stopped)
    }
}

// === impl EntityActor ===

impl<K: EntityKind> Actor for EntityActor<K> {
    type Msg = Message<K>;
    type State = State<K>;
    type Arguments = (Arc<Served<K>>, Start);

    async fn pre_start(
        &self,
        myself: ActorRef<Message<K>>,
        (served, start): (Arc<Served<K>>, Start),
    ) -> Result<State<K>, ActorProcessingErr> {
        let Start { id, activation, heir, context, dispatcher } = start;
        let counter = context.activations.fetch_add(1, Ordering::Relaxed);
        context.resident.fetch_add(1, Ordering::Relaxed);
        let resident = Resident(Arc::clone(&context), id);
        let incarnation = Incarnation { process: context.process, counter };
        let started = tokio::time::Instant::now();
        let now = now(&context, started);
        let (machine, out) = Machine::new(id, incarnation, activation, served.machine, now);
        let mut state = State {
            id,
            machine: machine.heir(heir),
            started,
            context,
            served,
            dispatcher,
            tasks: JoinSet::new(),
            calls: BTreeMap::new(),
            handed: Vec::new(),
            resident,
        };
        state.perform(&myself, out);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message<K>>,
        message: Message<K>,
        state: &mut State<K>,
    ) -> Result<(), ActorProcessingErr> {
        while state.tasks.try_join_next().is_some() {}
        match message {
            Message::Feed(input) => {
                state.note(&input);
                let now = now(&state.context, state.started);
                let out = state.machine.handle(now, *input);
                state.perform(&myself, out);
            }
            Message::Ask(input, reply) => {
                let answer = match state.machine.says(input) {
                    OwnerSays::Held => NodeReply::Held,
                    OwnerSays::Completed => NodeReply::Completed,
                    OwnerSays::NotMine | OwnerSays::Silent => NodeReply::NotMine,
                };
                if reply.send(answer).is_err() {
                    debug!("whoever asked for an input did not wait");
                }
            }
            Message::Broke => return Err("a task of it panicked".into()),
        }
        Ok(())
    }
}

// === impl State ===

impl<K: EntityKind> State<K> {
    fn note(&mut self, input: &In<K>) {
        match input {
            In::Deliver(inputs) => self.handed.extend(inputs.iter().map(|one: &Input| one.id)),
            In::Ended(effect, _) | In::Gone(effect) | In::Confirmed(effect) => {
                self.calls.remove(effect);
                self.calls.slim();
            }
            _ => {}
        }
    }

    /// Does what the machine says, and tells it at once what is at hand.
    fn perform(&mut self, myself: &ActorRef<Message<K>>, out: Vec<Out<K>>) {
        let mut waiting = VecDeque::from(out);
        let mut is_over = false;
        while let Some(one) = waiting.pop_front() {
            is_over |= matches!(one, Out::Stop(_));
            let Some(answer) = self.perform_one(myself, one).filter(|_| !is_over) else { continue };
            let now = now(&self.context, self.started);
            // After what was said before it, as if it had come through the mailbox.
            waiting.extend(self.machine.handle(now, answer));
        }
    }

    /// Has work done beside the actor, which ends with it if it panics.
    fn spawn(
        &mut self,
        myself: &ActorRef<Message<K>>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn(fused(myself.clone(), || Message::Broke, work));
    }

    fn perform_one(&mut self, myself: &ActorRef<Message<K>>, out: Out<K>) -> Option<In<K>> {
        let port = Port(myself.clone());
        let (context, id) = (Arc::clone(&self.context), self.id);
        match out {
            Out::Load => {
                self.spawn(myself, async move { port.tell(load(&context, id).await) });
            }
            Out::EnterProbation => {
                self.spawn(myself, async move {
                    let blamed = context.probations.enter(&context, id).await;
                    port.tell(In::Probation { blamed });
                });
            }
            Out::LeaveProbation { runs } => {
                self.spawn(myself, async move {
                    context.probations.leave(&context, id, runs).await;
                });
            }
            Out::Append { wait, expected, write } => {
                self.spawn(myself, append(context, id, port, wait, expected, write));
            }
            Out::ReadBack { after } => {
                self.spawn(myself, async move { port.tell(read_back(&context, id, after).await) });
            }
            Out::Acquire(effect, want) => {
                let grant = self.served.runner.acquire(id, effect.clone(), want, &port)?;
                return Some(In::Granted(effect, grant));
            }
            // A grant that is not used gives its place back when it is dropped.
            Out::Release(_) => {}
            Out::Start(effect, job) => {
                let cancelled = CancellationToken::new();
                self.calls.insert(effect.clone(), cancelled.clone());
                let run = self.served.runner.run(id, effect, job, port, cancelled);
                self.spawn(myself, run);
            }
            Out::Abort(effect) => match self.calls.get(&effect) {
                Some(cancelled) => cancelled.cancel(),
                None => return Some(In::Gone(effect)),
            },
            Out::Complete(input) => {
                self.handed.retain(|one| *one != input);
                self.handed.slim();
                self.dispatcher.completed(id, input);
            }
            Out::TellFenced { process, epoch } => {
                self.served.runner.claimed(id, process, epoch);
                if self.context.substrate.shared {
                    self.spawn(myself, tell_fenced(context, id, process, epoch));
                }
            }
            Out::Archive { upto, state } => {
                self.spawn(
                    myself,
                    async move { port.tell(archive(&context, id, upto, state).await) },
                );
            }
            Out::Erase { dropped, state } => {
                let runner = Arc::clone(&self.served.runner);
                self.spawn(myself, async move {
                    port.tell(erase(&context, runner.as_ref(), id, dropped, state).await);
                });
            }
            // Detached: it is bounded, and goes on when the activation is over.
            Out::Discard(blobs) => {
                drop(tokio::spawn(async move { discard(&context.substrate, blobs).await }));
            }
            Out::Scrub(blobs) => {
                self.spawn(myself, async move { port.tell(scrub(&context, blobs).await) });
            }
            Out::Stop(stop) => self.stop(myself, &stop),
        }
        None
    }

    fn stop(&mut self, myself: &ActorRef<Message<K>>, stop: &Stop) {
        let id = self.id;
        let context = Arc::clone(&self.context);
        if !matches!(stop, Stop::Defect(_)) && context.probations.notes(id) {
            // Detached: it left alive, which the end of this actor must not leave unsaid.
            drop(tokio::spawn(async move { context.probations.over(&context, id).await }));
        }
        let why = match stop {
            Stop::TooNew(needs) => {
                debug!(entity = %id, %needs, "entity needs a process that knows more");
                self.served.runner.left(id, &self.handed, stop);
                self.dispatcher.too_new(id, needs.clone());
                return myself.stop(Some(GOODBYE.to_owned()));
            }
            Stop::Passivated | Stop::Quarantined(_) => Gone::Idle,
            Stop::Released => Gone::Released,
            Stop::GaveWay => Gone::GaveWay,
            Stop::Fenced => Gone::Lost,
            Stop::Defect(_) => Gone::Died,
            Stop::Corrupt(_) | Stop::Diverged(_) => Gone::Unservable,
        };
        match stop {
            Stop::Passivated | Stop::Released | Stop::GaveWay => {
                debug!(entity = %id, ?stop, "entity left memory");
            }
            Stop::Fenced => info!(entity = %id, "entity is owned elsewhere now"),
            Stop::Quarantined(reason) => {
                warn!(entity = %id, reason, "entity is out of service; its inputs are parked");
            }
            Stop::TooNew(_) => {}
            Stop::Corrupt(detail) => error!(entity = %id, detail, "journal cannot be used"),
            Stop::Diverged(detail) => error!(entity = %id, detail, "the store lost records"),
            Stop::Defect(detail) => error!(entity = %id, detail, "a defect ended an activation"),
        }
        self.served.runner.left(id, &self.handed, stop);
        self.dispatcher.gone(id, why);
        debug_assert!(Arc::strong_count(&self.resident.0) > 0, "counted until dropped");
        myself.stop(Some(GOODBYE.to_owned()));
    }
}

fn now(context: &Context, started: tokio::time::Instant) -> Now {
    let steady = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Now { wall: context.clock.now(), steady: Timestamp(steady) }
}

/// Best effort: whoever does not hear it is fenced by its next append.
async fn tell_fenced(context: Arc<Context>, entity: EntityId, process: ProcessId, epoch: Epoch) {
    let Ok(bytes) = codec::encode(&NodeRequest::Fenced { entity, epoch }) else { return };
    let subject = context.substrate.prefix.rpc(process);
    if let Err(failure) = context.substrate.bus.publish(subject, None, Bytes::from(bytes)).await {
        debug!(%entity, %process, %failure, "the last owner was not told");
    }
}

//! What one resident entity's actor has, and how it does what its machine says.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    sync::atomic::Ordering,
};

use bytes::Bytes;
use clawnode_proto::{
    EntityId, Epoch, Input, InputId, ProcessId, Timestamp, codec, node::NodeRequest,
};
use ractor::ActorRef;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    GOODBYE, Port, Served,
    erase::erase,
    handle::EntityMessage,
    purge::purge,
    store::{append, archive, discard, load, read_back, scrub},
};
use crate::{
    ActivationEnd, EntityKind, Machine, MachineInput, MachineOutput, Now, ShrinkToFit,
    driver::{DispatcherHandle, WorkerContext, task_panics::fused},
    partition::Gone,
};

pub(super) struct EntityActorState<K: EntityKind> {
    pub(super) id: EntityId,
    pub(super) machine: Machine<K>,
    /// Waits are measured from here, so that they do not jump with the clock.
    pub(super) started: tokio::time::Instant,
    pub(super) context: Arc<WorkerContext>,
    pub(super) served: Arc<Served<K>>,
    pub(super) dispatcher: DispatcherHandle,
    /// Dropping it aborts whatever still runs for this activation.
    pub(super) tasks: JoinSet<()>,
    pub(super) calls: BTreeMap<K::Effect, CancellationToken>,
    pub(super) handed: Vec<InputId>,
    pub(super) resident: Resident,
}

/// Counts the entity as resident while it lives, also when it panics.
pub(super) struct Resident(pub(super) Arc<WorkerContext>, pub(super) EntityId);

impl Drop for Resident {
    fn drop(&mut self) {
        self.0.resident.fetch_sub(1, Ordering::Relaxed);
        self.0.probations.lost(self.1);
    }
}

// === impl EntityActorState ===

impl<K: EntityKind> EntityActorState<K> {
    pub(super) fn note(&mut self, input: &MachineInput<K>) {
        match input {
            MachineInput::Deliver(inputs) => {
                self.handed.extend(inputs.iter().map(|one: &Input| one.id));
            }
            MachineInput::Ended(effect, _)
            | MachineInput::Gone(effect)
            | MachineInput::Confirmed(effect) => {
                self.calls.remove(effect);
                self.calls.slim();
            }
            _ => {}
        }
    }

    /// Performs the outputs of the machine, and feeds it at once what is at hand.
    pub(super) fn perform(
        &mut self,
        myself: &ActorRef<EntityMessage<K>>,
        out: Vec<MachineOutput<K>>,
    ) {
        let mut waiting = VecDeque::from(out);
        let mut is_over = false;
        while let Some(one) = waiting.pop_front() {
            is_over |= matches!(one, MachineOutput::Stop(_));
            let Some(answer) = self.perform_one(myself, one).filter(|_| !is_over) else { continue };
            let now = now(&self.context, self.started);
            // After the outputs before it, as if it had come through the mailbox.
            waiting.extend(self.machine.handle(now, answer));
        }
    }

    /// Runs work beside the actor; if the work panics, the actor ends.
    fn spawn(
        &mut self,
        myself: &ActorRef<EntityMessage<K>>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn(fused(myself.clone(), || EntityMessage::Broke, work));
    }

    /// Begins to perform an effect, which can be cancelled.
    fn start(&mut self, myself: &ActorRef<EntityMessage<K>>, effect: K::Effect, job: K::Job) {
        let cancelled = CancellationToken::new();
        self.calls.insert(effect.clone(), cancelled.clone());
        let run = self.served.runner.run(self.id, effect, job, Port(myself.clone()), cancelled);
        self.spawn(myself, run);
    }

    /// Tells the process that had the entity before, and who watches.
    fn tell_claimed(
        &mut self,
        myself: &ActorRef<EntityMessage<K>>,
        process: ProcessId,
        epoch: Epoch,
    ) {
        self.served.runner.claimed(self.id, process, epoch);
        if self.context.storage.shared {
            self.spawn(myself, tell_fenced(Arc::clone(&self.context), self.id, process, epoch));
        }
    }

    fn perform_one(
        &mut self,
        myself: &ActorRef<EntityMessage<K>>,
        out: MachineOutput<K>,
    ) -> Option<MachineInput<K>> {
        let port = Port(myself.clone());
        let (context, id) = (Arc::clone(&self.context), self.id);
        match out {
            MachineOutput::Load => {
                self.spawn(myself, async move { port.tell(load(&context, id).await) });
            }
            MachineOutput::EnterProbation => {
                self.spawn(myself, async move {
                    let blamed = context.probations.enter(&context, id).await;
                    port.tell(MachineInput::Probation { blamed });
                });
            }
            MachineOutput::LeaveProbation { runs } => {
                self.spawn(myself, async move {
                    context.probations.leave(&context, id, runs).await;
                });
            }
            MachineOutput::Append { wait, expected, write } => {
                self.spawn(myself, append(context, id, port, wait, expected, write));
            }
            MachineOutput::ReadBack { after } => {
                self.spawn(myself, async move { port.tell(read_back(&context, id, after).await) });
            }
            MachineOutput::Acquire(effect, want) => {
                let grant = self.served.runner.acquire(id, effect.clone(), want, &port)?;
                return Some(MachineInput::Granted(effect, grant));
            }
            // A grant that is not used gives its place back when it is dropped.
            MachineOutput::Release(effect) => self.served.runner.released(id, &effect),
            MachineOutput::Start(effect, job) => self.start(myself, effect, job),
            MachineOutput::Abort(effect) => match self.calls.get(&effect) {
                Some(cancelled) => cancelled.cancel(),
                None => return Some(MachineInput::Gone(effect)),
            },
            MachineOutput::Complete(input) => {
                self.handed.retain(|one| *one != input);
                self.handed.slim();
                self.dispatcher.completed(id, input);
            }
            MachineOutput::TellFenced { process, epoch } => {
                self.tell_claimed(myself, process, epoch);
            }
            MachineOutput::Archive { upto, state } => {
                self.spawn(
                    myself,
                    async move { port.tell(archive(&context, id, upto, state).await) },
                );
            }
            MachineOutput::Erase { dropped, state } => {
                let runner = Arc::clone(&self.served.runner);
                self.spawn(myself, async move {
                    port.tell(erase(&context, runner.as_ref(), id, dropped, state).await);
                });
            }
            MachineOutput::Purge { upto, state } => {
                self.spawn(myself, async move {
                    port.tell(purge::<K>(&context, id, upto, state).await);
                });
            }
            // Detached: it is bounded, and continues when the activation is over.
            MachineOutput::Discard(blobs) => {
                drop(tokio::spawn(async move { discard(&context.storage, blobs).await }));
            }
            MachineOutput::Scrub(blobs) => {
                self.spawn(myself, async move { port.tell(scrub(&context, blobs).await) });
            }
            MachineOutput::Stop(stop) => self.stop(myself, &stop),
        }
        None
    }

    fn stop(&mut self, myself: &ActorRef<EntityMessage<K>>, stop: &ActivationEnd) {
        let id = self.id;
        let context = Arc::clone(&self.context);
        if !matches!(stop, ActivationEnd::Defect(_)) && context.probations.notes(id) {
            // Detached: the entity left memory alive, and the end of this actor must not keep that
            // from being noted.
            drop(tokio::spawn(async move { context.probations.over(&context, id).await }));
        }
        let why = match stop {
            ActivationEnd::TooNew(needs) => {
                debug!(entity = %id, %needs, "entity needs a process that knows more");
                self.served.runner.left(id, &self.handed, stop);
                self.dispatcher.too_new(id, needs.clone());
                return myself.stop(Some(GOODBYE.to_owned()));
            }
            ActivationEnd::Passivated | ActivationEnd::Quarantined(_) => Gone::Idle,
            ActivationEnd::Released => Gone::Released,
            ActivationEnd::GaveWay => Gone::GaveWay,
            ActivationEnd::Fenced => Gone::Lost,
            ActivationEnd::Defect(_) => Gone::Died,
            ActivationEnd::Corrupt(_) | ActivationEnd::Diverged(_) => Gone::Unservable,
        };
        match stop {
            ActivationEnd::Passivated | ActivationEnd::Released | ActivationEnd::GaveWay => {
                debug!(entity = %id, ?stop, "entity left memory");
            }
            ActivationEnd::Fenced => info!(entity = %id, "entity is owned elsewhere now"),
            ActivationEnd::Quarantined(reason) => {
                warn!(entity = %id, reason, "entity is out of service; its inputs are parked");
            }
            ActivationEnd::TooNew(_) => {}
            ActivationEnd::Corrupt(detail) => {
                error!(entity = %id, detail, "journal cannot be used");
            }
            ActivationEnd::Diverged(detail) => {
                error!(entity = %id, detail, "the store lost records");
            }
            ActivationEnd::Defect(detail) => {
                error!(entity = %id, detail, "a defect ended an activation");
            }
        }
        self.served.runner.left(id, &self.handed, stop);
        self.dispatcher.gone(id, why);
        debug_assert!(Arc::strong_count(&self.resident.0) > 0, "counted until dropped");
        myself.stop(Some(GOODBYE.to_owned()));
    }
}

pub(super) fn now(context: &WorkerContext, started: tokio::time::Instant) -> Now {
    let steady = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Now { wall: context.clock.now(), steady: Timestamp(steady) }
}

/// Best effort: an owner that does not hear it is fenced by its next append.
async fn tell_fenced(
    context: Arc<WorkerContext>,
    entity: EntityId,
    process: ProcessId,
    epoch: Epoch,
) {
    let Ok(bytes) = codec::encode(&NodeRequest::Fenced { entity, epoch }) else { return };
    let subject = context.storage.prefix.rpc(process);
    if let Err(failure) = context.storage.bus.publish(subject, None, Bytes::from(bytes)).await {
        debug!(%entity, %process, %failure, "cannot notify the last owner");
    }
}

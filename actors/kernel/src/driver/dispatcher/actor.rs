//! The actor of one partition's dispatcher: a thin shell around its machine.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use clawnode_proto::{Partition as PartitionId, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::task::JoinSet;
use tracing::{debug, error};

use super::{
    DispatcherView,
    handle::DispatcherMessage,
    pump::pump,
    state::{DispatcherState, Taken},
};
use crate::{
    driver::{Placed, WorkerContext, entity::GOODBYE, task_panics::fused},
    partition::{Gone, Partition, PartitionInput},
};

/// How often the machine hears that time has passed.
const TICK: Duration = Duration::from_secs(1);

/// What the dispatcher of a partition begins with.
pub(super) struct DispatcherArguments {
    pub(super) partition: PartitionId,
    pub(super) placed: Placed,
    pub(super) context: Arc<WorkerContext>,
}

pub(super) struct DispatcherActor;

impl Actor for DispatcherActor {
    type Msg = DispatcherMessage;
    type State = DispatcherState;
    type Arguments = DispatcherArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<DispatcherMessage>,
        arguments: DispatcherArguments,
    ) -> Result<DispatcherState, ActorProcessingErr> {
        let DispatcherArguments { partition, placed, context } = arguments;
        let shared = context.storage.shared;
        let mut machine = Partition::new(context.process, shared, Timestamp(0));
        let mut tasks = JoinSet::new();
        let pump = if context.cordoned.load(Ordering::Relaxed) {
            // No work is under way yet, so there is no output.
            machine.handle(Timestamp(0), PartitionInput::Cordon(true));
            None
        } else {
            let pump = pump(partition, placed.clone(), Arc::clone(&context), myself.clone());
            Some(tasks.spawn(fused(myself.clone(), || DispatcherMessage::Broke, pump)))
        };
        let taken = Taken(Arc::clone(&context), 0);
        myself.send_interval(TICK, || DispatcherMessage::Tick);
        Ok(DispatcherState {
            partition,
            placed,
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
            taken,
            pump,
            tasks,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<DispatcherMessage>,
        message: DispatcherMessage,
        state: &mut DispatcherState,
    ) -> Result<(), ActorProcessingErr> {
        while state.tasks.try_join_next().is_some() {}
        let input = match message {
            DispatcherMessage::Delivered(delivery, _permit) => state.delivered(delivery),
            // Entities that are left out now are delivered once there is room.
            DispatcherMessage::Feed(PartitionInput::Scanned(mut entities)) => {
                entities.truncate(state.context.places.left());
                PartitionInput::Scanned(entities)
            }
            DispatcherMessage::Feed(input) => input,
            DispatcherMessage::Asked(entity, input, asker, reply) => {
                PartitionInput::Asked(state.question(reply), entity, input, asker)
            }
            DispatcherMessage::Rung(entity, input, reply) => {
                PartitionInput::Rung(state.question(reply), entity, input)
            }
            DispatcherMessage::Fenced(entity, epoch) => {
                if let Some(handle) = state.entities.get(&entity) {
                    handle.fenced(epoch);
                }
                return Ok(());
            }
            DispatcherMessage::Tick => {
                state.tick();
                state.make_room();
                PartitionInput::Tick
            }
            DispatcherMessage::Cordon(is_cordoned) => {
                state.pull(&myself, !is_cordoned && state.drained.is_empty());
                PartitionInput::Cordon(is_cordoned)
            }
            DispatcherMessage::Drain(done) => {
                state.pull(&myself, false);
                state.drained.push(done);
                for handle in state.entities.values() {
                    handle.drain();
                }
                PartitionInput::Drain
            }
            DispatcherMessage::GiveUp => {
                for handle in state.entities.values() {
                    handle.give_up();
                }
                return Ok(());
            }
            DispatcherMessage::View(most, reply) => {
                let (entities, named) = (state.machine.entities(), state.machine.look(most));
                let view = DispatcherView { entities, named };
                if reply.send(view).is_err() {
                    debug!("the caller that looked at a dispatcher is gone");
                }
                return Ok(());
            }
            DispatcherMessage::Broke => return Err("a task of it panicked".into()),
        };
        state.step(&myself, input).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<DispatcherMessage>,
        event: SupervisionEvent,
        state: &mut DispatcherState,
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
        if state.entities.get(&entity).is_some_and(|handle| handle.cell().get_id() == cell.get_id())
        {
            state.entities.remove(&entity);
            // It did not report its end: it died.
            let cause = cause.unwrap_or_else(|| "stopped without a word".to_owned());
            error!(%entity, cause, "an entity's actor died; it is started again");
            state.step(&myself, PartitionInput::Gone(entity, Gone::Died)).await;
        }
        Ok(())
    }
}

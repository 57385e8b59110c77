//! The actor of one resident entity: a thin shell around its machine.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use clawnode_proto::{Incarnation, node::NodeReply};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tracing::debug;

use super::{
    Served, Start,
    handle::EntityMessage,
    state::{EntityActorState, Resident, now},
};
use crate::{EntityKind, Machine, OwnerSays};

/// All that the actor of an activation begins with.
pub(super) struct EntityArguments<K: EntityKind> {
    pub(super) served: Arc<Served<K>>,
    pub(super) start: Start,
}

pub(super) struct EntityActor<K>(pub(super) std::marker::PhantomData<fn(K)>);

impl<K: EntityKind> Actor for EntityActor<K> {
    type Msg = EntityMessage<K>;
    type State = EntityActorState<K>;
    type Arguments = EntityArguments<K>;

    async fn pre_start(
        &self,
        myself: ActorRef<EntityMessage<K>>,
        starting: EntityArguments<K>,
    ) -> Result<EntityActorState<K>, ActorProcessingErr> {
        let EntityArguments { served, start } = starting;
        let Start { id, activation, previous_owner, context, dispatcher } = start;
        let counter = context.activations.fetch_add(1, Ordering::Relaxed);
        context.resident.fetch_add(1, Ordering::Relaxed);
        let resident = Resident(Arc::clone(&context), id);
        let incarnation = Incarnation { process: context.process, counter };
        let started = tokio::time::Instant::now();
        let now = now(&context, started);
        let (machine, out) = Machine::new(id, incarnation, activation, served.machine, now);
        let mut state = EntityActorState {
            id,
            machine: machine.after(previous_owner),
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
        myself: ActorRef<EntityMessage<K>>,
        message: EntityMessage<K>,
        state: &mut EntityActorState<K>,
    ) -> Result<(), ActorProcessingErr> {
        while state.tasks.try_join_next().is_some() {}
        match message {
            EntityMessage::Feed(input) => {
                state.note(&input);
                let now = now(&state.context, state.started);
                let out = state.machine.handle(now, *input);
                state.perform(&myself, out);
            }
            EntityMessage::Ask(input, reply) => {
                let answer = match state.machine.says(input) {
                    OwnerSays::Held => NodeReply::Held,
                    OwnerSays::Completed => NodeReply::Completed,
                    OwnerSays::NotMine | OwnerSays::Silent => NodeReply::NotMine,
                };
                if reply.send(answer).is_err() {
                    debug!("the process that asked for an input is gone");
                }
            }
            EntityMessage::Broke => return Err("a task of it panicked".into()),
        }
        Ok(())
    }
}

//! The actor of a supervisor, and that of a loop without a mailbox.

use std::{future::Future, pin::Pin};

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tracing::warn;

use super::{
    RESTART_MOST,
    handle::SupervisorMessage,
    state::{Child, SupervisorState},
};

pub(super) struct SupervisorActor;

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<SupervisorMessage>,
        (): (),
    ) -> Result<SupervisorState, ActorProcessingErr> {
        Ok(SupervisorState::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Adopt { name, kind, factory, started } => {
                let outcome = factory(myself.get_cell()).await.map(|cell| {
                    state.names.insert(cell.get_id(), name.clone());
                    let since = tokio::time::Instant::now();
                    let cell = Some(cell);
                    state.children.insert(name, Child { kind, factory, cell, since, ends: 0 });
                });
                if started.send(outcome).is_err() {
                    warn!("the caller that adopted a child is gone");
                }
            }
            SupervisorMessage::Restart { name } => state.restart(&myself, &name).await,
            SupervisorMessage::Dismiss { name } => state.dismiss(&name),
            SupervisorMessage::View(reply) => {
                if reply.send(state.views()).is_err() {
                    warn!("the caller that asked for the children is gone");
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, cause) => {
                state.ended(&myself, &cell, &cause.to_string());
            }
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                state.ended(&myself, &cell, reason.as_deref().unwrap_or("stopped"));
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<SupervisorMessage>,
        _: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        myself.stop_children_and_wait(None, Some(RESTART_MOST)).await;
        Ok(())
    }
}

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An actor that runs a loop, so that the loop has a place in the tree.
pub(super) struct TaskActor;

impl Actor for TaskActor {
    type Msg = ();
    type State = tokio::task::JoinSet<()>;
    type Arguments = TaskFuture;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        task: TaskFuture,
    ) -> Result<Self::State, ActorProcessingErr> {
        /// Tells the actor that its loop is over, also when it panics.
        struct Ends(ActorRef<()>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.stop(Some("its loop ended".to_owned()));
            }
        }
        let ends = Ends(myself);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let _ends = ends;
            task.await;
        });
        Ok(tasks)
    }
}

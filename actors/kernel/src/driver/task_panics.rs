//! F-19: if a task of an actor panics, its actor ends. Without this the actor would not learn of
//! it, and would wait for ever for the result of the task.

use ractor::ActorRef;
use tracing::debug;

/// Sends its actor a message when the task that holds it panics.
struct Fuse<M: ractor::Message> {
    actor: ActorRef<M>,
    broke: fn() -> M,
}

impl<M: ractor::Message> Drop for Fuse<M> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.actor.cast((self.broke)()).is_err() {
            debug!("a task outlived its actor, and panicked");
        }
    }
}

/// The same work; if it panics, `actor` gets the message `broke`.
pub(super) async fn fused<M: ractor::Message>(
    actor: ActorRef<M>,
    broke: fn() -> M,
    work: impl Future<Output = ()>,
) {
    let _fuse = Fuse { actor, broke };
    work.await;
}

#[cfg(test)]
mod tests {
    use ractor::{Actor, ActorProcessingErr, SupervisionEvent};
    use tokio::sync::mpsc;

    use super::*;

    enum Message {
        Work(bool),
        Broke,
    }

    /// Has one task at a time, and dies with it.
    struct Worker;

    /// Tells how its worker ended.
    struct Parent(mpsc::Sender<String>);

    impl Actor for Worker {
        type Msg = Message;
        type State = tokio::task::JoinSet<()>;
        type Arguments = ();

        async fn pre_start(
            &self,
            _: ActorRef<Message>,
            (): (),
        ) -> Result<Self::State, ActorProcessingErr> {
            Ok(tokio::task::JoinSet::new())
        }

        async fn handle(
            &self,
            myself: ActorRef<Message>,
            message: Message,
            tasks: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            match message {
                Message::Work(panics) => {
                    let work = async move { assert!(!panics, "planted") };
                    tasks.spawn(fused(myself, || Message::Broke, work));
                    Ok(())
                }
                Message::Broke => Err("a task of it panicked".into()),
            }
        }
    }

    impl Actor for Parent {
        type Msg = ();
        type State = ActorRef<Message>;
        type Arguments = mpsc::Sender<ActorRef<Message>>;

        async fn pre_start(
            &self,
            myself: ActorRef<()>,
            born: Self::Arguments,
        ) -> Result<Self::State, ActorProcessingErr> {
            let child = Worker::spawn_linked(None, Worker, (), myself.get_cell()).await?.0;
            born.send(child.clone()).await?;
            Ok(child)
        }

        async fn handle_supervisor_evt(
            &self,
            _: ActorRef<()>,
            event: SupervisionEvent,
            _: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            if let SupervisionEvent::ActorFailed(_, cause) = event {
                self.0.send(cause.to_string()).await?;
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn f_19_an_actor_ends_with_a_task_that_panics_and_with_no_other() {
        let (tell, mut ends) = mpsc::channel(8);
        let (born, mut children) = mpsc::channel(8);
        let (parent, running) = Actor::spawn(None, Parent(tell), born).await.unwrap();
        let child = children.recv().await.unwrap();
        for _ in 0..10 {
            child.cast(Message::Work(false)).unwrap();
        }
        child.cast(Message::Work(true)).unwrap();
        assert_eq!(ends.recv().await.unwrap(), "a task of it panicked");
        parent.stop(None);
        running.await.unwrap();
        assert!(ends.recv().await.is_none(), "once");
    }
}

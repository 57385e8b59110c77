//! What reaches a supervisor.

use std::{fmt, future::Future, sync::Arc};

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorRef, SpawnErr};
use tracing::warn;

use super::{
    ChildKind, Factory, RESTART_MOST, SupervisorStopped,
    actor::{SupervisorActor, TaskActor, TaskFuture},
};

/// The handle of a supervisor.
#[derive(Clone, Debug)]
pub struct Supervisor(ActorRef<SupervisorMessage>);

pub(super) enum SupervisorMessage {
    Adopt {
        name: String,
        kind: ChildKind,
        factory: Factory,
        started: tokio::sync::oneshot::Sender<Result<(), SpawnErr>>,
    },
    Restart {
        name: String,
    },
    Dismiss {
        name: String,
    },
    View(tokio::sync::oneshot::Sender<Vec<ChildView>>),
}

impl fmt::Debug for SupervisorMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adopt { name, kind, .. } => write!(f, "Adopt({name}, {kind:?})"),
            Self::Restart { name } => write!(f, "Restart({name})"),
            Self::Dismiss { name } => write!(f, "Dismiss({name})"),
            Self::View(_) => f.write_str("View"),
        }
    }
}

/// A child as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildView {
    pub name: String,
    pub kind: ChildKind,
    /// Whether it runs, or is about to be started again.
    pub up: bool,
    /// How often it ended lately.
    pub ends: u32,
}

// === impl Supervisor ===

impl Supervisor {
    /// Starts a supervisor without children.
    pub fn spawn() -> BoxFuture<'static, Result<Self, SpawnErr>> {
        Box::pin(async { Ok(Self(Actor::spawn(None, SupervisorActor, ()).await?.0)) })
    }

    /// Starts a child and keeps it going as its kind's fate says.
    pub async fn adopt(
        &self,
        name: impl Into<String>,
        kind: ChildKind,
        factory: Factory,
    ) -> Result<(), SpawnErr> {
        let (started, outcome) = tokio::sync::oneshot::channel();
        let adopt = SupervisorMessage::Adopt { name: name.into(), kind, factory, started };
        let gone = || SpawnErr::StartupFailed(Box::new(SupervisorStopped));
        if self.0.cast(adopt).is_err() {
            return Err(gone());
        }
        outcome.await.unwrap_or_else(|_closed| Err(gone()))
    }

    /// Starts a loop and keeps it going: when its future ends or panics, it is started again.
    pub async fn adopt_task<F, T>(&self, name: impl Into<String>, make: F) -> Result<(), SpawnErr>
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        // So that the actor around the loop is compiled once, and not for each loop.
        let factory = task(Arc::new(move || -> TaskFuture { Box::pin(make()) }));
        self.adopt(name, ChildKind::Task, factory).await
    }

    /// Stops a child for good; its name is free for another.
    pub fn dismiss(&self, name: impl Into<String>) {
        if self.0.cast(SupervisorMessage::Dismiss { name: name.into() }).is_err() {
            warn!("a child was dismissed after its supervisor had stopped");
        }
    }

    /// All children as others see them now, in name order.
    pub async fn children(&self) -> Vec<ChildView> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        if self.0.cast(SupervisorMessage::View(reply)).is_err() {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }

    /// Stops all children, then itself.
    pub async fn stop(&self) {
        if self.0.stop_and_wait(None, Some(RESTART_MOST)).await.is_err() {
            self.0.kill();
        }
    }
}

fn task(make: Arc<dyn Fn() -> TaskFuture + Send + Sync>) -> Factory {
    Box::new(move |parent| {
        let make = Arc::clone(&make);
        Box::pin(async move {
            let spawned = Actor::spawn_linked(None, TaskActor, make(), parent).await;
            Ok(spawned?.0.get_cell())
        })
    })
}

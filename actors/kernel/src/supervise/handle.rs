//! Supervision: each child kind's written fate.
//!
//! ractor's default supervisor stops when any child ends; here nobody keeps it. A [`Supervisor`]
//! starts its children from factories and restarts those whose fate says so, with back-off; the
//! entity actors are the affair of their partition's dispatcher.

use std::{collections::HashMap, fmt, future::Future, pin::Pin, time::Duration};

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tracing::{error, warn};

/// The first wait before a child is started again; doubles up to [`RESTART_MOST`].
const RESTART_FIRST: Duration = Duration::from_millis(100);
/// The longest wait before a child is started again.
const RESTART_MOST: Duration = Duration::from_secs(10);
/// How long a child must have lived for its past ends to be forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_mins(1);

/// What follows from a child's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is started again, with back-off, for as long as the node lives.
    Restart,
    /// Its own parent decides; used by dispatchers for entities.
    Parent,
}

/// The kinds of children there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildKind {
    /// A partition's dispatcher: without it the partition's inputs wait.
    Dispatcher,
    /// An agent: without it no turn of its sessions starts.
    Agent,
    /// An entity: its inputs are delivered again, its journal says where it was.
    Entity,
    /// A loop without a mailbox (membership, requests, watches).
    Task,
}

impl ChildKind {
    /// What follows from the end of a child of this kind.
    pub const fn fate(self) -> Fate {
        match self {
            Self::Dispatcher | Self::Agent | Self::Task => Fate::Restart,
            Self::Entity => Fate::Parent,
        }
    }
}

type Starting = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send>>;

/// Starts a child under the given supervisor; called again for each restart.
pub type Factory = Box<dyn Fn(ActorCell) -> Starting + Send + Sync>;

/// The only door to a supervisor.
#[derive(Clone, Debug)]
pub struct Supervisor(ActorRef<Message>);

enum Message {
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

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adopt { name, kind, .. } => write!(f, "Adopt({name}, {kind:?})"),
            Self::Restart { name } => write!(f, "Restart({name})"),
            Self::Dismiss { name } => write!(f, "Dismiss({name})"),
            Self::View(_) => f.write_str("View"),
        }
    }
}

struct SupervisorActor;

struct Child {
    kind: ChildKind,
    factory: Factory,
    cell: Option<ActorCell>,
    since: tokio::time::Instant,
    ends: u32,
}

#[derive(Default)]
struct State {
    children: HashMap<String, Child>,
    names: HashMap<ActorId, String>,
}

/// What a child looks like from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ChildKind,
    /// Whether it runs, or is about to be started again.
    pub up: bool,
    /// How often it ended lately.
    pub ends: u32,
}

/// A supervisor that cannot be reached any more.
#[derive(Debug, thiserror::Error)]
#[error("the supervisor of this node has stopped")]
pub struct Stopped;

// === impl Supervisor ===

impl Supervisor {
    /// Starts a supervisor without children.
    pub async fn spawn() -> Result<Self, SpawnErr> {
        Ok(Self(Actor::spawn(None, SupervisorActor, ()).await?.0))
    }

    /// Starts a child and keeps it going as its kind's fate says.
    pub async fn adopt(
        &self,
        name: impl Into<String>,
        kind: ChildKind,
        factory: Factory,
    ) -> Result<(), SpawnErr> {
        let (started, outcome) = tokio::sync::oneshot::channel();
        let adopt = Message::Adopt { name: name.into(), kind, factory, started };
        let gone = || SpawnErr::StartupFailed(Box::new(Stopped));
        if self.0.cast(adopt).is_err() {
            return Err(gone());
        }
        outcome.await.unwrap_or_else(|_closed| Err(gone()))
    }

    /// Starts a loop and keeps it going: when its future ends or panics, it is made anew.
    pub async fn adopt_task<F, T>(&self, name: impl Into<String>, make: F) -> Result<(), SpawnErr>
    where
        F: Fn() -> T + Send + Sync + Clone + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let factory: Factory = Box::new(move |parent| {
            let make = make.clone();
            Box::pin(async move {
                let arguments: TaskFuture = Box::pin(make());
                Ok(Actor::spawn_linked(None, TaskActor, arguments, parent).await?.0.get_cell())
            })
        });
        self.adopt(name, ChildKind::Task, factory).await
    }

    /// Stops a child for good; its name is free for another.
    pub fn dismiss(&self, name: impl Into<String>) {
        if self.0.cast(Message::Dismiss { name: name.into() }).is_err() {
            warn!("a child was dismissed after its supervisor had stopped");
        }
    }

    /// What all children look like now, in name order.
    pub async fn children(&self) -> Vec<ChildView> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        if self.0.cast(Message::View(reply)).is_err() {
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

impl Actor for SupervisorActor {
    type Msg = Message;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Message>, (): ()) -> Result<State, ActorProcessingErr> {
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Adopt { name, kind, factory, started } => {
                let outcome = factory(myself.get_cell()).await.map(|cell| {
                    state.names.insert(cell.get_id(), name.clone());
                    let since = tokio::time::Instant::now();
                    let cell = Some(cell);
                    state.children.insert(name, Child { kind, factory, cell, since, ends: 0 });
                });
                if started.send(outcome).is_err() {
                    warn!("whoever adopted a child did not wait for its start");
                }
            }
            Message::Restart { name } => state.restart(&myself, &name).await,
            Message::Dismiss { name } => state.dismiss(&name),
            Message::View(reply) => {
                if reply.send(state.views()).is_err() {
                    warn!("whoever asked for the children did not wait");
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
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
        myself: ActorRef<Message>,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        myself.stop_children_and_wait(None, Some(RESTART_MOST)).await;
        Ok(())
    }
}

impl State {
    fn views(&self) -> Vec<ChildView> {
        let view = |(name, child): (&String, &Child)| ChildView {
            name: name.clone(),
            kind: child.kind,
            up: child.cell.is_some(),
            ends: child.ends,
        };
        let mut views: Vec<ChildView> = self.children.iter().map(view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    fn ended(&mut self, myself: &ActorRef<Message>, cell: &ActorCell, cause: &str) {
        let Some(name) = self.names.remove(&cell.get_id()) else { return };
        let Some(child) = self.children.get_mut(&name) else { return };
        child.cell = None;
        if child.kind.fate() == Fate::Parent {
            self.children.remove(&name);
            return;
        }
        if child.since.elapsed() >= FORGIVEN_AFTER {
            child.ends = 0;
        }
        let wait = RESTART_FIRST.saturating_mul(1 << child.ends.min(10)).min(RESTART_MOST);
        child.ends = child.ends.saturating_add(1);
        warn!(child = name, cause, wait = ?wait, "a child ended and is started again");
        myself.send_after(wait, move || Message::Restart { name: name.clone() });
    }

    fn dismiss(&mut self, name: &str) {
        if let Some(cell) = self.children.remove(name).and_then(|child| child.cell) {
            self.names.remove(&cell.get_id());
            cell.stop(Some("dismissed".to_owned()));
        }
    }

    async fn restart(&mut self, myself: &ActorRef<Message>, name: &str) {
        let Some(child) = self.children.get_mut(name) else { return };
        if child.cell.is_some() {
            // The wait was for a child that was dismissed; this is another of its name.
            return;
        }
        match (child.factory)(myself.get_cell()).await {
            Ok(cell) => {
                child.since = tokio::time::Instant::now();
                self.names.insert(cell.get_id(), name.to_owned());
                child.cell = Some(cell);
            }
            Err(cause) => {
                error!(child = name, %cause, "a child cannot be started");
                let name = name.to_owned();
                myself.send_after(RESTART_MOST, move || Message::Restart { name: name.clone() });
            }
        }
    }
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A loop in actor's clothing, so that it has a place in the tree.
struct TaskActor;

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

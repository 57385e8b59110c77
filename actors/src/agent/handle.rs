//! One agent: a gate that every call takes its place at, and an actor for those who have to wait.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_guard::latch::{LatchDoor, Work};
use clawnode_proto::{AgentName, agents::AgentView, latch::Latch, session::Profile};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::oneshot;
use tracing::debug;

use super::AgentOptions;

/// Turns that wait for one agent on one node; beyond it, a session asks again at its next tick.
const WAITING_MAX: usize = 65_536;

/// The right to make calls now, and the configuration to make them with.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The agent's configuration.
    pub profile: Arc<Profile>,
    /// Gives the place back when the call's job is dropped.
    pub permit: Arc<Permit>,
}

/// Where the answer to an admission goes. Dropped ungranted, whoever asked has to ask again.
pub trait AdmitPort: Send + 'static {
    /// The call may start.
    fn granted(self: Box<Self>, grant: Grant);
    /// The call must wait; `granted` follows.
    fn deferred(&self);
    /// An operator stopped the call. One of a turn that has begun ends; another waits, and comes
    /// back.
    fn stopped(self: Box<Self>, latch: &Latch) -> Option<Box<dyn AdmitPort>>;
    /// Whether anybody still waits.
    fn is_closed(&self) -> bool;
}

/// The right to run one call. Dropping it frees the place, also when its holder panics.
#[derive(Debug)]
pub struct Permit(Option<AgentHandle>);

/// The only door to an agent.
#[derive(Clone, Debug)]
pub struct AgentHandle {
    actor: ActorRef<Message>,
    gate: Arc<Mutex<Gate>>,
}

/// What an agent is told.
pub(super) enum Message {
    /// A call wants to start and found no place.
    Admit(Box<dyn AdmitPort>),
    /// A call has ended while others wait.
    Release,
    /// The configuration has changed.
    Reload(Box<AgentOptions>),
    /// The pause has changed, in the whole cluster.
    Pause(bool),
    /// What operators have stopped has changed.
    Latch,
    /// Somebody looks.
    View(oneshot::Sender<AgentView>),
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admit(_) => "Admit",
            Self::Release => "Release",
            Self::Reload(_) => "Reload",
            Self::Pause(_) => "Pause",
            Self::Latch => "Latch",
            Self::View(_) => "View",
        })
    }
}

struct AgentActor;

/// How many run. Shared, so that a place that is free costs no trip to the actor.
struct Gate {
    options: AgentOptions,
    profile: Arc<Profile>,
    paused: bool,
    door: LatchDoor,
    running: u32,
    /// How many wait at the actor.
    waiting: usize,
}

/// The gate and who waits at it: those end with their actor, which tells them that they have to ask
/// again.
struct State {
    gate: Arc<Mutex<Gate>>,
    waiting: VecDeque<Box<dyn AdmitPort>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("agent", &self.options.name).finish_non_exhaustive()
    }
}

// === impl AgentHandle ===

impl AgentHandle {
    /// Starts an agent's actor.
    pub async fn spawn(
        options: AgentOptions,
        paused: bool,
        door: LatchDoor,
        parent: ActorCell,
    ) -> Result<Self, SpawnErr> {
        let gate = Arc::new(Mutex::new(Gate {
            profile: Arc::new(options.profile()),
            options,
            paused,
            door,
            running: 0,
            waiting: 0,
        }));
        let spawned = AgentActor::spawn_linked(None, AgentActor, Arc::clone(&gate), parent);
        Ok(Self { actor: spawned.await?.0, gate })
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        lock(&self.gate)
    }

    /// Takes a place, if one is free and nobody waits for it.
    pub fn place(&self) -> Option<Grant> {
        let mut gate = self.gate();
        (gate.has_room() && gate.waiting == 0).then(|| gate.grant(self))
    }

    /// Asks for a place; the port hears of it. An agent that is just being restarted answers
    /// nothing and drops the port, like one that dies with ports waiting.
    pub fn admit(&self, port: Box<dyn AdmitPort>) {
        self.tell(Message::Admit(port));
    }

    fn tell(&self, message: Message) {
        if self.actor.cast(message).is_err() {
            debug!("an agent stopped before it received a message");
        }
    }

    /// Takes a new configuration; turns from now on see it.
    pub fn reload(&self, options: AgentOptions) {
        self.tell(Message::Reload(Box::new(options)));
    }

    /// Takes the cluster's word on its pause.
    pub fn pause(&self, paused: bool) {
        self.tell(Message::Pause(paused));
    }

    /// What operators have stopped has changed: it looks.
    pub fn latch(&self) {
        self.tell(Message::Latch);
    }

    /// What it looks like now; nothing if it is being restarted.
    pub async fn view(&self) -> Option<AgentView> {
        let (reply, answer) = oneshot::channel();
        self.actor.cast(Message::View(reply)).ok()?;
        answer.await.ok()
    }

    /// Its actor, for the supervisor.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }
}

impl Permit {
    /// A right that nobody counts: for replays and the simulator.
    pub fn free() -> Arc<Self> {
        Arc::new(Self(None))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(agent) = self.0.take() else { return };
        let somebody_waits = {
            let mut gate = agent.gate();
            gate.running = gate.running.saturating_sub(1);
            gate.waiting > 0
        };
        if somebody_waits {
            agent.tell(Message::Release);
        }
    }
}

fn lock(gate: &Mutex<Gate>) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Gate ===

impl Gate {
    fn has_room(&self) -> bool {
        let call = Work::Call { agent: self.name() };
        !self.paused && self.running < self.options.max_turns && self.door.stops(&call).is_none()
    }

    fn grant(&mut self, agent: &AgentHandle) -> Grant {
        self.running += 1;
        debug_assert!(self.running <= self.options.max_turns, "AGT-1");
        debug_assert!(!self.paused, "AGT-2");
        let permit = Arc::new(Permit(Some(agent.clone())));
        Grant { profile: Arc::clone(&self.profile), permit }
    }

    fn view(&self) -> AgentView {
        AgentView {
            agent: self.name(),
            model: self.options.model.clone(),
            system: self.options.system.lines().next().unwrap_or_default().to_owned(),
            step_limit: self.options.step_limit,
            max_turns: self.options.max_turns,
            running: self.running,
            waiting: u32::try_from(self.waiting).unwrap_or(u32::MAX),
            paused: self.paused,
            stopped: self.latch(),
        }
    }

    /// What an operator has stopped it by.
    fn latch(&self) -> Option<Latch> {
        self.door.latches().of_agent(&self.options.name).cloned()
    }

    fn name(&self) -> AgentName {
        self.options.name.clone()
    }
}

// === impl State ===

impl State {
    fn take(&mut self, message: Message) {
        match message {
            Message::Admit(port) => self.admit(port),
            // There may be room for the next.
            Message::Release => {}
            Message::Reload(options) => {
                let mut gate = lock(&self.gate);
                gate.profile = Arc::new(options.profile());
                gate.options = *options;
            }
            Message::Pause(paused) => lock(&self.gate).paused = paused,
            Message::Latch => self.latch(),
            Message::View(reply) => {
                if reply.send(lock(&self.gate).view()).is_err() {
                    debug!("the caller stopped waiting for the view of an agent");
                }
            }
        }
    }

    /// Has the port wait, or start as the next if there is room.
    fn admit(&mut self, port: Box<dyn AdmitPort>) {
        let (latch, has_room) = {
            let gate = lock(&self.gate);
            (gate.latch(), gate.has_room())
        };
        let port = match &latch {
            Some(latch) => port.stopped(latch),
            None => Some(port),
        };
        let Some(port) = port else { return };
        if self.waiting.len() < WAITING_MAX {
            if !has_room || !self.waiting.is_empty() {
                port.deferred();
            }
            self.waiting.push_back(port);
            lock(&self.gate).waiting = self.waiting.len();
        }
    }

    /// The next who waits and its grant, if there is room.
    fn next(&mut self, agent: &AgentHandle) -> Option<(Box<dyn AdmitPort>, Grant)> {
        let mut gate = lock(&self.gate);
        while gate.has_room() {
            let port = self.waiting.pop_front()?;
            gate.waiting = self.waiting.len();
            if !port.is_closed() {
                return Some((port, gate.grant(agent)));
            }
        }
        None
    }

    /// Turns that have begun do not wait for a latch to be cleared; all others do.
    fn latch(&mut self) {
        let Some(latch) = lock(&self.gate).latch() else { return };
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().filter_map(|port| port.stopped(&latch)).collect();
        lock(&self.gate).waiting = self.waiting.len();
    }
}

// === impl AgentActor ===

impl Actor for AgentActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arc<Mutex<Gate>>;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        gate: Arc<Mutex<Gate>>,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { gate, waiting: VecDeque::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let agent = AgentHandle { actor: myself, gate: Arc::clone(&state.gate) };
        state.take(message);
        // Told without the lock: a port that is gone drops its permit, which takes the lock.
        while let Some((port, grant)) = state.next(&agent) {
            port.granted(grant);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{Position, latch::LatchRecord};
    use tokio::sync::mpsc;

    use super::*;

    /// What a port was told.
    #[derive(Debug)]
    enum Told {
        Granted(Box<Grant>),
        Deferred,
        Stopped,
    }

    /// Where it is told, and whether its turn has begun.
    struct TestPort(mpsc::Sender<Told>, bool);

    impl AdmitPort for TestPort {
        fn granted(self: Box<Self>, grant: Grant) {
            self.0.try_send(Told::Granted(Box::new(grant))).unwrap();
        }

        fn deferred(&self) {
            self.0.try_send(Told::Deferred).unwrap();
        }

        fn is_closed(&self) -> bool {
            self.0.is_closed()
        }

        fn stopped(self: Box<Self>, _: &Latch) -> Option<Box<dyn AdmitPort>> {
            if self.1 {
                self.0.try_send(Told::Stopped).unwrap();
                return None;
            }
            Some(self)
        }
    }

    /// A port that loses what it is told.
    struct Deaf;

    impl AdmitPort for Deaf {
        fn granted(self: Box<Self>, _: Grant) {}

        fn deferred(&self) {}

        fn is_closed(&self) -> bool {
            false
        }

        fn stopped(self: Box<Self>, _: &Latch) -> Option<Box<dyn AdmitPort>> {
            None
        }
    }

    struct Parent;

    impl Actor for Parent {
        type Msg = ();
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }

    async fn agent(max_turns: u32) -> (ActorRef<()>, AgentHandle) {
        let (parent, _) = Actor::spawn(None, Parent, ()).await.unwrap();
        let name = "default".parse().unwrap();
        let mut options = AgentOptions::new(name, "demo/echo".parse().unwrap());
        options.max_turns = max_turns;
        let (door, cell) = (LatchDoor::default(), parent.get_cell());
        let handle = AgentHandle::spawn(options, false, door, cell).await.unwrap();
        (parent, handle)
    }

    fn ask(agent: &AgentHandle) -> mpsc::Receiver<Told> {
        ask_for(agent, false)
    }

    fn ask_for(agent: &AgentHandle, begun: bool) -> mpsc::Receiver<Told> {
        let (tell, told) = mpsc::channel(4);
        agent.admit(Box::new(TestPort(tell, begun)));
        told
    }

    /// AGT-1.
    #[tokio::test]
    async fn no_more_permits_are_out_than_the_bound_and_dropping_one_serves_the_next() {
        let (parent, agent) = agent(1).await;
        let mut first = ask(&agent);
        let Some(Told::Granted(grant)) = first.recv().await else { panic!("not granted") };
        let (mut second, third, mut fourth) = (ask(&agent), ask(&agent), ask(&agent));
        assert!(matches!(second.recv().await, Some(Told::Deferred)));
        assert!(matches!(fourth.recv().await, Some(Told::Deferred)));
        let view = agent.view().await.unwrap();
        assert_eq!((view.running, view.waiting), (1, 3), "AGT-1");
        // Whoever is gone by then is passed over.
        drop(third);
        drop(grant);
        let Some(Told::Granted(next)) = second.recv().await else { panic!("not granted") };
        assert_eq!(agent.view().await.unwrap().running, 1, "AGT-1");
        drop(next);
        assert!(matches!(fourth.recv().await, Some(Told::Granted(_))));
        parent.stop(None);
    }

    /// AGT-1 for who takes a place without the actor.
    #[tokio::test]
    async fn a_free_place_is_taken_at_once_and_never_before_who_waits() {
        let (parent, agent) = agent(2).await;
        let (first, second) = (agent.place().unwrap(), agent.place().unwrap());
        assert!(agent.place().is_none(), "AGT-1");
        let mut waiting = ask(&agent);
        assert!(matches!(waiting.recv().await, Some(Told::Deferred)));
        drop(first);
        assert!(agent.place().is_none(), "a place goes to who waits");
        let Some(Told::Granted(third)) = waiting.recv().await else { panic!("not granted") };
        drop(second);
        let fourth = agent.place().unwrap();
        assert!(agent.place().is_none(), "AGT-1");
        drop((third, fourth));
        assert_eq!(agent.view().await.unwrap().running, 0);
        agent.pause(true);
        assert!(agent.view().await.unwrap().paused);
        assert!(agent.place().is_none(), "AGT-2");
        parent.stop(None);
    }

    /// A port whose session is gone drops what it is given.
    #[tokio::test]
    async fn a_permit_that_nobody_takes_is_given_back() {
        let (parent, agent) = agent(1).await;
        let held = agent.place().unwrap();
        agent.admit(Box::new(Deaf));
        let mut next = ask(&agent);
        assert!(matches!(next.recv().await, Some(Told::Deferred)));
        drop(held);
        let Some(Told::Granted(grant)) = next.recv().await else { panic!("not granted") };
        drop(grant);
        assert_eq!(agent.view().await.unwrap().running, 0);
        assert!(agent.place().is_some());
        parent.stop(None);
    }

    /// AGT-2.
    #[tokio::test]
    async fn a_paused_agent_gives_no_permit_until_it_is_resumed() {
        let (parent, agent) = agent(8).await;
        agent.pause(true);
        let mut port = ask(&agent);
        assert!(matches!(port.recv().await, Some(Told::Deferred)));
        assert!(agent.view().await.unwrap().paused, "AGT-2");
        agent.pause(false);
        assert!(matches!(port.recv().await, Some(Told::Granted(_))));
        parent.stop(None);
    }

    /// LATCH-1 at the agents' door.
    #[tokio::test]
    async fn latch_1_a_stopped_agent_gives_no_permit_and_ends_turns_that_have_begun() {
        let (parent, _) = Actor::spawn(None, Parent, ()).await.unwrap();
        let (door, name) = (LatchDoor::default(), "ada".parse().unwrap());
        let mut options = AgentOptions::new(name, "demo/echo".parse().unwrap());
        options.max_turns = 1;
        let cell = parent.get_cell();
        let agent = AgentHandle::spawn(options, false, door.clone(), cell).await.unwrap();
        let mut first = ask(&agent);
        let Some(Told::Granted(held)) = first.recv().await else { panic!("not granted") };
        let (mut fresh, mut begun) = (ask_for(&agent, false), ask_for(&agent, true));
        assert!(matches!(fresh.recv().await, Some(Told::Deferred)));
        assert!(matches!(begun.recv().await, Some(Told::Deferred)));
        let latch = Latch {
            id: clawnode_proto::LatchId::from_u128(1),
            scope: "agent:ada".parse().unwrap(),
            by: "token at a".to_owned(),
            at: clawnode_proto::Timestamp(1),
            why: String::new(),
        };
        let set = LatchRecord::Set { latch: latch.clone() };
        door.take(Position(1), set);
        agent.latch();
        assert!(matches!(begun.recv().await, Some(Told::Stopped)));
        drop(held);
        let mut late = ask_for(&agent, true);
        assert!(matches!(late.recv().await, Some(Told::Stopped)));
        let view = agent.view().await.unwrap();
        assert_eq!((view.running, view.waiting), (0, 1), "LATCH-1");
        assert_eq!(view.stopped, Some(latch.clone()));
        assert!(fresh.try_recv().is_err());
        let cleared =
            LatchRecord::Cleared { latch, by: String::new(), at: clawnode_proto::Timestamp(2) };
        door.take(Position(2), cleared);
        agent.latch();
        assert!(matches!(fresh.recv().await, Some(Told::Granted(_))));
        parent.stop(None);
    }
}

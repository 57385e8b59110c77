//! One agent's actor: thin around a pure gate.

use std::{collections::VecDeque, fmt, sync::Arc};

use clawnode_proto::{AgentName, latch::Latch, view::AgentView};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::oneshot;
use tracing::debug;

use super::AgentOptions;
use crate::{
    latch::{LatchDoor, Work},
    session::kind::Grant,
};

/// Turns that wait for one agent on one node; beyond it, a session asks again at its next tick.
const WAITING_MAX: usize = 65_536;

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
pub struct Permit(Option<ActorRef<Message>>);

/// The only door to an agent.
#[derive(Clone, Debug)]
pub struct AgentHandle(ActorRef<Message>);

/// What an agent is told.
pub(super) enum Message {
    /// A call wants to start.
    Admit(Box<dyn AdmitPort>),
    /// A call has ended.
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

struct State {
    options: AgentOptions,
    paused: bool,
    door: LatchDoor,
    running: u32,
    waiting: VecDeque<Box<dyn AdmitPort>>,
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
        let arguments = (options, paused, door);
        Ok(Self(AgentActor::spawn_linked(None, AgentActor, arguments, parent).await?.0))
    }

    /// Asks for a place; the port hears of it. An agent that is just being restarted answers
    /// nothing and drops the port, like one that dies with ports waiting.
    pub fn admit(&self, port: Box<dyn AdmitPort>) {
        if self.0.cast(Message::Admit(port)).is_err() {
            debug!("an agent stopped before it could admit a call");
        }
    }

    /// Takes a new configuration; turns from now on see it.
    pub fn reload(&self, options: AgentOptions) {
        if self.0.cast(Message::Reload(Box::new(options))).is_err() {
            debug!("an agent stopped before it could be reloaded");
        }
    }

    /// Takes the cluster's word on its pause.
    pub fn pause(&self, paused: bool) {
        if self.0.cast(Message::Pause(paused)).is_err() {
            debug!("an agent stopped before it could be paused");
        }
    }

    /// What operators have stopped has changed: it looks.
    pub fn latch(&self) {
        if self.0.cast(Message::Latch).is_err() {
            debug!("an agent stopped before it could look at the latch");
        }
    }

    /// What it looks like now; nothing if it is being restarted.
    pub async fn view(&self) -> Option<AgentView> {
        let (reply, answer) = oneshot::channel();
        self.0.cast(Message::View(reply)).ok()?;
        answer.await.ok()
    }

    /// Its actor, for the supervisor.
    pub fn cell(&self) -> ActorCell {
        self.0.get_cell()
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
        if let Some(agent) = self.0.take()
            && agent.cast(Message::Release).is_err()
        {
            debug!("an agent stopped before a permit was given back");
        }
    }
}

// === impl State ===

impl State {
    fn has_room(&self) -> bool {
        let call = Work::Call { agent: self.name() };
        !self.paused && self.running < self.options.max_turns && self.door.stops(&call).is_none()
    }

    fn grant(&mut self, myself: &ActorRef<Message>, port: Box<dyn AdmitPort>) {
        self.running += 1;
        debug_assert!(self.running <= self.options.max_turns, "AGT-1");
        debug_assert!(!self.paused, "AGT-2");
        let permit = Arc::new(Permit(Some(myself.clone())));
        port.granted(Grant { profile: self.options.profile(), permit });
    }

    fn admit(&mut self, myself: &ActorRef<Message>, port: Box<dyn AdmitPort>) {
        if self.has_room() && self.waiting.is_empty() {
            return self.grant(myself, port);
        }
        let port = match self.door.latches().of_agent(&self.options.name) {
            Some(latch) => port.stopped(latch),
            None => Some(port),
        };
        let Some(port) = port else { return };
        if self.waiting.len() < WAITING_MAX {
            port.deferred();
            self.waiting.push_back(port);
        }
    }

    fn next(&mut self, myself: &ActorRef<Message>) {
        while self.has_room() {
            match self.waiting.pop_front() {
                Some(port) if port.is_closed() => {}
                Some(port) => self.grant(myself, port),
                None => return,
            }
        }
    }

    /// Turns that have begun do not wait for a latch to be cleared; all others do.
    fn latch(&mut self, myself: &ActorRef<Message>) {
        if let Some(latch) = self.door.latches().of_agent(&self.options.name) {
            let waiting = std::mem::take(&mut self.waiting);
            self.waiting = waiting.into_iter().filter_map(|port| port.stopped(latch)).collect();
        }
        self.next(myself);
    }

    fn view(&self) -> AgentView {
        AgentView {
            agent: self.name(),
            model: self.options.model.clone(),
            system: self.options.system.lines().next().unwrap_or_default().to_owned(),
            step_limit: self.options.step_limit,
            max_turns: self.options.max_turns,
            running: self.running,
            waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            paused: self.paused,
            stopped: self.door.latches().of_agent(&self.options.name).cloned(),
        }
    }

    fn name(&self) -> AgentName {
        self.options.name.clone()
    }
}

// === impl AgentActor ===

impl Actor for AgentActor {
    type Msg = Message;
    type State = State;
    type Arguments = (AgentOptions, bool, LatchDoor);

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        (options, paused, door): (AgentOptions, bool, LatchDoor),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { options, paused, door, running: 0, waiting: VecDeque::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Admit(port) => state.admit(&myself, port),
            Message::Release => {
                state.running = state.running.saturating_sub(1);
                state.next(&myself);
            }
            Message::Reload(options) => {
                state.options = *options;
                state.next(&myself);
            }
            Message::Pause(paused) => {
                state.paused = paused;
                state.next(&myself);
            }
            Message::Latch => state.latch(&myself),
            Message::View(reply) => {
                if reply.send(state.view()).is_err() {
                    debug!("whoever looked at an agent did not wait");
                }
            }
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

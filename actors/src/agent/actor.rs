//! One agent: the places that its calls take, and an actor for those who have to wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{
    handle::{AgentHandle, AgentMessage},
    state::{AgentState, Places},
};

pub(super) struct AgentActor;

impl Actor for AgentActor {
    type Msg = AgentMessage;
    type State = AgentState;
    type Arguments = Arc<Mutex<Places>>;

    async fn pre_start(
        &self,
        _: ActorRef<AgentMessage>,
        places: Arc<Mutex<Places>>,
    ) -> Result<AgentState, ActorProcessingErr> {
        Ok(AgentState { places, waiting: BTreeMap::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<AgentMessage>,
        message: AgentMessage,
        state: &mut AgentState,
    ) -> Result<(), ActorProcessingErr> {
        let agent = AgentHandle { actor: myself, places: Arc::clone(&state.places) };
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
    use clawnode_budget::holder::{HolderHandle, HolderOptions};
    use clawnode_guard::kill_switch::SwitchGate;
    use clawnode_proto::{
        Position,
        kill_switch::{KillSwitch, SwitchRecord},
        lane::Lane,
    };
    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::agent::{AdmitPort, AgentOptions, Grant, preemption::Yielding};

    /// A message that a port received.
    #[derive(Debug)]
    enum Told {
        Granted(Box<Grant>),
        Deferred,
        Stopped,
    }

    /// Where its messages go, and whether its turn has begun.
    struct TestPort(mpsc::Sender<Told>, bool, Option<Lane>);

    impl AdmitPort for TestPort {
        fn granted(self: Box<Self>, grant: Grant) {
            self.0.try_send(Told::Granted(Box::new(grant))).unwrap();
        }

        fn deferred(&self) {
            self.0.try_send(Told::Deferred).unwrap();
        }

        fn lane(&self) -> Option<Lane> {
            self.2
        }

        fn is_closed(&self) -> bool {
            self.0.is_closed()
        }

        fn stopped(self: Box<Self>, _: &KillSwitch) -> Option<Box<dyn AdmitPort>> {
            if self.1 {
                self.0.try_send(Told::Stopped).unwrap();
                return None;
            }
            Some(self)
        }
    }

    /// A port that loses its messages.
    struct Deaf;

    impl AdmitPort for Deaf {
        fn granted(self: Box<Self>, _: Grant) {}

        fn deferred(&self) {}

        fn is_closed(&self) -> bool {
            false
        }

        fn stopped(self: Box<Self>, _: &KillSwitch) -> Option<Box<dyn AdmitPort>> {
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

    fn budgets() -> HolderHandle {
        HolderHandle::new(clawnode_proto::ProcessId::from_u128(1), HolderOptions::default())
    }

    async fn agent(max_turns: u32) -> (ActorRef<()>, AgentHandle) {
        let (parent, _) = Actor::spawn(None, Parent, ()).await.unwrap();
        let name = "default".parse().unwrap();
        let mut options = AgentOptions::new(name, "demo/echo".parse().unwrap());
        options.max_turns = max_turns;
        let (switch_gate, cell) = (SwitchGate::default(), parent.get_cell());
        let handle =
            AgentHandle::spawn(options, false, switch_gate, budgets(), cell).await.unwrap();
        (parent, handle)
    }

    fn ask(agent: &AgentHandle) -> mpsc::Receiver<Told> {
        ask_for(agent, false)
    }

    fn ask_for(agent: &AgentHandle, begun: bool) -> mpsc::Receiver<Told> {
        let (tell, told) = mpsc::channel(4);
        agent.admit(Box::new(TestPort(tell, begun, None)));
        told
    }

    fn ask_in(agent: &AgentHandle, lane: Option<Lane>) -> mpsc::Receiver<Told> {
        let (tell, told) = mpsc::channel(4);
        agent.admit(Box::new(TestPort(tell, false, lane)));
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
        // A caller that is gone by then is skipped.
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
        let (first, second) = (agent.place(None).unwrap(), agent.place(None).unwrap());
        assert!(agent.place(None).is_none(), "AGT-1");
        let mut waiting = ask(&agent);
        assert!(matches!(waiting.recv().await, Some(Told::Deferred)));
        drop(first);
        assert!(agent.place(None).is_none(), "a place goes to who waits");
        let Some(Told::Granted(third)) = waiting.recv().await else { panic!("not granted") };
        drop(second);
        let fourth = agent.place(None).unwrap();
        assert!(agent.place(None).is_none(), "AGT-1");
        drop((third, fourth));
        assert_eq!(agent.view().await.unwrap().running, 0);
        agent.pause(true);
        assert!(agent.view().await.unwrap().paused);
        assert!(agent.place(None).is_none(), "AGT-2");
        parent.stop(None);
    }

    /// LANE-1 for the places of an agent.
    #[tokio::test]
    async fn a_call_of_the_background_ends_for_one_that_waits_and_comes_after_it() {
        let (parent, agent) = agent(1).await;
        let background = agent.place(Some(Lane::Background)).unwrap();
        assert_eq!(background.permit.lane(), Lane::Background);
        let call = Arc::new(Yielding::default());
        let mut later = ask_in(&agent, Some(Lane::Background));
        assert!(matches!(later.recv().await, Some(Told::Deferred)));
        let mut interactive = ask(&agent);
        assert!(matches!(interactive.recv().await, Some(Told::Deferred)));
        // From when its call has begun on: hooks that judge it are not interrupted.
        background.permit.may_yield(&call);
        call.ended().await;
        drop(background);
        let Some(Told::Granted(grant)) = interactive.recv().await else { panic!("not granted") };
        assert_eq!(grant.permit.lane(), Lane::Interactive);
        assert!(later.try_recv().is_err(), "LANE-1");
        drop(grant);
        let Some(Told::Granted(grant)) = later.recv().await else { panic!("not granted") };
        assert_eq!(grant.permit.lane(), Lane::Background);
        parent.stop(None);
    }

    /// LANE-1: to end a call that waits for money costs nothing. If its money comes first, another one ends.
    #[tokio::test]
    async fn a_call_that_waits_for_money_gives_its_place_back_before_one_that_runs_ends() {
        let (parent, agent) = agent(2).await;
        let place = || agent.place(Some(Lane::Background)).unwrap();
        let (waiting, running) = (place(), place());
        let (wait, call) = (Arc::new(Yielding::waiting()), Arc::new(Yielding::default()));
        waiting.permit.may_yield(&wait);
        running.permit.may_yield(&call);
        let mut interactive = ask(&agent);
        assert!(matches!(interactive.recv().await, Some(Told::Deferred)));
        wait.ended().await;
        assert!(call.ended().now_or_never().is_none(), "one is enough");
        waiting.permit.stays();
        call.ended().await;
        drop(running);
        let Some(Told::Granted(grant)) = interactive.recv().await else { panic!("not granted") };
        // As it begins, it may be ended again.
        let mut next = ask(&agent);
        assert!(matches!(next.recv().await, Some(Told::Deferred)));
        let begun = Arc::new(Yielding::default());
        waiting.permit.may_yield(&begun);
        begun.ended().await;
        drop((grant, waiting));
        assert!(matches!(next.recv().await, Some(Told::Granted(_))));
        parent.stop(None);
    }

    /// A port whose session is gone drops what it is given.
    #[tokio::test]
    async fn a_permit_that_nobody_takes_is_given_back() {
        let (parent, agent) = agent(1).await;
        let held = agent.place(None).unwrap();
        agent.admit(Box::new(Deaf));
        let mut next = ask(&agent);
        assert!(matches!(next.recv().await, Some(Told::Deferred)));
        drop(held);
        let Some(Told::Granted(grant)) = next.recv().await else { panic!("not granted") };
        drop(grant);
        assert_eq!(agent.view().await.unwrap().running, 0);
        assert!(agent.place(None).is_some());
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

    /// KILL-1 for calls of agents.
    #[tokio::test]
    async fn kill_1_a_stopped_agent_gives_no_permit_and_ends_turns_that_have_begun() {
        let (parent, _) = Actor::spawn(None, Parent, ()).await.unwrap();
        let (switch_gate, name) = (SwitchGate::default(), "ada".parse().unwrap());
        let mut options = AgentOptions::new(name, "demo/echo".parse().unwrap());
        options.max_turns = 1;
        let cell = parent.get_cell();
        let spawned = AgentHandle::spawn(options, false, switch_gate.clone(), budgets(), cell);
        let agent = spawned.await.unwrap();
        let mut first = ask(&agent);
        let Some(Told::Granted(held)) = first.recv().await else { panic!("not granted") };
        let (mut fresh, mut begun) = (ask_for(&agent, false), ask_for(&agent, true));
        assert!(matches!(fresh.recv().await, Some(Told::Deferred)));
        assert!(matches!(begun.recv().await, Some(Told::Deferred)));
        let switch = KillSwitch {
            id: clawnode_proto::SwitchId::from_u128(1),
            scope: "agent:ada".parse().unwrap(),
            by: "token at a".to_owned(),
            at: clawnode_proto::Timestamp(1),
            why: String::new(),
        };
        let set = SwitchRecord::Set { switch: switch.clone() };
        switch_gate.take(Position(1), set);
        agent.switch_changed();
        assert!(matches!(begun.recv().await, Some(Told::Stopped)));
        drop(held);
        let mut late = ask_for(&agent, true);
        assert!(matches!(late.recv().await, Some(Told::Stopped)));
        let view = agent.view().await.unwrap();
        assert_eq!((view.running, view.waiting), (0, 1), "KILL-1");
        assert_eq!(view.stopped, Some(switch.clone()));
        assert!(fresh.try_recv().is_err());
        let cleared =
            SwitchRecord::Cleared { switch, by: String::new(), at: clawnode_proto::Timestamp(2) };
        switch_gate.take(Position(2), cleared);
        agent.switch_changed();
        assert!(matches!(fresh.recv().await, Some(Told::Granted(_))));
        parent.stop(None);
    }
}

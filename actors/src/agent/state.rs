//! What an agent has: its places for calls, and who waits for one.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_budget::holder::HolderHandle;
use clawnode_guard::kill_switch::{StoppableWork, SwitchGate};
use clawnode_proto::{
    AgentName, agents::AgentView, kill_switch::KillSwitch, lane::Lane, session::Profile,
};
use tracing::debug;

use super::{
    AgentOptions,
    fair_queue::PoolTicket,
    handle::{AdmitPort, AgentHandle, AgentMessage, Grant, Permit},
    pool::{Pool, PoolRequest},
    preemption::{Yielding, YieldingCalls, preempt},
};

/// Turns that wait for one agent on one node; beyond it, a session asks again at its next tick.
const WAITING_MAX: usize = 65_536;

/// How many run, and in which order others follow. Shared, so that a place that is free costs no trip to the
/// actor.
pub(super) struct Places {
    options: Arc<AgentOptions>,
    profile: Arc<Profile>,
    paused: bool,
    switch_gate: SwitchGate,
    /// Says with each place which accounts there are.
    budgets: HolderHandle,
    pub(super) pool: Pool,
    /// The calls that may be ended for others.
    yielding: YieldingCalls,
}

/// The places and who waits for one: those end with their actor, which tells them that they have to ask
/// again.
pub(super) struct AgentState {
    pub(super) places: Arc<Mutex<Places>>,
    pub(super) waiting: BTreeMap<PoolTicket, Box<dyn AdmitPort>>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("agent", &self.options.name).finish_non_exhaustive()
    }
}

pub(super) fn lock(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Places ===

impl Places {
    pub(super) fn new(
        options: AgentOptions,
        paused: bool,
        switch_gate: SwitchGate,
        budgets: HolderHandle,
    ) -> Self {
        let (profile, options) = (Arc::new(options.profile()), Arc::new(options));
        let (pool, yielding) = (Pool::default(), YieldingCalls::new());
        Self { options, profile, paused, switch_gate, budgets, pool, yielding }
    }

    /// Whether calls may begin now, however many run.
    fn is_open(&self) -> bool {
        let call = StoppableWork::Call { agent: self.name() };
        !self.paused && self.switch_gate.stops(&call).is_none()
    }

    fn has_room(&self) -> bool {
        self.is_open() && self.pool.running() < self.options.max_turns
    }

    /// The lane of a turn that names this one, or none.
    fn lane(&self, named: Option<Lane>) -> Lane {
        named.unwrap_or(self.options.lane)
    }

    /// Takes a place, if one is free and no call waits.
    pub(super) fn take(&mut self, agent: &AgentHandle, named: Option<Lane>) -> Option<Grant> {
        let lane = self.lane(named);
        let ticket = self.is_open().then(|| self.pool.take(self.options.max_turns, lane))??;
        Some(self.grant(agent, ticket, lane))
    }

    fn grant(&self, agent: &AgentHandle, ticket: PoolTicket, lane: Lane) -> Grant {
        debug_assert!(self.pool.running() <= self.options.max_turns, "AGT-1");
        debug_assert!(!self.paused, "AGT-2");
        let permit = Arc::new(Permit { place: Some((agent.clone(), ticket)), lane });
        let (profile, options) = (Arc::clone(&self.profile), Arc::clone(&self.options));
        let (accounts, process) = (self.budgets.accounts(), self.budgets.process());
        Grant {
            profile,
            options,
            permit,
            accounts,
            process,
            recalled: None,
            terms: None,
            hold: None,
            prompts: Vec::new(),
        }
    }

    /// A call gives back its place; whether others wait for it.
    pub(super) fn leave(&mut self, ticket: PoolTicket) -> bool {
        self.pool.leave(ticket);
        self.yielding.remove(&ticket);
        self.pool.waiting() > 0
    }

    /// A call that has a place may be ended for another from now on.
    pub(super) fn may_yield(&mut self, ticket: PoolTicket, call: Arc<Yielding>) {
        self.yielding.insert(ticket, call);
        self.preempt();
    }

    /// It may not be ended now: it waits no more, and has not begun.
    pub(super) fn stays(&mut self, ticket: PoolTicket) {
        if self.yielding.remove(&ticket).is_some() {
            self.pool.stays(ticket);
            // Another one may have to end in its place.
            self.preempt();
        }
    }

    /// Has calls end for more urgent ones, if those could begin then.
    fn preempt(&mut self) {
        if self.is_open() {
            preempt(&mut self.pool, self.options.max_turns, &self.yielding);
        }
    }

    fn view(&self) -> AgentView {
        AgentView {
            agent: self.name(),
            model: self.options.model.clone(),
            system: self.options.system.lines().next().unwrap_or_default().to_owned(),
            step_limit: self.options.step_limit,
            max_turns: self.options.max_turns,
            running: self.pool.running(),
            waiting: u32::try_from(self.pool.waiting()).unwrap_or(u32::MAX),
            lane: self.options.lane,
            weight: self.options.weight,
            paused: self.paused,
            // The registry knows.
            pause: None,
            stopped: self.switch_gate.switches().of_agent(&self.options.name).cloned(),
        }
    }

    /// What ends its turns: a kill switch, or a limit that it exceeded.
    fn kill_switch(&self) -> Option<KillSwitch> {
        self.switch_gate.switches().ends(&self.options.name).cloned()
    }

    fn name(&self) -> AgentName {
        self.options.name.clone()
    }
}

// === impl AgentState ===

impl AgentState {
    pub(super) fn take(&mut self, message: AgentMessage) {
        match message {
            AgentMessage::Admit(port) => self.admit(port),
            // There may be room for the next.
            AgentMessage::Release => {}
            AgentMessage::Reload(options) => {
                let mut places = lock(&self.places);
                places.profile = Arc::new(options.profile());
                places.options = Arc::from(options);
            }
            AgentMessage::Pause(paused) => lock(&self.places).paused = paused,
            AgentMessage::KillSwitch => self.switch_changed(),
            AgentMessage::View(reply) => {
                if reply.send(lock(&self.places).view()).is_err() {
                    debug!("the caller stopped waiting for the view of an agent");
                }
            }
        }
    }

    /// Has the port wait, or start as the next if there is room.
    fn admit(&mut self, port: Box<dyn AdmitPort>) {
        let (switch, has_room) = {
            let places = lock(&self.places);
            (places.kill_switch(), places.has_room())
        };
        let port = match &switch {
            Some(switch) => port.stopped(switch),
            None => Some(port),
        };
        let Some(port) = port else { return };
        if self.waiting.len() < WAITING_MAX {
            if !has_room || !self.waiting.is_empty() {
                port.deferred();
            }
            let mut places = lock(&self.places);
            let lane = places.lane(port.lane());
            let (agent, weight) = (places.name(), places.options.weight);
            let ticket = places.pool.wait(&PoolRequest { agent, weight, lane });
            self.waiting.insert(ticket, port);
        }
    }

    /// The next who waits and its grant, if there is room; if there is none, calls may end for those that wait.
    pub(super) fn next(&mut self, agent: &AgentHandle) -> Option<(Box<dyn AdmitPort>, Grant)> {
        let mut places = lock(&self.places);
        while places.has_room() {
            let most = places.options.max_turns;
            let (ticket, lane) = places.pool.next(most)?;
            match self.waiting.remove(&ticket) {
                Some(port) if !port.is_closed() => {
                    return Some((port, places.grant(agent, ticket, lane)));
                }
                Some(_) | None => places.pool.leave(ticket),
            }
        }
        places.preempt();
        None
    }

    /// Turns that have begun do not wait for a kill switch to be cleared; all others do.
    fn switch_changed(&mut self) {
        let Some(switch) = lock(&self.places).kill_switch() else { return };
        let waiting = std::mem::take(&mut self.waiting);
        for (ticket, port) in waiting {
            match port.stopped(&switch) {
                Some(port) => drop(self.waiting.insert(ticket, port)),
                None => lock(&self.places).pool.leave(ticket),
            }
        }
    }
}

//! What an agent has: its places for calls, and who waits for one.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_guard::kill_switch::{StoppableWork, SwitchGate};
use clawnode_proto::{
    AgentName, ProcessId, agents::AgentView, kill_switch::KillSwitch, session::Profile,
};
use tracing::debug;

use super::{
    AgentOptions,
    handle::{AdmitPort, AgentHandle, AgentMessage, Grant, Permit},
};

/// Turns that wait for one agent on one node; beyond it, a session asks again at its next tick.
const WAITING_MAX: usize = 65_536;

/// How many run. Shared, so that a place that is free costs no trip to the actor.
pub(super) struct Places {
    options: Arc<AgentOptions>,
    profile: Arc<Profile>,
    paused: bool,
    switch_gate: SwitchGate,
    pub(super) running: u32,
    /// How many wait at the actor.
    pub(super) waiting: usize,
}

/// The places and who waits for one: those end with their actor, which tells them that they have to ask
/// again.
pub(super) struct AgentState {
    pub(super) places: Arc<Mutex<Places>>,
    pub(super) waiting: VecDeque<Box<dyn AdmitPort>>,
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
    pub(super) fn new(options: AgentOptions, paused: bool, switch_gate: SwitchGate) -> Self {
        let (profile, options) = (Arc::new(options.profile()), Arc::new(options));
        Self { options, profile, paused, switch_gate, running: 0, waiting: 0 }
    }

    pub(super) fn has_room(&self) -> bool {
        let call = StoppableWork::Call { agent: self.name() };
        !self.paused
            && self.running < self.options.max_turns
            && self.switch_gate.stops(&call).is_none()
    }

    pub(super) fn grant(&mut self, agent: &AgentHandle) -> Grant {
        self.running += 1;
        debug_assert!(self.running <= self.options.max_turns, "AGT-1");
        debug_assert!(!self.paused, "AGT-2");
        let permit = Arc::new(Permit(Some(agent.clone())));
        let (profile, options) = (Arc::clone(&self.profile), Arc::clone(&self.options));
        let (accounts, process) = (Arc::default(), ProcessId::from_u128(0));
        Grant { profile, options, permit, accounts, process, terms: None, hold: None }
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
    fn latch(&self) -> Option<KillSwitch> {
        self.switch_gate.latches().of_agent(&self.options.name).cloned()
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
            AgentMessage::KillSwitch => self.latch(),
            AgentMessage::View(reply) => {
                if reply.send(lock(&self.places).view()).is_err() {
                    debug!("the caller stopped waiting for the view of an agent");
                }
            }
        }
    }

    /// Has the port wait, or start as the next if there is room.
    fn admit(&mut self, port: Box<dyn AdmitPort>) {
        let (latch, has_room) = {
            let places = lock(&self.places);
            (places.latch(), places.has_room())
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
            lock(&self.places).waiting = self.waiting.len();
        }
    }

    /// The next who waits and its grant, if there is room.
    pub(super) fn next(&mut self, agent: &AgentHandle) -> Option<(Box<dyn AdmitPort>, Grant)> {
        let mut places = lock(&self.places);
        while places.has_room() {
            let port = self.waiting.pop_front()?;
            places.waiting = self.waiting.len();
            if !port.is_closed() {
                return Some((port, places.grant(agent)));
            }
        }
        None
    }

    /// Turns that have begun do not wait for a kill switch to be cleared; all others do.
    fn latch(&mut self) {
        let Some(latch) = lock(&self.places).latch() else { return };
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().filter_map(|port| port.stopped(&latch)).collect();
        lock(&self.places).waiting = self.waiting.len();
    }
}

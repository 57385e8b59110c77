//! What an agent has: its gate, and who waits at it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_guard::kill_switch::{StoppableWork, SwitchGate};
use clawnode_proto::{AgentName, agents::AgentView, kill_switch::KillSwitch, session::Profile};
use tracing::debug;

use super::{
    AgentOptions,
    handle::{AdmitPort, AgentHandle, AgentMessage, Grant, Permit},
};

/// Turns that wait for one agent on one node; beyond it, a session asks again at its next tick.
const WAITING_MAX: usize = 65_536;

/// How many run. Shared, so that a place that is free costs no trip to the actor.
pub(super) struct Gate {
    options: AgentOptions,
    profile: Arc<Profile>,
    paused: bool,
    door: SwitchGate,
    pub(super) running: u32,
    /// How many wait at the actor.
    pub(super) waiting: usize,
}

/// The gate and who waits at it: those end with their actor, which tells them that they have to ask
/// again.
pub(super) struct AgentState {
    pub(super) gate: Arc<Mutex<Gate>>,
    pub(super) waiting: VecDeque<Box<dyn AdmitPort>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("agent", &self.options.name).finish_non_exhaustive()
    }
}

pub(super) fn lock(gate: &Mutex<Gate>) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Gate ===

impl Gate {
    pub(super) fn new(options: AgentOptions, paused: bool, door: SwitchGate) -> Self {
        let profile = Arc::new(options.profile());
        Self { options, profile, paused, door, running: 0, waiting: 0 }
    }

    pub(super) fn has_room(&self) -> bool {
        let call = StoppableWork::Call { agent: self.name() };
        !self.paused && self.running < self.options.max_turns && self.door.stops(&call).is_none()
    }

    pub(super) fn grant(&mut self, agent: &AgentHandle) -> Grant {
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
    fn latch(&self) -> Option<KillSwitch> {
        self.door.latches().of_agent(&self.options.name).cloned()
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
                let mut gate = lock(&self.gate);
                gate.profile = Arc::new(options.profile());
                gate.options = *options;
            }
            AgentMessage::Pause(paused) => lock(&self.gate).paused = paused,
            AgentMessage::KillSwitch => self.latch(),
            AgentMessage::View(reply) => {
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
    pub(super) fn next(&mut self, agent: &AgentHandle) -> Option<(Box<dyn AdmitPort>, Grant)> {
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

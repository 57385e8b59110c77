//! How a model call gets its place, and what ends it that is not its own end.

use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::driver::Port;
use clawnode_proto::{
    Attempt,
    agents::AgentLimit,
    kill_switch::KillSwitch,
    lane::Lane,
    llm::{FailureClass, ModelFailure, Text, Usage},
    timeout::TimeLevel,
};

use crate::agent::{AdmitPort, Grant};
use crate::session::turn::{
    effect::{Effect, Outcome},
    kind::Session,
    prepare::CallJob,
};

/// Brings an agent's answer to the session's actor. Dropped without one (the agent died, was
/// removed, or has too many waiting), it says so, and the session asks again.
pub(in crate::session) struct AgentAnswer {
    pub(in crate::session) effect: Effect,
    pub(in crate::session) port: Port<Session>,
    pub(in crate::session) granted: bool,
    pub(in crate::session) turns: TurnCount,
    /// The lane that the message of its turn named.
    pub(in crate::session) lane: Option<Lane>,
}

/// Counts the turn of a call against the limit of its agent, with its first call.
pub(in crate::session) struct TurnCount {
    gate: SwitchGate,
    /// Whether the turn has made calls before.
    begun: bool,
    is_new: bool,
}

// === impl TurnCount ===

impl TurnCount {
    /// For a call that wants a place. `begun`: its turn has made calls before. `is_new`: nothing of its turn
    /// has begun.
    pub(in crate::session) fn new(gate: &SwitchGate, begun: bool, is_new: bool) -> Self {
        Self { gate: gate.clone(), begun, is_new }
    }

    /// Whether the call may take this place. If not, its agent is paused from now on.
    pub(in crate::session) fn allows(&self, grant: &Grant) -> bool {
        let agent = &grant.options.name;
        !self.is_new || self.gate.count(agent, AgentLimit::TurnsPerHour, 1).is_ok()
    }
}

impl AgentAnswer {
    pub(in crate::session) fn refuse(mut self, failure: ModelFailure) {
        self.granted = true;
        refuse(&self.port, self.effect, failure);
    }
}

/// Ends a call that has no place.
pub(in crate::session) fn refuse(port: &Port<Session>, effect: Effect, failure: ModelFailure) {
    let (partial, usage) = (Text::from(String::new()), Usage::default());
    port.refused(effect, Outcome::Failed { attempt: Attempt(0), failure, partial, usage });
}

impl Drop for AgentAnswer {
    fn drop(&mut self) {
        if !self.granted {
            self.port.forgotten(self.effect);
        }
    }
}

impl AdmitPort for AgentAnswer {
    fn granted(mut self: Box<Self>, grant: Grant) {
        if !self.turns.allows(&grant) {
            // Dropped without an answer: the session asks again, and waits with the others until the agent is
            // resumed.
            return;
        }
        self.granted = true;
        self.port.granted(self.effect, grant);
    }

    fn deferred(&self) {
        self.port.deferred(self.effect);
    }

    fn is_closed(&self) -> bool {
        self.port.is_closed()
    }

    fn lane(&self) -> Option<Lane> {
        self.lane
    }

    fn stopped(self: Box<Self>, switch: &KillSwitch) -> Option<Box<dyn AdmitPort>> {
        if self.turns.begun {
            self.refuse(stopped(switch));
            return None;
        }
        Some(self)
    }
}

/// Returns once the time of a call's turn or step is over.
pub(in crate::session) async fn out_of_time(job: &CallJob) -> ModelFailure {
    let Some(limit) = &job.limit else { return std::future::pending().await };
    if limit.left_ms > 0 {
        tokio::time::sleep(limit.left()).await;
    }
    let class = match limit.level {
        TimeLevel::Global => FailureClass::GlobalTime,
        TimeLevel::Command | TimeLevel::Provider | TimeLevel::Step => FailureClass::StepTime,
    };
    ModelFailure::new(class, limit.to_string())
}

/// How a model call ends that is ended for a more urgent one.
pub(in crate::session) fn preempted() -> ModelFailure {
    ModelFailure::new(FailureClass::Preempted, "Preempted by interactive task")
}

/// How a model call fails that an operator stops.
pub(in crate::session) fn stopped(switch: &KillSwitch) -> ModelFailure {
    ModelFailure::new(FailureClass::Stopped, switch.to_string())
}

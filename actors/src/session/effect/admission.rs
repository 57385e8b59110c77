//! How a model call gets its place, and what ends it that is not its own end.

use clawnode_budget::holder::HolderHandle;
use clawnode_kernel::driver::Port;
use clawnode_proto::{
    Attempt,
    kill_switch::KillSwitch,
    llm::{FailureClass, ModelFailure, Text, Usage},
    timeout::TimeLevel,
};

use crate::agent::{AdmitPort, Grant};
use crate::session::turn::{
    effect::Effect,
    kind::{Outcome, Session},
    prepare::CallJob,
};

/// Brings an agent's answer to the session's actor. Dropped without one (the agent died, was
/// removed, or has too many waiting), it says so, and the session asks again.
pub(in crate::session) struct AgentAnswer {
    pub(in crate::session) effect: Effect,
    pub(in crate::session) port: Port<Session>,
    pub(in crate::session) granted: bool,
    /// Whether its turn has made calls before.
    pub(in crate::session) begun: bool,
    /// From which the call reserves.
    pub(in crate::session) budgets: HolderHandle,
}

impl AgentAnswer {
    pub(in crate::session) fn refuse(mut self, failure: ModelFailure) {
        self.granted = true;
        let (partial, usage) = (Text::from(String::new()), Usage::default());
        let outcome = Outcome::Failed { attempt: Attempt(0), failure, partial, usage };
        self.port.refused(self.effect, outcome);
    }
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
        self.granted = true;
        self.port.granted(self.effect, grant.within(&self.budgets));
    }

    fn deferred(&self) {
        self.port.deferred(self.effect);
    }

    fn is_closed(&self) -> bool {
        self.port.is_closed()
    }

    fn stopped(self: Box<Self>, latch: &KillSwitch) -> Option<Box<dyn AdmitPort>> {
        if self.begun {
            self.refuse(stopped(latch));
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

/// How a model call fails that an operator stops.
pub(in crate::session) fn stopped(latch: &KillSwitch) -> ModelFailure {
    ModelFailure::new(FailureClass::Stopped, latch.to_string())
}

//! Circuits: processes have those of production, and the first provider of a chain is down for ten minutes while
//! the next one serves.

use std::{collections::BTreeMap, time::Duration};

use clawnode_actors::{
    llm::circuit::{Circuit, CircuitTicket},
    session::{Effect, turn::prepare::CallJob},
};
use clawnode_proto::{
    Attempt, CallId, ProcessId, TurnId,
    circuit::CircuitState,
    llm::{FailureClass, ModelFailure},
    session::TurnOutcome,
};

use super::{
    JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, models::ModelPlan,
    plan::SeedPlan,
};

/// How long inputs come, in milliseconds: from before the outage to after it.
const BUSY: u64 = 800_000;
/// Sessions, and inputs of each: enough that each process asks the provider often.
const SESSIONS: usize = 3;
const INPUTS: usize = 100;
/// The time between two fates: in these worlds most processes live long.
const FATE_EVERY: u64 = 60_000;
/// The longest that a circuit may be open whose provider asks for nothing.
const OPEN_MOST: Duration = Duration::from_mins(5);

/// The circuits of all processes.
#[derive(Debug, Default)]
pub(super) struct SimCircuits {
    is_on: bool,
    circuits: BTreeMap<(ProcessId, String), Circuit>,
    sent: BTreeMap<(ProcessId, CallId, Attempt), SentCall>,
    /// Calls that were not sent.
    pub(super) refused: usize,
}

/// A call that a circuit permitted.
#[derive(Debug)]
struct SentCall {
    at: ActivationPlace,
    effect: Effect,
    provider: String,
    ticket: CircuitTicket,
}

// === impl SeedPlan ===

impl SeedPlan {
    /// The first provider is down for ten minutes, and nothing else fails for long.
    pub(super) fn loses_provider(&mut self) {
        self.models = ModelPlan::losing_first(self.seed);
        (self.busy, self.sessions, self.inputs) = (BUSY, SESSIONS, INPUTS);
        (self.call_fails, self.hangs) = (0.0, 0.0);
        (self.call_most, self.approval_wait) = (self.call_most.min(1_500), 2_000);
        (self.pause, self.poison, self.damage, self.scarce) = (None, None, false, false);
        self.fate_every = FATE_EVERY;
    }
}

// === impl SimCircuits ===

impl SimCircuits {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    /// GIVE-1: another provider of the chain has served all the time, so no turn fails for want of one.
    pub(super) fn ends(&self, turn: TurnId, outcome: &TurnOutcome) -> Checked {
        match outcome {
            TurnOutcome::Failed { failure } if self.is_on && failure.class.gives_way() => {
                let text = format!("`{turn}` failed, and its chain could serve: {failure:?}");
                Err(JudgeViolation::new("GIVE-1", text))
            }
            _ => Ok(()),
        }
    }
}

// === impl Sim ===

impl Sim {
    /// Whether a call is sent, by the circuit of its provider in its process; else how it fails.
    ///
    /// CIRC-2: a circuit is not open for ever.
    pub(super) fn refused_by_circuit(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        job: &CallJob,
    ) -> Result<Option<ModelFailure>, JudgeViolation> {
        if !self.circuits.is_on {
            return Ok(None);
        }
        self.gives_lost_calls_up(at.process);
        let now = self.world.now();
        let provider = job.request.model.provider.clone();
        let circuits = &mut self.circuits.circuits;
        let circuit =
            circuits.entry((at.process, provider.clone())).or_insert_with(|| Circuit::new(now));
        let wait = match circuit.admit(now) {
            Ok(ticket) => {
                let call = SentCall { at, effect, provider, ticket };
                self.circuits.sent.insert((at.process, job.call, job.attempt), call);
                return Ok(None);
            }
            Err(wait) => wait,
        };
        let (state, since) = circuit.state(now);
        if state == CircuitState::Open && now.since(since) > OPEN_MOST {
            let text = format!("the circuit of `{provider}` is open since {since:?}, at {now:?}");
            return Err(JudgeViolation::new("CIRC-2", text));
        }
        self.circuits.refused += 1;
        let failure = ModelFailure::new(FailureClass::Overloaded, "not sent");
        let retry_after_ms = u64::try_from(wait.as_millis()).ok();
        Ok(Some(ModelFailure { retry_after_ms, ..failure }))
    }

    /// A provider has answered a call, or failed to.
    pub(super) fn circuit_learns(
        &mut self,
        process: ProcessId,
        call: CallId,
        attempt: Attempt,
        failure: Option<&ModelFailure>,
    ) {
        let Some(mut call) = self.circuits.sent.remove(&(process, call, attempt)) else { return };
        let now = self.world.now();
        let circuit = self.circuits.circuits.get_mut(&(process, call.provider));
        let Some(circuit) = circuit else { return };
        if failure.is_none_or(|failure| failure.class == FailureClass::BrokenStream) {
            circuit.begun(&mut call.ticket, now);
        }
        if failure.is_some() {
            circuit.failed(call.ticket, None, now);
        } else {
            circuit.answered(call.ticket, now);
        }
    }

    /// Calls that were broken off, or whose actor has died, say nothing of their provider.
    fn gives_lost_calls_up(&mut self, process: ProcessId) {
        let now = self.world.now();
        let mut lost = Vec::new();
        for (key, call) in &self.circuits.sent {
            let (place, _, attempt) = key;
            let owner = self.processes.get_mut(place);
            let actor = owner.and_then(|owner| owner.actor(call.at.entity, call.at.counter));
            let runs =
                actor.is_some_and(|actor| actor.running.get(&call.effect) == Some(&Some(*attempt)));
            if *place == process && !runs {
                lost.push(*key);
            }
        }
        for key in lost {
            let Some(call) = self.circuits.sent.remove(&key) else { continue };
            if let Some(circuit) = self.circuits.circuits.get_mut(&(process, call.provider)) {
                circuit.gave_up(call.ticket, now);
            }
        }
    }
}

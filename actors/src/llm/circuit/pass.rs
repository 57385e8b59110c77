//! One attempt's way through the circuit of its provider.

use std::{sync::Arc, time::Duration};

use clawnode_proto::{
    circuit::CircuitFailure,
    llm::{FailureClass, ModelFailure},
};
use reqwest::header::HeaderMap;
use tokio::time::sleep;

use super::{
    circuits::{CallRefused, ProviderCircuit},
    machine::CircuitTicket,
};

/// How long a call waits before who asked hears of it.
const TOLD_WAIT: Duration = Duration::from_secs(1);

/// Permission for one attempt. Dropped without a word, it says nothing about the provider.
#[derive(Debug)]
pub(in crate::llm) struct CallPass {
    circuit: Arc<ProviderCircuit>,
    model: String,
    ticket: Option<CircuitTicket>,
    has_begun: bool,
}

// === impl CallPass ===

impl CallPass {
    /// Waits until the provider allows a call of this model; an error if that is too long, or if
    /// calls are not sent now. Who asked hears of a longer wait before it begins.
    pub(in crate::llm) async fn of<F: Future<Output = ()>>(
        circuit: &Arc<ProviderCircuit>,
        model: &str,
        waits: impl FnOnce(Duration) -> F,
    ) -> Result<Self, CallRefused> {
        let wait = circuit.pace(model)?;
        if !wait.is_zero() {
            tracing::debug!(model, wait_ms = super::millis(wait), "a call waits for its provider");
            if wait >= TOLD_WAIT {
                waits(wait).await;
            }
            sleep(wait).await;
        }
        let ticket = Some(circuit.admit()?);
        let (circuit, model) = (Arc::clone(circuit), model.to_owned());
        Ok(Self { circuit, model, ticket, has_begun: false })
    }

    /// What the head of an answer says.
    pub(in crate::llm) fn head(&self, headers: &HeaderMap) {
        self.circuit.reported(&self.model, headers);
    }

    /// The provider has begun a reply.
    pub(in crate::llm) fn begun(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        if let Some(ticket) = &mut self.ticket {
            self.circuit.begun(ticket);
        }
    }

    /// The reply is whole.
    pub(in crate::llm) fn answered(mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.circuit.answered(ticket);
        }
    }

    /// The attempt failed, and the provider `asked` to wait.
    pub(in crate::llm) fn failed(mut self, failure: &ModelFailure, asked: Option<Duration>) {
        let is_refused =
            matches!(failure.class, FailureClass::Rejected | FailureClass::Unauthorized);
        match CircuitFailure::of(failure.class) {
            Some(kind) => {
                if let Some(ticket) = self.ticket.take() {
                    self.circuit.failed(ticket, &self.model, kind, asked);
                }
            }
            // A provider that judges requests works.
            None if is_refused => self.answered(),
            None => {}
        }
    }

    /// The time of the call was over. That is long for a provider that said nothing.
    pub(in crate::llm) fn timed_out(self, failure: &ModelFailure) {
        if !self.has_begun {
            self.failed(failure, None);
        }
    }
}

impl Drop for CallPass {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.circuit.gave_up(ticket);
        }
    }
}

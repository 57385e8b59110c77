//! One probe's way to the circuit of its provider.

use std::sync::Arc;

use clawnode_proto::circuit::CircuitFailure;

use super::{circuits::ProviderCircuit, machine::CircuitTicket};

/// A probe under way. Dropped without a word, it says nothing about the provider.
#[derive(Debug)]
pub(in crate::llm) struct ProbePass {
    circuit: Arc<ProviderCircuit>,
    ticket: Option<CircuitTicket>,
}

// === impl ProbePass ===

impl ProbePass {
    pub(in crate::llm) fn of(circuit: &Arc<ProviderCircuit>) -> Self {
        Self { circuit: Arc::clone(circuit), ticket: circuit.admit_probe() }
    }

    /// The probe has ended; `failure` is why it did not reach the provider.
    pub(in crate::llm) fn ended(mut self, failure: Option<CircuitFailure>) {
        self.circuit.probed(self.ticket.take(), failure);
    }
}

impl Drop for ProbePass {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.circuit.gave_up(ticket);
        }
    }
}

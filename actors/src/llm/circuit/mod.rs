//! Whether and when a process calls a provider of models: its circuit, and the pace that the
//! provider allows. Each process decides by its own calls.
//!
//! [`Circuit`] and [`Pace`] are sans-I/O machines, for the simulator too: time is an argument. A
//! [`ProviderCircuit`] drives those of one provider, and [`Circuits`] has all of a process, for as
//! long as it runs; a provider that is configured with another address gets a new one.
//!
//! Invariants: **CIRC-1** a half-open circuit permits one call at a time. **CIRC-2** an open circuit
//! becomes half-open in the end, at most `ASKED_MOST` after it opened.
//!
//! A probe asks whether a provider can be reached, and nothing of its models. So its failures open a circuit as
//! those of calls do, and it closes or half-opens only a circuit whose provider was not reached.
//!
//! Not here: what becomes of a call that is refused, and which provider is called instead.

mod circuits;
mod headers;
mod machine;
mod pace;
mod pass;
mod probe_pass;

pub use circuits::{Circuits, is_not_sent};
pub(super) use circuits::{ProviderCircuit, millis};
pub use machine::{Circuit, CircuitTicket};
pub use pace::{Pace, ReportedLimit};
pub(super) use pass::CallPass;
pub(super) use probe_pass::ProbePass;

//! The actor of one resident entity.
//!
//! It feeds the entity's machine and does what that says: reads, appends, effects. All I/O is done by
//! tasks that send their results back as messages.
//!
//! Supervised by: its partition's dispatcher, which starts it again if it dies. Messages come from: the
//! dispatcher (inputs, ticks, hand-over), the runner of its kind ([`Port`]) and its own tasks. Phases:
//! Invariants: those of the machine. On crash: what was not appended is lost, its inputs are
//! delivered again, and the next activation reads the journal. Not here: the effects of a kind.

mod actor;
mod erase;
mod handle;
#[cfg(feature = "test-util")]
mod heard;
mod purge;
mod state;
mod store;

pub use handle::Port;
pub(super) use handle::{EntityHandle, Served, Start, start};

/// Why an actor stopped that has told its dispatcher itself; the supervision event may come first.
pub(super) const GOODBYE: &str = "told its dispatcher";

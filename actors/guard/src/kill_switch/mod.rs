//! The kill switch: how an operator stops what agents do, and how a process stops that cannot hear of it.
//!
//! Every model call and every run of a tool needs a [`WorkPermit`] of the one [`SwitchGate`] of its
//! process, and gives it back when it ends. Each scope that is stopped has a record in the bucket. The gate
//! follows the records, refuses what they stop, and cancels what already runs. The kernel knows nothing of
//! it: only what follows (a call that failed, a tool that was refused) is journaled.
//!
//! Supervised by: the node (`latch.follow`, `latch.contact`). Messages come from the bucket, and from the
//! gateway that stored a record, so that no process waits for the bucket's watch. Phases: in touch with the
//! store, out of touch (nothing runs; what wants to begin waits). On crash: the records are in the
//! bucket, and a process reads them before it takes work. Not here: who may set a switch (the gateway's
//! token), and who hears of it (the node).
//!
//! `runaways` counts what agents with limits do ([`crate::runaway`]). An agent that exceeds a limit is stopped
//! here at once, and everywhere once the pause that follows is stored.
//!
//! `actor` and `lost_contact` have its two loops, which have no mailbox: what they hear goes into the state behind
//! the handle.
//!
//! Invariants
//! - KILL-1 nothing begins that this process's view of the kill switches stops.
//! - KILL-2 what a view stops is cancelled in the step in which the view came to be.
//! - KILL-3 a view goes forward only: of two records of one scope the later position holds.
//! - KILL-4 a record that cannot be read is a stop of its scope, or of everything if the scope is
//!   unknown, until an operator clears it; it keeps no process from starting.

mod actor;
mod handle;
mod lost_contact;
#[cfg(feature = "test-util")]
mod planted;
mod runaways;
mod state;
mod store;

pub use actor::{follow, look, read};
pub use handle::{SwitchGate, WorkPermit};
pub use lost_contact::contact;
#[cfg(feature = "test-util")]
pub use planted::SwitchBug;
pub use state::{StoppableWork, SwitchView, WorkStopped};
pub use store::{SwitchError, clear, set};

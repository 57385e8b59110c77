//! The holder: what one process may spend, a machine without I/O.
//!
//! Calls reserve the most that they can cost from slices in memory, in the order of accounts and limits.
//! If there is not enough of one, the call gives back what it got, waits, and a larger slice is asked for.
//! Who waits for a limit is served in the order in which they came. [`Holder::handle`] takes what
//! happened, and returns what to do; its time must not jump, and is compared with no other clock.
//!
//! Phases of a slice: asked for, open, closing (nothing is reserved any more), closed (reported).
//!
//! Invariants
//! - BUD-2 what a call reserved ends once: at its usage if that is known, else whole; and at nothing if
//!   the call was not made.
//! - BUD-4 a slice is spent by its own process, in its own window: what is settled is reported with the
//!   slice that it was reserved from.
//!
//! [`HolderTasks`] are what a process runs: one sends what the machine says, one keeps the
//! [`AccountsView`] like the bucket, and one tells accounts what the configuration says. Each may start
//! again at any time: all that matters is in the [`HolderHandle`].
//!
//! It never fails open: without a slice there is no grant.
//! On crash: its slices stay spent until their windows end, or until it is known that it is gone; the account knows whose
//! they were.
//! Not here: what a call costs, and which accounts it needs.

mod account_report;
mod accounts;
mod actor;
#[cfg(test)]
mod beside_tests;
mod call_cost;
mod call_hold;
mod configured_limits;
mod handle;
#[cfg(test)]
mod handle_tests;
mod io;
mod known_accounts;
mod machine;
#[cfg(test)]
mod properties;
mod slice_pool;
#[cfg(test)]
mod stranded_tests;
#[cfg(test)]
mod tests;
mod unjournaled;
mod waiting_calls;

pub use accounts::{AccountLimits, AccountsView};
pub use actor::{HolderTasks, read};
pub use call_cost::{CallCost, CallNeeds, CallUsage, Need};
pub use call_hold::{CallHold, EndHold};
pub use configured_limits::ConfiguredBudgets;
pub use handle::{HolderHandle, ReservePort};
pub use io::{GrantedHolds, HolderInput, HolderOptions, HolderOutput, Refusal, Reservation};
use known_accounts::KnownAccounts;
pub use machine::Holder;
pub use unjournaled::{unjournaled, unmark};
pub use waiting_calls::WaitReason;

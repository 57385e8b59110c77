//! An account: a kind of entities that grants slices of its limits to processes.
//!
//! Messages come from: people and configuration (`Set`, `Allow`), the holders of processes (`Ask`,
//! `Report`), a timer at the end of a window. It tells each process how things stand between them
//! ([`ProcessStanding`](clawnode_proto::budget::ProcessStanding)), after the append that decided it.
//!
//! Time is the time of events, so it never goes back, and a timer that has fired says that it was due.
//!
//! Invariants
//! - I6 no grant takes what is granted and open, and what is spent, over the limit in force when it is
//!   made. A limit that is lowered below that only stops grants.
//! - BUD-3 the spending of a window never falls, and it is the sum of the spending of its slices.
//! - BUD-4 a slice is spent by its own process, in its own window.
//!
//! On crash: nothing is lost; the next owner tells processes again how things stand.
//! Not here: what a call costs, and which accounts it needs.

mod account_events;
mod changes;
#[cfg(test)]
mod crash_points;
mod grant;
mod kind;
mod limit_book;
mod limit_sources;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod resident_tests;
#[cfg(test)]
mod size_tests;
mod state;
#[cfg(test)]
mod stranded_tests;
#[cfg(test)]
mod tests;

pub use changes::CHANGES_MOST;
pub use grant::{GrantVerdict, WaitingAsk};
pub use kind::{Budget, BudgetEffect, BudgetJob};
pub use limit_book::{LimitBook, Slice, WindowBook};
pub use state::BudgetState;

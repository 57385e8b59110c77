//! What may be spent: accounts, and what a process does with their slices.
//!
//! [`account`] is a kind of entities: it grants slices of its limits and records what was spent.
//! [`holder`] is a machine without I/O, one for each process: calls reserve from slices in memory, wait
//! there for more, and settle there. No process of a node has them yet: the simulator runs both.
//!
//! Not here: prices, and how large a call may become.

#![forbid(unsafe_code)]

pub mod account;
pub mod holder;

pub use account::{Budget, BudgetEffect, BudgetJob, BudgetState};
pub use holder::Holder;

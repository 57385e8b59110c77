//! What may be spent: accounts, as a kind of entities.
//!
//! [`account`] grants slices of its limits to processes and records what was spent. No process of a
//! node serves the kind yet.
//!
//! Not here: prices, and how large a call may become.

#![forbid(unsafe_code)]

pub mod account;

pub use account::{Budget, BudgetEffect, BudgetJob, BudgetState};

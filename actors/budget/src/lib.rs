//! What may be spent: accounts, and what a process does with their slices.
//!
//! [`account`] is a kind of entities: it grants slices of its limits and records what was spent.
//! [`holder`] is a machine without I/O, one for each process, with the tasks around it: calls reserve
//! from slices in memory, wait there for more, and settle there. [`BudgetRunner`] performs what accounts
//! want of the outside.
//!
//! Not here: prices, and how large a call may become.

#![forbid(unsafe_code)]

pub mod account;
#[cfg(test)]
mod frozen_tests;
pub mod holder;
#[cfg(test)]
mod last_cents_tests;
mod runner;

pub use account::{Budget, BudgetEffect, BudgetJob, BudgetState};
pub use holder::Holder;
pub use runner::BudgetRunner;

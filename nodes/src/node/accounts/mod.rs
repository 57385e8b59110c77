//! Accounts for people: what `budget.…` answers, and what `status`, `doctor` and metrics say of them.
//!
//! All of it is read from the journals of accounts, and every change is an input for one. `view`,
//! `wanted`, `explain_budget`, `dead_slices` and `metrics_and_warnings` decide without I/O.

mod answers;
mod dead_slices;
mod earlier_processes;
mod explain_budget;
mod metrics_and_warnings;
mod peers;
mod reconcile;
mod scan;
mod sessions_read;
#[cfg(test)]
mod test_account;
mod view;
mod wanted;

pub use answers::BudgetAnswers;
pub use metrics_and_warnings::WARNINGS;

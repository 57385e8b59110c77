//! Accounts for people: what `budget.…` answers, and what `status`, `doctor` and metrics say of them.
//!
//! All of it is read from the journals of accounts, and every change is an input for one. `account_view`,
//! `wanted_limits`, `explain_budget`, `dead_slices` and `metrics_and_warnings` decide without I/O.

mod account_view;
mod budget_answers;
mod cached_accounts;
mod dead_slices;
mod earlier_processes;
mod explain_budget;
mod metrics_and_warnings;
mod reconcile;
mod slice_owners;
mod spent_by_dead_processes;
#[cfg(test)]
mod test_account;
mod wanted_limits;

pub use budget_answers::BudgetAnswers;
pub use metrics_and_warnings::WARNINGS;

//! Accounts for people: what `budget.…` answers, and what `status`, `doctor` and metrics say of them.
//!
//! All of it is read from the journals of accounts, and every change is an input for one. `view`,
//! `wanted`, `explain_budget`, `closing` and `notes` decide without I/O.

mod answers;
mod closing;
mod explain_budget;
mod notes;
mod peers;
mod scan;
mod sessions_read;
#[cfg(test)]
mod test_account;
mod view;
mod wanted;

pub use answers::BudgetAnswers;
pub use notes::WARNINGS;

//! Budgets: every process has a holder, and calls reserve, settle and are lost with their processes:
//! synthetic ones ([`calls`]), and those of sessions ([`sessions`]).
//!
//! What may be spent is judged from outside, by what providers bill: [`bills`] knows neither the fold of
//! accounts nor the machine of holders.

mod account;
mod bills;
mod calls;
mod changes;
mod deaths;
mod holders;
mod journaled;
mod process;
mod sessions;
mod tally;
#[cfg(test)]
mod tests;

pub(super) use bills::Bills;
pub(super) use calls::priced;
pub(super) use process::ProcessHolder;
pub(super) use sessions::SessionHolds;
pub(super) use tally::BudgetTally;
pub use tally::{CrashPoints, LimitChanges, RefusedCalls};

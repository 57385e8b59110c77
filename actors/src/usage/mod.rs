//! Usage: what model calls used, by day, agent, user and model, for people and bills; and what agents did, for their
//! profiles.
//!
//! A projection of the feed of journals ([`clawnode_cluster::Journal::follow`]): one worker, the first
//! of partition 0, follows it and keeps two values for each day in the bucket (`counted_days`), each with the position up to
//! which it counts. Nothing waits for it and no decision depends on it. Journals stay the truth.
//!
//! Messages come from: no sender; it looks for new records every second. On crash: what was not
//! saved is followed again: at most five seconds of it, or a minute while it catches up.
//!
//! `call_rows` and `audit` read the journals themselves, when they are asked to: one shows each attempt, the other
//! counts a day again and compares.
//!
//! `cost` has what a call cost: it is decided once, when the call is counted, by the price in its journal.
//!
//! `session_usage` reads model calls from the journal of a session, and `agent_work` what its agent did. `agent_profile`
//! shows that.
//!
//! It is a loop without a mailbox, so there is no handle: `actor` has the loop, `state` the count.
//!
//! Invariants
//! - USE-1 every call outcome in a journal, and every attempt without one, is counted once, whatever
//!   process follows, stops or follows at the same time.

mod actor;
mod agent_profile;
mod agent_work;
mod ahead;
mod audit;
mod call_rows;
#[cfg(test)]
mod catching_up_tests;
mod cost;
#[cfg(test)]
mod cost_tests;
mod counted_days;
mod history;
#[cfg(test)]
mod reflection_tests;
mod session_usage;
mod state;
mod stopped;
mod stored;
#[cfg(test)]
mod summary_tests;
#[cfg(test)]
mod tape;
#[cfg(test)]
mod tests;
mod usage_view;
#[cfg(test)]
mod work_tests;

pub use actor::run;
pub use agent_profile::profile;
pub use audit::audit;
pub use call_rows::{CallPlace, calls};
pub use usage_view::{behind, show};

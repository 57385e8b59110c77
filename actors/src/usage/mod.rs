//! Usage: what model calls used, by day, agent, user and model, for people and bills; and what agents did, for their
//! profiles.
//!
//! A projection of the feed of journals ([`clawnode_cluster::Journal::follow`]): one worker, the first
//! of partition 0, follows it and keeps two values for each day in the bucket (`days`), each with the position up to
//! which it counts. Nothing waits for it and no decision depends on it. Journals stay the truth.
//!
//! Messages come from: no sender; it looks for new records every second. On crash: what was not
//! saved is followed again: at most five seconds of it, or a minute while it catches up.
//!
//! `calls` and `audit` read the journals themselves, when they are asked to: one shows each attempt, the other
//! counts a day again and compares.
//!
//! `cost` has what a call cost: it is decided once, when the call is counted, by the price in its journal.
//!
//! `meter` reads model calls from the journal of a session, and `work` what its agent did. `profile` shows that.
//!
//! It is a loop without a mailbox, so there is no handle: `actor` has the loop, `state` the count.
//!
//! Invariants
//! - USE-1 every call outcome in a journal, and every attempt without one, is counted once, whatever
//!   process follows, stops or follows at the same time.

mod actor;
mod ahead;
mod audit;
mod calls;
#[cfg(test)]
mod catching_up_tests;
mod cost;
#[cfg(test)]
mod cost_tests;
mod days;
mod history;
mod meter;
mod profile;
#[cfg(test)]
mod reflection_tests;
mod show;
mod state;
mod stopped;
mod stored;
#[cfg(test)]
mod summary_tests;
#[cfg(test)]
mod tape;
#[cfg(test)]
mod tests;
mod work;
#[cfg(test)]
mod work_tests;

pub use actor::run;
pub use audit::audit;
pub use calls::{CallPlace, calls};
pub use profile::profile;
pub use show::{behind, show};

//! A memory: a kind of entities with the points that an agent, or several, learned.
//!
//! Inputs come from people (`Put`, `Import`, `Forget`, `Delete`), from sessions (`Rate`) and from a timer a day after something was
//! added. What is decided is an event: a point is added, and may supersede others; points are masked; consolidation takes
//! points out of the live ones; feedback moves how much they matter.
//!
//! Time is the time of events, so it never goes back, and a timer that has fired says that it was due.
//!
//! Invariants
//! - MEM-3 one source event gives one point: telling it again adds nothing. Points of other clusters (`Import`) are known by
//!   the time of their event as well (`foreign`).
//! - MEM-4 what is masked or superseded is not shown as live after that event.
//! - A memory has at most 20,000 live points with 2 MiB of text, and no owner adds one to as many as its configuration
//!   says (2,000). What a person or an operator said leaves only when they forget it, or when something that is trusted as
//!   much supersedes it or says the same.
//!
//! On crash: nothing is lost; the next owner decides what the journal says.
//! Not here: finding points by a text (`store`), and what a message says (`extract`).

mod consolidate;
mod duplicates;
mod feedback;
#[cfg(test)]
mod feedback_tests;
mod foreign;
#[cfg(test)]
mod foreign_tests;
mod kept;
mod kind;
#[cfg(test)]
mod kind_tests;
mod limit;
#[cfg(test)]
mod limit_tests;
mod past_points;
#[cfg(test)]
mod past_points_tests;
#[cfg(test)]
mod properties;
mod state;
#[cfg(test)]
mod tests;
mod weight;

pub use kept::{KeptPoint, PastPoint, PutAnswer};
pub use kind::{Memory, MemoryEffect, MemoryJob};
pub use limit::{points_most, set_points_most};
pub use state::MemoryState;
pub use weight::weight;

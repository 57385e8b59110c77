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
//!   the time of their event as well (`imported_points`).
//! - MEM-4 what is masked or superseded is not shown as live after that event.
//! - A memory has at most 20,000 live points with 2 MiB of text, and no owner adds one to as many as its configuration
//!   says (2,000). What a person or an operator said leaves only when they forget it, or when something that is trusted as
//!   much supersedes it or says the same.
//!
//! On crash: nothing is lost; the next owner decides what the journal says.
//! Not here: finding points by a text (`store`), and what a message says (`extract`).

mod consolidate;
mod duplicates;
#[cfg(test)]
mod feedback_tests;
#[cfg(test)]
mod foreign_tests;
mod importance_by_feedback;
mod imported_points;
mod kept_points;
mod kind;
#[cfg(test)]
mod kind_tests;
#[cfg(test)]
mod limit_tests;
mod past_points;
#[cfg(test)]
mod past_points_tests;
mod point_weight;
mod points_limit;
#[cfg(test)]
mod properties;
mod state;
mod superseding;
#[cfg(test)]
mod tests;

pub use kept_points::{KeptPoint, PastPoint, PutAnswer};
pub use kind::{Memory, MemoryEffect, MemoryJob};
pub use point_weight::weight;
pub use points_limit::{points_most, set_points_most};
pub use state::MemoryState;

//! What turns take from memories, and what memories learn from turns. Pure.
//!
//! - `recall_for_turn`: what is searched for before a turn's first call, what of that is shown, and how (MEM-1, MEM-2).
//! - `recall_permission`: whether a turn recalls anything.
//! - `shown_passages`: what a request shows of its own conversation, which is not recalled.
//! - `learning`: what memories learn from a turn that has ended, and from reflections (MEM-3).
//! - `unlearned_messages`: which events have what persons said, until memories have learned from it.
//! - `turn_feedback` and `rated_points`: what people think of turns, and which points move by that.
//!
//! Calls of memory tools are in `tools`.

#[cfg(test)]
mod feedback_tests;
pub mod learning;
#[cfg(test)]
mod learning_tests;
mod rated_points;
pub mod recall_for_turn;
mod recall_permission;
#[cfg(test)]
mod recall_tests;
pub mod shown_passages;
#[cfg(test)]
mod standing_tests;
pub mod turn_feedback;
pub mod unlearned_messages;

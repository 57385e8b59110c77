//! Compaction: a model's summary takes the place of older turns. Pure.
//!
//! - `compaction_call`: when a summary is due, and the call that writes it (COMP-1).
//! - `compaction_fold`: what the journal says of summaries, taken into the state.
//! - `room_beside`: what a summary leaves of the limits for its own turn.
//!
//! What a state keeps of summaries is in `state_parts`.

pub(super) mod compaction_call;
mod compaction_fold;
#[cfg(test)]
mod compaction_tests;
mod room_beside;

//! Parts of a session's state that name nothing else of a turn. Pure.
//!
//! - `compaction_state`: the summary that requests show, and the running turn's attempt at another one.
//! - `reflection_state`: the turns that a model is to look back at, and what memories do not have yet.
//! - `settled_cost`: what attempts at model calls have reserved, and what they have cost (PRICE-1).
//! - `due_summary_memo`: whether a summary is due, remembered until the session changes.
//! - `kept_choices`: the model and the reasoning that messages chose for their session.

pub mod compaction_state;
pub(super) mod due_summary_memo;
pub mod kept_choices;
pub mod reflection_state;
pub mod settled_cost;

//! What a model is shown: how its input is built from a session's state, and how large that is. Pure.
//!
//! - `model_input`: the whole request, and the room for its reply (CTX-1).
//! - `turn_messages`: a turn as messages, as a model reads it, and as people are shown it.
//! - `bounded` and `dropping`: which earlier turns a request shows, and which it leaves out (CTX-2, CTX-3, CACHE-1).
//! - `attachments`: which images and files one request holds; `refused_attachments`: those that a provider refused.
//! - `ledger_blocks`: a turn's own work as entries of the ledger, once it has written them (LED-1).
//! - `skills`: which skills a turn begins with, and how they are shown.
//! - `system_prompt`: the agent's part, which may be in the blob store, and the turn's.
//! - `token_estimate`, `measured_tokens`: how large a request seems, and how large it is by what providers report.
//! - `size_bound`, `count_tokens`: how large a request is at most, and how large one would be, before it is made.

pub(super) mod attachments;
pub(super) mod bounded;
#[cfg(test)]
pub(super) mod bounded_tests;
pub mod count_tokens;
pub mod dropping;
mod ledger_blocks;
#[cfg(test)]
mod ledger_blocks_tests;
pub mod measured_tokens;
pub mod model_input;
mod refused_attachments;
pub(super) mod size_bound;
mod skills;
pub(in crate::session) mod system_prompt;
#[cfg(test)]
mod system_prompt_tests;
pub(super) mod token_estimate;
mod turn_messages;

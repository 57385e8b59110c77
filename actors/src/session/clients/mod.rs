//! What clients and operators ask of sessions: send, follow, list, inspect, rate, delete.
//!
//! `sessions` has the handle; `accept_message` stores what comes in, and `follow_turn` follows turns. The handle uses
//! the kernel's `Entities`, which sees entities of every kind. Everything here reads journals and writes inboxes;
//! nothing here appends.

mod accept_message;
pub(in crate::session) mod approvals;
pub(in crate::session) mod archived_turns;
pub mod attached_content;
pub mod bindings;
pub(in crate::session) mod client_tool_results;
pub(in crate::session) mod directory;
pub mod executions;
pub mod files;
pub(in crate::session) mod follow;
pub(in crate::session) mod follow_from;
mod follow_turn;
pub(in crate::session) mod frame_listeners;
mod given_feedback;
pub(in crate::session) mod history_and_export;
pub mod ledger_for_people;
pub(in crate::session) mod named_points;
#[cfg(test)]
mod past_tests;
pub(in crate::session) mod progress;
pub mod recorded_turn;
pub(in crate::session) mod repeats_without_key;
pub(in crate::session) mod reply_parts;
pub(in crate::session) mod reset;
pub(in crate::session) mod send_error;
pub mod session_list;
pub mod sessions;
pub(in crate::session) mod shared_reads;
pub mod shown_context;
pub(in crate::session) mod single_flight;
pub mod stateless_expiry;
pub(in crate::session) mod turn_pages;

//! Performs what a turn decided: calls models and tools, asks people and hooks, waits for jobs.
//!
//! `session_runner` is the entry, `perform` begins each kind of effect, which has a file of its own. `frames` sends
//! what clients see. A crash loses what is under way and not recorded, and the next owner decides again.

pub(in crate::session) mod admission;
pub(in crate::session) mod awaited_jobs;
pub mod budget_reservation;
#[cfg(test)]
mod budget_reservation_tests;
mod create_skill_runs;
pub(in crate::session) mod dead_runners;
mod deleted_sources;
pub(in crate::session) mod erase;
mod feedback_points;
pub(in crate::session) mod frames;
pub(in crate::session) mod hook_calls;
mod hook_input;
pub(in crate::session) mod kept_frames;
mod learned_facts;
mod lessons;
mod memory_tool_runs;
pub(in crate::session) mod model_call;
#[cfg(test)]
mod model_call_tests;
pub(in crate::session) mod model_request;
pub(in crate::session) mod perform;
pub(in crate::session) mod provider_wait_notes;
pub(in crate::session) mod recall_search;
pub(in crate::session) mod reported_tokens;
pub mod session_runner;
mod stored_system_prompt;
mod stored_thoughts;
pub(in crate::session) mod tool_calls;
pub(in crate::session) mod turn_end;
pub(in crate::session) mod waiting_holds;
pub(in crate::session) mod waits_for_people;

//! Performs what a turn decided: calls models and tools, asks people and hooks, waits for jobs.
//!
//! `run` is the entry, `perform` begins each kind of effect, which has a file of its own. `frames` sends
//! what clients see. A crash loses what is under way and not recorded, and the next owner decides again.

pub(in crate::session) mod admission;
pub(in crate::session) mod awaited_jobs;
pub(in crate::session) mod call;
#[cfg(test)]
mod call_tests;
pub(in crate::session) mod dead_runners;
mod deleted_sources;
pub(in crate::session) mod erase;
mod feedback_points;
pub(in crate::session) mod frames;
mod hook_input;
pub(in crate::session) mod hooks;
pub(in crate::session) mod kept_frames;
mod learned_facts;
mod lessons;
mod memory_tools;
pub(in crate::session) mod perform;
mod prompt;
pub(in crate::session) mod provider_waits;
pub(in crate::session) mod recall;
pub(in crate::session) mod reported_tokens;
pub(in crate::session) mod request;
pub mod reserve;
#[cfg(test)]
mod reserve_tests;
pub mod run;
mod skill_tools;
pub(in crate::session) mod tool_calls;
pub(in crate::session) mod turn_end;
pub(in crate::session) mod waiting_holds;
pub(in crate::session) mod waits_for_people;

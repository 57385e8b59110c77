//! The tools that a model asks for: which calls run, who decides that, and what clients see of them. Pure.
//!
//! - `tool_calls`: what follows from the calls of a reply, which of them run, and which never will.
//! - `permission`: whether rules allow a call, deny it, or have a person asked.
//! - `approval`: what is known of a person's decision.
//! - `client_tools`: calls that a client runs, how long they wait, and what it brings.
//! - `tool_choice`: whether a model must call one, by what its client chose.
//! - `tool_frames`: what clients see of a reply's tools.
//! - `memory_tool_calls`: what `remember`, `recall` and `forget` ask of memories.
//! - `create_skill_calls`: what must hold before `create_skill` runs.
//! - `ledger_entries`: what an agent wrote down of its work, and how the calls end that write it.
//!
//! `tool_jobs`, above, has what becomes of a call's job.

pub mod approval;
pub mod client_tools;
mod create_skill_calls;
pub(in crate::session) mod ledger_entries;
pub(in crate::session) mod memory_tool_calls;
pub mod permission;
pub mod tool_calls;
mod tool_choice;
pub mod tool_frames;

//! The tools that a model asks for: which calls run, who decides that, and what clients see of them. Pure.
//!
//! - `tool_calls`: what follows from the calls of a reply, which of them run, and which never will.
//! - `permission`: whether rules allow a call, deny it, or have a person asked.
//! - `approval`: what is known of a person's decision.
//! - `client_tools`: calls that a client runs, how long they wait, and what it brings.
//! - `tool_frames`: what clients see of a reply's tools.
//! - `memory_tools`: what `remember`, `recall` and `forget` ask of memories.
//! - `skill_tools`: what must hold before `create_skill` runs.
//! - `ledger`: what an agent wrote down of its work, and how the calls end that write it.
//!
//! `tool_jobs`, above, has what becomes of a call's job.

pub mod approval;
pub mod client_tools;
pub(in crate::session) mod ledger;
pub(in crate::session) mod memory_tools;
pub mod permission;
mod skill_tools;
pub mod tool_calls;
pub mod tool_frames;

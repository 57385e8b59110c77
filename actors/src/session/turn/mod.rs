//! What a turn is and what follows from it. Pure: no runtime, no store, no clock.
//!
//! `fold` takes the journal's events into `state`, which has more of its parts in `state_parts`; `kind` decides what comes
//! next, in `effect`s; `prepare` has what performing an effect takes.
//!
//! A turn's life: `begin` says how turns begin, `steer` what joins one that runs, `clock` how long one may run, `ending` what
//! follows a reply and how a turn ends, `plan` how one runs without a model, and `kept_turns` which turns a state keeps.
//!
//! What happens in a turn is in folders: `context` (what a model is shown), `model_call` (which model, what it may cost, what
//! follows if it fails), `tools` (which calls run), `hooks` (what they decided), `compaction` (summaries), `memory` (recall
//! and learning) and `reflection` (a model looks back at a turn). `tool_jobs` says what becomes of a tool call's job.
//!
//! For people who look from outside: `recorded` says what a journal has, and `explain_context` what a model was shown, and
//! why.

mod begin;
#[cfg(test)]
mod begun_again_tests;
pub mod clock;
mod compaction;
pub mod context;
pub mod effect;
pub(in crate::session) mod ending;
pub mod explain_context;
pub(in crate::session) mod fold;
pub mod hooks;
pub mod kept_turns;
pub mod kind;
pub mod memory;
pub mod model_call;
pub(in crate::session) mod plan;
pub mod prepare;
mod recorded;
mod reflection;
pub mod state;
pub mod state_parts;
mod steer;
pub mod tool_jobs;
pub mod tools;

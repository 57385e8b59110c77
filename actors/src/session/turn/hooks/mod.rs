//! What follows from hooks: which calls wait for them, and what they decided. Pure.
//!
//! HOOK-1: what a hook decided takes effect only by an event that says so (`model_hooked`,
//! `tool_hooked`, `tool_done`); the fold refuses a call that begins without it.
//! HOOK-2: what runs and what is sent is what hooks have judged: a model request that has become
//! another one is judged again, and changed arguments pass the schema, rules and people like any.

mod decided;
#[cfg(test)]
mod tests;

pub(in crate::session) use decided::judged;
pub use decided::shown;
pub(in crate::session) use decided::{
    HookFate, conclude, effects, fate, has_run, is_result_to_be_judged, of_model, of_tool, patched,
    withheld,
};
pub(crate) use decided::{ModelJudged, ToolJudged};

//! Reflection: a model looks back at a turn that has ended, to rate it, or to find facts in what its person said. Pure.
//!
//! - `reflected_turns`: which turns are looked back at.
//! - `reflection_call`: when that happens, and the call that does it.
//! - `reflection_request`: what a model is shown of a turn that it rates, and how its reply is read.
//! - `fact_request`: what it is shown to find facts, and how that reply is read; `secret_facts`: which are left out.
//! - `reflection_fold`: what the journal says of reflections, taken into the state.
//!
//! What a state keeps of reflections is in `state_parts`; what memories learn from them, in `memory`.

#[cfg(test)]
mod extraction_tests;
mod fact_request;
mod reflected_turns;
pub(super) mod reflection_call;
mod reflection_fold;
mod reflection_request;
#[cfg(test)]
mod reflection_tests;
mod secret_facts;

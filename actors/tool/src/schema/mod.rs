//! Schemas: whether one may be used, and whether a tool call's arguments, or a reply, fit theirs.
//!
//! [`check`](fn@check) is for the time of configuration, [`judge`](fn@judge) for each call, and
//! [`check_response`] and [`judge_reply`] are for structured replies. All are pure and come to an end on any input. Schemas come from other people's servers, arguments
//! from a model, so the work is bounded beforehand (`weigh`): a schema refers only to itself and
//! never in a circle, is neither deep nor wide once its references are followed, and its patterns
//! run on an engine that is linear in the text. Nothing is ever fetched.
//!
//! The answer of `judge` is for the model, which does better with an example than with a verdict:
//! what is wrong with which field, the shape of the arguments (`shape`), and the smallest object
//! that fits (`example`).

mod check_arguments;
mod check_tool;
mod example;
mod faults;
mod reply;
mod shape;
mod weigh;

pub use check_arguments::{judge, judge_names};
pub use check_tool::{SchemaError, SchemaFault, check};
pub use reply::{check_response, judge_reply};

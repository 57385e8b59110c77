//! A tool's schema: whether it may be used, and whether a call's arguments fit it.
//!
//! [`check`](fn@check) is for the time of configuration, [`judge`](fn@judge) for each call. Both
//! are pure and come to an end on any input. Schemas come from other people's servers, arguments
//! from a model, so the work is bounded beforehand (`weigh`): a schema refers only to itself and
//! never in a circle, is neither deep nor wide once its references are followed, and its patterns
//! run on an engine that is linear in the text. Nothing is ever fetched.
//!
//! What `judge` answers is for the model, which does better with an example than with a verdict:
//! what is wrong with which field, the shape of the arguments (`shape`), and the smallest object
//! that fits (`example`).

mod check;
mod example;
mod faults;
mod judge;
mod shape;
mod weigh;

pub use check::{SchemaError, check};
pub use judge::judge;

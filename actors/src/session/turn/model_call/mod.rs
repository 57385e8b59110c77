//! A model call: which model is asked, what the call may cost, and what follows if it fails. Pure.
//!
//! - `first_model`: which model a call asks first.
//! - `next_call`: the next attempt, with its request, before money is reserved for it.
//! - `reservation_size`: what that attempt can cost at most, and what is reserved for it (BUD-1).
//! - `next_needs`: the same for people who ask why a session waits.
//! - `give_way`: an attempt that ended early: another model is asked, or the turn waits for a provider (GIVE-1).
//! - `wait_for_provider`: whether that turn waits or fails, and how long it waits.
//! - `reply_schema`: whether a reply fits its schema, and what follows if it does not.

pub(in crate::session) mod first_model;
pub mod give_way;
#[cfg(test)]
pub(super) mod model_tests;
pub mod next_call;
pub mod next_needs;
pub(in crate::session) mod reply_schema;
#[cfg(test)]
mod reply_schema_tests;
pub(super) mod reservation_size;
#[cfg(test)]
mod reservation_size_tests;
pub mod wait_for_provider;

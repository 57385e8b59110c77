//! A session: a durable conversation with an agent.
//!
//! [`state`] is what has happened, [`kind`] what follows from it, [`context`] what the model sees.
//! All three are pure. A turn: a user's message is accepted, a model call is begun and ends, the
//! reply is recorded, the turn is done and settled, its post-turn effects are emitted.
//!
//! Messages come from: the inbox (`SessionInput`). On crash: a call in flight is made once more
//! per crash and counted as lost; a recorded one never.
//!
//! Invariants: SES-1 (I3) a call has at most one outcome, and attempts at it count up by one.
//! SES-2 turns end in the order in which they were accepted.

mod admission;
pub mod approval;
mod approvals;
mod awaited;
mod call;
mod chain;
pub mod client;
pub mod clock;
pub mod context;
mod directory;
mod ears;
mod ending;
mod erase;
pub mod execute;
mod flight;
mod fold;
mod follow;
mod frames;
pub mod hooks;
mod inspect;
mod jobs;
mod judge;
pub mod kind;
pub mod listing;
mod look;
mod people;
mod plan;
#[cfg(test)]
pub(crate) mod played;
pub mod prepare;
mod progress;
mod quarantine;
mod repeated;
mod request;
pub mod route;
pub mod run;
mod send_error;
pub mod settle;
#[cfg(test)]
mod snapshots;
pub mod state;
pub mod sweep;
mod texts;
pub mod tools;

pub(crate) use awaited::Awaited;
pub use client::{Sent, Sessions};
pub use context::Assembled;
pub use frames::FrameHub;
pub use kind::{CallKey, Outcome, Session};
pub use prepare::SessionJob;
pub use run::{ResolveModel, SessionRunner, TraceLink};
pub use send_error::SendError;
pub use state::{SessionState, Step, StepEnd, Turn};
pub(crate) use texts::stored_outcome;

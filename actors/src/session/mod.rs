//! A session: a durable conversation with an agent.
//!
//! [`turn`] decides and is pure: its `state` is what has happened, its `kind` what follows from it, its
//! `context` what the model sees. [`effect`] performs what was decided, and [`clients`] answers who
//! asks from outside. A turn: a user's message is accepted, a model call is begun and ends, the
//! reply is recorded, the turn is done and settled, its post-turn effects are emitted.
//!
//! Messages come from: the inbox (`SessionInput`). On crash: a call in flight is made once more
//! per crash and counted as lost; a recorded one never.
//!
//! Invariants: SES-1 (I3) a call has at most one outcome, and attempts at it count up by one.
//! SES-2 turns end in the order in which they were accepted.

pub mod clients;
pub mod effect;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
pub(crate) mod played;
#[cfg(test)]
mod played_budgets;
#[cfg(test)]
mod snapshot_tests;
mod texts;
pub mod turn;

pub use clients::{
    send_error::SendError,
    sessions::{SentMessage, Sessions},
};
pub(crate) use effect::awaited_jobs::Awaited;
pub use effect::{
    kept_frames::FrameHub,
    recall_search::{RecallStore, SearchedTurn},
    session_runner::{ResolveModel, RunnerParts, SessionRunner, TraceLink},
};
pub(crate) use texts::{stored_outcome, stored_with_media};
pub use turn::{
    context::model_input::Assembled,
    effect::{Effect, Outcome, Want, WantedHold},
    kind::Session,
    prepare::{EffectJob, SessionJob},
    state::{SessionState, Step, StepEnd, Turn},
};

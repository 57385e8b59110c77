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

pub mod context;
pub mod kind;
pub mod state;

pub use context::Assembled;
pub use kind::{CallKey, Outcome, Session, SessionJob};
pub use state::{SessionState, Step, StepEnd, Turn};

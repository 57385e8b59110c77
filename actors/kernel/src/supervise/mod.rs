//! Supervision: each child kind's written fate.
//!
//! ractor's default supervisor stops when any child ends; this one does not. A [`Supervisor`]
//! starts its children from factories and restarts those whose fate says so, with back-off. It does
//! not care for entity actors: their partition's dispatcher does.
//!
//! Supervised by: no actor; the composition root stops it. Messages come from: its handle (adopt,
//! dismiss, view), its own timers (restart), and the ends of its children. On crash: its children
//! end with it.

mod actor;
mod child;
mod handle;
mod state;

use std::time::Duration;

pub use child::{ChildFate, ChildKind, Factory};
pub use handle::{ChildView, Supervisor};

/// The longest wait before a child is started again.
const RESTART_MOST: Duration = Duration::from_secs(10);

/// A supervisor that cannot be reached any more.
#[derive(Debug, thiserror::Error)]
#[error("the supervisor of this node has stopped")]
pub struct SupervisorStopped;

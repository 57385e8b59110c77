//! Policy: whether a tool call runs by itself, waits for a person, or never runs. Pure.
//!
//! The first rule about a call decides. Without one, what only looks is allowed, and a person is
//! asked about everything else: nothing is allowed because nobody thought of it. A path or a URL
//! is the same in every spelling (`spelling`).
//!
//! APR-1: a call that a person was asked about begins only after they approved of the action that
//! it is. APR-2: what runs is the action that was decided on, compared where it runs. APR-3: time
//! never approves.

mod command;
mod judge;
mod pattern;
#[cfg(feature = "test-util")]
mod planted;
mod spelling;

pub use command::{ReadOnly, ReadOnlyError, risk_of};
pub use judge::{Judgement, PolicyCall, deciding, exactly, judge};
pub use pattern::Pattern;
#[cfg(feature = "test-util")]
pub use planted::PolicyBug;
pub use spelling::{names, path, place};

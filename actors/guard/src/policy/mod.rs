//! Policy: whether a tool call runs by itself, waits for a person, or never runs. Pure.
//!
//! The first rule about a call decides. Without one, calls that only look are allowed, and a person
//! decides about all others: nothing is allowed by default that changes something. A path or a URL
//! is the same in every spelling (`spelling`).
//!
//! APR-1: if a person was asked about a call, it begins only after they approved exactly that
//! action. APR-2: what runs is the action that was decided on, compared where it runs. APR-3: an
//! unanswered request is denied, never approved.

mod command;
mod decision;
mod pattern;
#[cfg(feature = "test-util")]
mod planted;
mod spelling;

pub use command::{ReadOnly, ReadOnlyError, risk_of};
pub use decision::{Judgement, PolicyCall, deciding, exactly, judge};
pub use pattern::Pattern;
#[cfg(feature = "test-util")]
pub use planted::PolicyBug;
pub use spelling::{names, path, place};

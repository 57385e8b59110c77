//! What an account records, beside the kernel's events.

use serde::{Deserialize, Serialize};

use super::{BudgetLimit, LimitKey, LimitSource, WindowNumber};
use crate::{grammar, id::ProcessId};

grammar! {
    /// What happens to an account. Its inputs are journaled by the kernel; an event is written where
    /// something is decided.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum BudgetEvent {
        /// Its limits were set.
        Set(BudgetSet) = "budget_set", required, progress;
        /// A person allows more.
        Allowed(BudgetAllowed) = "budget_allowed", required, progress;
        /// A process has a slice.
        Granted(BudgetGranted) = "budget_granted", required, progress;
        /// A share of a limit is spent.
        Warned(BudgetWarned) = "budget_warned", required, progress;
        /// A person has to allow more.
        Asked(BudgetAsked) = "budget_asked", required, progress;
        /// A call has cost more than it could.
        Over(BudgetOver) = "budget_over", required, progress;
        /// A window has ended, and the next one begins.
        Window(WindowBegun) = "budget_window", required, progress;
    }
}

/// Limits were set, or what people set was reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetSet {
    /// Who set them.
    pub source: LimitSource,
    /// The limits that this source wants from now on, if it wants any.
    pub limits: Option<Vec<BudgetLimit>>,
    /// On which limits a person decides, also those that they took away. The configuration decides on all others; if
    /// it changes, another event of this kind has all limits again. Absent: on all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decides: Option<Vec<LimitKey>>,
}

/// A person allows more to be granted in this window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetAllowed {
    /// The person who allows it, in words for people.
    pub by: String,
    /// The unit and the window whose limit it is.
    pub limit: LimitKey,
    /// In which window.
    pub window: WindowNumber,
}

/// A process may spend this much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetGranted {
    /// The only process that may spend it.
    pub process: ProcessId,
    /// Its number for the slice.
    pub number: u64,
    /// The unit and the window whose limit is granted from.
    pub limit: LimitKey,
    /// In which window.
    pub window: WindowNumber,
    /// How much.
    pub amount: u64,
}

/// The warning share of a limit is spent, for the first time in this window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetWarned {
    /// The unit and the window whose limit it is.
    pub limit: LimitKey,
    /// In which window.
    pub window: WindowNumber,
    /// What is spent.
    pub spent: u64,
    /// The limit.
    pub amount: u64,
}

/// Nothing more is granted until a person allows it, or the window ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetAsked {
    /// The unit and the window whose limit it is.
    pub limit: LimitKey,
    /// In which window.
    pub window: WindowNumber,
    /// What is spent.
    pub spent: u64,
    /// The limit.
    pub amount: u64,
}

/// Calls have cost more than they could: nothing more is granted until a person allows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetOver {
    /// The unit and the window whose limit it is.
    pub limit: LimitKey,
    /// In which window.
    pub window: WindowNumber,
    /// By how much, all such calls of the window together.
    pub excess: u64,
}

/// A window has ended, and the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowBegun {
    /// The unit and the window whose count begins at zero again.
    pub limit: LimitKey,
    /// The window that begins.
    pub window: WindowNumber,
    /// The window that has ended.
    pub ended: WindowNumber,
    /// What was spent in it.
    pub spent: u64,
    /// What processes still had of it. It is counted as spent until they report.
    pub open: u64,
}

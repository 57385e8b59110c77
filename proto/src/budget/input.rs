//! What an account is sent, and what it says to the processes that spend.

use serde::{Deserialize, Serialize};

use super::{AccountKey, AccountVersion, BudgetLimit, LimitKey, WindowNumber};
use crate::{id::ProcessId, timestamp::Timestamp};

/// What may be sent to an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BudgetInput {
    /// Sets the limits. What a person sets holds until it is reset, whatever is configured.
    Set {
        /// Who sets them.
        source: LimitSource,
        /// All limits of the account; nothing resets what people set.
        limits: Option<Vec<BudgetLimit>>,
        /// On which limits a person decides, also those that they take away: the configuration goes on to decide on
        /// all others. Absent: on all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decides: Option<Vec<LimitKey>>,
    },
    /// A process asks for slices, and reports about those that it has.
    Ask {
        /// The process that is to spend them. Its answer is a [`ProcessStanding`].
        process: ProcessId,
        /// For what.
        asks: Vec<SliceAsk>,
        /// Taken first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reports: Vec<SliceReport>,
        /// Those that membership holds dead of the processes for which its asks wait.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dead: Vec<ProcessId>,
    },
    /// A process reports about its slices.
    Report {
        /// The process that spent them.
        process: ProcessId,
        /// What it says of each.
        reports: Vec<SliceReport>,
    },
    /// A person allows more to be granted, up to the limit, in this window.
    Allow {
        /// The person who allows it, in words for people.
        by: String,
        /// The unit and the window that it is allowed in.
        limit: LimitKey,
        /// In which window; it has no effect on another one.
        window: WindowNumber,
    },
    /// The timer for the end of a window has fired.
    TimerFired {
        /// When it was due.
        due: Timestamp,
    },
}

/// Where limits come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LimitSource {
    /// A configuration file.
    Configured,
    /// The built-in default, because no configuration has a limit.
    BuiltIn,
    /// Someone at the API or the command line.
    Person {
        /// In words for people; it decides nothing.
        name: String,
    },
}

/// A process asks for a slice. It asks again under the same number until it has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SliceAsk {
    /// The process's number for the slice: higher than any that it asked for before.
    pub number: u64,
    /// The unit and the window to spend from.
    pub limit: LimitKey,
    /// What the first waiting call can cost at most.
    pub call: u64,
    /// With how much it could still be made.
    pub least: u64,
    /// What all waiting calls can cost at most.
    pub waits: u64,
}

/// What a process says of one of its slices. All amounts are totals since the slice was granted, so a
/// report that is lost, or comes twice, changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SliceReport {
    /// The process's number for the slice.
    pub number: u64,
    /// The window that the slice is of.
    pub window: WindowNumber,
    /// Counts the reports about this slice, from 1: an earlier one has no effect.
    pub seq: u64,
    /// What ended calls have cost.
    pub spent: u64,
    /// What calls that run can cost at most.
    pub held: u64,
    /// What will not be spent.
    pub returned: u64,
    /// By how much calls have cost more than they could.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub over: u64,
    /// Nothing more is spent of it.
    pub closed: bool,
}

impl SliceReport {
    /// The number of a report that an operator makes for a process that is gone: no other report comes after it, and
    /// the process asks for nothing any more.
    pub const LAST: u64 = u64::MAX;
}

/// How things stand between an account and one process. It is whole: a later one replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessStanding {
    /// The account that says this.
    pub account: AccountKey,
    /// Where the account's journal is; an earlier standing than one that came before has no effect.
    pub version: u64,
    /// When the account began. One that was deleted and began again counts its events from 1. Absent: its owner is of
    /// a build that does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// The slices that the process has.
    pub slices: Vec<GrantedSlice>,
    /// What it asked for and has not got.
    pub answers: Vec<AskAnswer>,
}

// === impl ProcessStanding ===

impl ProcessStanding {
    /// When the account said this.
    pub const fn said_at(&self) -> AccountVersion {
        AccountVersion { begun: self.begun, n: self.version }
    }
}

/// A slice that a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantedSlice {
    /// The process's number for it.
    pub number: u64,
    /// The unit and the window that it is spent from.
    pub limit: LimitKey,
    /// In which window.
    pub window: WindowNumber,
    /// How much was granted.
    pub amount: u64,
    /// What is not in use should come back: others wait for it, or its window has ended.
    pub recalled: bool,
}

/// Why a process has not got a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskAnswer {
    /// The process's number for the slice.
    pub number: u64,
    /// The unit and the window that it asked for.
    pub limit: LimitKey,
    /// What keeps it from getting one.
    pub verdict: AskVerdict,
    /// The other process that may still spend the most of the limit, if the ask waits for what comes back. It is one
    /// that the account holds dead only if what all others may give back is too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<ProcessId>,
}

/// Why there is no slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AskVerdict {
    /// There will be one when something comes back.
    Waits,
    /// A person has to allow more, or the window has to end.
    NeedsPerson {
        /// What the window has spent.
        spent: u64,
        /// In the unit that was asked for: micro-dollars, tokens or model calls.
        limit: u64,
    },
    /// So much is spent that the call cannot be made, whatever comes back.
    SpentOut {
        /// What the window has spent.
        spent: u64,
        /// In the unit that was asked for: micro-dollars, tokens or model calls.
        limit: u64,
    },
    /// The account has no such limit any more.
    NoLimit,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

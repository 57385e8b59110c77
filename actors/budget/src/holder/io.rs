//! What a holder takes, and what it returns.

use std::time::Duration;

use clawnode_proto::{
    ProcessId,
    budget::{AccountKey, BudgetInput, Hold, LimitKey, ProcessStanding},
};

use super::{CallNeeds, CallUsage, WaitReason};

/// What a person may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderOptions {
    /// How long a call waits for an account that cannot be reached. Less ends calls that a short outage
    /// would only delay.
    pub patience: Duration,
    /// How long a call waits for a person who has to allow more, or to close what a dead process has.
    pub ask_wait: Duration,
}

/// One call, as its process counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reservation(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderInput {
    /// A call wants to be made.
    Reserve(Reservation, CallNeeds),
    /// A call has ended, and may have been billed.
    Settle(Reservation, CallUsage),
    /// A call that waits, or was granted, was never made.
    Release(Reservation),
    /// An account says how things stand.
    Told(ProcessStanding),
    /// What was sent to an account is in its inbox, or may not be there.
    Stored(AccountKey, bool),
    /// Some of a second has passed.
    Tick,
    /// The process ends in order: what no call uses goes back, and no call waits.
    Leave,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderOutput {
    /// Put this into an account's inbox. Nothing more is sent to it until [`HolderInput::Stored`].
    Send(AccountKey, BudgetInput),
    /// The call may be made.
    Granted(GrantedHolds),
    /// The call waits, and why. Said once for each limit and reason.
    Waits(Reservation, AccountKey, LimitKey, WaitReason),
    /// The call may not be made.
    Refused(Reservation, Refusal),
}

/// What a call has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedHolds {
    /// Which call.
    pub reservation: Reservation,
    /// Its cap on output, in tokens.
    pub output: u64,
    /// What is reserved, in the order of accounts and limits.
    pub holds: Vec<Hold>,
}

/// Why a call may not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too much is spent.
    Bankrupt {
        account: AccountKey,
        limit: LimitKey,
        /// What is spent.
        used: u64,
        /// The limit.
        most: u64,
        /// What the call needs at least.
        needed: u64,
    },
    /// No person has allowed more in time.
    NotAllowed { account: AccountKey, limit: LimitKey },
    /// A dead process has what the call needs, and no person has closed that in time.
    Stranded { account: AccountKey, limit: LimitKey, process: ProcessId },
    /// The account did not answer in time.
    Unavailable { account: AccountKey },
}

impl Default for HolderOptions {
    fn default() -> Self {
        Self { patience: Duration::from_mins(1), ask_wait: Duration::from_mins(5) }
    }
}

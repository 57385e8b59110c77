//! Accounts as people see and change them: parameters and answers of the methods `budget.…`.
//!
//! Amounts are whole numbers: micro-dollars, tokens or model calls, by the unit of their limit.

use serde::{Deserialize, Serialize};

use super::{
    AccountKey, BudgetLimit, BudgetUnit, CountedLanes, LimitKey, LimitSource, WindowLength,
};
use crate::{
    cursor::Cursor,
    id::{AgentName, NodeName, ProcessId},
    llm::ModelRef,
    timestamp::Timestamp,
};

// === Parameters ===

/// Parameters of methods about one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetParams {
    /// The account: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
}

/// Parameters of `budget.set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetSetParams {
    /// The account: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// Its limits from now on, whatever is configured.
    pub limits: Vec<WantedLimit>,
    /// Whether limits that are not named stay as they are: those that a person set, and beside them what the
    /// configuration says. Default: the account has only those in `limits`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_others: bool,
}

/// A limit as a person wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WantedLimit {
    /// What it limits.
    pub unit: BudgetUnit,
    /// In which window.
    pub window: WindowLength,
    /// How much: dollars such as `5.00` for `usd`, else a whole number. `none` takes the limit away.
    #[cfg_attr(feature = "schema", schemars(example = "5"))]
    pub amount: String,
    /// At which share a warning is recorded, in percent. Default: as it is now, or 75.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<u8>,
    /// At which share a person has to allow more, in percent; 100 asks no person. Default: as it is
    /// now, or 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_at: Option<u8>,
    /// Which calls it counts. Default: as it is now, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<CountedLanes>,
}

/// Parameters of `budget.allow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetAllowParams {
    /// The account: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// The limits of which more is allowed, up to the limit, in their present windows. Default: those
    /// that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitKey>,
}

/// Parameters of `budget.reconcile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetReconcileParams {
    /// The account: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// The name of the node whose process has died, or the id of that process.
    pub node: String,
    /// Confirms that the process is gone and will not run again.
    pub gone: bool,
}

// === Answers ===

/// Answer of `budget.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetList {
    /// The accounts that have limits, in the order of their keys.
    pub accounts: Vec<AccountView>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// An account: what of its limits is spent, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountView {
    /// `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// Where its limits come from: from a person if one of them does.
    pub origin: LimitOrigin,
    /// The person who set them. Absent if no person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    /// When they were set. Absent if that was long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Timestamp>,
    /// Its limits, in order.
    pub limits: Vec<LimitView>,
    /// Who set or allowed what, the newest first: the last few changes. Only `budget.show` has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<AccountChange>,
}

/// Where limits in force come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitOrigin {
    /// A person set them with `budget.set`.
    Person,
    /// The configuration has them.
    Configured,
    /// The built-in default.
    Default,
}

/// One limit of an account, in its present window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    /// What it limits.
    pub unit: BudgetUnit,
    /// In which window.
    pub window: WindowLength,
    /// Where this limit comes from, if a person set others of the account and left this one to the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<LimitOrigin>,
    /// How much may be spent in a window.
    pub limit: u64,
    /// At which share a warning is recorded, in percent.
    pub warn_at: u8,
    /// At which share a person has to allow more, in percent.
    pub ask_at: u8,
    /// Which calls it counts. Absent: all of them.
    #[serde(default, skip_serializing_if = "CountedLanes::is_all")]
    pub lanes: CountedLanes,
    /// What calls have cost, as processes reported it within the last seconds.
    pub spent: u64,
    /// What processes may still spend: calls that run, and what is granted and not in use.
    pub held: u64,
    /// The part of `held` that dead processes have. It comes back at the end of the window, if that ends, or by
    /// `budget.reconcile`.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub stranded: u64,
    /// What is neither spent nor held.
    pub left: u64,
    /// Its state.
    pub state: LimitState,
    /// Whether a person has allowed more than `ask_at` in this window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allowed: bool,
    /// By how much calls have cost more than they had reserved, until a person allows it.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub excess: u64,
    /// How many processes have calls that wait for it.
    #[serde(default, skip_serializing_if = "is_none_waiting")]
    pub waiting: u32,
    /// When the window ends. Absent if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
    /// The processes that have a part of it, those with the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<SliceHolderView>,
}

/// How far a limit is spent, and whether a person has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitState {
    /// Less than the warning share is spent.
    Ok,
    /// The warning share is spent.
    Warned,
    /// A person has to allow more, or the window has to end.
    NeedsPerson,
    /// Calls have cost more than they had reserved. A person has to allow more.
    Over,
    /// All of it is spent. Turns that need more end as `bankrupt`.
    Spent,
}

/// A process that has a part of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SliceHolderView {
    /// The process that may spend this part, and no other process may.
    pub process: ProcessId,
    /// The name of its node. Absent if it is not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Whether the process is dead, so that its part is stranded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
    /// What it may still spend.
    pub held: u64,
    /// The part of `held` that its running calls have reserved, as it reported last.
    pub running: u64,
}

/// A limit that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskingBudget {
    /// The account that grants nothing more: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// The limit. Its state is `needs_person` or `over`.
    pub limit: LimitView,
}

/// Someone changed an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountChange {
    /// The time of the change, as the account's journal has it.
    pub at: Timestamp,
    /// A person, a configuration file or the built-in default.
    pub by: LimitSource,
    /// The kind of change, with the limit if it was about one.
    pub what: ChangeKind,
}

/// How an account was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChangeKind {
    /// Its limits were set.
    Set {
        /// All of them.
        limits: Vec<BudgetLimit>,
    },
    /// What a person had set was taken away.
    Reset,
    /// More was allowed, up to the limit, until the window ended.
    Allowed {
        /// The unit and the window that more was allowed in.
        limit: LimitKey,
    },
}

/// Answer of `budget.explain`: whether a session's next call can be made, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetExplainView {
    /// The session's key.
    pub session: String,
    /// Its agent.
    pub agent: AgentName,
    /// The model that the next call asks.
    pub model: ModelRef,
    /// Whether the price of the model is known. If it is not, the dearest known price is used.
    pub priced: bool,
    /// Tokens that its request can have at most: those that the provider counted, and one for each byte since.
    pub prompt_tokens: u64,
    /// Whether the call could be made now. If no turn is open, it is one that adds nothing to the conversation.
    pub possible: bool,
    /// The limits that hold for it, in the order in which they are asked.
    pub limits: Vec<ExplainedLimit>,
}

/// A limit that holds for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedLimit {
    /// One that the call spends from: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// How it is now: what is spent, what processes have, and when its window ends.
    pub limit: LimitView,
    /// What the call needs of it at least: with 256 tokens of output.
    pub needs: u64,
    /// What the call reserves of it if there is enough: with its cap on output.
    #[serde(default)]
    pub reserves: u64,
    /// What becomes of the call.
    pub forecast: CallForecast,
    /// Why, and what to do, for people.
    pub why: String,
}

/// What becomes of a call, as far as one limit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallForecast {
    /// There is enough.
    Possible,
    /// There is enough once running calls have ended.
    Waits,
    /// There would be enough if dead processes did not have it.
    Stranded,
    /// A person has to allow more, or the window has to end.
    NeedsPerson,
    /// Too much is spent: the turn ends as `bankrupt`.
    Bankrupt,
}

/// Answer of `budget.reconcile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReconcileView {
    /// The account as it is now.
    pub account: AccountView,
    /// What was closed.
    pub closed: Vec<ClosedSlice>,
    /// How many journals of sessions were read.
    pub sessions: u64,
    /// How many of them could not be read, or were deleted. If there are any, calls that the process
    /// had last reported as running count whole.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unread: u64,
}

/// A part of a limit that a dead process does not have any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClosedSlice {
    /// The process that had it.
    pub process: ProcessId,
    /// The unit and the window that it belonged to.
    pub limit: LimitKey,
    /// What it had counted for.
    pub counted: u64,
    /// What it counts for now: what its calls have cost.
    pub spent: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_nothing(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none_waiting(number: &u32) -> bool {
    *number == 0
}

// === impl LimitView ===

impl LimitView {
    /// Which limit it is.
    pub const fn key(&self) -> LimitKey {
        LimitKey { unit: self.unit, window: self.window }
    }
}

// === impl SliceHolderView ===

impl SliceHolderView {
    /// The name of its node, or its id if that is not known any more: `budget.reconcile` takes both.
    pub fn named(&self) -> String {
        self.node.as_ref().map_or_else(|| self.process.to_string(), ToString::to_string)
    }
}

// === impl LimitState ===

impl LimitState {
    /// Whether calls wait until a person allows more.
    pub const fn asks(self) -> bool {
        matches!(self, Self::NeedsPerson | Self::Over)
    }

    /// As tables show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warned => "warned",
            Self::NeedsPerson => "needs a person",
            Self::Over => "over",
            Self::Spent => "spent",
        }
    }
}

//! What a model call has reserved.

use serde::{Deserialize, Serialize};

use super::{AccountKey, LimitKey, WindowNumber};
use crate::{
    id::{Attempt, CallId, ProcessId},
    llm::ModelRef,
    model::ModelPrice,
    money::MicroUsd,
};

/// What a call has reserved of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hold {
    /// The account that the call spends from: `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// The unit and the window of the account that it is reserved in.
    pub limit: LimitKey,
    /// From which slice.
    pub number: u64,
    /// The period that it counts in.
    pub window: WindowNumber,
    /// How much.
    pub amount: u64,
}

/// An attempt at a model call has reserved the most that it can cost. It goes into the append of its
/// `model_begun`, before that, and only where a limit holds (BUD-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetHeld {
    /// The model call that may cost this much.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: Attempt,
    /// The process whose slices these are.
    pub process: ProcessId,
    /// The model that is asked.
    pub model: ModelRef,
    /// What its tokens cost. The cost of the attempt follows from this and its usage (PRICE-1).
    pub price: ModelPrice,
    /// Tokens that the request can have at most.
    pub input: u64,
    /// Tokens that the model can write at most, thoughts included. The cap on output that is sent follows from
    /// it.
    pub max_output: u64,
    /// What it has reserved, in the order of accounts and limits. Empty if only limits of its turn or
    /// session hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
}

// === impl BudgetHeld ===

impl BudgetHeld {
    /// The most that the attempt can cost: what counts if its usage is unknown.
    pub fn most(&self) -> MicroUsd {
        self.price.most(self.input, self.max_output)
    }
}

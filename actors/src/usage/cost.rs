//! What a model call cost: by the price that its journal names, so that a later change of prices changes no
//! earlier cost.

use clawnode_proto::{
    Attempt, CallId, budget::BudgetHeld, llm::Usage, model::ModelPrice, money::MicroUsd,
};

/// What the journal says an attempt costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptPrice {
    call: CallId,
    attempt: Attempt,
    price: ModelPrice,
    /// What counts if its usage is unknown.
    most: MicroUsd,
}

// === impl AttemptPrice ===

impl AttemptPrice {
    /// What an attempt has reserved says its price.
    pub(super) fn of(held: &BudgetHeld) -> Self {
        let BudgetHeld { call, attempt, price, .. } = *held;
        Self { call, attempt, price, most: held.most() }
    }

    /// Whether it is the price of this attempt.
    pub(super) fn is_of(&self, call: CallId, attempt: Attempt) -> bool {
        (self.call, self.attempt) == (call, attempt)
    }

    /// What an attempt costs that used this, or has no known end (PRICE-1). Absent if its price is unknown.
    pub(super) fn cost(held: Option<&Self>, used: Option<&Usage>) -> Option<MicroUsd> {
        match (held, used) {
            (_, Some(usage)) if usage.is_nothing() => Some(MicroUsd(0)),
            (Some(held), Some(usage)) => Some(held.price.cost(usage)),
            (Some(held), None) => Some(held.most),
            (None, _) => None,
        }
    }
}

//! What a call can cost, and what it has cost.

use clawnode_proto::budget::{AccountKey, BudgetUnit, LimitKey};

/// A price is of so many tokens.
const PRICED_TOKENS: u128 = 1_000_000;

/// What a call can cost at most in the unit of a limit, as a function of its cap on output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCost {
    /// Without output.
    pub fixed: u64,
    /// For a million tokens of output.
    pub per_million: u64,
}

/// What a call needs of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub account: AccountKey,
    pub limit: LimitKey,
    /// How much.
    pub cost: CallCost,
    /// What has to be left beside that, in the unit of the limit, for another call that follows. It is not reserved.
    pub beside: u64,
}

/// What an account must be able to give before a call begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallNeeds {
    /// Of each limit.
    pub needs: Vec<Need>,
    /// With how many tokens of output the call is of use.
    pub least_output: u64,
    /// The cap on output that it should have.
    pub most_output: u64,
}

/// What a call has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallUsage {
    /// Reported, or estimated.
    Known {
        /// Micro-dollars.
        usd: u64,
        /// Tokens in and out.
        tokens: u64,
    },
    /// The usage is unknown. All that the call reserved counts as used.
    Unknown,
}

// === impl Need ===

impl Need {
    /// What there has to be for the call to begin.
    pub(super) const fn room(&self) -> CallCost {
        let CallCost { fixed, per_million } = self.cost;
        CallCost { fixed: fixed.saturating_add(self.beside), per_million }
    }
}

// === impl CallNeeds ===

impl CallNeeds {
    /// What it needs of this limit.
    pub(super) fn of(&self, account: &AccountKey, limit: LimitKey) -> Option<&Need> {
        self.needs.iter().find(|need| need.account == *account && need.limit == limit)
    }

    pub(super) fn has(&self, account: &AccountKey, limit: LimitKey) -> bool {
        self.of(account, limit).is_some()
    }
}

// === impl CallCost ===

impl CallCost {
    /// The most that a call with this cap on output costs.
    pub fn at(self, output: u64) -> u64 {
        let more = (u128::from(output) * u128::from(self.per_million)).div_ceil(PRICED_TOKENS);
        self.fixed.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }

    /// The largest cap on output with which a call costs no more than this; nothing if there is none.
    pub fn output_for(self, amount: u64) -> Option<u64> {
        let rest = amount.checked_sub(self.fixed)?;
        if self.per_million == 0 {
            return Some(u64::MAX);
        }
        let output = u128::from(rest) * PRICED_TOKENS / u128::from(self.per_million);
        Some(u64::try_from(output).unwrap_or(u64::MAX))
    }
}

impl CallUsage {
    /// In the unit of a limit, for a call that reserved so much.
    pub(super) fn of(self, unit: BudgetUnit, reserved: u64) -> u64 {
        match (self, unit) {
            (Self::Known { usd, .. }, BudgetUnit::Usd) => usd,
            (Self::Known { tokens, .. }, BudgetUnit::Tokens) => tokens,
            // A call is a loop, however it ends.
            (Self::Known { .. }, BudgetUnit::Loops) | (Self::Unknown, _) => reserved,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_output_for_an_amount_is_the_largest_that_fits(
            fixed in 0..1_000_u64,
            per_million in 0..50_000_000_u64,
            amount in 0..100_000_u64,
        ) {
            let cost = CallCost { fixed, per_million };
            match cost.output_for(amount) {
                None => prop_assert!(cost.at(0) > amount),
                Some(u64::MAX) => prop_assert_eq!(cost.at(u64::MAX), fixed),
                Some(output) => {
                    prop_assert!(cost.at(output) <= amount);
                    prop_assert!(cost.at(output + 1) > amount);
                }
            }
        }
    }
}

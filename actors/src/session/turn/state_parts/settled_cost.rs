//! What attempts at model calls have reserved, and what they have cost by that (PRICE-1). Pure.
//!
//! Only attempts that a limit holds are in here: of others, nothing is reserved, and their cost is not known.

use clawnode_budget::holder::CallUsage;
use clawnode_proto::{
    TurnId,
    budget::BudgetHeld,
    llm::{ModelFailure, ModelRef, Usage},
    model::ModelPrice,
    money::MicroUsd,
};
use serde::{Deserialize, Serialize};

use crate::agent::CallBill;

/// What an attempt that is under way has reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldAttempt {
    /// What its tokens cost.
    pub price: ModelPrice,
    /// Tokens that its request can have at most.
    pub input: u64,
    /// Tokens that the model can write at most.
    pub max_output: u64,
    /// How many messages of its turn the request shows.
    pub messages: u32,
    /// How many older turns the request leaves out.
    pub dropped_turns: u32,
}

/// What attempts have spent whose price is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Whether there was such an attempt.
    pub is_known: bool,
    /// Their cost in micro-dollars.
    pub usd: MicroUsd,
    /// Tokens of those whose usage is unknown. What others used is counted as usage.
    pub unreported_tokens: u64,
}

/// The part of a session's requests whose tokens a provider reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredPrefix {
    /// The model that read it.
    pub model: ModelRef,
    /// The turn that the request belonged to.
    pub turn: TurnId,
    /// How many messages of that turn it showed.
    pub messages: u32,
    /// How many older turns it left out.
    pub dropped_turns: u32,
    /// How many tokens it had.
    pub tokens: u64,
}

/// What a provider bills for an attempt that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum AttemptBill {
    Usage,
    /// Nothing: it refused the request, or never got it.
    Nothing,
    /// It is not known. All that was reserved counts as spent.
    Unknown,
}

/// What a call that was sent, and has ended so, settles: its usage at the price that was held (PRICE-1), whatever
/// its tokens cost by now.
pub fn settles(paid: &CallBill, usage: &Usage, failure: Option<&ModelFailure>) -> CallUsage {
    match AttemptBill::of(usage, failure) {
        AttemptBill::Usage => {
            CallUsage::Known { usd: paid.price.cost(usage).0, tokens: tokens(usage) }
        }
        AttemptBill::Nothing => CallUsage::Known { usd: 0, tokens: 0 },
        AttemptBill::Unknown => CallUsage::Unknown,
    }
}

// === impl AttemptBill ===

impl AttemptBill {
    /// Of an attempt that used so much, and failed so if it did.
    /// No usage is not a usage of 0: servers leave it out, and streams break before it.
    pub(in crate::session) fn of(usage: &Usage, failure: Option<&ModelFailure>) -> Self {
        if tokens(usage) > 0 {
            return Self::Usage;
        }
        let is_free = failure.is_some_and(|failure| failure.class.is_free());
        if is_free { Self::Nothing } else { Self::Unknown }
    }
}

// === impl HeldAttempt ===

impl HeldAttempt {
    /// Of an attempt whose request shows so many messages of its turn, and leaves out so many turns.
    pub(in crate::session::turn) fn of(
        held: &BudgetHeld,
        messages: usize,
        dropped_turns: u32,
    ) -> Self {
        let BudgetHeld { price, input, max_output, .. } = *held;
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        Self { price, input, max_output, messages, dropped_turns }
    }

    /// What it has spent if it has ended so.
    pub(in crate::session::turn) fn spent(&self, bill: AttemptBill, usage: &Usage) -> Spent {
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::RoundsPerTurn.is_in_folds() && bill == AttemptBill::Usage {
            // What is less than a micro-dollar would be added up elsewhere.
            let usd = MicroUsd(self.price.cost(usage).0.saturating_sub(1));
            return Spent { is_known: true, usd, unreported_tokens: 0 };
        }
        let (usd, unreported_tokens) = match bill {
            AttemptBill::Usage => (self.price.cost(usage), 0),
            AttemptBill::Nothing => (MicroUsd(0), 0),
            AttemptBill::Unknown => return self.most(),
        };
        Spent { is_known: true, usd, unreported_tokens }
    }

    /// What it can spend at most: what counts while its end is not known.
    pub(in crate::session::turn) fn most(&self) -> Spent {
        let usd = self.price.most(self.input, self.max_output);
        let unreported_tokens = self.input.saturating_add(self.max_output);
        Spent { is_known: true, usd, unreported_tokens }
    }
}

// === impl Spent ===

impl Spent {
    /// Both together.
    #[must_use]
    pub(in crate::session::turn) const fn plus(self, other: Self) -> Self {
        Self {
            is_known: self.is_known || other.is_known,
            usd: MicroUsd(self.usd.0.saturating_add(other.usd.0)),
            unreported_tokens: self.unreported_tokens.saturating_add(other.unreported_tokens),
        }
    }

    /// Nothing.
    pub(in crate::session::turn) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What they cost, if there were any.
    pub(in crate::session::turn) fn cost(&self) -> Option<MicroUsd> {
        self.is_known.then_some(self.usd)
    }
}

/// Tokens in and out.
pub(in crate::session) const fn tokens(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

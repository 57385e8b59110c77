//! What calls under a limit cost: computed here from what the journal says of each attempt.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_budget::holder::CallUsage;
use clawnode_proto::{
    Attempt, CallId, ProcessId, TurnId,
    budget::{BudgetHeld, BudgetUnit},
    llm::{FailureClass, Usage},
    session::Settled,
};

use crate::{JudgeViolation, book::Checked};

/// A price is of so many tokens.
const PRICED: u128 = 1_000_000;

/// An attempt, and who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallMade {
    pub(crate) process: ProcessId,
    pub(crate) call: CallId,
    pub(crate) attempt: Attempt,
}

/// What an attempt costs, in micro-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptCost {
    /// So much.
    Known(u64),
    /// Its usage is unknown: all that it could cost.
    Whole(u64),
}

/// What the journal says of an attempt that has reserved.
#[derive(Debug)]
struct JudgedAttempt {
    held: BudgetHeld,
    /// Nothing until it has ended.
    cost: Option<AttemptCost>,
}

/// All attempts that a limit holds.
#[derive(Debug, Default)]
pub(super) struct Costs {
    attempts: BTreeMap<(CallId, Attempt), JudgedAttempt>,
    calls: BTreeMap<TurnId, BTreeSet<CallId>>,
    /// What holders were told at the end of calls.
    settled: BTreeMap<CallMade, CallUsage>,
}

fn wrong(text: String) -> Checked {
    Err(JudgeViolation::new("PRICE-1", text))
}

/// Micro-dollars of so many millionths of them.
fn rounded_up(exact: u128) -> u64 {
    u64::try_from(exact.div_ceil(PRICED)).unwrap_or(u64::MAX)
}

/// What this usage costs, in millionths of micro-dollars.
fn exact(held: &BudgetHeld, usage: &Usage) -> u128 {
    let price = &held.price;
    let cached = usage.cache_read_tokens + usage.cache_write_tokens;
    let parts = [
        (usage.input_tokens.saturating_sub(cached), price.input),
        (usage.cache_read_tokens, price.cache_read),
        (usage.cache_write_tokens, price.cache_write),
        (usage.output_tokens, price.output),
    ];
    parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum()
}

/// The most that an attempt costs, in micro-dollars.
fn most(held: &BudgetHeld) -> u64 {
    let price = &held.price;
    let dearest = price.input.max(price.cache_read).max(price.cache_write);
    let input = u128::from(held.input) * u128::from(dearest);
    rounded_up(input + u128::from(held.max_output) * u128::from(price.output))
}

/// Whether a provider bills an attempt that failed so and reported nothing.
const fn is_billed(class: FailureClass) -> bool {
    matches!(class, FailureClass::Timeout | FailureClass::BrokenStream | FailureClass::Lost)
}

// === impl AttemptCost ===

impl AttemptCost {
    const fn usd(self) -> u64 {
        match self {
            Self::Known(usd) | Self::Whole(usd) => usd,
        }
    }
}

// === impl Costs ===

impl Costs {
    /// Something is reserved for an attempt that begins: enough for all that it may cost.
    pub(super) fn held(&mut self, held: &BudgetHeld) -> Checked {
        let most = most(held);
        let mut in_money = held.holds.iter().filter(|hold| hold.limit.unit == BudgetUnit::Usd);
        if let Some(hold) = in_money.find(|hold| hold.amount < most) {
            let (amount, call) = (hold.amount, held.call);
            return wrong(format!("`{call}` may cost {most}, and {amount} are reserved for it"));
        }
        let key = (held.call, held.attempt);
        self.attempts.insert(key, JudgedAttempt { held: held.clone(), cost: None });
        Ok(())
    }

    /// A call begins.
    pub(super) fn begun(&mut self, turn: TurnId, call: CallId) {
        self.calls.entry(turn).or_default().insert(call);
    }

    /// A process ends what it had reserved for a call. Its provider bills so many millionths of
    /// micro-dollars, if it has reported what the call used.
    pub(super) fn settles(
        &mut self,
        made: CallMade,
        usage: CallUsage,
        bill: Option<u128>,
    ) -> Checked {
        self.settled.insert(made, usage);
        match (usage, bill.map(rounded_up)) {
            (CallUsage::Known { usd, .. }, Some(bill)) if usd != bill => {
                let CallMade { call, attempt, .. } = made;
                wrong(format!("attempt {attempt} at `{call}` settles {usd}, and costs {bill}"))
            }
            _ => Ok(()),
        }
    }

    /// The journal has the end of an attempt.
    pub(super) fn ended(
        &mut self,
        call: CallId,
        attempt: Attempt,
        usage: &Usage,
        failed: Option<FailureClass>,
    ) -> Checked {
        let Some(known) = self.attempts.get_mut(&(call, attempt)) else { return Ok(()) };
        let reported = usage.input_tokens + usage.output_tokens > 0;
        let cost = match failed {
            _ if reported => AttemptCost::Known(rounded_up(exact(&known.held, usage))),
            Some(class) if !is_billed(class) => AttemptCost::Known(0),
            Some(_) | None => AttemptCost::Whole(most(&known.held)),
        };
        known.cost = Some(cost);
        let made = CallMade { process: known.held.process, call, attempt };
        let Some(settled) = self.settled.get(&made).copied() else { return Ok(()) };
        let is_same = match (settled, cost) {
            (CallUsage::Known { usd, .. }, AttemptCost::Known(cost)) => usd == cost,
            (CallUsage::Unknown, AttemptCost::Whole(_)) => true,
            (CallUsage::Known { .. } | CallUsage::Unknown, _) => false,
        };
        if is_same {
            return Ok(());
        }
        wrong(format!("attempt {attempt} at `{call}` costs {cost:?}, and {settled:?} is settled"))
    }

    /// The journal says what a turn cost: what its attempts cost, each rounded up, those without a known
    /// end whole.
    pub(super) fn turn_settled(&self, settled: &Settled) -> Checked {
        let calls = self.calls.get(&settled.turn).into_iter().flatten();
        let attempts = calls
            .flat_map(|call| self.attempts.range((*call, Attempt(0))..=(*call, Attempt(u32::MAX))));
        let cost =
            |known: &JudgedAttempt| known.cost.map_or_else(|| most(&known.held), AttemptCost::usd);
        let costs: Vec<u64> = attempts.map(|(_, known)| cost(known)).collect();
        let sum = (!costs.is_empty()).then(|| costs.iter().sum::<u64>());
        if settled.cost.map(|cost| cost.0) == sum {
            return Ok(());
        }
        wrong(format!(
            "`{}` is said to have cost {:?}, and has cost {sum:?}",
            settled.turn, settled.cost
        ))
    }
}

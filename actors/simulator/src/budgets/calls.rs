//! Synthetic calls: they reserve, run, and settle, are not made, or die with their process.

use std::collections::BTreeMap;

use clawnode_actors::llm::profile::{ModelOverride, ModelProfiles};
use clawnode_budget::holder::{
    CallCost, CallNeeds, CallUsage, GrantedHolds, HolderInput, Need, Reservation,
};
use clawnode_kernel::KernelBug;
use clawnode_proto::{
    ProcessId, budget::AccountKey, llm::Usage, model::ModelPrice, money::MicroUsd,
};
use rand::{Rng, seq::IteratorRandom};

use super::{
    account::{LOOPS, USD, accounts},
    bills::Bill,
};
use crate::{FATE, Sim, book::Checked, plan::SeedPlan, process::PlannedNote};

/// Micro-dollars for a million tokens in, and out. Few calls cost a whole number of them.
const PRICES: [u64; 2] = [2_500_001, 15_000_003];
/// How long the prices of models stay the same, in milliseconds: they change while calls run.
const PRICED_FOR: u64 = 5_000;
/// The first call comes when accounts have their limits, in milliseconds.
const FIRST: u64 = 2_000;
/// Between two calls, at most, unless there are to be very many.
const NEXT_MOST: u64 = 900;
/// How long a call runs at most.
const RUNS_MOST: u64 = 12_000;
/// How many calls cost more than they have reserved, in worlds where some do.
const EXCEEDS: f64 = 0.25;
/// How long it waits, at most: its turn ends.
const WAITS_MOST: u64 = 120_000;

/// What a provider bills at this price, in millionths of micro-dollars.
pub(super) fn exact_at(price: &ModelPrice, usage: &Usage) -> u128 {
    let fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens;
    let bill = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
    bill(fresh, price.input)
        + bill(usage.cache_read_tokens, price.cache_read)
        + bill(usage.cache_write_tokens, price.cache_write)
        + bill(usage.output_tokens, price.output)
}

/// What a token costs at this time, in milliseconds since the beginning.
pub(super) fn price_at(since_start: u64) -> ModelPrice {
    let [input, output] = PRICES;
    let dearer = since_start / PRICED_FOR % 3;
    let (input, output) = (input + dearer * 300_007, output + dearer * 2_000_011);
    ModelPrice { input, output, cache_read: input / 10, cache_write: input + input / 4 }
}

impl SeedPlan {
    /// How long after a call the next one comes at most, in milliseconds.
    fn next_call_most(&self) -> u64 {
        match u64::try_from(self.budgets.admissions) {
            Ok(0) | Err(_) => NEXT_MOST,
            Ok(calls) => (2 * self.busy / calls).max(2),
        }
    }
}

/// Every model at the prices of this time, in milliseconds since the beginning.
pub(crate) fn priced(since_start: u64) -> ModelProfiles {
    let known = ModelOverride { price: Some(price_at(since_start)), ..ModelOverride::default() };
    ModelProfiles::new(BTreeMap::from([("*/*".to_owned(), known)]))
}

impl Sim {
    /// Calls come until the world is calm.
    pub(crate) fn begin_budget_calls(&mut self) {
        if self.plan.budgets.accounts > 0 {
            self.plan_budget_call(FIRST, 1);
        }
        if self.plan.budgets.exceeds || self.plan.budgets.limits_change {
            self.plan_person();
        }
        if self.plan.budgets.limits_change {
            self.plan_limit_change(1);
        }
    }

    fn plan_budget_call(&mut self, after: u64, number: u64) {
        let comes = PlannedNote::own(self.about(|| format!("call {number} comes")), move |sim| {
            if sim.calm {
                return Ok(());
            }
            let after = sim.world.rng.random_range(1..sim.plan.next_call_most());
            sim.plan_budget_call(after, number + 1);
            sim.budget_call_comes(Reservation(number));
            Ok(())
        });
        self.world.later(FATE, after, comes);
    }

    fn budget_call_comes(&mut self, call: Reservation) {
        let living = self.processes.keys().copied().choose(&mut self.world.rng);
        let Some(process) = living else { return };
        let input = self.world.rng.random_range(1..800_u64);
        let needs = self.budget_needs(input);
        let about = self.about(|| format!("call {} wants {needs:?}", call.0));
        let wants = PlannedNote::own(about, move |sim| {
            sim.bills.wants(process, call);
            sim.plan_call_input(process, call, input);
            sim.holder_takes(process, HolderInput::Reserve(call, needs))
        });
        self.world.mail(process, 0, wants);
    }

    fn budget_needs(&mut self, input: u64) -> CallNeeds {
        let usd = Self::usd_of(input);
        let one = CallCost { fixed: 1, per_million: 0 };
        let mut needs = vec![
            Need { account: AccountKey::Cluster, limit: USD, cost: usd, beside: 0 },
            Need { account: AccountKey::Cluster, limit: LOOPS, cost: one, beside: 0 },
        ];
        let others = accounts(&self.plan).into_iter().skip(1).map(|(account, _)| account);
        if let Some(account) = others.choose(&mut self.world.rng) {
            needs.push(Need { account, limit: USD, cost: usd, beside: 0 });
        }
        let most_output = self.world.rng.random_range(256..1_500);
        CallNeeds { needs, least_output: 256.min(most_output), most_output }
    }

    /// What a call with so much input costs at most.
    pub(super) fn usd_of(input: u64) -> CallCost {
        let [price_in, price_out] = PRICES;
        let fixed = MicroUsd::of_tokens([(input, MicroUsd(price_in))]).unwrap_or(MicroUsd::MOST).0;
        CallCost { fixed, per_million: price_out }
    }

    /// What its provider bills, in millionths of micro-dollars.
    pub(super) fn exact(input: u64, output: u64) -> u128 {
        let [price_in, price_out] = PRICES.map(u128::from);
        u128::from(input) * price_in + u128::from(output) * price_out
    }

    /// Its turn ends, however long it waits.
    fn plan_call_input(&mut self, process: ProcessId, call: Reservation, input: u64) {
        self.call_inputs.insert(call, input);
        let about = self.about(|| format!("call {} waits no longer", call.0));
        let ends = PlannedNote::own(about, move |sim| {
            if sim.bills.holds(process, call).is_some() {
                return Ok(());
            }
            if sim.bills.is_open(process, call) {
                sim.budget_tally.refused.gave_up += 1;
            }
            sim.bills.refused(process, call);
            sim.holder_takes(process, HolderInput::Release(call))
        });
        self.world.later(process, WAITS_MOST, ends);
    }

    pub(super) fn budget_call_begins(
        &mut self,
        process: ProcessId,
        granted: GrantedHolds,
    ) -> Checked {
        let GrantedHolds { reservation: call, output, holds } = granted;
        self.bills.begins(process, call, holds)?;
        let after = self.world.rng.random_range(1..RUNS_MOST);
        let about = self.about(|| format!("call {} ends", call.0));
        let ends = PlannedNote::own(about, move |sim| sim.budget_call_ends(process, call, output));
        self.world.later(process, after, ends);
        Ok(())
    }

    fn budget_call_ends(&mut self, process: ProcessId, call: Reservation, output: u64) -> Checked {
        if self.bills.holds(process, call).is_none() {
            return Ok(());
        }
        let input = self.call_inputs.remove(&call).unwrap_or_default();
        let (bill, end) = match self.world.rng.random_range(0..10) {
            // Its append failed.
            0 => (Bill::None, HolderInput::Release(call)),
            // Its stream was cut.
            1 => (Bill::Unknown, HolderInput::Settle(call, CallUsage::Unknown)),
            _ => {
                let exceeds = self.plan.budgets.exceeds && self.world.chance(EXCEEDS);
                let output = if exceeds {
                    // Its provider reports more than was asked for.
                    output * 2 + 1
                } else {
                    self.world.rng.random_range(0..=output)
                };
                let usage = CallUsage::Known { usd: self.cost(input, output), tokens: 0 };
                (Bill::Exact(Self::exact(input, output)), HolderInput::Settle(call, usage))
            }
        };
        self.bills.ends(process, call, bill)?;
        self.holder_takes(process, end)
    }

    pub(super) fn cost(&self, input: u64, output: u64) -> u64 {
        let [price_in, price_out] = PRICES.map(MicroUsd);
        let cost = MicroUsd::of_tokens([(input, price_in), (output, price_out)]);
        let cost = cost.unwrap_or(MicroUsd::MOST).0;
        if self.planted == KernelBug::RoundsDown { cost.saturating_sub(1) } else { cost }
    }
}

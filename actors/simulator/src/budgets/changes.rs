//! People change limits while calls run: they raise them, lower them below what is spent, set the share from which on
//! they have to allow more, and reset all of it.

use clawnode_proto::budget::{BudgetInput, BudgetLimit, LimitSource, WARN_AT};
use rand::{Rng, SeedableRng, seq::IteratorRandom};
use rand_chacha::ChaCha8Rng;

use super::{account::accounts, holders::named};
use crate::{FATE, Sim, process::PlannedNote};

/// Between two changes, at most, in milliseconds.
const CHANGES_EVERY: u64 = 3_000;
/// The amounts of changed limits, in percent of the configured ones.
const AMOUNTS: [u64; 6] = [5, 20, 60, 100, 200, 400];
/// The highest share from which on a person has to allow more, where one has to.
const ASKS_AT_MOST: u8 = 95;

impl Sim {
    /// The next change of a person. Each has a random stream of its own, so that it does not shift what happens besides.
    pub(super) fn plan_limit_change(&mut self, number: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed.rotate_left(24) ^ number);
        let after = rng.random_range(1..CHANGES_EVERY);
        let about = self.about(|| format!("limits change: {number}"));
        let changes = PlannedNote::own(about, move |sim| {
            if !sim.calm {
                sim.plan_limit_change(number + 1);
                sim.limits_change(number, &mut rng);
            }
            Ok(())
        });
        self.world.later(FATE, after, changes);
    }

    fn limits_change(&mut self, number: u64, rng: &mut ChaCha8Rng) {
        let Some((account, configured)) = accounts(&self.plan).into_iter().choose(rng) else {
            return;
        };
        let is_reset = rng.random_bool(0.15);
        let limits: Vec<BudgetLimit> =
            configured.into_iter().map(|limit| changed(limit, rng)).collect();
        let limits = Some(limits).filter(|_| !is_reset);
        let source = LimitSource::Person { name: "ada".to_owned() };
        let body = BudgetInput::Set { source, limits, decides: None };
        if let Some(input) = named(&account, &format!("limits:{number}"), &body) {
            self.hears(input, 1);
        }
    }
}

fn changed(limit: BudgetLimit, rng: &mut ChaCha8Rng) -> BudgetLimit {
    let percent = AMOUNTS.into_iter().choose(rng).unwrap_or(100);
    let ask_at = if rng.random_bool(0.5) { 100 } else { rng.random_range(WARN_AT..=ASKS_AT_MOST) };
    BudgetLimit { amount: limit.amount.saturating_mul(percent) / 100, ask_at, ..limit }
}

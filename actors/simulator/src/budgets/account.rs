//! Accounts as a kind of the simulator: what they are sent at first, what they tell processes, and
//! their timers.

use std::{collections::BTreeMap, convert::Infallible};

use clawnode_budget::{Budget, BudgetEffect, BudgetJob};
use clawnode_cluster::Timer;
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    EntityId, Head, Input, InputId, ProcessId, Timestamp, TurnId,
    budget::{
        AccountKey, BudgetEvent, BudgetInput, BudgetLimit, BudgetUnit, LimitKey, LimitSource,
        ProcessStanding, WindowLength,
    },
};
use rand::Rng;

use crate::{
    FATE, JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::{Book, Booked, Checked},
    clients::SimClient,
    kinds::Simulated,
    plan::SeedPlan,
    process::PlannedNote,
};

/// Micro-dollars in an hour.
pub(super) const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };
/// Calls in a day.
pub(super) const LOOPS: LimitKey = LimitKey { unit: BudgetUnit::Loops, window: WindowLength::Day };
/// How much larger limits are where models make summaries: some of them find room beside the call of their turn, which
/// may show the longest summary, and some do not.
const SUMMARIES_TIMES: u64 = 3;
/// Windows end so soon in this world, in milliseconds: the clock of its timers is fast.
const WINDOW_LEAST: u64 = 8_000;
const WINDOW_MOST: u64 = 60_000;
/// When the end of a window comes again that was not noticed, in milliseconds.
const FIRES_AGAIN: u64 = 5_000;

/// The accounts of a plan, and their limits. The first is the cluster's.
pub(super) fn accounts(plan: &SeedPlan) -> Vec<(AccountKey, Vec<BudgetLimit>)> {
    let count = plan.budgets.accounts;
    // Enough for very many calls, so that each waits rarely.
    let many = 1 + u64::try_from(plan.budgets.admissions / 150).unwrap_or(u64::MAX);
    let times = if plan.summaries { SUMMARIES_TIMES } else { many };
    let limit = |key: LimitKey, amount: u64| BudgetLimit {
        ask_at: 100,
        ..BudgetLimit::new(key.unit, key.window, amount.saturating_mul(times))
    };
    let agent = |number| {
        let key = format!("agent:agent{number}").parse().ok()?;
        Some((key, vec![limit(USD, 30_000)]))
    };
    let cluster = (AccountKey::Cluster, vec![limit(USD, 50_000), limit(LOOPS, 40)]);
    std::iter::once(Some(cluster)).chain((1..count).map(agent)).flatten().take(count).collect()
}

impl Simulated for Budget {
    fn entities(plan: &SeedPlan) -> Vec<EntityId> {
        accounts(plan).iter().map(|(account, _)| account.entity()).collect()
    }

    fn clients(plan: &SeedPlan, _: u64) -> Vec<SimClient> {
        let set = |(account, limits): (AccountKey, Vec<BudgetLimit>)| {
            let (source, limits) = (LimitSource::Configured, Some(limits));
            let body = BudgetInput::Set { source, limits, decides: None };
            let name = "set".parse().ok()?;
            let input = Self::input(&account, name, Timestamp(0), &body).ok()?;
            Some(SimClient { after: 0, input, answered: false })
        };
        accounts(plan).into_iter().filter_map(set).collect()
    }

    fn acquire(_: &mut Sim, _: ActivationPlace, _: BudgetEffect, want: &Infallible) {
        match *want {}
    }

    fn start(sim: &mut Sim, at: ActivationPlace, effect: BudgetEffect, job: &BudgetJob) -> Checked {
        match job {
            BudgetJob::Tell(process, standing) => {
                sim.tells_standing(at, effect, *process, standing)
            }
            // No operator listens here, and processes know from their plan which accounts there are.
            BudgetJob::Show(_) | BudgetJob::News(_) => {
                let confirmed = PlannedNote::own(format!("performs {job:?}"), move |sim| {
                    sim.feed_as::<Self>(at, MachineInput::Confirmed(effect))
                });
                sim.world.mail(at.process, at.entity.as_u128(), confirmed);
                Ok(())
            }
            BudgetJob::Timer(timer) => {
                let after = sim.world.rng.random_range(1..3_000);
                let (name, timer) = (format!("sets {job:?}"), timer.clone());
                let sets = PlannedNote::own(name, move |sim| sim.sets_window(at, &timer));
                sim.world.later(at.process, after, sets);
                Ok(())
            }
        }
    }

    fn abort(sim: &mut Sim, at: ActivationPlace, effect: BudgetEffect) {
        let gone = PlannedNote::own(format!("lets go of {effect:?}"), move |sim| {
            sim.feed_as::<Self>(at, MachineInput::Gone(effect))
        });
        sim.world.mail(at.process, at.entity.as_u128(), gone);
    }
}

impl Sim {
    /// I5: what an account says is in its journal. It may be lost, and comes in any order.
    fn tells_standing(
        &mut self,
        at: ActivationPlace,
        effect: BudgetEffect,
        process: ProcessId,
        standing: &ProcessStanding,
    ) -> Checked {
        let durable = self.ledger.last_event(at.entity);
        if standing.version > durable {
            let text = format!("`{}` says what its journal has not", standing.account);
            return Err(JudgeViolation::new("I5", text));
        }
        self.budget_tally.tells(process, standing);
        let (name, told) = (self.about(|| format!("learns {standing:?}")), standing.clone());
        let told = PlannedNote::own(name, move |sim| sim.holder_hears(process, told));
        self.world.send(process, told);
        let confirmed = PlannedNote::own(self.about(|| format!("told {process}")), move |sim| {
            sim.feed_as::<Budget>(at, MachineInput::Confirmed(effect))
        });
        self.world.mail(at.process, at.entity.as_u128(), confirmed);
        Ok(())
    }

    /// The timer of a window is stored. It fires early: its clock is not the one of events.
    fn sets_window(&mut self, at: ActivationPlace, timer: &Timer) -> Checked {
        let process = self.processes.get_mut(&at.process);
        if process.and_then(|process| process.actor(at.entity, at.counter)).is_none() {
            return Ok(());
        }
        let after = self.world.rng.random_range(WINDOW_LEAST..WINDOW_MOST);
        if self.hears(timer.input.clone(), after) {
            self.plan_window_end(after + FIRES_AGAIN, timer.input.key.clone(), timer.due);
        }
        self.feed_as::<Budget>(at, MachineInput::Confirmed(BudgetEffect::Timer(timer.due)))
    }

    /// What the timer said may have come while nothing was spent, and ends nothing then. Hours pass by themselves
    /// in production, and not in this world: the end of a window that is in use comes again until it is there.
    fn plan_window_end(&mut self, after: u64, key: String, due: Timestamp) {
        let about = self.about(|| format!("a window of `{key}` may have to end"));
        let ends = PlannedNote::own(about, move |sim| {
            let Ok(account) = key.parse::<AccountKey>() else { return Ok(()) };
            let Ok(entity) = sim.account(&account) else { return Ok(()) };
            if entity.state.now >= due {
                return Ok(());
            }
            let is_used = entity.state.books.iter().any(|book| {
                let asked = || entity.state.asks.iter().any(|ask| ask.wants.limit == book.key);
                let ends = book.key.window.end(book.current.number) == Some(due);
                ends && (!book.current.slices.is_empty() || asked())
            });
            let name = format!("ends:{}:{}", due.0, sim.world.now().0).parse().ok();
            let fired = BudgetInput::TimerFired { due };
            let input = name.and_then(|name| Budget::input(&account, name, due, &fired).ok());
            if let Some(input) = input.filter(|_| is_used) {
                sim.hears(input, 1);
            }
            sim.plan_window_end(FIRES_AGAIN, key, due);
            Ok(())
        });
        self.world.later(FATE, after, ends);
    }
}

impl Booked for Budget {
    type Body = BudgetInput;
    type Own = ();

    fn note((): &mut (), _: &Head, _: BudgetEvent) -> Checked {
        Ok(())
    }

    fn is_told((): &(), _: TurnId) -> bool {
        true
    }

    fn forget((): &mut ()) {}

    fn told_by_deletion((): &mut ()) {}

    fn again((): &mut (), _: InputId) {}

    fn unfinished(_: &Book<Self>, _: InputId, _: &BudgetInput) -> Option<String> {
        None
    }

    /// What they must add up to, the bills say (see [`super::bills`]).
    fn at_the_end(_: &Book<Self>, _: &BTreeMap<InputId, Input>) -> Checked {
        Ok(())
    }
}

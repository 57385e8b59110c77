//! Counters: what their clients send, what the ledger knows of them, and what they must add up to.
//!
//! The sum is computed from what clients were told is stored, never with the counter's own fold.

use std::{collections::BTreeMap, convert::Infallible};

use clawnode_cluster::Timer;
use clawnode_kernel::{
    EntityKind as _, MachineInput,
    counter::{Counter, CounterEvent, CounterInput},
};
use clawnode_proto::{
    EntityId, Head, IdempotencyKey, Input, InputId, TimerId, Timestamp, TurnId, codec,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::{AnyBook as _, Book, Booked, Checked},
    clients::SimClient,
    kinds::Simulated,
    plan::SeedPlan,
    process::PlannedNote,
};

/// How long it takes to store a timer, at most, in milliseconds.
const SET_MOST: u64 = 3_000;
/// How long after it is sent a number is added by a timer, at most, in milliseconds.
const LATER: u64 = 40_000;
/// Numbers are below this.
const MOST: u64 = 1_000;

/// What happened to a counter.
#[derive(Debug, Default)]
pub(super) struct CounterHistory {
    /// The total that was said last.
    total: u64,
}

impl Simulated for Counter {
    fn entities(plan: &SeedPlan) -> Vec<EntityId> {
        let id = |counter| EntityId::derive(Self::KIND, &format!("counter{counter}"));
        (0..plan.counters).map(id).collect()
    }

    fn clients(plan: &SeedPlan, started: u64) -> Vec<SimClient> {
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x00c0_0737);
        let mut clients = Vec::new();
        for counter in 0..plan.counters {
            let key = format!("counter{counter}");
            for number in 0..plan.inputs {
                let after = rng.random_range(0..plan.busy);
                let by = rng.random_range(1..MOST);
                let input = match rng.random_range(0..100) {
                    0..2 if number > 0 => CounterInput::Forget,
                    2..40 => {
                        let timer = TimerId::from_u128(u128::from(rng.random::<u64>()) << 1 | 1);
                        let due = started + after + rng.random_range(0..LATER);
                        CounterInput::Later { timer, due: Timestamp(due), by }
                    }
                    _ => CounterInput::Add { by },
                };
                let Ok(name) = format!("key{number}").parse::<IdempotencyKey>() else { continue };
                let Ok(input) = input.to(&key, name, Timestamp(0)) else { continue };
                if rng.random_bool(0.15) {
                    // The same again: the client forgot that it was answered.
                    let again = after + rng.random_range(100..plan.again_most);
                    clients.push(SimClient { after: again, input: input.clone(), answered: false });
                }
                clients.push(SimClient { after, input, answered: false });
            }
        }
        clients
    }

    fn acquire(_: &mut Sim, _: ActivationPlace, _: TimerId, want: &Infallible) {
        match *want {}
    }

    /// A timer is set; it is lost with a process that dies before.
    fn start(sim: &mut Sim, at: ActivationPlace, _: TimerId, job: &Timer) -> Checked {
        let after = sim.world.rng.random_range(1..SET_MOST);
        let (name, timer) = (format!("sets {job:?}"), job.clone());
        let sets = PlannedNote::own(name, move |sim| sim.sets_counter_timer(at, &timer));
        sim.world.later(at.process, after, sets);
        Ok(())
    }

    fn abort(sim: &mut Sim, at: ActivationPlace, timer: TimerId) {
        let gone = PlannedNote::own(format!("lets go of {timer}"), move |sim| {
            sim.feed_as::<Self>(at, MachineInput::Gone(timer))
        });
        sim.world.mail(at.process, at.entity.as_u128(), gone);
    }
}

impl Sim {
    /// The timer of a counter is stored.
    fn sets_counter_timer(&mut self, at: ActivationPlace, timer: &Timer) -> Checked {
        let process = self.processes.get_mut(&at.process);
        if process.and_then(|process| process.actor(at.entity, at.counter)).is_none() {
            return Ok(());
        }
        let left = timer.due.0.saturating_sub(self.world.now().0);
        let late = self.world.rng.random_range(0..2_000);
        self.hears(timer.input.clone(), left + late);
        self.feed_as::<Counter>(at, MachineInput::Confirmed(timer.id))
    }
}

impl Booked for Counter {
    type Body = CounterInput;
    type Own = CounterHistory;

    fn note(own: &mut CounterHistory, _: &Head, event: CounterEvent) -> Checked {
        let CounterEvent::Counted(counted) = event;
        own.total = counted.total;
        Ok(())
    }

    fn is_told(_: &CounterHistory, _: TurnId) -> bool {
        true
    }

    fn forget(_: &mut CounterHistory) {}

    fn told_by_deletion(_: &mut CounterHistory) {}

    fn again(_: &mut CounterHistory, _: InputId) {}

    fn unfinished(book: &Book<Self>, input: InputId, body: &CounterInput) -> Option<String> {
        match body {
            CounterInput::Add { .. } | CounterInput::Fired { .. } => None,
            CounterInput::Later { timer, .. } => {
                let waits = book.entity.state.later.contains_key(&timer.to_string());
                waits.then(|| format!("`{input}` set a timer that has not fired"))
            }
            CounterInput::Forget => {
                (book.deletions == 0).then(|| format!("`{input}` deleted nothing"))
            }
        }
    }

    /// SUM-1: what was accepted is added once.
    fn at_the_end(book: &Book<Self>, accepted: &BTreeMap<InputId, Input>) -> Checked {
        let id = book.entity.id;
        // What came before a deletion is gone with it.
        if book.deletions > 0 || book.damaged || book.is_quarantined() {
            return Ok(());
        }
        let mut sum = 0;
        for input in accepted.values().filter(|input| input.entity == id) {
            sum += match codec::decode(&input.body) {
                Ok(CounterInput::Add { by } | CounterInput::Later { by, .. }) => by,
                _ => 0,
            };
        }
        if book.own.total != sum {
            let text = format!("`{id}` says {}, and its clients sent {sum}", book.own.total);
            return Err(JudgeViolation::new("SUM-1", text));
        }
        Ok(())
    }
}

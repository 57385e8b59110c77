//! Slots of providers: calls of agents with weights share the slots of a process, which the pool of production gives away.
//! Some calls of the background end for others, and are made again.
//!
//! Judged is each grant, by what was asked for: LANE-1 and FAIR-1. The judge knows nothing of the queues of the pool.

use std::collections::{BTreeMap, VecDeque};

use clawnode_actors::agent::pool::{Pool, PoolRequest, PoolTicket};
use clawnode_kernel::KernelBug;
use clawnode_proto::{AgentName, ProcessId, lane::Lane};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{JudgeViolation, Sim, SimOptions, book::Checked, process::PlannedNote};

/// Slots of a process.
const SLOTS: u32 = 4;
/// Agents whose calls share them.
const AGENTS: usize = 4;
/// Grants of a lane over which shares are judged.
const WINDOW: usize = 1_000;
/// How long a call takes at most, in milliseconds.
const LASTS_MOST: u64 = 10;
/// Between two times that calls come, at most, in milliseconds.
const COMES_MOST: u64 = 15;
/// Calls of each agent that wait, at least, whenever calls come: more than one agent gets slots for until the next time.
const WAITING_LEAST: usize = 12;
/// For how long one lane is busy, and then the other one, in milliseconds: long enough for some thousand grants.
const PHASE: u64 = 3_000;
/// For how long calls come to a process, in milliseconds.
const COMES_FOR: u64 = 12_000;

/// The slots of all processes.
#[derive(Debug, Default)]
pub(super) struct SimSlots {
    is_on: bool,
    seed: u64,
    weights: [usize; AGENTS],
    processes: BTreeMap<ProcessId, ProcessSlots>,
    pub(super) tally: SlotTally,
}

/// What became of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotTally {
    /// Slots that calls got.
    pub grants: usize,
    /// How often the shares of 1,000 grants of a lane were judged.
    pub windows: usize,
    /// Calls that were ended for others.
    pub ended: usize,
}

/// The slots of one process, and a random stream of its own for its calls.
#[derive(Debug)]
struct ProcessSlots {
    rng: ChaCha8Rng,
    began: u64,
    weights: [usize; AGENTS],
    pool: Pool,
    waiting: BTreeMap<PoolTicket, SlotCall>,
    running: BTreeMap<PoolTicket, RunningSlotCall>,
    lanes: BTreeMap<Lane, LaneGrants>,
}

/// A call that wants a slot.
#[derive(Clone, Copy, Debug)]
struct SlotCall {
    agent: usize,
    lane: Lane,
}

#[derive(Clone, Copy, Debug)]
struct RunningSlotCall {
    call: SlotCall,
    since: u64,
}

/// Who got the slots of one lane.
#[derive(Debug, Default)]
struct LaneGrants {
    count: usize,
    /// The agents of the last grants.
    window: VecDeque<usize>,
    agents: [AgentGrants; AGENTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct AgentGrants {
    waiting: usize,
    /// In the window.
    served: usize,
    /// Since which grant calls of it wait without a gap, and at which one they waited last.
    since: Option<usize>,
    last: Option<usize>,
}

// === impl SimSlots ===

impl SimSlots {
    pub(super) fn new(options: &SimOptions) -> Self {
        let SimOptions { seed, slots: is_on, .. } = *options;
        let below = |most: u64| usize::try_from(seed % most).unwrap_or_default();
        let mut weights = [1; AGENTS];
        // Heavy enough that an equal part is less than half of its share.
        if let Some(heavy) = weights.get_mut(below(4)) {
            *heavy = 4 + below(5);
        }
        Self { is_on, seed, weights, ..Self::default() }
    }

    /// A process has died, with its pool.
    pub(super) fn dies(&mut self, process: ProcessId) {
        self.processes.remove(&process);
    }
}

// === impl ProcessSlots ===

impl ProcessSlots {
    /// In one lane, calls of all agents wait without a gap. Some of the other lane come, too.
    fn calls_come(&mut self, now: u64, planted: KernelBug) {
        let is_even = (now.saturating_sub(self.began) / PHASE).is_multiple_of(2);
        let (busy, other) = if is_even {
            (Lane::Interactive, Lane::Background)
        } else {
            (Lane::Background, Lane::Interactive)
        };
        for agent in 0..AGENTS {
            let grants = self.lanes.entry(busy).or_default();
            let waiting = grants.agents.get(agent).map_or(0, |one| one.waiting);
            for _ in waiting..WAITING_LEAST {
                self.waits(SlotCall { agent, lane: busy }, planted);
            }
        }
        if self.rng.random_bool(0.2) {
            for _ in 0..self.rng.random_range(1..6) {
                let agent = self.rng.random_range(0..AGENTS);
                self.waits(SlotCall { agent, lane: other }, planted);
            }
        }
    }

    fn waits(&mut self, call: SlotCall, planted: KernelBug) {
        let SlotCall { agent: number, lane } = call;
        let Ok(agent) = format!("agent{number}").parse::<AgentName>() else { return };
        let weight = self.weights.get(number).copied().unwrap_or(1);
        let weight = if planted == KernelBug::SlotsIgnoreWeights { 1 } else { weight };
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let asked = if planted == KernelBug::SlotsIgnoreLanes { Lane::Interactive } else { lane };
        let ticket = self.pool.wait(&PoolRequest { agent, weight, lane: asked });
        self.waiting.insert(ticket, call);
        let grants = self.lanes.entry(lane).or_default();
        if let Some(one) = grants.agents.get_mut(number) {
            one.waiting += 1;
        }
    }

    /// A call got a slot. Says whether the shares of 1,000 grants of its lane were judged.
    fn judges(&mut self, call: SlotCall) -> Result<bool, JudgeViolation> {
        let SlotCall { agent, lane } = call;
        if self.waiting.values().any(|other| other.lane < lane) {
            let text = format!("a call of agent {agent} gets a slot before one of a higher lane");
            return Err(JudgeViolation::new("LANE-1", text));
        }
        let grants = self.lanes.entry(lane).or_default();
        grants.count(agent);
        grants.is_fair(&self.weights)
    }
}

// === impl LaneGrants ===

impl LaneGrants {
    /// A call of this agent, which waited, got a slot.
    fn count(&mut self, agent: usize) {
        let grant = self.count;
        self.count += 1;
        for one in self.agents.iter_mut().filter(|one| one.waiting > 0) {
            one.since.get_or_insert(grant);
            one.last = Some(grant);
        }
        if let Some(one) = self.agents.get_mut(agent) {
            one.served += 1;
            one.waiting = one.waiting.saturating_sub(1);
            one.since = one.since.filter(|_| one.waiting > 0);
        }
        self.window.push_back(agent);
        if self.window.len() > WINDOW
            && let Some(first) = self.window.pop_front()
            && let Some(one) = self.agents.get_mut(first)
        {
            one.served = one.served.saturating_sub(1);
        }
    }

    /// FAIR-1, once there are enough grants.
    fn is_fair(&self, weights: &[usize; AGENTS]) -> Result<bool, JudgeViolation> {
        let Some(begin) = self.count.checked_sub(WINDOW) else { return Ok(false) };
        let agents = || self.agents.iter().zip(weights);
        let there = agents().filter(|(one, _)| one.last.is_some_and(|last| last >= begin));
        let all: usize = there.map(|(_, weight)| *weight).sum();
        for (number, (one, weight)) in agents().enumerate() {
            let (served, share) = (one.served, WINDOW * weight / all.max(1));
            if one.since.is_some_and(|since| since <= begin) && 2 * served < share {
                let text = format!("agent {number} got {served} slots, and its share was {share}");
                return Err(JudgeViolation::new("FAIR-1", text));
            }
        }
        Ok(true)
    }
}

// === impl Sim ===

impl Sim {
    /// A process begins, with its slots.
    pub(super) fn begin_slots(&mut self, process: ProcessId) {
        if !self.slots.is_on {
            return;
        }
        let part = u64::try_from(process.as_u128() >> 64).unwrap_or_default();
        let slots = ProcessSlots {
            rng: ChaCha8Rng::seed_from_u64(self.slots.seed.rotate_left(16) ^ part),
            began: self.world.now().0,
            weights: self.slots.weights,
            pool: Pool::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            lanes: BTreeMap::new(),
        };
        self.slots.processes.insert(process, slots);
        self.plan_slot_calls(process);
    }

    fn plan_slot_calls(&mut self, process: ProcessId) {
        let Some(slots) = self.slots.processes.get_mut(&process) else { return };
        let after = slots.rng.random_range(1..COMES_MOST);
        let come = PlannedNote::own("calls want slots".to_owned(), move |sim| {
            let now = sim.world.now().0;
            let Some(slots) = sim.slots.processes.get_mut(&process) else { return Ok(()) };
            if sim.calm || now.saturating_sub(slots.began) > COMES_FOR {
                return Ok(());
            }
            slots.calls_come(now, sim.planted);
            sim.plan_slot_calls(process);
            sim.serves_slots(process)
        });
        self.world.later(process, after, come);
    }

    fn serves_slots(&mut self, process: ProcessId) -> Checked {
        let now = self.world.now().0;
        let Some(slots) = self.slots.processes.get_mut(&process) else { return Ok(()) };
        let mut ends = Vec::new();
        while let Some((ticket, _)) = slots.pool.next(SLOTS) {
            let Some(call) = slots.waiting.remove(&ticket) else { continue };
            self.slots.tally.grants += 1;
            self.slots.tally.windows += usize::from(slots.judges(call)?);
            slots.running.insert(ticket, RunningSlotCall { call, since: now });
            ends.push((ticket, slots.rng.random_range(1..=LASTS_MOST), false));
        }
        let running = &slots.running;
        let said = |ticket: PoolTicket| Some(now.saturating_sub(running.get(&ticket)?.since));
        while let Some(ticket) = slots.pool.preempt(SLOTS, said) {
            self.slots.tally.ended += 1;
            ends.push((ticket, 1, true));
        }
        for (ticket, after, is_made_again) in ends {
            self.plan_slot_end(process, ticket, after, is_made_again);
        }
        Ok(())
    }

    fn plan_slot_end(&mut self, process: ProcessId, ticket: PoolTicket, after: u64, again: bool) {
        let ends = PlannedNote::own("a call gives its slot back".to_owned(), move |sim| {
            let planted = sim.planted;
            let Some(slots) = sim.slots.processes.get_mut(&process) else { return Ok(()) };
            let Some(running) = slots.running.remove(&ticket) else { return Ok(()) };
            slots.pool.leave(ticket);
            if again {
                slots.waits(running.call, planted);
            }
            sim.serves_slots(process)
        });
        self.world.later(process, after, ends);
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::KernelBug;

    use super::SlotTally;
    use crate::{RunFailure, RunReport, SimOptions, run};

    const SEEDS: u64 = 8;

    fn with_slots(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
        let trace = planted == KernelBug::None;
        run(&SimOptions { seed, planted, trace, slots: true, ..SimOptions::default() })
    }

    /// Agents with weights share the slots of processes that die, freeze and come back.
    #[test]
    fn lane_1_and_fair_1_hold_over_all_grants_of_slots() {
        let mut tally = SlotTally::default();
        for seed in 0..SEEDS {
            let report = with_slots(seed, KernelBug::None);
            let SlotTally { grants, windows, ended } =
                report.unwrap_or_else(|failure| panic!("{failure}")).slots;
            tally.grants += grants;
            tally.windows += windows;
            tally.ended += ended;
        }
        assert!(tally.grants > tally.windows && tally.windows > 1_000, "{tally:?}");
        assert!(tally.ended > 10, "{tally:?}");
    }

    #[test]
    fn slots_that_ignore_lanes_or_weights_are_found() {
        for (planted, name) in
            [(KernelBug::SlotsIgnoreLanes, "LANE-1"), (KernelBug::SlotsIgnoreWeights, "FAIR-1")]
        {
            let found = (0..SEEDS).find_map(|seed| Some((seed, with_slots(seed, planted).err()?)));
            let (seed, failure) = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
            assert_eq!(failure.violation.name, name, "{planted:?}: {failure}");
            with_slots(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

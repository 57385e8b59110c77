//! Tests of pools: lanes, fair shares, and calls that are ended for others, in a time that only the tests move.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use clawnode_proto::{AgentName, lane::Lane};
use proptest::prelude::*;

use super::{
    fair_queue::PoolTicket,
    pool::{Pool, PoolRequest},
    preemption::SAID_MOST,
};

fn request(agent: usize, weight: u32, lane: Lane) -> PoolRequest {
    let agent: AgentName = format!("agent{agent}").parse().unwrap();
    PoolRequest { agent, weight, lane }
}

/// What may happen to a pool.
#[derive(Clone, Copy, Debug)]
enum PoolStep {
    Take(Lane),
    Wait(usize, Lane),
    Next,
    Leave(usize),
    Preempt(u64),
}

fn step() -> impl Strategy<Value = PoolStep> {
    let lane = prop::sample::select(Lane::ALL.to_vec());
    prop_oneof![
        lane.clone().prop_map(PoolStep::Take),
        (0_usize..4, lane).prop_map(|(agent, lane)| PoolStep::Wait(agent, lane)),
        Just(PoolStep::Next),
        Just(PoolStep::Next),
        any::<usize>().prop_map(PoolStep::Leave),
        (0_u64..3_000).prop_map(PoolStep::Preempt),
    ]
}

proptest! {
    /// LANE-1 and the size, for any order of events.
    #[test]
    fn lane_1_whatever_happens_a_lower_lane_is_never_served_before_a_higher_one(
        steps in prop::collection::vec(step(), 1..300),
        size in 1_u32..6,
    ) {
        let mut pool = Pool::default();
        let mut waiting: BTreeMap<PoolTicket, (usize, Lane)> = BTreeMap::new();
        let mut running: BTreeMap<PoolTicket, Lane> = BTreeMap::new();
        let mut ending: BTreeSet<PoolTicket> = BTreeSet::new();
        for step in steps {
            match step {
                PoolStep::Take(lane) => match pool.take(size, lane) {
                    Some(ticket) => {
                        prop_assert!(waiting.is_empty(), "LANE-1");
                        running.insert(ticket, lane);
                    }
                    None => prop_assert!(running.len() == size as usize || !waiting.is_empty()),
                },
                PoolStep::Wait(agent, lane) => {
                    waiting.insert(pool.wait(&request(agent, 1, lane)), (agent, lane));
                }
                PoolStep::Next => {
                    let Some((ticket, lane)) = pool.next(size) else {
                        prop_assert!(running.len() == size as usize || waiting.is_empty());
                        continue;
                    };
                    let (agent, waiting_lane) = waiting.remove(&ticket).unwrap();
                    prop_assert_eq!(waiting_lane, lane);
                    prop_assert!(waiting.values().all(|(_, other)| *other >= lane), "LANE-1");
                    let earlier = waiting.range(..ticket).any(|(_, waiting_run)| *waiting_run == (agent, lane));
                    prop_assert!(!earlier, "first come, first served in an agent");
                    running.insert(ticket, lane);
                }
                PoolStep::Leave(at) => {
                    let all: Vec<PoolTicket> = waiting.keys().chain(running.keys()).copied().collect();
                    if let Some(ticket) = all.get(at % all.len().max(1)).copied() {
                        pool.leave(ticket);
                        waiting.remove(&ticket);
                        running.remove(&ticket);
                        ending.remove(&ticket);
                    }
                }
                PoolStep::Preempt(seed) => {
                    let said = |ticket: PoolTicket| (!ticket.0.is_multiple_of(5)).then(|| (ticket.0 * 389 + seed) % 3_000);
                    let Some(ticket) = pool.preempt(size, said) else { continue };
                    let least = said(ticket).unwrap();
                    prop_assert!(least <= SAID_MOST, "LANE-1");
                    prop_assert_eq!(running.get(&ticket), Some(&Lane::Background), "LANE-1");
                    prop_assert!(ending.insert(ticket), "it had to end before");
                    let urgent = waiting.values().filter(|(_, waiting_lane)| *waiting_lane < Lane::Background).count();
                    prop_assert!(ending.len() <= urgent, "LANE-1");
                    let others = running.iter().filter(|(other, lane)| {
                        **lane == Lane::Background && !ending.contains(other)
                    });
                    prop_assert!(others.filter_map(|(other, _)| said(*other)).all(|turn| turn >= least));
                }
            }
            prop_assert!(running.len() <= size as usize, "AGT-1");
            prop_assert_eq!((pool.running() as usize, pool.waiting()), (running.len(), waiting.len()));
        }
    }
}

proptest! {
    // Each case has some thousands of grants.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// FAIR-1: agents that always wait, and agents that come and go in bursts.
    #[test]
    fn fair_1_over_any_1_000_grants_no_agent_that_waits_has_less_than_half_its_share(
        weights in prop::collection::vec(1_u32..20, 2..7),
        bursts in prop::collection::vec((0_usize..7, 1_usize..400), 40..80),
    ) {
        const WINDOW: usize = 1_000;
        let mut pool = Pool::default();
        let mut left = vec![0_usize; weights.len()];
        let mut agents: BTreeMap<PoolTicket, usize> = BTreeMap::new();
        // Since which grant each agent waits without a gap, and when it waited last.
        let mut since = vec![None; weights.len()];
        let mut last = vec![None; weights.len()];
        let (mut window, mut served) = (VecDeque::new(), vec![0_usize; weights.len()]);
        let mut bursts = bursts.into_iter();
        for grant in 0..3_000_usize {
            let steady = (0..2).filter(|agent| left[*agent] < 5).map(|agent| (agent, 10));
            let burst = (grant % 50 == 0).then(|| bursts.next()).flatten();
            let more: Vec<(usize, usize)> = steady.chain(burst).collect();
            for (agent, calls) in more.into_iter().filter(|(agent, _)| *agent < weights.len()) {
                for _ in 0..calls {
                    let ticket = pool.wait(&request(agent, weights[agent], Lane::Interactive));
                    agents.insert(ticket, agent);
                }
                left[agent] += calls;
            }
            for agent in 0..weights.len() {
                if left[agent] > 0 {
                    since[agent].get_or_insert(grant);
                    last[agent] = Some(grant);
                } else {
                    since[agent] = None;
                }
            }
            let (ticket, _) = pool.next(u32::MAX).unwrap();
            pool.leave(ticket);
            let agent = agents.remove(&ticket).unwrap();
            left[agent] -= 1;
            window.push_back(agent);
            served[agent] += 1;
            if window.len() > WINDOW {
                served[window.pop_front().unwrap()] -= 1;
            }
            if window.len() < WINDOW {
                continue;
            }
            let begin = grant + 1 - WINDOW;
            let there = (0..weights.len()).filter(|index| last[*index].is_some_and(|at| at >= begin));
            let all: u32 = there.map(|index| weights[index]).sum();
            for agent in 0..weights.len() {
                if since[agent].is_some_and(|since| since <= begin) {
                    let (served, share) = (served[agent], WINDOW * weights[agent] as usize / all as usize);
                    prop_assert!(2 * served >= share, "FAIR-1: {served} of {share} for {agent}");
                }
            }
        }
    }
}

#[test]
fn lane_1_the_background_call_that_has_said_least_ends_and_only_as_many_as_are_waited_for() {
    let mut pool = Pool::default();
    let lanes = [Lane::Background, Lane::Background, Lane::Interactive, Lane::Background];
    let held: Vec<PoolTicket> = lanes.map(|lane| pool.take(4, lane).unwrap()).to_vec();
    let said = |ticket: PoolTicket| match held.iter().position(|other| *other == ticket)? {
        0 => Some(1_001),
        1 => Some(400),
        2 => Some(0),
        _ => Some(1_000),
    };
    assert_eq!(pool.preempt(4, said), None, "no call waits");
    pool.wait(&request(0, 1, Lane::Background));
    assert_eq!(pool.preempt(4, said), None, "one of the same lane waits");
    pool.wait(&request(0, 1, Lane::Interactive));
    assert_eq!(pool.preempt(5, said), None, "there is room");
    assert_eq!(pool.preempt(4, |_| None), None, "none can be ended");
    assert_eq!(pool.preempt(4, said), Some(held[1]));
    assert_eq!(pool.preempt(4, said), None, "one ends already");
    pool.wait(&request(0, 1, Lane::System));
    assert_eq!(pool.preempt(4, said), Some(held[3]));
    pool.wait(&request(0, 1, Lane::Interactive));
    assert_eq!(pool.preempt(4, said), None, "what has said more than 1,000 tokens goes on");
    pool.leave(held[1]);
    assert_eq!(pool.next(4).map(|(_, lane)| lane), Some(Lane::System));
}

/// A provider with calls of both lanes, in virtual milliseconds.
struct SlotWorld {
    pool: Pool,
    now: u64,
    /// The next thing that happens, the earliest first.
    due: BinaryHeap<std::cmp::Reverse<(u64, u64, PoolTicket, bool)>>,
    number: u64,
    /// What runs: which call, and since when.
    runs: BTreeMap<PoolTicket, (usize, u64)>,
    of: BTreeMap<PoolTicket, usize>,
    calls: Vec<WorldCall>,
}

struct WorldCall {
    lane: Lane,
    asked: u64,
    lasts: u64,
    yields: u32,
    ended: Option<u64>,
}

/// How many slots there are, how fast models speak, and how long a call takes to end that has to.
const SLOTS: u32 = 64;
const MS_PER_TOKEN: u64 = 20;
const ENDS_IN: u64 = 5;
/// How often a call is ended for others, as its session counts it.
const YIELDS: u32 = 8;

impl SlotWorld {
    fn new() -> Self {
        let (pool, due) = (Pool::default(), BinaryHeap::new());
        let (runs, agents) = (BTreeMap::new(), BTreeMap::new());
        Self { pool, now: 0, due, number: 0, runs, of: agents, calls: Vec::new() }
    }

    fn ask(&mut self, call: usize) {
        let ticket = self.pool.wait(&request(call % 7, 1, self.calls[call].lane));
        self.of.insert(ticket, call);
    }

    fn add(&mut self, lane: Lane, lasts: u64) {
        let asked = self.now;
        self.calls.push(WorldCall { lane, asked, lasts, yields: 0, ended: None });
        self.ask(self.calls.len() - 1);
    }

    fn later(&mut self, after: u64, ticket: PoolTicket, yields: bool) {
        self.number += 1;
        self.due.push(std::cmp::Reverse((self.now + after, self.number, ticket, yields)));
    }

    fn serve(&mut self) {
        while let Some((ticket, _)) = self.pool.next(SLOTS) {
            let call = self.of.remove(&ticket).unwrap();
            self.runs.insert(ticket, (call, self.now));
            self.later(self.calls[call].lasts, ticket, false);
        }
        let (now, runs, calls) = (self.now, &self.runs, &self.calls);
        let said = |ticket: PoolTicket| {
            let (call, since) = runs.get(&ticket)?;
            (calls[*call].yields < YIELDS).then_some((now - since) / MS_PER_TOKEN)
        };
        let mut told = Vec::new();
        while let Some(ticket) = self.pool.preempt(SLOTS, said) {
            told.push(ticket);
        }
        for ticket in told {
            self.later(ENDS_IN, ticket, true);
        }
    }

    /// Until this time, or until nothing is left to do.
    fn run(&mut self, until: u64) {
        self.serve();
        while let Some(std::cmp::Reverse((at, _, ticket, yields))) = self.due.peek().copied() {
            if at > until {
                break;
            }
            self.due.pop();
            self.now = at;
            let Some((call, _)) = self.runs.remove(&ticket) else { continue };
            self.pool.leave(ticket);
            if yields {
                self.calls[call].yields += 1;
                self.ask(call);
            } else {
                self.calls[call].ended = Some(at);
            }
            self.serve();
        }
        self.now = self.now.max(until.min(u64::MAX / 2));
    }

    fn p99(&self) -> u64 {
        let interactive = self.calls.iter().filter(|call| call.lane == Lane::Interactive);
        let mut times: Vec<u64> =
            interactive.map(|call| call.ended.unwrap() - call.asked).collect();
        times.sort_unstable();
        times[times.len() * 99 / 100 - 1]
    }
}

/// 100 interactive calls while 1,000 of the background run and wait: at once, and one after the other.
#[test]
fn interactive_calls_are_nearly_as_fast_as_alone_and_all_of_the_background_end() {
    for gap in [0, 200] {
        let run = |background: usize| {
            let mut world = SlotWorld::new();
            for call in 0..background {
                // From 10 s to 40 s: some of them have said too much to be ended.
                world.add(Lane::Background, 10_000 + (call as u64 * 7_919) % 30_000);
            }
            world.run(60_000);
            for _ in 0..100 {
                world.add(Lane::Interactive, 2_000);
                let until = world.now + gap;
                world.run(until);
            }
            world.run(u64::MAX);
            world
        };
        let (idle, busy) = (run(0), run(1_000));
        assert!(busy.p99() <= 2 * idle.p99(), "gap {gap}: {} against {}", busy.p99(), idle.p99());
        assert!(busy.calls.iter().all(|call| call.ended.is_some()), "nothing is dropped");
        assert!(busy.calls.iter().any(|call| call.yields > 0), "some were ended for others");
    }
}

/// Interactive calls that never pause do not keep a call of the background from its end for ever: it is ended
/// for others only so often.
#[test]
fn background_calls_end_once_interactive_ones_pause() {
    let mut world = SlotWorld::new();
    for _ in 0..100 {
        world.add(Lane::Background, 15_000);
    }
    for _ in 0..600 {
        // More than there is room for.
        for _ in 0..8 {
            world.add(Lane::Interactive, 1_000);
        }
        let until = world.now + 100;
        world.run(until);
    }
    let ended = |world: &SlotWorld| {
        let background = world.calls.iter().filter(|call| call.lane == Lane::Background);
        background.filter(|call| call.ended.is_some()).count()
    };
    let before = ended(&world);
    world.run(u64::MAX);
    assert!(before < 100, "there was room for all of them");
    assert_eq!(ended(&world), 100);
    assert!(world.calls.iter().all(|call| call.yields <= YIELDS));
}

//! Very many sessions: skewed keys, many nodes of which a third are lost, a bus whose leader is
//! lost again and again, and late writes and stale reads all the while.
//!
//! All invariants are checked as for few sessions: after each step for whatever that step touched,
//! and for every session in the end.

use std::time::Duration;

use clawnode_kernel::{KernelBug, MachineOptions};
use clawnode_proto::ProcessId;
use clawnode_sim::Faults;
use rand::{Rng, SeedableRng, seq::IteratorRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    FATE, JudgeViolation, Sim,
    chaos::SILENT,
    models::ModelPlan,
    plan::{BudgetPlan, SAYS_AGAIN, SeedPlan, Weights},
    process::PlannedNote,
    silent::SilentPlan,
    sizes::Sizes,
};

/// Nodes, a third of which are lost at once.
const NODES: usize = 12;
/// How long inputs and faults go on, in milliseconds.
const BUSY: u64 = 60 * 60 * 1_000;
/// Between two losses of the bus's leader, in milliseconds.
const LEADER_EVERY: u64 = 10 * 60 * 1_000;
/// How long a new leader's first answers may be refusals, in milliseconds.
const LEADER_YOUNG: u64 = 10_000;
/// Inputs of the session that has most: what one can work off while inputs come.
const HOTTEST: usize = 400;
/// Steps for each session after which a world that is still busy is not taken to come to rest.
const STEPS_MOST: u64 = 2_000;
/// The same for each call under budgets.
const CALL_STEPS_MOST: u64 = 40;
/// Requests that fail for their sender and take effect later.
const GHOSTS: f64 = 0.01;
/// Reads that show the past.
const STALE: f64 = 0.20;

/// What is different with very many sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// When a third of the nodes are lost, in milliseconds.
    lost_at: u64,
    /// How many are lost.
    lost: usize,
    /// How many of those come back.
    back: usize,
}

impl SeedPlan {
    /// What a seed decides for so many sessions.
    pub(super) fn scale(seed: u64, sessions: usize, planted: KernelBug) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5ca1_e000);
        let lost = NODES / 3;
        Self {
            models: ModelPlan::default(),
            hooks: Vec::new(),
            schemas: false,
            lanes: false,
            runaways: None,
            kept_turns: None,
            summaries: false,
            recalls: false,
            reflections: false,
            silent: SilentPlan::default(),
            templates: false,
            seed,
            local: false,
            partitions: 32,
            processes: NODES,
            sessions,
            counters: 0,
            memories: 0,
            budgets: BudgetPlan::default(),
            inputs: 1,
            says_again: SAYS_AGAIN,
            again_most: 30_000,
            busy: BUSY,
            faults: faults(),
            weights: Weights {
                kill: 1,
                freeze: 2,
                actor: 2,
                drain: 1,
                outage: 0,
                skew: 1,
                rumour: 1,
            },
            fate_every: rng.random_range(60_000..180_000),
            machine: MachineOptions {
                hides: &[],
                passivate_after: Duration::from_secs(rng.random_range(5..=40)),
                snapshot_every: rng.random_range(16..=64),
                planted,
            },
            skew: rng.random_range(0..60_000),
            call_most: rng.random_range(1_000..5_000),
            call_fails: 0.05,
            asks_tools: 0.1,
            emit_fails: 0.05,
            poison: None,
            operator: None,
            damage: false,
            patient: false,
            hangs: 0.0,
            pause: None,
            sizes: Sizes::Small,
            approval_wait: 60_000,
            scarce: false,
            scale: Some(Scale {
                lost_at: rng.random_range(BUSY / 6..BUSY / 2),
                lost,
                back: rng.random_range(0..lost),
            }),
        }
    }

    /// How many inputs a session has: the same of all, or one and what Zipf's law gives it.
    pub(super) fn inputs_of(&self, session: usize) -> usize {
        if self.scale.is_none() {
            return self.inputs;
        }
        // The harmonic number of so many sessions, nearly.
        let all = self.sessions.max(1);
        let harmonic = usize::try_from(all.ilog2()).unwrap_or(1) * 7 / 10 + 1;
        (self.inputs + all / (harmonic * (session + 1))).min(HOTTEST)
    }

    /// After how many steps it is taken not to come to rest.
    pub(super) fn steps_most(&self) -> u64 {
        match &self.scale {
            Some(_) => {
                let as_steps = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
                STEPS_MOST * as_steps(self.sessions).max(1_000)
                    + CALL_STEPS_MOST * as_steps(self.budgets.admissions)
            }
            None => super::STEPS_MAX,
        }
    }
}

/// What is asked for, and a little of everything else that a network does.
fn faults() -> Faults {
    Faults {
        lost_request: 0.005,
        lost_answer: 0.01,
        ghost: GHOSTS,
        busy: 0.0,
        spurious_refusal: 0.0,
        twice: 0.005,
        slow: 0.02,
        stale_read: STALE,
        misrouted: 0.02,
        delivered_twice: 0.02,
        lost_delivery: 0.01,
        lost_message: 0.02,
    }
}

impl Sim {
    /// Plans what befalls so many sessions, besides what befalls few.
    pub(super) fn begin_scale(&mut self) {
        if let Some(scale) = self.plan.scale {
            self.world.later(FATE, scale.lost_at, PlannedNote::LoseNodes);
            self.world.later(FATE, LEADER_EVERY, PlannedNote::LoseLeader);
        }
    }

    /// A third of the nodes die within a second; some of them are replaced after minutes.
    pub(super) fn lose_nodes(&mut self) -> Result<(), JudgeViolation> {
        let Some(Scale { lost, back, .. }) = self.plan.scale else { return Ok(()) };
        let lost: Vec<ProcessId> =
            self.processes.keys().copied().choose_multiple(&mut self.world.rng, lost);
        for (at, process) in lost.into_iter().enumerate() {
            self.lose(process)?;
            let noticed = self.world.rng.random_range(500..=SILENT);
            self.world.later(FATE, noticed, PlannedNote::Declare(process, true));
            if at < back {
                let after = self.world.rng.random_range(60_000..600_000);
                self.world.later(FATE, after, PlannedNote::Spawn);
            }
        }
        Ok(())
    }

    /// The bus has no leader for some seconds, and then one that refuses at first.
    pub(super) fn lose_leader(&mut self) {
        if self.calm {
            return;
        }
        let millis = self.world.rng.random_range(1_000..10_000);
        self.remark(FATE, || format!("the bus has no leader for {millis} ms"));
        self.world.outage(millis);
        self.world.faults.spurious_refusal = 0.05;
        self.world.faults.busy = 0.05;
        self.world.later(FATE, millis + LEADER_YOUNG, PlannedNote::LeaderSettles);
        self.world.later(FATE, LEADER_EVERY, PlannedNote::LoseLeader);
    }

    pub(super) fn leader_settles(&mut self) {
        if !self.calm {
            self.world.faults = self.plan.faults;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sessions_have_most_inputs_and_all_have_one() {
        let plan = SeedPlan::scale(1, 10_000, KernelBug::None);
        let inputs: Vec<usize> = (0..10_000).map(|session| plan.inputs_of(session)).collect();
        let all: usize = inputs.iter().sum();
        let of_the_first_percent: usize = inputs.iter().take(100).sum();
        assert_eq!(inputs.first(), Some(&HOTTEST));
        assert!(inputs.iter().all(|count| *count >= 1) && inputs.is_sorted_by(|a, b| a >= b));
        assert!((14_000..20_000).contains(&all), "{all} inputs");
        assert!(of_the_first_percent * 4 > all, "{of_the_first_percent} of {all}");
    }
}

//! Days in which nothing happens: longer than a job may wait, and longer than its key is kept.

use clawnode_proto::ProcessId;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{FATE, Sim, jobs::scarce, plan::SeedPlan, process::PlannedNote};

/// A day, in milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000;
/// Between two ticks in those days, in milliseconds: more would only take steps.
const TICK: u64 = 60 * 60 * 1_000;
/// How long all goes on as before, for what was begun to end, in milliseconds.
const BEGUN: u64 = 5 * 60 * 1_000;

/// Some days, as milliseconds after the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    from: u64,
    lasts: u64,
    /// The queue forgets no job, as one whose clock is wrong.
    pub(super) keeps_old_jobs: bool,
}

// === impl Pause ===

impl Pause {
    /// A pause of some days in the middle of a run that is busy for so long.
    pub(super) fn of(rng: &mut ChaCha8Rng, busy: u64) -> Self {
        Self {
            from: rng.random_range(busy / 4..busy * 3 / 4),
            lasts: rng.random_range(2 * DAY..12 * DAY),
            keeps_old_jobs: rng.random_bool(0.5),
        }
    }

    /// When it is over.
    const fn until(self) -> u64 {
        self.from + self.lasts
    }
}

impl SeedPlan {
    /// When something comes that would come so long after the beginning.
    pub(super) fn at(&self, after: u64) -> u64 {
        let pause = self.pause.filter(|pause| pause.from < after);
        after + pause.map_or(0, |pause| pause.lasts)
    }

    /// When inputs and faults stop, in milliseconds after the beginning.
    pub(super) fn ends(&self) -> u64 {
        self.at(self.busy)
    }
}

impl Sim {
    fn passed(&self) -> u64 {
        self.world.now().0.saturating_sub(self.started)
    }

    /// How long nothing befalls anybody, if that is so now.
    pub(super) fn rests_for(&self) -> Option<u64> {
        let pause = self.plan.pause.filter(|pause| self.passed() >= pause.from)?;
        pause.until().checked_sub(self.passed()).filter(|left| *left > 0)
    }

    /// How soon the next tick comes, where ticks would only take steps.
    pub(super) fn long_tick(&self) -> Option<u64> {
        let pause = self.plan.pause.filter(|pause| self.passed() >= pause.from + BEGUN)?;
        let left = pause.until().checked_sub(self.passed()).filter(|left| *left > 0)?;
        Some(left.min(TICK))
    }

    pub(super) fn begin_pause(&mut self) {
        if let Some(pause) = self.plan.pause {
            self.world.later(FATE, pause.until(), PlannedNote::Returns);
        }
    }

    /// What only some processes can: in seeds with a pause none of them before its end.
    pub(super) fn may_be_scarce(&mut self) -> bool {
        match self.plan.pause {
            Some(pause) => self.passed() >= pause.until(),
            None => !self.plan.scarce || self.world.chance(0.4),
        }
    }

    /// A process can again what none could for days.
    pub(super) fn returns(&mut self) {
        let first: Option<ProcessId> = self.processes.keys().next().copied();
        if let (Some(process), Some(capability)) = (first, scarce()) {
            self.remark(process, || "can all again".to_owned());
            self.world.pull_job(process, &capability);
        }
    }
}

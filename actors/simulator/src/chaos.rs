//! What befalls the world: processes that die, freeze or are drained, stores out of reach, clocks
//! that jump, rumours; and in the end, calm.

use std::collections::{BTreeMap, VecDeque};

use clawnode_kernel::{
    job_machine::JobMachine,
    partition::{self, Gone, Partition},
};
use clawnode_proto::{EntityId, ProcessId};
use clawnode_sim::Faults;
use rand::Rng;

use super::{
    CLIENTS, FATE, JudgeViolation, Sim,
    any_machine::{ActivationPlace, MachineMessage},
    jobs::JobHands,
    process::{PlannedNote, SimProcess},
};

/// A process that says nothing for this long is held dead, in milliseconds.
pub(super) const SILENT: u64 = 6_000;
/// How long running calls may go on when a process is drained, in milliseconds.
const DRAIN_GRACE: u64 = 5_000;
/// Ticks for which a death makes others scan: somewhat longer than `ACK_WAIT`.
const SCAN_TICKS: u64 = 40;
/// How long the world may take to come to rest once it is calm, in milliseconds: plans go on to
/// their end, step by step, and people take their time for some of the steps.
const CALM_MOST: u64 = 300_000;
/// The same, if an entity has to fail often enough to be put out of service.
const CALM_MOST_POISONED: u64 = 400_000;
/// The same, if some sessions have many inputs to work off.
const CALM_MOST_SCALE: u64 = 900_000;

impl Sim {
    pub(super) fn begin(&mut self) {
        self.started = self.world.now().0;
        self.world.faults = self.plan.faults;
        self.world.start(CLIENTS, false);
        self.world.start(FATE, false);
        for _ in 0..self.plan.processes {
            self.spawn();
        }
        self.poisoned = self.clients.first().map(|client| client.input.entity);
        self.ledger.poisoned = self.poisoned.filter(|_| self.plan.poison.is_some());
        for (at, client) in self.clients.iter().enumerate() {
            self.world.later(CLIENTS, client.after, PlannedNote::Send(at));
        }
        self.begin_scale();
        let first = self.plan.fate_every / 2;
        self.world.later(FATE, first, PlannedNote::Fate);
        self.world.later(FATE, self.plan.ends(), PlannedNote::Calm);
        self.begin_pause();
        self.begin_budget_calls();
        if self.plan.is_operated() {
            self.world.later(FATE, self.plan.busy / 3, PlannedNote::Operate);
        }
    }

    pub(super) fn fate(&mut self, note: &PlannedNote) -> Result<(), JudgeViolation> {
        match note {
            PlannedNote::Fate => {
                if self.calm {
                    return Ok(());
                }
                if let Some(rest) = self.rests_for() {
                    self.world.later(FATE, rest, PlannedNote::Fate);
                    return Ok(());
                }
                let after = self.world.rng.random_range(1..self.plan.fate_every * 2);
                self.world.later(FATE, after, PlannedNote::Fate);
                self.befall()
            }
            PlannedNote::Spawn => {
                self.spawn();
                Ok(())
            }
            PlannedNote::Declare(process, dead) => self.declare(*process, *dead),
            PlannedNote::Thaw(process) => {
                self.remark(*process, || "thaws".to_owned());
                self.judge.befalls(self.world.now().0, *process);
                self.world.thaw(*process);
                Ok(())
            }
            PlannedNote::Calm => {
                self.remark(FATE, || "faults stop".to_owned());
                self.calm = true;
                self.world.faults = Faults::none();
                self.world.later(FATE, 1_000, PlannedNote::Watch);
                Ok(())
            }
            PlannedNote::Returns => {
                self.returns();
                Ok(())
            }
            PlannedNote::LoseNodes => self.lose_nodes(),
            PlannedNote::LoseLeader => {
                self.lose_leader();
                Ok(())
            }
            PlannedNote::LeaderSettles => {
                self.leader_settles();
                Ok(())
            }
            PlannedNote::Operate => {
                self.operate();
                Ok(())
            }
            PlannedNote::Watch => self.watch(),
            _ => Ok(()),
        }
    }

    /// Ends the run once all is quiet; complains if that takes too long.
    fn watch(&mut self) -> Result<(), JudgeViolation> {
        let waits = !self.world.inboxes_empty();
        let answered = self.clients.iter().all(|client| client.answered);
        self.holds_end()?;
        self.leave_if_done(answered);
        let unfinished = || {
            let unfinished = self.ledger.unfinished().or_else(|| self.out_of_service());
            unfinished.or_else(|| self.unfinished_budgets())
        };
        if !waits && answered && unfinished().is_none() {
            self.over = true;
            return self.nothing_leaks();
        }
        let calm_for = self.world.now().0 - self.started - self.plan.ends();
        let most = if self.plan.is_long() {
            CALM_MOST_SCALE
        } else if self.plan.poison.is_some() || self.plan.is_operated() {
            CALM_MOST_POISONED
        } else {
            CALM_MOST
        };
        if calm_for > most {
            let text = unfinished();
            let text = text.unwrap_or_else(|| {
                if answered { "something waits in the inbox" } else { "a sender is not answered" }
                    .to_owned()
            });
            return Err(JudgeViolation::new("E1", text));
        }
        self.world.later(FATE, 1_000, PlannedNote::Watch);
        Ok(())
    }

    /// R1: a driver keeps only the handles that its machines will answer to.
    fn nothing_leaks(&self) -> Result<(), JudgeViolation> {
        for (id, process) in &self.processes {
            let known: usize = process.partitions.iter().map(Partition::handles).sum();
            if process.handles.len() > known {
                let text = format!("`{id}` keeps {} handles of {known}", process.handles.len());
                return Err(JudgeViolation::new("R1", text));
            }
        }
        Ok(())
    }

    fn spawn(&mut self) {
        let id = ProcessId::from_u128(self.world.rng.random());
        let skew = if self.plan.skew == 0 {
            0
        } else {
            let most = i64::try_from(self.plan.skew).unwrap_or(0);
            self.world.rng.random_range(-most..=most)
        };
        let now = self.world.now();
        let shared = !self.plan.local;
        let partition = || {
            let mut partition = Partition::new(id, shared, now);
            partition.planted = self.planted;
            partition
        };
        let partitions = (0..self.plan.partitions).map(|_| partition()).collect();
        let process = SimProcess {
            skew,
            partitions,
            actors: BTreeMap::new(),
            handles: BTreeMap::new(),
            asks: BTreeMap::new(),
            asked: BTreeMap::new(),
            ops: BTreeMap::new(),
            next: 0,
            ticks: 0,
            drained: 0,
            draining: false,
            gave_up: false,
            suspects: VecDeque::new(),
            jobs: JobHands::new(JobMachine::new(id, 0).planted(self.planted)),
            scans_until: if self.dead.is_empty() { 0 } else { SCAN_TICKS },
            holder: None,
            memory: None,
        };
        self.remark(id, || format!("begins, clock {skew} ms"));
        self.processes.insert(id, process);
        self.world.start(id, true);
        self.pull_jobs(id);
        self.begin_holder(id);
        self.begin_runaways(id);
        self.begin_slots(id);
        let tick = self.world.rng.random_range(1..1_000);
        self.world.later(id, tick, PlannedNote::Tick);
        for partition in 0..self.plan.partitions {
            let dead = partition::PartitionInput::Dead(self.dead.clone());
            self.mail_dispatcher(id, partition, dead);
            if self.plan.local {
                // What waits is found at open.
                self.scan(id, partition);
            }
        }
    }

    fn befall(&mut self) -> Result<(), JudgeViolation> {
        let living: Vec<ProcessId> = self.processes.keys().copied().collect();
        let Some(&one) = living.get(self.world.rng.random_range(0..living.len().max(1))) else {
            return Ok(());
        };
        let weights = self.plan.weights;
        let all = [
            weights.kill,
            weights.freeze,
            weights.actor,
            weights.drain,
            weights.outage,
            weights.skew,
            weights.rumour,
        ];
        let total: u32 = all.iter().sum();
        if total == 0 {
            return Ok(());
        }
        let mut at = self.world.rng.random_range(0..total);
        let which = all.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        match which {
            Some(0) => return self.kill(one),
            Some(1) => self.freeze(one),
            Some(2) => self.any_actor_dies(one),
            Some(3) => return self.drain(one),
            Some(4) => {
                let millis = self.world.rng.random_range(500..8_000);
                self.remark(FATE, || format!("no store answers for {millis} ms"));
                self.world.outage(millis);
            }
            Some(5) => {
                let by = self.world.rng.random_range(-60_000..=60_000);
                self.remark(one, || format!("clock jumps by {by} ms"));
                if let Some(process) = self.processes.get_mut(&one) {
                    process.skew += by;
                }
            }
            _ => {
                let after = self.world.rng.random_range(1_000..10_000);
                self.world.later(FATE, after, PlannedNote::Declare(one, false));
                return self.declare(one, true);
            }
        }
        Ok(())
    }

    pub(super) fn kill(&mut self, process: ProcessId) -> Result<(), JudgeViolation> {
        self.lose(process)?;
        let down = self.world.rng.random_range(100..8_000);
        self.world.later(FATE, down, PlannedNote::Spawn);
        let noticed = self.world.rng.random_range(500..=SILENT);
        self.world.later(FATE, noticed, PlannedNote::Declare(process, true));
        Ok(())
    }

    /// A process is gone for good.
    pub(super) fn lose(&mut self, process: ProcessId) -> Result<(), JudgeViolation> {
        self.remark(process, || "dies".to_owned());
        self.judge.befalls(self.world.now().0, process);
        self.world.kill(process);
        self.processes.remove(&process);
        self.budgets_lose(process);
        self.slots.dies(process);
        if self.plan.local {
            self.world.power_cut();
            let (world, ledger) = (&self.world, &self.ledger);
            ledger.durable(
                |entity| world.journal(entity),
                |input| world.inbox(input.entity).iter().any(|(_, one)| one.id == input.id),
            )?;
        }
        Ok(())
    }

    fn freeze(&mut self, process: ProcessId) {
        let millis = self.world.rng.random_range(200..45_000);
        self.remark(process, || format!("freezes for {millis} ms"));
        self.judge.befalls(self.world.now().0, process);
        self.world.freeze(process);
        self.world.later(FATE, millis, PlannedNote::Thaw(process));
        if millis > SILENT {
            self.world.later(FATE, SILENT, PlannedNote::Declare(process, true));
            self.world.later(FATE, millis + 1_000, PlannedNote::Declare(process, false));
        }
    }

    fn any_actor_dies(&mut self, process: ProcessId) {
        let actors = self.processes.get(&process).map(|process| &process.actors);
        if let Some(entity) = actors.and_then(|actors| actors.keys().next()).copied() {
            self.actor_dies(process, entity);
        }
    }

    /// An actor panics; its dispatcher hears of it.
    pub(super) fn actor_dies(&mut self, process: ProcessId, entity: EntityId) {
        self.remark(process, || format!("{entity} panics"));
        self.judge.troubles(self.world.now().0, entity);
        let actor =
            self.processes.get_mut(&process).and_then(|process| process.actors.get_mut(&entity));
        if let Some(actor) = actor.filter(|actor| !actor.stopped) {
            actor.stopped = true;
            let counter = actor.counter;
            *self.ledger.struck.entry(entity).or_default() += 1;
            self.not_tried(process, entity);
            let gone = partition::PartitionInput::Gone(entity, Gone::Died);
            self.mail_dispatcher(process, self.partition_of(entity), gone);
            let at = ActivationPlace { process, entity, counter };
            let dropped = PlannedNote::own(format!("{entity}'s calls are dropped"), move |sim| {
                sim.session_calls_end(at)
            });
            self.world.mail(process, 0, dropped);
        }
    }

    fn drain(&mut self, one: ProcessId) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get_mut(&one) else { return Ok(()) };
        if std::mem::replace(&mut process.draining, true) {
            return Ok(());
        }
        self.remark(one, || "is drained".to_owned());
        self.world.stop_pulling(one);
        self.world.later(one, DRAIN_GRACE, PlannedNote::GiveUp);
        self.world.later(FATE, DRAIN_GRACE, PlannedNote::Spawn);
        self.tell_all(one, || MachineMessage::Drain)?;
        for partition in 0..self.plan.partitions {
            self.dispatch(one, partition, partition::PartitionInput::Drain)?;
        }
        Ok(())
    }

    /// One of its partitions has nothing left; the process ends with the last.
    pub(super) fn drained(&mut self, one: ProcessId) {
        let Some(process) = self.processes.get_mut(&one) else { return };
        process.drained += 1;
        if process.drained >= process.partitions.len() {
            self.remark(one, || "ends".to_owned());
            self.world.kill(one);
            self.processes.remove(&one);
            self.budgets_lose(one);
            self.dead.insert(one);
        }
    }

    fn declare(&mut self, process: ProcessId, dead: bool) -> Result<(), JudgeViolation> {
        self.judge.befalls(self.world.now().0, process);
        if dead && self.world.lives(process) {
            self.judge.wrongs(process);
        }
        // A dead process does not come back, whatever is declared.
        if dead || !self.world.lives(process) {
            self.dead.insert(process);
        } else {
            self.dead.remove(&process);
        }
        let all: Vec<ProcessId> = self.processes.keys().copied().collect();
        for one in all {
            if dead && let Some(process) = self.processes.get_mut(&one) {
                process.scans_until = process.ticks + SCAN_TICKS;
            }
            for partition in 0..self.plan.partitions {
                let others = self.dead.iter().copied().filter(|other| *other != one).collect();
                self.mail_dispatcher(one, partition, partition::PartitionInput::Dead(others));
            }
        }
        if dead { self.gives_back_for(process) } else { Ok(()) }
    }
}

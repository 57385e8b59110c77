//! The kinds of entities in the world, each with its production code.

use std::convert::Infallible;

use clawnode_actors::session::{Effect, EffectJob, Session, Want};
use clawnode_cluster::{AppendAnswer, Record, Timer};
use clawnode_kernel::{
    EntityKind, LoadedJournal, Machine, MachineInput, OwnerSays, counter::Counter,
};
use clawnode_proto::{
    Digest, EntityId, Epoch, Input, InputId, Position, ProcessId, TimerId, kernel::SnapshotState,
};
use rand::Rng;

use super::{
    JudgeViolation, Sim,
    process::{Actor, PlannedNote},
};

/// How long it takes to store a timer, at most, in milliseconds.
const SET_MOST: u64 = 3_000;

/// An activation of a process: whose, of which entity, and which.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActivationPlace {
    pub(super) process: ProcessId,
    pub(super) entity: EntityId,
    pub(super) counter: u64,
}

/// The machine of an entity.
#[derive(Debug)]
pub(super) enum AnyMachine {
    Session(Box<Machine<Session>>),
    Counter(Box<Machine<Counter>>),
}

/// What a machine of any kind is told.
#[derive(Debug)]
pub(super) enum MachineMessage {
    Deliver(Vec<Input>),
    Loaded(LoadedJournal),
    Probation {
        blamed: bool,
    },
    Answered(AppendAnswer),
    ReadBack {
        after_expected: Vec<Record>,
        tail: Position,
    },
    Archived {
        archive: Digest,
        state: SnapshotState,
        superseded: Vec<Digest>,
        positions: Vec<Position>,
    },
    ArchiveFailed,
    Scrubbed,
    Erased(SnapshotState),
    Fenced(Epoch),
    Tick,
    Drain,
    GiveUp,
}

impl MachineMessage {
    fn of<K: EntityKind>(self) -> MachineInput<K> {
        match self {
            Self::Deliver(inputs) => MachineInput::Deliver(inputs),
            Self::Loaded(loaded) => MachineInput::Loaded(loaded),
            Self::Probation { blamed } => MachineInput::Probation { blamed },
            Self::Answered(answer) => MachineInput::Answered(answer),
            Self::ReadBack { after_expected, tail } => {
                MachineInput::ReadBack { after_expected, tail }
            }
            Self::Archived { archive, state, superseded, positions } => {
                MachineInput::Archived { archive, state, superseded, positions }
            }
            Self::ArchiveFailed => MachineInput::ArchiveFailed,
            Self::Scrubbed => MachineInput::Scrubbed,
            Self::Erased(state) => MachineInput::Erased { state, before: None },
            Self::Fenced(epoch) => MachineInput::FencedHint(epoch),
            Self::Tick => MachineInput::Tick,
            Self::Drain => MachineInput::Drain,
            Self::GiveUp => MachineInput::GiveUp,
        }
    }
}

/// A kind that can be simulated: how its effects happen in this world.
pub(super) trait Simulated: EntityKind {
    /// Its machine, if it is of this kind.
    fn machine(any: &mut AnyMachine) -> Option<&mut Machine<Self>>
    where
        Self: Sized;

    /// One of its effects has ended.
    fn ran(_: &mut Actor, _: &Self::Effect) {}

    fn acquire(sim: &mut Sim, at: ActivationPlace, effect: Self::Effect, want: &Self::Want);

    fn start(
        sim: &mut Sim,
        at: ActivationPlace,
        effect: Self::Effect,
        job: &Self::Job,
    ) -> Result<(), JudgeViolation>;

    fn abort(sim: &mut Sim, at: ActivationPlace, effect: Self::Effect);
}

impl Simulated for Session {
    fn machine(any: &mut AnyMachine) -> Option<&mut Machine<Self>> {
        match any {
            AnyMachine::Session(machine) => Some(machine),
            AnyMachine::Counter(_) => None,
        }
    }

    fn ran(actor: &mut Actor, effect: &Effect) {
        actor.running.remove(effect);
    }

    fn acquire(sim: &mut Sim, at: ActivationPlace, effect: Effect, want: &Want) {
        sim.acquire(at.process, at.entity, at.counter, (effect, want));
    }

    fn start(
        sim: &mut Sim,
        at: ActivationPlace,
        effect: Effect,
        job: &EffectJob,
    ) -> Result<(), JudgeViolation> {
        sim.start(at.process, at.entity, at.counter, effect, &job.job)
    }

    fn abort(sim: &mut Sim, at: ActivationPlace, effect: Effect) {
        sim.abort(at.process, at.entity, at.counter, effect);
    }
}

impl Simulated for Counter {
    fn machine(any: &mut AnyMachine) -> Option<&mut Machine<Self>> {
        match any {
            AnyMachine::Counter(machine) => Some(machine),
            AnyMachine::Session(_) => None,
        }
    }

    fn acquire(_: &mut Sim, _: ActivationPlace, _: TimerId, want: &Infallible) {
        match *want {}
    }

    /// A timer is set; it is lost with a process that dies before.
    fn start(
        sim: &mut Sim,
        at: ActivationPlace,
        _: TimerId,
        job: &Timer,
    ) -> Result<(), JudgeViolation> {
        let after = sim.world.rng.random_range(1..SET_MOST);
        sim.world.later(
            at.process,
            after,
            PlannedNote::SetsCounterTimer(at, Box::new(job.clone())),
        );
        Ok(())
    }

    fn abort(sim: &mut Sim, at: ActivationPlace, timer: TimerId) {
        sim.count(at, MachineInput::Gone(timer));
    }
}

impl AnyMachine {
    pub(super) fn says(&self, input: InputId) -> OwnerSays {
        match self {
            Self::Session(machine) => machine.says(input),
            Self::Counter(machine) => machine.says(input),
        }
    }
}

impl Sim {
    /// Tells an activation of whatever kind.
    pub(super) fn tell(
        &mut self,
        at: ActivationPlace,
        told: MachineMessage,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process, entity, counter } = at;
        let actor = self.processes.get_mut(&process).and_then(|it| it.actor(entity, counter));
        match actor.map(|actor| &actor.machine) {
            Some(AnyMachine::Session(_)) => self.feed_as::<Session>(at, told.of()),
            Some(AnyMachine::Counter(_)) => self.feed_as::<Counter>(at, told.of()),
            None => Ok(()),
        }
    }

    fn count(&mut self, at: ActivationPlace, input: MachineInput<Counter>) {
        self.world.mail(at.process, at.entity.as_u128(), PlannedNote::Count(at, input));
    }

    /// The timer of a counter is stored.
    pub(super) fn sets_counter_timer(
        &mut self,
        at: ActivationPlace,
        timer: &Timer,
    ) -> Result<(), JudgeViolation> {
        let process = self.processes.get_mut(&at.process);
        if process.and_then(|it| it.actor(at.entity, at.counter)).is_none() {
            return Ok(());
        }
        let left = timer.due.0.saturating_sub(self.world.now().0);
        let late = self.world.rng.random_range(0..2_000);
        self.hears(timer.input.clone(), left + late);
        self.feed_as::<Counter>(at, MachineInput::Confirmed(timer.id))
    }
}

//! The machine of an entity, whatever its kind, and what reaches it.

use std::{any::Any, fmt::Debug};

use clawnode_cluster::{AppendAnswer, Record};
use clawnode_kernel::{EntityKind, LoadedJournal, MachineInput, OwnerSays};
use clawnode_proto::{
    Digest, EntityId, Epoch, Input, InputId, Position, ProcessId, kernel::SnapshotState,
};

use super::{Sim, book::Checked};

/// An activation of a process: whose, of which entity, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActivationPlace {
    pub(super) process: ProcessId,
    pub(super) entity: EntityId,
    pub(super) counter: u64,
}

/// The machine of an entity, whatever its kind.
pub(super) trait AnyMachine: Any + Debug {
    fn says(&self, input: InputId) -> OwnerSays;
    /// What gives messages to machines of its kind.
    fn telling(&self) -> fn(&mut Sim, ActivationPlace, MachineMessage) -> Checked;
}

/// A message for a machine of any kind.
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
    Purged {
        state: SnapshotState,
        before: Option<Digest>,
    },
    Fenced(Epoch),
    Tick,
    Drain,
    GiveUp,
}

impl MachineMessage {
    pub(super) fn of<K: EntityKind>(self) -> MachineInput<K> {
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
            Self::Purged { state, before } => MachineInput::Purged { state, before },
            Self::Fenced(epoch) => MachineInput::FencedHint(epoch),
            Self::Tick => MachineInput::Tick,
            Self::Drain => MachineInput::Drain,
            Self::GiveUp => MachineInput::GiveUp,
        }
    }
}

impl Sim {
    /// Tells an activation of whatever kind.
    pub(super) fn tell(&mut self, at: ActivationPlace, told: MachineMessage) -> Checked {
        let ActivationPlace { process, entity, counter } = at;
        let actor =
            self.processes.get_mut(&process).and_then(|process| process.actor(entity, counter));
        match actor.map(|actor| actor.machine.telling()) {
            Some(telling) => telling(self, at, told),
            None => Ok(()),
        }
    }
}

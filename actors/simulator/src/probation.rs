//! Entities that may be what killed their process, tried one at a time; the notes outlive processes.

use clawnode_proto::{EntityId, ProcessId};
use rand::Rng;

use super::{Sim, any_machine::MachineMessage, process::PlannedNote};

impl Sim {
    pub(super) fn enter_probation(&mut self, to: ProcessId, entity: EntityId, counter: u64) {
        let Some(process) = self.processes.get_mut(&to) else { return };
        process.suspects.push_back((entity, counter));
        if process.suspects.len() == 1 {
            self.try_next(to);
        }
    }

    fn try_next(&mut self, to: ProcessId) {
        let first = self.processes.get(&to).and_then(|process| process.suspects.front().copied());
        let Some((entity, counter)) = first else { return };
        let blamed = self.in_hand.insert(entity, to).is_some_and(|before| before != to);
        if blamed {
            *self.ledger.struck.entry(entity).or_default() += 1;
        }
        self.remark(to, || format!("{entity} is tried, blamed: {blamed}"));
        let after = self.world.rng.random_range(1..20);
        self.world.later(
            to,
            after,
            PlannedNote::Tell(entity, counter, MachineMessage::Probation { blamed }),
        );
    }

    /// What it begins with has begun, or it left memory.
    pub(super) fn leave_probation(&mut self, to: ProcessId, entity: EntityId) {
        if self.in_hand.get(&entity) == Some(&to) {
            self.in_hand.remove(&entity);
        }
        self.not_tried(to, entity);
    }

    /// Its actor is gone: the next one is tried.
    pub(super) fn not_tried(&mut self, to: ProcessId, entity: EntityId) {
        let Some(process) = self.processes.get_mut(&to) else { return };
        let was_first = process.suspects.front().is_some_and(|(one, _)| *one == entity);
        process.suspects.retain(|(one, _)| *one != entity);
        if was_first {
            self.try_next(to);
        }
    }
}

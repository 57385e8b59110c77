//! Asking the last writer of an entity whether it still owns it.

use std::collections::BTreeSet;

use clawnode_proto::{EntityId, ProcessId};

use super::{
    Partition,
    io::PartitionOutput,
    slot::{EntityPhase, EntitySlot},
};
use crate::OwnerSays;

/// Requests to a silent owner before its entity is claimed.
const ASKS_MAX: u32 = 2;

impl Partition {
    pub(super) fn ask(&mut self, entity: EntityId) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        let EntityPhase::Asking { process, tries } = &mut slot.phase else { return };
        *tries += 1;
        let process = *process;
        if let Some((_, &input)) = slot.open.first_key_value() {
            self.out.push(PartitionOutput::AskOwner(process, entity, input));
        } else {
            self.forget(entity);
        }
    }

    pub(super) fn owner_said(&mut self, entity: EntityId, says: OwnerSays) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        let EntityPhase::Asking { tries, .. } = &mut slot.phase else { return };
        match says {
            // It has the input and its own deliveries; if that changes, ours comes again.
            OwnerSays::Held => self.forget(entity),
            OwnerSays::Completed => {
                *tries = 0;
                if let Some((_, input)) = slot.open.first_key_value() {
                    let input = *input;
                    slot.buffered.retain(|one| one.id != input);
                    self.completed(entity, input);
                }
                self.ask(entity);
            }
            OwnerSays::Silent if *tries < ASKS_MAX => self.ask(entity),
            OwnerSays::NotMine | OwnerSays::Silent => {
                slot.recovers();
                self.activate(entity);
            }
        }
    }

    /// An owner that is being asked and is held dead will not answer.
    pub(super) fn held_dead(&mut self, dead: BTreeSet<ProcessId>) {
        self.dead = dead;
        let asks_the_dead = |slot: &EntitySlot| match slot.phase {
            EntityPhase::Asking { process, .. } => self.dead.contains(&process),
            _ => false,
        };
        let waiting = self.slots.iter().filter(|(_, slot)| asks_the_dead(slot));
        for entity in waiting.map(|(entity, _)| *entity).collect::<Vec<_>>() {
            self.owner_said(entity, OwnerSays::NotMine);
        }
    }
}

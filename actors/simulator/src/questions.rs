//! Questions between processes: who asks an owner, what it answers, and who learns that it lost an
//! entity.

use clawnode_kernel::{OwnerSays, partition};
use clawnode_proto::{EntityId, ProcessId, event::decode_record};
use clawnode_sim::StoreChange;

use super::{JudgeViolation, Sim, process::PlannedNote};

impl Sim {
    pub(super) fn ask_actor(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        ask: partition::AskId,
        input: clawnode_proto::InputId,
    ) {
        let Some(process) = self.processes.get_mut(&to) else { return };
        // An actor that is gone answers nothing.
        let Some(actor) = process.actor(entity, counter) else { return };
        let says = actor.machine.says(input);
        self.says(to, ask, says);
    }

    pub(super) fn says(&mut self, from: ProcessId, ask: partition::AskId, says: OwnerSays) {
        let Some(process) = self.processes.get_mut(&from) else { return };
        if let Some((by, number)) = process.asks.remove(&ask) {
            self.world.send(by, PlannedNote::Says(number, says));
        }
    }

    pub(super) fn owner_said(
        &mut self,
        to: ProcessId,
        number: u64,
        says: OwnerSays,
    ) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let Some(entity) = process.asked.remove(&number) else { return Ok(()) };
        self.dispatch(
            to,
            self.partition_of(entity),
            partition::PartitionInput::OwnerSaid(entity, says),
        )
    }

    /// A claimer may notify the process that it took the entity from.
    pub(super) fn warn_the_fenced(&mut self, change: &StoreChange) {
        let StoreChange::Appended { entity, record, .. } = change else { return };
        let Ok(events) = decode_record(&record.bytes) else { return };
        let Some(first) = events.first() else { return };
        let before = self.last_writer.insert(*entity, first.head.incarnation.process);
        if let Some(before) = before
            && before != first.head.incarnation.process
            && self.processes.contains_key(&before)
            && self.world.chance(0.3)
        {
            self.world.send(before, PlannedNote::Fenced(*entity, first.head.epoch));
        }
    }
}

//! Standing back, answering those who ask for an entity, and giving entities back: cordon and drain.

use std::time::Duration;

use clawnode_proto::{EntityId, InputId, ProcessId};

use super::{
    Partition,
    dispatch::Phase,
    io::{AskId, Out},
};

impl Partition {
    /// Whether it takes no more entities.
    pub(super) const fn stands_back(&self) -> bool {
        self.cordoned || self.draining
    }

    pub(super) fn asked(
        &mut self,
        ask: AskId,
        entity: EntityId,
        input: InputId,
        asker: Option<ProcessId>,
    ) {
        match self.slots.get_mut(&entity) {
            Some(slot) if slot.phase == Phase::Active => {
                slot.asker = asker.map(|process| (process, input)).or(slot.asker);
                // The question is a doorbell too: what is asked for is read before it is answered.
                let asks = if slot.reading { &mut slot.late_asks } else { &mut slot.asks };
                asks.push((ask, input));
                self.ring(entity);
            }
            _ => self.out.push(Out::AnswerNotMine(ask)),
        }
    }

    /// Leaves an entity to whoever has it.
    pub(super) fn forget(&mut self, entity: EntityId) {
        if let Some(slot) = self.slots.remove(&entity) {
            self.out.extend(slot.handles.into_values().map(Out::Forget));
        }
    }

    /// Leaves an entity to whoever it is delivered to after `delay`.
    pub(super) fn give_back(&mut self, entity: EntityId, delay: Duration) {
        if let Some(slot) = self.slots.remove(&entity) {
            self.out.extend(slot.handles.into_values().map(|one| Out::Nak(one, delay)));
        }
        self.drained();
    }

    pub(super) fn cordon(&mut self, on: bool) {
        self.cordoned = on;
        if on {
            self.give_back_idle();
        }
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.give_back_idle();
        self.drained();
    }

    fn give_back_idle(&mut self) {
        let idle: Vec<EntityId> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.phase != Phase::Active)
            .map(|(entity, _)| *entity)
            .collect();
        for entity in idle {
            if let Some(slot) = self.slots.remove(&entity) {
                self.out
                    .extend(slot.handles.into_values().map(|one| Out::Nak(one, Duration::ZERO)));
            }
        }
    }

    pub(super) fn drained(&mut self) {
        if self.draining && self.slots.is_empty() {
            self.out.push(Out::Drained);
        }
    }
}

//! Out of service: which inputs are parked, and what an operator's order does, with a journal that can be
//! used or not.

use std::collections::BTreeSet;

use clawnode_proto::{
    Input, InputId, Order, Position, Timestamp,
    kernel::{KernelEvent, Parked, Restored},
    limits::APPEND_BYTES,
};

use super::{
    ActivationEnd, ActivationPhase, Busy, Core, EntityKind, Machine, MachineOutput, Service,
};

impl<K: EntityKind> Machine<K> {
    /// Parks the inputs of an entity that is out of service whole, or obeys an order.
    pub(super) fn park(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let Some(Service::Quarantined { reason }) = self.core().map(|core| core.service.clone())
        else {
            return Ok(());
        };
        if self.ordered(Order::Bury).is_some() {
            return self.delete_unfolded(now);
        }
        if let Some(input) = self.ordered(Order::Restore).and_then(|at| self.queue.remove(at)) {
            self.birth_of_parked(now)?;
            self.seal(now, &KernelEvent::from(Restored { input }))?;
            return self.flush(false);
        }
        while let Some(input) = self.queue.pop_front() {
            if self.core().is_some_and(|core| core.has(input.id)) {
                continue;
            }
            let full = self.draft_bytes + input.body.len() > APPEND_BYTES / 2;
            if full && !self.draft.is_empty() {
                self.queue.push_front(input);
                break;
            }
            self.cut();
            self.seal(now, &KernelEvent::from(Parked { input }))?;
        }
        if !self.draft.is_empty() {
            return self.flush(false);
        }
        let journaled = |core: &Core, held: &BTreeSet<InputId>| -> Vec<InputId> {
            held.iter().copied().filter(|input| core.has(*input)).collect()
        };
        let parked = self.core().map(|core| journaled(core, &self.held)).unwrap_or_default();
        for input in parked {
            self.held.remove(&input);
            self.out.push(MachineOutput::Complete(input));
        }
        Err(ActivationEnd::Quarantined(reason))
    }

    /// What was put out of service without a birth, as new or after its deletion, is born before what was parked is
    /// accepted: a kind does nothing for one that has no key.
    fn birth_of_parked(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let parked = self.core().map(|core| core.parked.as_slice()).unwrap_or_default();
        // One that this build cannot read may be a beginning.
        let begins = |one: &&Input| K::begins(one) || !K::understands(one);
        match parked.iter().find(begins).cloned() {
            Some(first) => self.birth(now, &first),
            None => Ok(()),
        }
    }

    /// The place in the queue of such an order that is not in the journal yet.
    fn ordered(&self, order: Order) -> Option<usize> {
        let core = self.core()?;
        self.queue.iter().position(|one| one.order == Some(order) && !core.has(one.id))
    }

    // === a journal that cannot be used ===

    /// The store cannot read the journal. Nothing may follow damaged records, but a tombstone may
    /// replace them.
    pub(super) fn unreadable(
        &mut self,
        detail: String,
        position: Position,
    ) -> Result<(), ActivationEnd> {
        if !matches!(self.body, ActivationPhase::Unread) {
            return Err(ActivationEnd::Corrupt(detail));
        }
        self.position = position;
        let why = ActivationEnd::Corrupt(detail);
        self.body = ActivationPhase::Damaged { core: Core::default(), why, open: false };
        Ok(())
    }

    /// An entity whose journal cannot be used can only be deleted.
    pub(super) fn serve_damaged(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        if self.ordered(Order::Bury).is_some() {
            return self.delete_unfolded(now);
        }
        // The order that it was activated for may come after its journal.
        if self.held.is_empty() { Ok(()) } else { self.give_up_damaged() }
    }

    /// Leaves an entity whose journal cannot be used, unless it is being deleted.
    pub(super) fn give_up_damaged(&self) -> Result<(), ActivationEnd> {
        match (&self.body, &self.busy) {
            (ActivationPhase::Damaged { why, .. }, Busy::No)
                if self.ordered(Order::Bury).is_none() =>
            {
                Err(why.clone())
            }
            _ => Ok(()),
        }
    }
}

//! Out of service: which inputs are parked, what an operator's order does, and how an entity is
//! deleted, with its kind folded or not.

use std::collections::BTreeSet;

use clawnode_proto::{
    Digest, Input, InputId, Order, Position, Timestamp,
    kernel::{Deleted, KernelEvent, Parked, Restored, Snapshot, SnapshotState},
    limits::APPEND_BYTES,
};

use super::{
    ActivationEnd, ActivationPhase, Busy, Core, Entity, EntityKind, Machine, MachineOutput, Service,
};
#[cfg(feature = "test-util")]
use crate::KernelBug;

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

    // === deletion ===

    /// Which of these inputs belong to what others begin.
    pub(super) fn following<'a>(inputs: impl IntoIterator<Item = &'a Input>) -> Vec<InputId> {
        inputs.into_iter().filter(|one| K::follows(one)).map(|one| one.id).collect()
    }

    /// An entity that is to be deleted is at rest: its blobs go first, then a tombstone replaces its records.
    pub(super) fn erase(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        if !self.claimed {
            // Alone: the record that replaces all others has to begin with the tombstone.
            self.claim_first(now)?;
            return self.flush(false);
        }
        self.begin_erasing(now, Vec::new())
    }

    /// An entity out of service is deleted from its kernel headers alone; waiting inputs go with
    /// it.
    fn delete_unfolded(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let open = !matches!(self.body, ActivationPhase::Damaged { open: false, .. });
        if !self.claimed && open {
            self.claim_first(now)?;
            return self.flush(false);
        }
        let known = |input: &Input| self.core().is_some_and(|core| core.has(input.id));
        let dropped = self.queue.iter().filter(|one| !known(one)).cloned().collect();
        self.queue.clear();
        self.begin_erasing(now, dropped)
    }

    /// Decides on the tombstone, and has personal data removed. The content of the tombstone is kept
    /// before anything is removed, in a blob if it is long: it always fits into its append.
    fn begin_erasing(&mut self, now: Timestamp, inputs: Vec<Input>) -> Result<(), ActivationEnd> {
        let (dropped, follows) =
            (inputs.iter().map(|one| one.id).collect(), Self::following(&inputs));
        #[cfg(feature = "test-util")]
        let dropped =
            if self.planted(KernelBug::BuryForgetsWaiting) { Vec::new() } else { dropped };
        if let ActivationPhase::Headers(core, _) | ActivationPhase::Damaged { core, .. } =
            &mut self.body
        {
            let core = std::mem::take(core);
            self.body = ActivationPhase::Whole(Entity { core, ..Entity::unborn(self.id) });
        }
        self.seal(now, &KernelEvent::from(Deleted { at: now, dropped, follows }))?;
        let ActivationPhase::Whole(entity) = &self.body else { return Ok(()) };
        let tail = entity.core.tail;
        let state = entity.snapshot().map_err(|error| ActivationEnd::Defect(error.to_string()))?;
        // The tombstone records the deletion as well, so the deletion itself is not kept.
        self.sent(usize::MAX);
        self.busy = Busy::Erasing(tail);
        self.out.push(MachineOutput::Erase { dropped: inputs, state: state.into() });
        Ok(())
    }

    /// All personal data is removed: a tombstone replaces all records.
    pub(super) fn write_tombstone(
        &mut self,
        now: Timestamp,
        state: SnapshotState,
        before: Option<Digest>,
    ) -> Result<(), ActivationEnd> {
        let Busy::Erasing(tail) = self.busy else { return Ok(()) };
        self.busy = Busy::No;
        let superseded: Vec<Digest> = before.into_iter().collect();
        self.scrub = Some(superseded.clone());
        // A claim that came with it is kept as part of the tombstone, which must be the first event.
        self.claimed = true;
        let superseded = Some(superseded);
        let snapshot = Snapshot { tail, archive: None, state, superseded, positions: Vec::new() };
        self.seal(now, &KernelEvent::from(snapshot))?;
        self.flush(true)
    }
}

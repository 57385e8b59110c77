//! How an entity is deleted, with its kind folded or not: its personal data goes first, then a tombstone
//! replaces its journal.

use clawnode_proto::{
    Digest, Input, Timestamp,
    kernel::{Deleted, KernelEvent, Snapshot, SnapshotState},
};

use super::{ActivationEnd, ActivationPhase, Busy, Entity, EntityKind, Machine, MachineOutput};
#[cfg(feature = "test-util")]
use crate::KernelBug;

impl<K: EntityKind> Machine<K> {
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
    pub(super) fn delete_unfolded(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
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
        let dropped = inputs.iter().map(|one| one.id).collect();
        #[cfg(feature = "test-util")]
        let dropped =
            if self.planted(KernelBug::BuryForgetsWaiting) { Vec::new() } else { dropped };
        if let ActivationPhase::Headers(core, _) | ActivationPhase::Damaged { core, .. } =
            &mut self.body
        {
            let core = std::mem::take(core);
            self.body = ActivationPhase::Whole(Entity { core, ..Entity::unborn(self.id) });
        }
        self.seal(now, &KernelEvent::from(Deleted { at: now, dropped }))?;
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

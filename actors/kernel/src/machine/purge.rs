//! Purging: the past of an entity is removed, and a snapshot of its state takes the place of all records.

use clawnode_proto::{
    Digest, Timestamp,
    kernel::{KernelEvent, PurgeBegun, Snapshot, SnapshotState},
};

use super::{
    ActivationEnd, ActivationPhase, Busy, Core, EntityKind, LoadedJournal, Machine, MachineOutput,
    Service,
};
use crate::archive::snapshot_of;

impl<K: EntityKind> Machine<K> {
    /// An entity at rest is to be purged. `purge_begun` is stored before anything is removed, so that each later
    /// owner purges it again (C27), and readers know why archives are missing.
    pub(super) fn purge(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let ActivationPhase::Whole(entity) = &self.body else { return Ok(()) };
        if entity.core.purging.is_none() {
            self.seal(now, &KernelEvent::from(PurgeBegun {}))?;
            return self.flush(false);
        }
        if !self.claimed {
            // Another process may have this entity, and what it needs must not be removed.
            self.claim_first(now)?;
            return self.flush(false);
        }
        let state = entity.snapshot().map_err(|error| ActivationEnd::Defect(error.to_string()))?;
        self.growth.storing(state.len());
        self.busy = Busy::Purging;
        self.out.push(MachineOutput::Purge { upto: self.position, state: state.into() });
        Ok(())
    }

    /// The archives are removed: the snapshot replaces all records, and nothing is left of them.
    pub(super) fn purged(
        &mut self,
        now: Timestamp,
        state: SnapshotState,
        before: Option<Digest>,
    ) -> Result<(), ActivationEnd> {
        if !matches!(self.busy, Busy::Purging) {
            return Ok(());
        }
        self.busy = Busy::No;
        let Some(tail) = self.core().map(|core| core.tail) else { return Ok(()) };
        let superseded: Vec<Digest> = before.into_iter().collect();
        self.scrub = Some(superseded.clone());
        let superseded = Some(superseded);
        let snapshot = Snapshot { tail, archive: None, state, superseded, positions: Vec::new() };
        self.seal(now, &KernelEvent::from(snapshot))?;
        self.flush(true)
    }

    /// The process that purged it may have died before the last state was removed, and before the store was asked to
    /// free what was replaced. It releases the entity only after both.
    pub(super) fn scrub_purged(&mut self, core: &Core, loaded: &LoadedJournal) {
        let Some(snapshot) = snapshot_of(&loaded.records) else { return };
        let is_purged = snapshot.archive.is_none() && core.service != Service::Deleted;
        if is_purged && !core.released {
            self.scrub = Some(snapshot.superseded.unwrap_or_default());
        }
    }
}

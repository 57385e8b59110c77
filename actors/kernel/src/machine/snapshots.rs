//! Snapshots: when one is due, and how it takes the place of the records before it.
//!
//! One is due after `snapshot_every` events, once the journal has grown as large as the state that it would store. So
//! the bytes written for snapshots stay in proportion to those of events.

use clawnode_cluster::Record;
use clawnode_proto::{
    Digest, Position, Timestamp,
    kernel::{KernelEvent, Snapshot, SnapshotState},
};

use super::{ActivationEnd, Busy, EntityKind, Machine, MachineOutput};
use crate::{LoadedJournal, archive::snapshot_of};

/// A snapshot is due after this many times `snapshot_every` events, however large the state is: an
/// activation reads them all, on NATS one by one.
const EVENTS_MOST: u64 = 10;
/// A snapshot is due once a journal has this many bytes (32 MiB), however few events they are: an
/// archive is one blob, and is held in memory as a whole.
const JOURNAL_MOST: u64 = 32 << 20;

/// How much a journal has grown since its last snapshot.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Bytes of the records after the snapshot.
    journal: u64,
    /// Bytes of the snapshot's state; none if there is no snapshot.
    state: u64,
    /// Bytes of the state that is being stored.
    next: u64,
    /// No snapshot is tried before this many events.
    hold: u64,
}

impl Growth {
    pub(super) fn of(loaded: &LoadedJournal) -> Self {
        let bytes = |records: &[Record]| records.iter().map(|one| one.bytes.len() as u64).sum();
        let records = &loaded.records[..];
        let Some(snapshot) = snapshot_of(records) else {
            return Self { journal: bytes(records), ..Self::default() };
        };
        let state = match (snapshot.state, &loaded.snapshot) {
            (SnapshotState::Inline { bytes }, _) => bytes.len(),
            (SnapshotState::Blob { .. }, blob) => blob.as_ref().map_or(0, bytes::Bytes::len),
        };
        let behind = records.get(1..).unwrap_or_default();
        Self { journal: bytes(behind), state: state as u64, ..Self::default() }
    }

    /// A state of this many bytes is about to be stored.
    pub(super) const fn storing(&mut self, state: usize) {
        self.next = state as u64;
    }

    /// A record is stored, after the others or in place of all of them.
    pub(super) const fn stored(&mut self, bytes: usize, rollup: bool) {
        if rollup {
            *self = Self { journal: 0, state: self.next, next: 0, hold: 0 };
        } else {
            self.journal = self.journal.saturating_add(bytes as u64);
        }
    }

    /// No snapshot could be made; the next try is after this many more events.
    pub(super) const fn failed(&mut self, events: u64, every: u64) {
        self.hold = events.saturating_add(every);
    }

    /// Whether a snapshot is due for an entity at rest.
    pub(super) const fn is_due(&self, events: u64, every: u64) -> bool {
        let has_grown = self.journal >= self.state || events >= every.saturating_mul(EVENTS_MOST);
        let is_due = (events >= every && has_grown) || self.journal >= JOURNAL_MOST;
        is_due && events >= self.hold
    }

    /// Whether a snapshot is due even while calls run, which have to wait for it: twice as late.
    pub(super) const fn is_overdue(&self, events: u64, every: u64) -> bool {
        let has_grown =
            self.journal / 2 >= self.state || events / 2 >= every.saturating_mul(EVENTS_MOST);
        let is_due = (events / 2 >= every && has_grown) || self.journal >= JOURNAL_MOST;
        is_due && events >= self.hold
    }
}

// === impl Machine ===

impl<K: EntityKind> Machine<K> {
    /// Whether the journal is to be shortened now. Between two appends the state equals the stored
    /// one, whatever runs. Running calls would have to wait for the snapshot, so it waits for the
    /// entity to rest as long as it can.
    pub(super) fn is_snapshot_due(&self, at_rest: bool) -> bool {
        let Some(entity) = self.entity() else { return false };
        let may = self.claimed && !self.drains() && entity.core.purging.is_none();
        let is_between = may && self.draft.is_empty();
        let every = self.options.snapshot_every.max(1);
        let events = entity.core.events_since_snapshot;
        let is_due = if at_rest {
            self.growth.is_due(events, every)
        } else {
            self.growth.is_overdue(events, every)
        };
        is_between && is_due && !K::doomed(&entity.state)
    }

    /// Has the records archived that a snapshot is to replace.
    pub(super) fn archive(&mut self) -> Result<(), ActivationEnd> {
        let Some(entity) = self.entity() else { return Ok(()) };
        let state = entity.snapshot().map_err(|error| ActivationEnd::Defect(error.to_string()))?;
        self.growth.storing(state.len());
        self.busy = Busy::Archiving;
        self.out.push(MachineOutput::Archive { upto: self.position, state: state.into() });
        Ok(())
    }

    /// There is no archive; the journal stays as it is for now.
    pub(super) fn archive_failed(&mut self) {
        self.busy = Busy::No;
        let events = self.core().map_or(0, |core| core.events_since_snapshot);
        self.growth.failed(events, self.options.snapshot_every);
    }

    /// The archive is stored: the snapshot replaces all records.
    pub(super) fn archived(
        &mut self,
        now: Timestamp,
        archive: Digest,
        positions: Vec<Position>,
        state: SnapshotState,
        superseded: Vec<Digest>,
    ) -> Result<(), ActivationEnd> {
        if !matches!(self.busy, Busy::Archiving) {
            return Ok(());
        }
        self.busy = Busy::No;
        let Some(tail) = self.core().map(|core| core.tail) else { return Ok(()) };
        #[cfg(feature = "test-util")]
        let superseded = self.misjudge_states(&state, superseded);
        if !superseded.is_empty() {
            self.staged.push(MachineOutput::Discard(superseded.clone()));
        }
        let (archive, superseded) = (Some(archive), Some(superseded));
        let snapshot = Snapshot { tail, archive, state, superseded, positions };
        self.seal(now, &KernelEvent::from(snapshot))?;
        self.flush(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The snapshots of a session whose state is its whole journal, event by event: bytes of states
    /// that were written, and how many.
    fn written(events: u64, event: u64, every: u64) -> (u64, u64) {
        let (mut growth, mut since, mut all, mut written, mut count) =
            (Growth::default(), 0, 0, 0, 0);
        for _ in 0..events {
            growth.stored(usize::try_from(event).unwrap(), false);
            (since, all) = (since + 1, all + event);
            if growth.is_due(since, every) {
                growth.storing(usize::try_from(all).unwrap());
                growth.stored(1, true);
                (since, written, count) = (0, written + all, count + 1);
            }
        }
        (written, count)
    }

    #[test]
    fn what_is_written_for_snapshots_is_in_proportion_to_the_journal() {
        for events in [1_000, 10_000, 20_000] {
            let (written, count) = written(events, 700, 1_000);
            assert!(written <= 2 * events * 700, "{written} of {}", events * 700);
            assert!(count >= 1, "{count}");
        }
        // If events are small and many, reading them sets the bound.
        let (_, count) = written(100_000, 700, 200);
        assert!((49..60).contains(&count), "{count}");
    }

    #[test]
    fn few_events_make_none_due_unless_they_are_huge() {
        let mut growth = Growth::default();
        growth.stored(1 << 20, false);
        assert!(!growth.is_due(199, 200));
        assert!(growth.is_due(200, 200));
        growth.stored(31 << 20, false);
        assert!(growth.is_due(70, 200), "an archive is held in memory as a whole");
    }

    #[test]
    fn what_could_not_be_made_is_left_alone_for_a_while() {
        let mut growth = Growth::default();
        growth.stored(100, false);
        growth.failed(200, 200);
        assert!(!growth.is_due(399, 200));
        assert!(growth.is_due(400, 200));
    }

    #[test]
    fn rest_is_waited_for_but_not_for_ever() {
        let mut growth = Growth::default();
        growth.storing(1_000);
        growth.stored(10, true);
        growth.stored(1_000, false);
        assert!(growth.is_due(200, 200));
        assert!(!growth.is_overdue(400, 200), "the journal is as large as the state, not twice");
        growth.stored(1_000, false);
        assert!(!growth.is_overdue(399, 200));
        assert!(growth.is_overdue(400, 200));
    }
}

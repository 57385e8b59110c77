//! Points of other clusters: their sources may have the ids of other points.
//!
//! A session's entity follows from its key, and events are counted from 1, so two clusters give different points the same id.
//! The times of their events differ.

use clawnode_proto::{MemoryPointId, Timestamp, memory::MemorySource, memory_point::MemoryPoint};

use super::{
    kept::KeptPoint,
    state::{MemoryState, WantedChange},
};

// === impl MemoryState ===

impl MemoryState {
    /// The source that a point gets here. Where the id of its own is that of a point of another time, it gets one beside it,
    /// so that it is added; the same source gets the same one again (MEM-3).
    pub(super) fn placed(&self, source: MemorySource) -> MemorySource {
        if !self.imports {
            return source;
        }
        let original = source.original();
        let aside = original.aside();
        let places = [&original, &aside];
        let has = |place: &&MemorySource| self.learned_at(place.point()) == Some(source.at);
        // The time of a forgotten point is not kept, and it does not come back (MEM-4).
        let is_gone = |place: &&MemorySource| self.is_gone(place.point());
        let here = places.into_iter().find(has).or_else(|| places.into_iter().find(is_gone));
        match here.cloned() {
            Some(here) => here,
            None if self.knows(source.point()) => aside,
            None => source,
        }
    }

    /// The time of the source of a point that it has, or that is to be recorded.
    fn learned_at(&self, id: MemoryPointId) -> Option<Timestamp> {
        self.known_points().find(|(known, _)| *known == id).map(|(_, point)| point.source.at)
    }

    /// The points that it has, and those that are to be recorded.
    pub(super) fn known_points(&self) -> impl Iterator<Item = (MemoryPointId, &MemoryPoint)> {
        let waiting = self.wanted.iter().filter_map(|wanted| match wanted {
            WantedChange::Put(_, KeptPoint { id, point, .. }) => Some((*id, point)),
            WantedChange::Mask(_) | WantedChange::Consolidate | WantedChange::Rate(_) => None,
        });
        let live = self.live.iter().map(|kept| (kept.id, &kept.point));
        live.chain(self.past.iter().map(|past| (past.id, &past.point))).chain(waiting)
    }
}

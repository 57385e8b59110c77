//! Points of other clusters: their sources may have the ids of other points.
//!
//! A session's entity follows from its key, and events are counted from 1, so two clusters give different points the same id.
//! The times of their events differ.

use clawnode_proto::{
    MemoryPointId, Timestamp, limits::MEMORY_GONE, memory::MemorySource, memory_point::MemoryPoint,
};

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
        // What is forgotten does not come back (MEM-4). Without a time it may be either of the two.
        let is_gone = |place: &&MemorySource| {
            let learned = self.gone_at.get(&place.point());
            self.is_gone(place.point()) && learned.is_none_or(|learned| *learned == source.at)
        };
        let here = places.into_iter().find(has).or_else(|| places.into_iter().find(is_gone));
        match here.cloned() {
            Some(here) => here,
            None if self.knows(source.point()) => aside,
            None => source,
        }
    }

    /// Whether only the id of this point is kept: it was forgotten, or it left long ago.
    pub fn is_gone(&self, id: MemoryPointId) -> bool {
        self.gone.contains(&id)
    }

    /// Only the id of a point is kept, and the time of its source, if points are known by it.
    pub(super) fn forgets(&mut self, id: MemoryPointId, learned: Option<Timestamp>) {
        self.gone.push_back(id);
        if self.imports {
            self.gone_at.extend(learned.map(|learned| (id, learned)));
        }
        if self.gone.len() > MEMORY_GONE
            && let Some(oldest) = self.gone.pop_front()
        {
            self.gone_at.remove(&oldest);
        }
    }

    /// The time of the source of a point that it has, or that is to be recorded.
    pub(super) fn learned_at(&self, id: MemoryPointId) -> Option<Timestamp> {
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

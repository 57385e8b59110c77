//! Points of other clusters: their sources may have the ids of other points.
//!
//! A session's entity follows from its key, and events are counted from 1, so two clusters give different points the same id.
//! The times of their events differ. Also what a deleted session taught, which may be one of another cluster, and what an import
//! brings that is older than what is known.

use clawnode_kernel::Violation;
use clawnode_proto::{
    EntityId, MemoryPointId, Timestamp,
    limits::MEMORY_GONE,
    memory::MemorySource,
    memory_point::{MemoryEvent, MemoryPoint, PointAdded, PointsMasked},
};

use super::{
    consolidate::PointsSize,
    duplicates::is_about_same,
    kept_points::KeptPoint,
    state::{MemoryState, WantedChange},
};

/// Points that one event masks at most.
const MASKED_MOST: usize = 256;

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
        if self.gone.len() > MEMORY_GONE + self.most_live.unwrap_or_default()
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
        let waiting = self.wanted.iter().filter_map(WantedChange::added);
        let waiting = waiting.map(|(_, kept)| (kept.id, &kept.point));
        let live = self.live.iter().map(|kept| (kept.id, &kept.point));
        live.chain(self.past.iter().map(|past| (past.id, &past.point))).chain(waiting)
    }

    // === Deleted sessions ===

    /// Masks what was learned from this entity between these times. One of another cluster may have its key, and taught
    /// something at others.
    pub(super) fn forget_source(
        &mut self,
        source: EntityId,
        by: &str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) {
        let is_of_it = |learned: &MemorySource| {
            learned.entity == source
                && since.is_none_or(|since| since <= learned.at)
                && until.is_none_or(|until| learned.at <= until)
        };
        let points = self.known_points().filter(|(_, point)| is_of_it(&point.source));
        let points: Vec<MemoryPointId> = points.map(|(id, _)| id).collect();
        // Where a text was learned from whose point left long ago, the state does not say.
        if !points.is_empty() || self.dropped {
            self.forgotten.get_or_insert(self.now);
        }
        for some in points.chunks(MASKED_MOST) {
            let masked = PointsMasked { points: some.to_vec(), by: by.to_owned() };
            self.wanted.push_back(WantedChange::Mask(masked));
        }
    }

    /// The points that it has of this source, and those that are to be recorded.
    pub(super) fn points_of(&self, source: EntityId) -> impl Iterator<Item = MemoryPointId> {
        let known = self.known_points();
        known.filter(move |(_, point)| point.source.entity == source).map(|(id, _)| id)
    }

    // === What follows ===

    /// The same as for any point, unless a later one is known: an export may be older than what was learned since.
    pub(super) fn decides_imported(&self, wanted: &KeptPoint, most: PointsSize) -> MemoryEvent {
        let later = self.later_about_same(&wanted.point);
        if later.is_none() {
            return self.decides(wanted, most);
        }
        let (point, supersedes) = (wanted.point.clone(), Vec::new());
        PointAdded { point, supersedes, superseded_by: later }.into()
    }

    /// What supersedes a point before it is live has to be live, and trusted as much.
    pub(super) fn check_imported(&self, added: &PointAdded) -> Result<(), Violation> {
        let PointAdded { point, supersedes, superseded_by: Some(by) } = added else {
            return Ok(());
        };
        let found = self.live.iter().find(|kept| kept.id == *by);
        let may = found.is_some_and(|kept| kept.point.content.trust >= point.content.trust);
        if may && supersedes.is_empty() {
            return Ok(());
        }
        Err(Violation(format!("`{by}` cannot supersede `{}`", point.id())))
    }

    /// The newest live point about the same that was learned later, and is trusted as much.
    fn later_about_same(&self, point: &MemoryPoint) -> Option<MemoryPointId> {
        let is_later = |kept: &&KeptPoint| {
            let is_trusted = kept.point.content.trust >= point.content.trust;
            is_trusted
                && kept.point.source.at > point.source.at
                && is_about_same(&kept.point, point)
        };
        let later = self.live.iter().filter(is_later);
        later.max_by_key(|kept| (kept.point.source.at, kept.id)).map(|kept| kept.id)
    }
}

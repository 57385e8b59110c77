//! Which live points a new one supersedes: those about the same that are trusted no more than it is. Pure.

use clawnode_proto::memory_point::{MemoryEvent, PointAdded, PointRefusal, PointRefused};

use super::{
    consolidate::{self, PointsSize},
    duplicates::is_about_same,
    kept_points::KeptPoint,
    state::MemoryState,
};

// === impl MemoryState ===

impl MemoryState {
    /// A point is added, others leave for it first, or it is refused.
    pub(super) fn decides(&self, wanted: &KeptPoint, most: PointsSize) -> MemoryEvent {
        let KeptPoint { id, point, .. } = wanted;
        let is_superseded = |kept: &&KeptPoint| {
            let is_trusted = kept.point.content.trust <= point.content.trust;
            is_trusted && is_about_same(&kept.point, point)
        };
        let (replaced, rest): (Vec<_>, Vec<_>) = self.live.iter().partition(is_superseded);
        let needs = PointsSize { points: 1, bytes: point.content.bytes() };
        let most = most.less(needs);
        if PointsSize::of(rest.iter().copied()).fits(most) {
            let supersedes = replaced.iter().map(|kept| kept.id).collect();
            return PointAdded { point: point.clone(), supersedes, superseded_by: None }.into();
        }
        let full = || PointRefused { point: *id, reason: PointRefusal::Full }.into();
        consolidate::room(rest, most, self.now).map_or_else(full, MemoryEvent::from)
    }
}

//! How points leave the live ones: masked, superseded, joined or archived. One event may take out thousands, so all of them
//! leave in one pass over the points.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_kernel::Violation;
use clawnode_proto::{
    MemoryPointId, Timestamp,
    limits::{MEMORY_PAST_BYTES, MEMORY_PAST_POINTS},
    memory::MemoryTrust,
    memory_point::{MemoryPoint, PointsConsolidated, PointsMasked},
    memory_view::PointState,
};

use super::{
    kept_points::{KeptPoint, LeavingPoint, PastPoint},
    point_weight::is_kept,
    state::{MemoryState, WantedChange},
};

// === impl MemoryState ===

impl MemoryState {
    /// Points that were forgotten leave, whether they are live or only shown.
    pub(super) fn are_masked(&mut self, masked: &PointsMasked) {
        let is_it =
            |change: &WantedChange| matches!(change, WantedChange::Mask(mask) if mask == masked);
        if let Some(at) = self.wanted.iter().position(is_it) {
            self.wanted.remove(at);
        }
        let ids: BTreeSet<MemoryPointId> = masked.points.iter().copied().collect();
        let mut learned: BTreeMap<MemoryPointId, Timestamp> = BTreeMap::new();
        let mut stays = |id: MemoryPointId, point: &MemoryPoint| {
            let leaves = ids.contains(&id);
            if leaves {
                learned.entry(id).or_insert(point.source.at);
            }
            !leaves
        };
        self.live.retain(|kept| stays(kept.id, &kept.point));
        self.past.retain(|past| stays(past.id, &past.point));
        for id in &masked.points {
            if let Some(at) = learned.remove(id) {
                self.masked += 1;
                self.forgets(*id, Some(at));
            }
        }
    }

    /// Points join others, or are archived: what people said is not.
    pub(super) fn is_consolidated(
        &mut self,
        consolidated: &PointsConsolidated,
    ) -> Result<(), Violation> {
        if consolidated.daily {
            let is_it = |change: &WantedChange| *change == WantedChange::Consolidate;
            let at = self.wanted.iter().position(is_it);
            let at = at.ok_or_else(|| Violation("no consolidation was due".to_owned()))?;
            self.wanted.remove(at);
        }
        let trust = |kept: &KeptPoint| (kept.id, kept.point.content.trust);
        let mut live: BTreeMap<MemoryPointId, MemoryTrust> = self.live.iter().map(trust).collect();
        let mut leaving = Vec::new();
        for joined in &consolidated.joined {
            let (point, into) = (live.get(&joined.point), live.get(&joined.into));
            let may = point.is_some() && point <= into && joined.point != joined.into;
            if !may {
                let (point, into) = (joined.point, joined.into);
                return Err(Violation(format!("`{point}` cannot join `{into}`")));
            }
            live.remove(&joined.point);
            let (id, state) = (joined.point, PointState::Joined);
            leaving.push(LeavingPoint { id, state, by: Some(joined.into) });
        }
        for id in &consolidated.archived {
            if live.remove(id).is_none_or(is_kept) {
                return Err(Violation(format!("`{id}` cannot be archived")));
            }
            leaving.push(LeavingPoint { id: *id, state: PointState::Archived, by: None });
        }
        self.leave(leaving);
        Ok(())
    }

    /// Live points become ones that are only shown, in this order.
    pub(super) fn leave(&mut self, leaving: Vec<LeavingPoint>) {
        if leaving.is_empty() {
            return;
        }
        let mut ids: BTreeSet<MemoryPointId> = leaving.iter().map(|leaves| leaves.id).collect();
        let out = self.live.extract_if(.., |kept| ids.remove(&kept.id));
        let mut out: BTreeMap<MemoryPointId, KeptPoint> = out.map(|kept| (kept.id, kept)).collect();
        let bytes = |past: &PastPoint| past.point.content.bytes();
        let mut taken: usize = self.past.iter().map(bytes).sum();
        for LeavingPoint { id, state, by } in leaving {
            let Some(KeptPoint { id, point, feedback }) = out.remove(&id) else { continue };
            let past = PastPoint { id, point, state, superseded_by: by, feedback };
            taken = taken.saturating_add(bytes(&past));
            self.past.push_back(past);
            while self.past.len() > MEMORY_PAST_POINTS || taken > MEMORY_PAST_BYTES {
                let Some(oldest) = self.past.pop_front() else { break };
                taken = taken.saturating_sub(bytes(&oldest));
                self.dropped = true;
                self.forgets(oldest.id, Some(oldest.point.source.at));
            }
        }
    }
}

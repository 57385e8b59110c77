//! Which points leave the live ones: those that say the same as another one, and those that matter least.

use std::{cmp::Reverse, collections::BTreeMap};

use clawnode_proto::{
    MemoryPointId, Timestamp,
    limits::{MEMORY_BYTES, MEMORY_POINTS_MOST},
    memory_point::{JoinedPoint, PointsConsolidated},
};

use super::{
    duplicates::said,
    kept_points::KeptPoint,
    point_weight::{is_kept, weight},
};

/// Once a day a memory that is fuller than this share of its limits is made less full, in percent.
const FULL_AT: usize = 90;
/// When there is no room, at least one of so many points that may leave does, so that not each further point
/// needs a consolidation.
const LEAVES_OF: usize = 10;
/// Points that leave by one event at most, so that it fits into an append with the input that brought it. More leave by
/// further ones: a memory may have far more than a configuration that was changed allows.
const LEAVE_ONCE: usize = 1_000;

/// How much points take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PointsSize {
    pub(super) points: usize,
    pub(super) bytes: usize,
}

impl PointsSize {
    /// The most that a memory has in any configuration.
    pub(super) const MOST: Self = Self { points: MEMORY_POINTS_MOST, bytes: MEMORY_BYTES };

    /// What these take.
    pub(super) fn of<'a>(points: impl IntoIterator<Item = &'a KeptPoint>) -> Self {
        let bytes = points.into_iter().map(|kept| kept.point.content.bytes());
        bytes.fold(Self { points: 0, bytes: 0 }, |sum, bytes| Self {
            points: sum.points + 1,
            bytes: sum.bytes + bytes,
        })
    }

    /// Whether this is no more than that.
    pub(super) const fn fits(self, most: Self) -> bool {
        self.points <= most.points && self.bytes <= most.bytes
    }

    /// What is left of it beside that.
    pub(super) const fn less(self, other: Self) -> Self {
        Self {
            points: self.points.saturating_sub(other.points),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// What leaves once a day, where a memory has at most `most`. The last event of the day is the one that says `daily`.
pub(super) fn daily(live: &[KeptPoint], most: PointsSize, now: Timestamp) -> PointsConsolidated {
    // Rounded up: of the fewest points it is not none.
    let share = |most: usize| (most * FULL_AT).div_ceil(100);
    let most = PointsSize { points: share(most.points), bytes: share(most.bytes) };
    let (joined, rest) = joined(live.iter().collect());
    let (leaves, _) = least(&rest, most, now);
    let is_all = joined.len() + leaves.len() <= LEAVE_ONCE;
    PointsConsolidated { daily: is_all, ..at_once(joined, leaves) }
}

/// What leaves so that the live points take no more than `most`; nothing, if those that may leave are not enough.
pub(super) fn room(
    live: Vec<&KeptPoint>,
    most: PointsSize,
    now: Timestamp,
) -> Option<PointsConsolidated> {
    let (joined, rest) = joined(live);
    let (mut leaves, left) = least(&rest, most, now);
    if !left.fits(most) {
        return None;
    }
    let more = by_weight(&rest, now);
    let at_least = if leaves.is_empty() { 0 } else { more.len() / LEAVES_OF };
    let more = more.into_iter().skip(leaves.len());
    let wanted = at_least.saturating_sub(leaves.len());
    leaves.extend(more.take(wanted).map(|kept| kept.id));
    Some(at_once(joined, leaves))
}

/// As many of these as one event may take out. What is left is found again after it.
fn at_once(mut joined: Vec<JoinedPoint>, mut archived: Vec<MemoryPointId>) -> PointsConsolidated {
    joined.truncate(LEAVE_ONCE);
    archived.truncate(LEAVE_ONCE - joined.len());
    PointsConsolidated { joined, archived, daily: false }
}

/// Points that say the same as one that stays, and the points that stay.
fn joined(live: Vec<&KeptPoint>) -> (Vec<JoinedPoint>, Vec<&KeptPoint>) {
    let mut stays: BTreeMap<_, &KeptPoint> = BTreeMap::new();
    // The most trusted stays, of these the most important, of these the newest: nothing becomes more trusted by it.
    let rank = |kept: &KeptPoint| (kept.point.content.trust, kept.point.content.importance);
    for point in live.iter().copied() {
        let best = stays.entry(said(&point.point.content)).or_insert(point);
        if rank(point) >= rank(best) {
            *best = point;
        }
    }
    let (mut joined, mut rest) = (Vec::new(), Vec::new());
    for point in live {
        match stays.get(&said(&point.point.content)) {
            Some(into) if into.id != point.id => {
                joined.push(JoinedPoint { point: point.id, into: into.id });
            }
            _ => rest.push(point),
        }
    }
    (joined, rest)
}

/// The points that matter least, as many as have to leave, and what is left then.
fn least(
    live: &[&KeptPoint],
    most: PointsSize,
    now: Timestamp,
) -> (Vec<MemoryPointId>, PointsSize) {
    let mut left = PointsSize::of(live.iter().copied());
    let mut leaves = Vec::new();
    for point in by_weight(live, now) {
        if left.fits(most) {
            break;
        }
        left = left.less(PointsSize::of([point]));
        leaves.push(point.id);
    }
    (leaves, left)
}

/// Those that may leave, the least important first, of these the oldest.
fn by_weight<'a>(live: &[&'a KeptPoint], now: Timestamp) -> Vec<&'a KeptPoint> {
    let may_leave = live.iter().copied().filter(|kept| !is_kept(kept.point.content.trust));
    let mut sorted: Vec<&KeptPoint> = may_leave.collect();
    sorted.sort_by_cached_key(|kept| {
        (weight(&kept.point, now), kept.point.source.at, Reverse(kept.id))
    });
    sorted
}

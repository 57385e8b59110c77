//! The state of a memory, and what its events and inputs change in it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use clawnode_kernel::Violation;
use clawnode_proto::{
    EntityId, InputId, Kind, MemoryPointId, Timestamp,
    limits::{MEMORY_BYTES, MEMORY_POINTS, MEMORY_PUT_POINTS},
    memory::{MemoryKey, MemorySource},
    memory_point::{
        LearnedPoint, MemoryEvent, MemoryInput, MemoryPoint, PointAdded, PointRefusal,
        PointRefused, PointsMasked, PointsRating,
    },
    memory_view::{ListedMemory, MemoryLayers, MemoryStats, PointState},
};
use serde::{Deserialize, Serialize};

use super::{
    consolidate::{self, PointsSize},
    kept_points::{KeptPoint, KnownRatings, LeavingPoint, PastPoint, PutAnswer},
    point_weight::is_kept,
    points_limit::points_most,
};

/// How long after a point was added the memory is consolidated.
const CONSOLIDATED_AFTER: Duration = Duration::from_hours(24);
/// How long after a point was forgotten the journal is purged: several that are forgotten go together.
const PURGED_AFTER: Duration = Duration::from_hours(1);
/// Answers to `Put` that are kept for those who ask for them. A repeat of an older one has no lists.
const ANSWERS_KEPT: usize = 64;

/// Folded from the events of its journal: the points, and what is to be recorded of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is about something else that happened")]
pub struct MemoryState {
    /// The memory's readable key.
    pub key: String,
    /// The time of events, and of timers that have fired.
    pub now: Timestamp,
    /// The event of its first input, since which it is listed. 0 before that.
    born: u64,
    /// In the order in which they were added.
    pub(super) live: Vec<KeptPoint>,
    /// What left the live points and was not forgotten, the oldest first.
    pub(super) past: VecDeque<PastPoint>,
    /// The ids of points that are in neither, so that their sources add nothing again, the oldest first.
    pub(super) gone: VecDeque<MemoryPointId>,
    /// The times of their sources, of those that left since the first import: each of two clusters may have such a source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) gone_at: BTreeMap<MemoryPointId, Timestamp>,
    /// The most live points that it ever had, if these are more than by default: as many may leave at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) most_live: Option<usize>,
    /// What is to be recorded.
    pub(super) wanted: VecDeque<WantedChange>,
    answers: VecDeque<PutAnswer>,
    /// When the first point was added since the last consolidation.
    changed: Option<Timestamp>,
    /// How many points were masked.
    pub(super) masked: u64,
    doomed: bool,
    /// When the first point was forgotten since the last purge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forgotten: Option<Timestamp>,
    /// Whether the journal alone has the text of a point, since the last purge: only its id is kept, or it was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) dropped: bool,
    /// Whether the journal is purged as soon as nothing is to be recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    purges: bool,
    /// Whether points were imported: those of other clusters have the same ids as its own, at other times. Journals of
    /// before have no import, and are folded as they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) imports: bool,
    /// Feedback that has no effect again.
    #[serde(default, skip_serializing_if = "KnownRatings::is_empty")]
    pub(super) ratings: KnownRatings,
}

/// What is to be recorded, in the order of inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WantedChange {
    Put(InputId, KeptPoint),
    Mask(PointsMasked),
    Consolidate,
    Rate(PointsRating),
    /// A point of an import, which may be older than what is known.
    Import(InputId, KeptPoint),
}

// === impl WantedChange ===

impl WantedChange {
    /// The point that it adds, and the input that brought it.
    pub(super) const fn added(&self) -> Option<(InputId, &KeptPoint)> {
        match self {
            Self::Put(input, point) | Self::Import(input, point) => Some((*input, point)),
            Self::Mask(_) | Self::Consolidate | Self::Rate(_) => None,
        }
    }
}

// === impl MemoryState ===

impl MemoryState {
    /// The points that may be recalled, in the order in which they were added. What a person has forgotten is not
    /// among them, also before the event that masks it (MEM-4).
    pub fn live(&self) -> impl Iterator<Item = &KeptPoint> {
        self.live.iter().filter(|kept| !self.is_to_be_masked(kept.id))
    }

    /// The points that were superseded, joined or archived, the oldest first, as far as they are kept.
    pub fn past(&self) -> impl Iterator<Item = &PastPoint> {
        self.past.iter().filter(|past| !self.is_to_be_masked(past.id))
    }

    /// What became of the points of an input. Absent until all of it is recorded, and once it is old.
    pub fn answer(&self, input: InputId) -> Option<&PutAnswer> {
        let answer = self.answers.iter().find(|answer| answer.input == input);
        answer.filter(|_| !self.is_waiting(input))
    }

    /// Whether a part of an input is not recorded yet.
    pub fn is_waiting(&self, input: InputId) -> bool {
        self.wanted.iter().filter_map(WantedChange::added).any(|(by, _)| by == input)
    }

    /// The event of its first input. A memory that was deleted and has begun again has a later one.
    pub const fn began(&self) -> u64 {
        self.born
    }

    /// Whether what is wanted leaves room for another input.
    pub(super) fn admits(&self) -> bool {
        self.wanted.len() < MEMORY_PUT_POINTS
    }

    /// Whether more than one thing is to be recorded.
    pub(super) fn wants_more(&self) -> bool {
        self.wanted.len() > 1
    }

    /// Whether it is to be deleted.
    pub(super) const fn is_doomed(&self) -> bool {
        self.doomed
    }

    /// The event since which it is listed, if it is.
    pub(super) fn listed(&self) -> Option<u64> {
        (self.born > 0 && !self.doomed).then_some(self.born)
    }

    /// How the bucket lists it.
    pub(super) fn listing(&self) -> Option<ListedMemory> {
        self.key.parse().ok().map(|memory| ListedMemory { memory })
    }

    /// When its journal is purged. Absent if nothing was forgotten since it was purged last, or if it is being purged.
    pub fn purge_due(&self) -> Option<Timestamp> {
        let waits = !self.doomed && !self.purges;
        self.forgotten.filter(|_| waits).map(|forgotten| forgotten.plus(PURGED_AFTER))
    }

    /// Whether its journal still has a text that was forgotten.
    pub fn is_to_be_purged(&self) -> bool {
        self.forgotten.is_some() || self.purges
    }

    /// Whether its journal is being purged, or is as soon as nothing is to be recorded.
    pub const fn is_purging(&self) -> bool {
        self.purges
    }

    /// Whether it, or its journal alone, may have something that was learned from this entity.
    pub fn may_know_of(&self, source: EntityId) -> bool {
        self.dropped || self.points_of(source).next().is_some()
    }

    /// Whether its journal is to be purged now.
    pub(super) fn purges(&self) -> bool {
        self.purges && self.wanted.is_empty()
    }

    /// Its journal is purged: no text is left that was forgotten.
    pub(super) fn purged(&mut self) {
        self.forgotten = None;
        (self.dropped, self.purges) = (false, false);
    }

    /// When it is consolidated next.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.changed.filter(|_| !self.doomed).map(|changed| changed.plus(CONSOLIDATED_AFTER))
    }

    /// The entity that it is the state of.
    pub(super) fn entity(&self) -> EntityId {
        EntityId::derive(Kind::MEMORY, &self.key)
    }

    /// How much it has.
    pub fn stats(&self, memory: MemoryKey) -> MemoryStats {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let size = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let PointsSize { points, bytes } = PointsSize::of(self.live());
        let mut layers = MemoryLayers::default();
        self.live().for_each(|kept| layers.count(kept.point.content.layer));
        MemoryStats {
            entity: memory.entity(),
            memory,
            points: number(points),
            points_most: number(points_most()),
            bytes: size(bytes),
            bytes_most: size(MEMORY_BYTES),
            kept: number(self.live().filter(|kept| is_kept(kept.point.content.trust)).count()),
            layers,
            past: number(self.past().count()),
            masked: self.masked,
            consolidates: self.due(),
            purges: self.purge_due(),
            stored: None,
        }
    }

    fn is_to_be_masked(&self, id: MemoryPointId) -> bool {
        let masks = |change: &WantedChange| matches!(change, WantedChange::Mask(mask) if mask.points.contains(&id));
        self.wanted.iter().any(masks)
    }

    /// Whether the journal may have the text of this point.
    pub fn has_text(&self, id: MemoryPointId) -> bool {
        let is_only_known = self.gone.contains(&id);
        self.knows(id) && (!is_only_known || self.dropped)
    }

    /// Whether the source of this point is known.
    pub(super) fn knows(&self, id: MemoryPointId) -> bool {
        let waits = |change: &WantedChange| change.added().is_some_and(|(_, point)| point.id == id);
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::PointsDoubled.is_in_folds() {
            return self.wanted.iter().any(waits);
        }
        self.live.iter().any(|kept| kept.id == id)
            || self.past.iter().any(|past| past.id == id)
            || self.gone.contains(&id)
            || self.wanted.iter().any(waits)
    }

    // === Inputs ===

    /// Takes an input that was journaled as this event.
    pub(super) fn accept(&mut self, n: u64, at: Timestamp, id: InputId, input: MemoryInput) {
        self.now = self.now.max(at);
        if self.born == 0 {
            self.born = n;
        }
        match input {
            MemoryInput::Put { points } => self.put(n, at, id, points, WantedChange::Put),
            MemoryInput::Import { points } => {
                self.imports = true;
                self.put(n, at, id, points, WantedChange::Import);
            }
            MemoryInput::Forget { points, by, now } => {
                let has = |id: &MemoryPointId| self.has_text(*id);
                if points.iter().any(has) {
                    self.forgotten.get_or_insert(self.now);
                }
                // Also what was forgotten before goes at once.
                self.purges |= now && self.forgotten.is_some();
                self.wanted.push_back(WantedChange::Mask(PointsMasked { points, by }));
            }
            MemoryInput::ForgetSource { source, by, since, until } => {
                self.forget_source(source, &by, since, until);
            }
            MemoryInput::Rate(rating) => self.rate(rating),
            MemoryInput::Delete {} => self.doomed = true,
            // It says that the time has passed, whatever clock the owner has.
            MemoryInput::TimerFired { due } => {
                let (consolidates, purges) =
                    (self.due() == Some(due), self.purge_due() == Some(due));
                // Also if it was not waited for any more: a timer of the same time would be the same input, which is
                // remembered, and so no later one may have it.
                self.now = self.now.max(due);
                if consolidates {
                    self.changed = None;
                    self.wanted.push_back(WantedChange::Consolidate);
                }
                self.purges |= purges;
            }
        }
    }

    fn put(
        &mut self,
        n: u64,
        at: Timestamp,
        input: InputId,
        points: Vec<LearnedPoint>,
        wanted: fn(InputId, KeptPoint) -> WantedChange,
    ) {
        let entity = self.entity();
        let (mut known, mut refused) = (Vec::new(), Vec::new());
        for (part, LearnedPoint { content, source }) in (0..).zip(points) {
            let own = MemorySource { entity, event: n, part, at };
            let source = self.placed(source.unwrap_or(own));
            let point = MemoryPoint { content, source };
            let id = point.id();
            if self.knows(id) {
                if self.is_gone(id) {
                    // Its text is in the journal again, and nothing else has it.
                    self.dropped = true;
                    self.forgotten.get_or_insert(self.now);
                }
                known.push(id);
            } else if point.content.check().is_err() {
                self.dropped = true;
                refused.push(PointRefused { point: id, reason: PointRefusal::Invalid });
            } else {
                let point = KeptPoint { id, point, feedback: None };
                self.wanted.push_back(wanted(input, point));
            }
        }
        self.answers.push_back(PutAnswer { input, added: Vec::new(), known, refused });
        if self.answers.len() > ANSWERS_KEPT {
            self.answers.pop_front();
        }
    }

    // === Events ===

    /// Takes an event.
    pub(super) fn fold(&mut self, at: Timestamp, event: &MemoryEvent) -> Result<(), Violation> {
        self.now = self.now.max(at);
        match event {
            MemoryEvent::Added(added) => self.is_added(added),
            MemoryEvent::Refused(refused) => {
                let input = self.recorded(refused.point)?;
                self.dropped = true;
                if let Some(answer) = self.answer_mut(input) {
                    answer.refused.push(refused.clone());
                }
                Ok(())
            }
            MemoryEvent::Masked(masked) => {
                self.are_masked(masked);
                Ok(())
            }
            MemoryEvent::Consolidated(consolidated) => self.is_consolidated(consolidated),
            MemoryEvent::Rated(rated) => self.are_rated(rated),
        }
    }

    fn is_added(&mut self, added: &PointAdded) -> Result<(), Violation> {
        let PointAdded { point, supersedes, superseded_by } = added;
        let id = point.id();
        let input = self.recorded(id)?;
        if self.knows(id) {
            return Err(Violation(format!("the source of `{id}` gives a second point (MEM-3)")));
        }
        for old in supersedes {
            let found = self.live.iter().find(|kept| kept.id == *old);
            let may = found.is_some_and(|kept| kept.point.content.trust <= point.content.trust);
            if !may {
                return Err(Violation(format!("`{id}` cannot supersede `{old}`")));
            }
        }
        self.check_imported(added)?;
        let superseded = |id, by| LeavingPoint { id, state: PointState::Superseded, by };
        self.leave(supersedes.iter().map(|old| superseded(*old, Some(id))).collect());
        self.live.push(KeptPoint { id, point: point.clone(), feedback: None });
        if superseded_by.is_some() {
            self.leave(vec![superseded(id, *superseded_by)]);
        }
        if self.live.len() > MEMORY_POINTS {
            self.most_live = self.most_live.max(Some(self.live.len()));
        }
        let takes = PointsSize::of(&self.live);
        if !takes.fits(PointsSize::MOST) {
            return Err(Violation(format!("it has more than a memory may have: {takes:?}")));
        }
        self.changed.get_or_insert(self.now);
        if let Some(answer) = self.answer_mut(input) {
            answer.added.push(id);
        }
        Ok(())
    }

    /// Whether points were refused lately because there was no room, and none found room since. One that took the place
    /// of another needed none.
    pub(super) fn has_refused(&self) -> bool {
        let is_full = |refused: &PointRefused| refused.reason == PointRefusal::Full;
        let had_room = |added: &MemoryPointId| {
            self.past.iter().all(|past| past.superseded_by.as_ref() != Some(added))
        };
        let last = self.answers.iter().rev().find_map(|answer| {
            let refuses = answer.refused.iter().any(is_full);
            (refuses || answer.added.iter().any(had_room)).then_some(refuses)
        });
        last.unwrap_or(false)
    }

    /// The wish for a point is recorded; the input that it came with.
    fn recorded(&mut self, id: MemoryPointId) -> Result<InputId, Violation> {
        let is_it = |change: &WantedChange| change.added().is_some_and(|(_, point)| point.id == id);
        let at = self.wanted.iter().position(is_it);
        let asked = at.and_then(|at| self.wanted.remove(at));
        let input = asked.as_ref().and_then(WantedChange::added).map(|(input, _)| input);
        input.ok_or_else(|| Violation(format!("the point `{id}` was not asked for")))
    }

    fn answer_mut(&mut self, input: InputId) -> Option<&mut PutAnswer> {
        self.answers.iter_mut().find(|answer| answer.input == input)
    }

    // === What follows ===

    /// What is decided now, where live points take at most this much.
    pub(super) fn next(&self, most: PointsSize) -> Option<MemoryEvent> {
        Some(match self.wanted.front()? {
            WantedChange::Mask(masked) => masked.clone().into(),
            WantedChange::Consolidate => consolidate::daily(&self.live, most, self.now).into(),
            WantedChange::Put(_, wanted) => self.decides(wanted, most),
            WantedChange::Import(_, wanted) => self.decides_imported(wanted, most),
            WantedChange::Rate(rating) => self.rates(rating).into(),
        })
    }
}

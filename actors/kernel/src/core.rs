//! The kernel's part of an entity's state.
//!
//! [`Core`] folds what every entity has in common and needs nothing of its kind, so admission,
//! quarantine and deletion work on journals whose kind cannot be folded.
//! [`Entity`](super::Entity) folds both.

use std::{
    borrow::Cow,
    collections::{BTreeSet, VecDeque},
};

use bytes::Bytes;
use clawnode_cluster::Record;
use clawnode_proto::{
    Digest, EntityId, Grammar, Incarnation, Input, InputId, Kind, Position, Sealed, Seq, Tail,
    codec,
    event::{RecordError, decode_record},
    kernel::{KernelEvent, Remembered, SNAPSHOT, Snapshot, SnapshotState},
};
use serde::{Deserialize, Serialize};

use super::{FoldError, archive, idempotency::InputMemory, kind::Violation};
#[cfg(feature = "test-util")]
use crate::KernelBug;

/// Whether an entity is in service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Service {
    /// In service.
    #[default]
    Active,
    /// Out of service until a person decides.
    Quarantined { reason: String },
    /// It was deleted; a further input gives birth to it again, empty.
    Deleted,
}

/// What the kernel knows of an entity; part of every snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The entity's readable key, once it is born.
    pub key: Option<String>,
    /// The entity's kind, once it is born.
    pub kind: Option<Kind>,
    /// The last event.
    pub tail: Tail,
    /// The writer of the last event.
    pub incarnation: Option<Incarnation>,
    /// Whether the last owner released the entity.
    pub released: bool,
    /// Whether it is in service.
    pub service: Service,
    /// Claims since the last progress (C16).
    pub claims_without_progress: u32,
    /// Events since the last snapshot.
    pub events_since_snapshot: u64,
    /// The event with which a purge began that has not ended. Until it ends, archives may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purging: Option<Seq>,
    /// The event that ended the last deletion, also after the entity has begun again. Absent if it was never deleted, or
    /// if an earlier version wrote a snapshot after it had begun again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Seq>,
    /// Inputs put aside whole since the entity was quarantined, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<Input>,
    /// Accepted inputs, oldest first, as many as `memory` says.
    accepted: VecDeque<Remembered>,
    #[serde(skip)]
    known: BTreeSet<InputId>,
    #[serde(skip, default = "days")]
    memory: InputMemory,
}

const fn days() -> InputMemory {
    InputMemory::DAYS
}

/// The encoded state in a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub struct SnapshotBody<'a> {
    pub core: Core,
    #[serde(with = "serde_bytes", borrow)]
    pub kind: Cow<'a, [u8]>,
    /// The required kinds that are folded in the state: a build that does not know one of them
    /// would lose its part of the state.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// The part that every version of a snapshot has.
#[derive(Deserialize)]
struct SnapshotTail {
    tail: Tail,
}

/// A journal as it was read, unfolded.
#[derive(Clone, Debug, Default)]
pub struct LoadedJournal {
    /// All records, oldest first.
    pub records: Vec<Record>,
    /// The state of the snapshot that they begin with, if it is in a blob.
    pub snapshot: Option<Bytes>,
}

// === impl Core ===

impl Default for Core {
    fn default() -> Self {
        Self {
            key: None,
            kind: None,
            tail: Tail::START,
            incarnation: None,
            released: false,
            service: Service::Active,
            claims_without_progress: 0,
            events_since_snapshot: 0,
            purging: None,
            deleted_at: None,
            parked: Vec::new(),
            accepted: VecDeque::new(),
            known: BTreeSet::new(),
            memory: InputMemory::DAYS,
        }
    }
}

impl Core {
    /// Whether this input is in the journal.
    pub fn has(&self, input: InputId) -> bool {
        self.known.contains(&input)
    }

    /// The event that ended its deletion, if it is deleted.
    pub(super) fn deletion(&self) -> Option<Seq> {
        let is_deleted = self.service == Service::Deleted;
        is_deleted.then(|| self.deleted_at.unwrap_or(self.tail.n))
    }

    /// The input that was journaled last: the anchor (I4).
    pub fn newest_input(&self) -> Option<InputId> {
        self.accepted.back().map(|last| last.input)
    }

    /// Takes one event of a journal whose kind is not folded.
    pub fn apply(&mut self, id: EntityId, sealed: &Sealed) -> Result<(), FoldError> {
        let tail = self.follow(id, sealed)?;
        let kernel = kernel_event(id, sealed)?;
        self.fold(id, sealed, tail, kernel.as_ref())
    }

    /// The tail after this event, if it is sound. Called before its body is decoded: a sound body
    /// that does not decode is no damage.
    pub(super) fn follow(&self, id: EntityId, sealed: &Sealed) -> Result<Tail, FoldError> {
        let head = &sealed.head;
        let damaged = |source| FoldError::Record { entity: id, at: self.tail.n, source };
        if head.entity != id {
            return Err(damaged(RecordError::Foreign { n: head.n, found: head.entity }));
        }
        self.tail.follow(sealed).map_err(damaged)
    }

    /// Takes one event, which leads to `tail`; `kernel` is the event if it is one of the kernel's.
    pub(super) fn fold(
        &mut self,
        id: EntityId,
        sealed: &Sealed,
        tail: Tail,
        kernel: Option<&KernelEvent>,
    ) -> Result<(), FoldError> {
        let head = &sealed.head;
        self.tail = tail;
        let claims = matches!(kernel, Some(KernelEvent::Claim(_)));
        if !claims && self.incarnation != Some(head.incarnation) {
            let text = format!("written by `{}` without a claim (I2)", head.incarnation);
            return Err(FoldError::violation(id, sealed, Violation(text)));
        }
        self.incarnation = Some(head.incarnation);
        self.released = matches!(kernel, Some(KernelEvent::Released(_)));
        self.events_since_snapshot += 1;
        if head.progress {
            self.claims_without_progress = 0;
        }
        match kernel {
            Some(KernelEvent::Claim(claim)) if claim.excused => {}
            Some(KernelEvent::Claim(_)) => self.claims_without_progress += 1,
            Some(KernelEvent::Born(born)) => {
                if EntityId::derive(born.kind, &born.key) != id {
                    let text = format!("key `{}` is not this entity's", born.key);
                    return Err(FoldError::violation(id, sealed, Violation(text)));
                }
                self.key = Some(born.key.clone());
                self.kind = Some(born.kind);
                self.service = Service::Active;
            }
            Some(KernelEvent::Accepted(accepted)) => self.remember(sealed, accepted.input.id),
            Some(KernelEvent::Parked(parked)) => {
                self.remember(sealed, parked.input.id);
                self.parked.push(parked.input.clone());
            }
            Some(KernelEvent::Quarantined(quarantined)) => {
                self.service = Service::Quarantined { reason: quarantined.reason.clone() };
            }
            Some(KernelEvent::Restored(restored)) => {
                self.remember(sealed, restored.input.id);
                self.parked.clear();
                if matches!(self.service, Service::Quarantined { .. }) {
                    self.service = Service::Active;
                }
            }
            Some(KernelEvent::Deleted(deleted)) => {
                for input in &deleted.dropped {
                    self.remember(sealed, *input);
                }
                self.key = None;
                self.parked.clear();
                self.purging = None;
                self.deleted_at = Some(head.n);
                self.service = Service::Deleted;
            }
            Some(KernelEvent::Snapshot(snapshot)) => {
                self.events_since_snapshot = 0;
                if ends_purge(snapshot) {
                    self.purging = None;
                    if self.service == Service::Deleted {
                        // A tombstone. The state in one of an earlier version does not say it.
                        self.deleted_at = Some(head.n);
                    }
                }
            }
            Some(KernelEvent::PurgeBegun(_)) => self.purging = Some(head.n),
            Some(KernelEvent::Emitted(_) | KernelEvent::Released(_)) | None => {}
        }
        Ok(())
    }

    fn remember(&mut self, sealed: &Sealed, input: InputId) {
        let head = &sealed.head;
        self.accepted.push_back(Remembered { input, ts: head.ts, n: head.n });
        self.known.insert(input);
        let memory = self.memory();
        while let Some(oldest) = self.accepted.front()
            && memory.forgets(self.accepted.len(), oldest.ts, head.ts)
        {
            if let Some(oldest) = self.accepted.pop_front() {
                self.known.remove(&oldest.input);
            }
        }
    }

    /// How long inputs are remembered. If a journal is read without its kind, this may be longer
    /// than the kind needs.
    pub(super) fn memory(&self) -> InputMemory {
        #[cfg(feature = "test-util")]
        if KernelBug::ShortMemory.is_in_folds() {
            return InputMemory { least: 32, age: std::time::Duration::from_mins(1) };
        }
        self.memory
    }

    /// The same core after it was loaded from a snapshot: indexes that a snapshot leaves out are
    /// built again.
    pub(super) fn revived(self, memory: InputMemory) -> Self {
        let known = self.accepted.iter().map(|one| one.input).collect();
        Self { known, memory, ..self }
    }

    /// The journal's state without its kind: for admission, quarantine and deletion. Refuses a
    /// required event that is neither the kernel's nor one that `knows` knows: a build that cannot
    /// fold the entity does not claim it.
    pub fn of(
        id: EntityId,
        loaded: &LoadedJournal,
        knows: &dyn Fn(&str) -> bool,
    ) -> Result<Self, FoldError> {
        let mut core = Self::default();
        // Reported only of a journal that is sound: damage may look like an unknown kind.
        let mut unknown = None;
        for_each(id, loaded, |sealed, snapshot| {
            if let Some(body) = snapshot {
                if let Some(kind) = body.needs.iter().find(|kind| !knows(kind)) {
                    unknown.get_or_insert_with(|| FoldError::unknown(id, sealed, kind));
                }
                core = body.core.revived(InputMemory::DAYS);
            }
            let head = &sealed.head;
            if head.required && !KernelEvent::knows(&head.kind) && !knows(&head.kind) {
                unknown.get_or_insert_with(|| FoldError::unknown(id, sealed, &head.kind));
            }
            core.apply(id, sealed)
        })?;
        unknown.map_or(Ok(core), Err)
    }

    /// As much of it as a damaged journal still has: enough to append after it, and to delete it.
    /// No event of a kind is folded, and an event that does not follow the one before it is taken
    /// as it is.
    pub fn salvaged(id: EntityId, loaded: &LoadedJournal) -> Self {
        let mut core = Self::default();
        let readable = loaded.records.iter().filter_map(|record| decode_record(&record.bytes).ok());
        let mine = |sealed: &Sealed| sealed.head.entity == id;
        for (at, sealed) in readable.flatten().filter(mine).enumerate() {
            if at == 0
                && sealed.head.kind == SNAPSHOT
                && let Ok(body) = snapshot_body(id, &sealed, loaded.snapshot.as_ref())
            {
                core = body.core.revived(InputMemory::DAYS);
            }
            if core.apply(id, &sealed).is_err() {
                let (last, tail) = (core.tail, core.tail.skip(&sealed));
                core.tail = Tail {
                    n: tail.n.max(last.n),
                    hash: tail.hash,
                    epoch: tail.epoch.max(last.epoch),
                    ts: tail.ts.max(last.ts),
                };
                core.incarnation = Some(sealed.head.incarnation);
                match sealed.event() {
                    Ok(Some(KernelEvent::Born(born)))
                        if EntityId::derive(born.kind, &born.key) == id =>
                    {
                        core.key = Some(born.key);
                        core.kind = Some(born.kind);
                    }
                    Ok(Some(KernelEvent::Accepted(accepted))) => {
                        core.remember(&sealed, accepted.input.id);
                    }
                    _ => {}
                }
            }
        }
        core
    }
}

/// Whether this snapshot ends a purge, if one has begun: it names no archive.
pub(super) const fn ends_purge(snapshot: &Snapshot) -> bool {
    snapshot.archive.is_none()
}

/// Why a journal may begin with a snapshot that names no archive: its entity was deleted or purged. Without
/// such a reason, records are missing.
pub(super) fn may_begin(id: EntityId, loaded: &LoadedJournal) -> Result<(), FoldError> {
    let mut missing = None;
    for_each(id, loaded, |sealed, snapshot| {
        if let Some(SnapshotBody { core, .. }) = snapshot
            && core.service != Service::Deleted
            && core.purging.is_none()
        {
            let text = "the events before the snapshot are missing, and no purge removed them";
            missing = Some(FoldError::violation(id, sealed, Violation(text.to_owned())));
        }
        Ok(())
    })?;
    missing.map_or(Ok(()), Err)
}

pub(super) fn kernel_event(
    id: EntityId,
    sealed: &Sealed,
) -> Result<Option<KernelEvent>, FoldError> {
    sealed.event().map_err(|source| FoldError::body(id, sealed, source))
}

/// Visits every event; the first one brings the decoded state if it is a snapshot.
pub(super) fn for_each(
    id: EntityId,
    loaded: &LoadedJournal,
    mut visit: impl FnMut(&Sealed, Option<SnapshotBody<'_>>) -> Result<(), FoldError>,
) -> Result<(), FoldError> {
    let mut last = Seq(0);
    for record in &loaded.records {
        let damaged = |source| FoldError::Record { entity: id, at: last, source };
        let events = decode_record(&record.bytes).map_err(damaged)?;
        for sealed in &events {
            let snapshot = if last.0 == 0 && sealed.head.kind == SNAPSHOT {
                Some(snapshot_body(id, sealed, loaded.snapshot.as_ref())?)
            } else {
                None
            };
            visit(sealed, snapshot)?;
            last = sealed.head.n;
        }
    }
    Ok(())
}

fn snapshot_body<'a>(
    id: EntityId,
    sealed: &Sealed,
    blob: Option<&'a Bytes>,
) -> Result<SnapshotBody<'a>, FoldError> {
    let missing = |text: &str| FoldError::violation(id, sealed, Violation(text.to_owned()));
    // It is the first event, so only it can say what the one before it was.
    let Ok(SnapshotTail { tail }) = codec::decode(&sealed.body) else {
        return Err(missing("a snapshot that is none"));
    };
    Core { tail, ..Core::default() }.follow(id, sealed)?;
    let Some(KernelEvent::Snapshot(snapshot)) = kernel_event(id, sealed)? else {
        return Err(missing("a snapshot that is none"));
    };
    let decoded = match (&snapshot.state, blob) {
        (SnapshotState::Inline { bytes }, _) => {
            codec::decode_part(bytes).map(|SnapshotBody { core, kind, needs }| SnapshotBody {
                core,
                kind: Cow::Owned(kind.into_owned()),
                needs,
            })
        }
        // It is whole, as its digest says.
        (SnapshotState::Blob { digest }, Some(bytes)) if Digest::of(bytes) == *digest => {
            codec::decode_part(bytes)
        }
        (SnapshotState::Blob { .. }, _) => {
            return Err(missing("the snapshot's blob is missing or damaged"));
        }
    };
    let body: SnapshotBody<'_> = decoded.map_err(|source| FoldError::body(id, sealed, source))?;
    if body.core.tail != snapshot.tail {
        return Err(missing("a snapshot that does not stand for what it says"));
    }
    Ok(body)
}

/// The blob that a journal's first record needs, if its snapshot is in one.
pub fn snapshot_blob(records: &[Record]) -> Option<Digest> {
    match archive::snapshot_of(records)?.state {
        SnapshotState::Blob { digest } => Some(digest),
        SnapshotState::Inline { .. } => None,
    }
}

/// The position of the last record.
pub fn position_of(records: &[Record]) -> Position {
    records.last().map_or(Position(0), |last| last.position)
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Epoch, EventId, Head, ProcessId, Timestamp,
        kernel::{Born, Claim, Deleted},
    };

    use super::*;

    fn takes(core: &mut Core, id: EntityId, epoch: u64, event: impl Into<KernelEvent>) {
        let event = event.into();
        let n = core.tail.n.next();
        let head = Head {
            entity: id,
            n,
            v: 1,
            eid: EventId::from_u128(u128::from(n.0)),
            epoch: Epoch(epoch),
            incarnation: Incarnation { process: ProcessId::from_u128(1), counter: 1 },
            ts: Timestamp(1),
            kind: event.kind().to_owned(),
            required: event.required(),
            progress: event.progress(),
        };
        let sealed = Sealed::seal(head, &event, core.tail.hash).unwrap();
        core.apply(id, &sealed).unwrap();
    }

    #[test]
    fn an_entity_that_began_again_knows_when_it_was_deleted() {
        let born = || Born { kind: Kind::SESSION, key: "default:web:bot:ada".to_owned() };
        let id = EntityId::derive(born().kind, &born().key);
        let snapshot = |core: &Core, archive| {
            let state = SnapshotState::Inline { bytes: Vec::new().into() };
            Snapshot { tail: core.tail, archive, state, superseded: None, positions: Vec::new() }
        };
        let mut core = Core::default();
        takes(&mut core, id, 1, Claim::default());
        takes(&mut core, id, 1, born());
        assert_eq!(core.deleted_at, None);
        takes(&mut core, id, 1, Deleted { at: Timestamp(1), dropped: Vec::new() });
        assert_eq!(core.deleted_at, Some(Seq(3)));
        // An earlier version wrote the state.
        core.deleted_at = None;
        let tombstone = snapshot(&core, None);
        takes(&mut core, id, 1, tombstone);
        takes(&mut core, id, 2, Claim::default());
        takes(&mut core, id, 2, born());
        let later = snapshot(&core, Some(Digest::of(b"")));
        takes(&mut core, id, 2, later);
        let core: Core = codec::decode(&codec::encode(&core).unwrap()).unwrap();
        assert_eq!((core.deleted_at, core.service), (Some(Seq(4)), Service::Active));
    }
}

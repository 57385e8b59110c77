//! What is known of one entity, of whatever kind: its durable journal, folded again with the kernel's
//! own fold, and what was seen outside of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use clawnode_cluster::Record;
use clawnode_kernel::{Core, Entity, EntityKind, LoadedJournal, Service, kind::EffectKind};
use clawnode_proto::{
    CodecError, Digest, EntityId, Head, Input, InputId, Kind, Position, Sealed, Timestamp, TurnId,
    codec,
    event::decode_record,
    kernel::{Accepted, KernelEvent, RESTORED, Restored},
};
use serde::de::DeserializeOwned;

use super::{
    JudgeViolation,
    violation::{encoded, of_fold},
};

pub(super) type Checked = Result<(), JudgeViolation>;
/// Reads an archive.
type Archived<'a> = &'a mut dyn FnMut(Digest) -> Option<LoadedJournal>;

/// What is known of one entity.
#[derive(Debug)]
pub(super) struct Book<K: Booked> {
    pub(super) entity: Entity<K>,
    /// Where the store has its last record.
    position: Position,
    /// Copies of inputs that wait in the inbox.
    waiting: BTreeMap<InputId, u32>,
    journaled: BTreeMap<InputId, Option<K::Body>>,
    /// When an input of a kind that forgets them was journaled last.
    at: BTreeMap<InputId, Timestamp>,
    pub(super) deletions: u32,
    /// Inputs that were in a journal which was damaged and deleted.
    forgotten: BTreeSet<InputId>,
    /// Its journal is damaged, so what follows there proves nothing until it is replaced.
    pub(super) damaged: bool,
    /// The archives that a purge has to remove.
    archives: Vec<Digest>,
    /// What its kind adds.
    pub(super) own: K::Own,
}

/// A kind whose entities have books.
pub(super) trait Booked: EntityKind + Sized {
    /// What its inputs say.
    type Body: DeserializeOwned + Debug;
    /// What is known of its entities besides.
    type Own: Debug + Default;

    /// Counts what may happen only once.
    fn note(own: &mut Self::Own, head: &Head, event: Self::Event) -> Checked;

    /// Notes what the state may give up later.
    fn keep(_own: &mut Self::Own, _state: &Self::State) {}

    /// Whether the end of a turn was published.
    fn is_told(own: &Self::Own, turn: TurnId) -> bool;

    /// What was in a damaged journal is not held against it any more.
    fn forget(own: &mut Self::Own);

    /// It was deleted. What it has from then on is new.
    fn is_deleted(_own: &mut Self::Own) {}

    /// It was out of service when it was deleted, so nothing more is published.
    fn told_by_deletion(own: &mut Self::Own);

    /// An input of a journal that was damaged comes again.
    fn again(own: &mut Self::Own, input: InputId);

    /// What is missing for a journaled input to have come to its end.
    fn unfinished(book: &Book<Self>, input: InputId, body: &Self::Body) -> Option<String>;

    /// What must hold once all is quiet, given the inputs that were accepted.
    fn at_the_end(book: &Book<Self>, accepted: &BTreeMap<InputId, Input>) -> Checked;
}

/// A book, whatever its kind.
pub(super) trait AnyBook: Debug {
    fn kind(&self) -> Kind;
    /// A record was added.
    fn adds(&mut self, record: &Record) -> Checked;
    /// A record replaced all before it: a snapshot, or a tombstone.
    fn replaces(
        &mut self,
        record: &Record,
        loaded: &LoadedJournal,
        archived: Archived<'_>,
    ) -> Checked;
    /// An input was stored.
    fn put(&mut self, input: InputId);
    /// An input left the inbox.
    fn removed(&mut self, input: InputId) -> Checked;
    /// I4: the entity is at rest, or what was journaled last still waits in the inbox, or all is
    /// parked.
    fn anchored(&self) -> Checked;
    /// OUT-1: nothing is out of service but what kills its actor, or was damaged.
    fn is_rightly_out(&self, planned: bool) -> Checked;
    fn has(&self, input: InputId) -> bool;
    fn position(&self) -> Position;
    /// The number of the last event.
    fn last_event(&self) -> u64;
    fn is_quarantined(&self) -> bool;
    fn is_deleted(&self) -> bool;
    fn is_damaged(&self) -> bool;
    fn damage(&mut self);
    /// What is missing for an accepted input to have come to its end.
    fn unfinished(&self, input: InputId) -> Option<String>;
    /// What must hold once all is quiet, given the inputs that were accepted.
    fn at_the_end(&self, accepted: &BTreeMap<InputId, Input>) -> Checked;
}

impl<K: Booked> AnyBook for Book<K> {
    fn kind(&self) -> Kind {
        K::KIND
    }

    fn adds(&mut self, record: &Record) -> Checked {
        self.position = record.position;
        self.appended(record)
    }

    fn replaces(
        &mut self,
        record: &Record,
        loaded: &LoadedJournal,
        archived: Archived<'_>,
    ) -> Checked {
        self.position = record.position;
        self.replaced(loaded, archived)
    }

    fn put(&mut self, input: InputId) {
        *self.waiting.entry(input).or_insert(0) += 1;
    }

    fn removed(&mut self, input: InputId) -> Checked {
        if let Some(copies) = self.waiting.get_mut(&input) {
            *copies -= 1;
            if *copies == 0 {
                self.waiting.remove(&input);
            }
        }
        if !self.journaled.contains_key(&input) {
            let text = format!("`{input}` left the inbox, but the journal has it not");
            return Err(JudgeViolation::new("I4", text));
        }
        self.anchored()
    }

    fn anchored(&self) -> Checked {
        let newest = self.entity.core.newest_input();
        let anchored = newest.is_none_or(|newest| self.waiting.contains_key(&newest));
        if anchored || self.damaged || self.at_rest() || self.is_quarantined() {
            return Ok(());
        }
        let text = format!(
            "`{}` is not at rest, and `{:?}`, which was journaled last, left the inbox",
            self.entity.id, newest
        );
        Err(JudgeViolation::new("I4", text))
    }

    fn is_rightly_out(&self, planned: bool) -> Checked {
        match &self.entity.core.service {
            Service::Quarantined { reason } if !planned && !self.damaged => {
                let text = format!("`{}` is harmless and out of service: {reason}", self.entity.id);
                Err(JudgeViolation::new("OUT-1", text))
            }
            _ => Ok(()),
        }
    }

    fn has(&self, input: InputId) -> bool {
        self.journaled.contains_key(&input)
    }

    fn position(&self) -> Position {
        self.position
    }

    fn last_event(&self) -> u64 {
        self.entity.core.tail.n.0
    }

    fn is_quarantined(&self) -> bool {
        matches!(self.entity.core.service, Service::Quarantined { .. })
    }

    fn is_deleted(&self) -> bool {
        self.entity.core.service == Service::Deleted
    }

    fn is_damaged(&self) -> bool {
        self.damaged
    }

    fn damage(&mut self) {
        self.damaged = true;
    }

    fn unfinished(&self, input: InputId) -> Option<String> {
        let Some(body) = self.journaled.get(&input) else {
            return Some(format!("`{input}` was accepted, but the journal has it not"));
        };
        if self.waiting.contains_key(&input) {
            let known = if self.entity.core.has(input) { "knows it" } else { "forgot it" };
            return Some(format!(
                "`{input}` is in the journal of `{}`, whose fold {known}, and still waits in the inbox",
                self.entity.id
            ));
        }
        if self.is_quarantined() || self.damaged {
            return None;
        }
        // Without a body it was parked, and is back in service.
        body.as_ref().and_then(|body| K::unfinished(self, input, body))
    }

    fn at_the_end(&self, accepted: &BTreeMap<InputId, Input>) -> Checked {
        K::at_the_end(self, accepted)
    }
}

impl<K: Booked> Book<K> {
    pub(super) fn new(entity: EntityId) -> Self {
        Self {
            entity: Entity::unborn(entity),
            position: Position(0),
            waiting: BTreeMap::new(),
            journaled: BTreeMap::new(),
            at: BTreeMap::new(),
            deletions: 0,
            forgotten: BTreeSet::new(),
            damaged: false,
            archives: Vec::new(),
            own: K::Own::default(),
        }
    }

    /// What an input says that is in the journal; none if it was only parked.
    pub(super) fn body(&self, input: InputId) -> Option<&K::Body> {
        self.journaled.get(&input)?.as_ref()
    }

    /// Whether nothing is left to do that anybody would have to be woken for.
    fn at_rest(&self) -> bool {
        let state = &self.entity.state;
        !K::doomed(state)
            && !K::purges(state)
            && self.entity.core.purging.is_none()
            && K::advance(state).is_empty()
            && K::decide(state).iter().all(|effect| match K::class(effect) {
                EffectKind::Emit(turn) => K::is_told(&self.own, turn),
                // Their results come as inputs, which wake it.
                EffectKind::Publish => true,
                EffectKind::Call | EffectKind::Run => false,
            })
    }

    fn appended(&mut self, record: &Record) -> Checked {
        let events = decode_record(&record.bytes)
            .map_err(|error| JudgeViolation::new("I1", error.to_string()))?;
        for sealed in &events {
            let parked = self.entity.core.parked.clone();
            match self.entity.apply(sealed) {
                // A claim behind what is damaged.
                Err(_) if self.damaged => return Ok(()),
                applied => applied.map_err(|error| of_fold(&error))?,
            }
            self.note(sealed)?;
            K::keep(&mut self.own, &self.entity.state);
            if sealed.head.kind == RESTORED {
                self.served(&parked)?;
            }
        }
        Ok(())
    }

    /// What was parked is as good as accepted now.
    fn served(&mut self, parked: &[Input]) -> Checked {
        for input in parked.iter().filter(|one| one.order.is_none()) {
            let body = codec::decode(&input.body)
                .map_err(|error| JudgeViolation::new("I1", error.to_string()))?;
            self.journaled.insert(input.id, Some(body));
        }
        Ok(())
    }

    /// A record replaced all before it: a snapshot, or a tombstone.
    fn replaced(&mut self, loaded: &LoadedJournal, archived: Archived<'_>) -> Checked {
        let id = self.entity.id;
        let folded = Entity::<K>::of(id, loaded).map_err(|error| of_fold(&error))?;
        let deleted = folded.core.service == Service::Deleted;
        if deleted {
            self.deleted(&folded.core);
        } else if self.damaged {
            // Written from a memory that is older than the damage. What is damaged may name no archive any more.
            self.damaged = false;
            self.archives.clear();
        } else {
            let expected = encoded(&self.entity)?;
            let record = loaded.records.first();
            let events = record.map(|record| decode_record(&record.bytes));
            let Some(Ok(events)) = events else {
                return Err(JudgeViolation::new(
                    "I1",
                    "a snapshot that is not readable".to_owned(),
                ));
            };
            if let Some(Ok(Some(KernelEvent::Snapshot(snapshot)))) =
                events.first().map(Sealed::event)
            {
                let is_purged = snapshot.archive.is_none() && self.entity.core.purging.is_some();
                if is_purged {
                    self.purged(archived)?;
                } else {
                    let archive = snapshot.archive.and_then(archived).unwrap_or_default();
                    let core =
                        Core::of(id, &archive, &|_| true).map_err(|error| of_fold(&error))?;
                    if core.tail != snapshot.tail {
                        let text = format!("the archive of `{id}` is not all that it replaced");
                        return Err(JudgeViolation::new("I1", text));
                    }
                    self.archives.extend(snapshot.archive);
                }
            }
            for sealed in &events {
                self.entity.apply(sealed).map_err(|error| of_fold(&error))?;
            }
            if encoded(&self.entity)? != encoded(&folded)? {
                let text = format!(
                    "the snapshot of `{id}` is not what its events add up to ({} bytes)",
                    expected.len()
                );
                return Err(JudgeViolation::new("I1", text));
            }
        }
        self.entity = folded;
        Ok(())
    }

    /// C27: a purge leaves no archive.
    fn purged(&mut self, archived: Archived<'_>) -> Checked {
        let left =
            std::mem::take(&mut self.archives).into_iter().find(|one| archived(*one).is_some());
        match left {
            Some(digest) => {
                let text =
                    format!("`{}` is purged, and its archive `{digest}` is left", self.entity.id);
                Err(JudgeViolation::new("C27", text))
            }
            None => Ok(()),
        }
    }

    /// The inputs that waited are gone with it. The deletion replaces ends that were not published.
    fn deleted(&mut self, core: &Core) {
        self.deletions += 1;
        self.archives.clear();
        K::is_deleted(&mut self.own);
        for input in self.waiting.keys().filter(|input| core.has(**input)) {
            self.journaled.entry(*input).or_insert(None);
        }
        if self.damaged {
            // What only the damaged journal knew may come again.
            let known = self.journaled.keys().copied();
            self.forgotten.extend(known.filter(|input| !core.has(*input)));
            K::forget(&mut self.own);
        }
        if std::mem::take(&mut self.damaged) || self.is_quarantined() {
            K::told_by_deletion(&mut self.own);
        }
    }

    /// Counts what may happen only once.
    fn note(&mut self, sealed: &Sealed) -> Checked {
        let damaged = |error: CodecError| JudgeViolation::new("I1", error.to_string());
        let at = sealed.head.ts;
        match sealed.event::<KernelEvent>().map_err(damaged)? {
            Some(
                KernelEvent::Accepted(Accepted { input: order @ Input { order: Some(_), .. } })
                | KernelEvent::Restored(Restored { input: order }),
            ) => return self.journaled(order.id, None, at),
            Some(KernelEvent::Accepted(accepted)) => {
                let body = codec::decode(&accepted.input.body).map_err(damaged)?;
                return self.journaled(accepted.input.id, Some(body), at);
            }
            Some(KernelEvent::Parked(parked)) => return self.journaled(parked.input.id, None, at),
            Some(KernelEvent::Deleted(deleted)) => {
                return deleted.dropped.iter().try_for_each(|one| self.journaled(*one, None, at));
            }
            _ => {}
        }
        match sealed.event::<K::Event>().map_err(damaged)? {
            Some(event) => K::note(&mut self.own, &sealed.head, event),
            None => Ok(()),
        }
    }

    /// D1: an input is journaled once, as long as its kind remembers it.
    fn journaled(&mut self, input: InputId, body: Option<K::Body>, at: Timestamp) -> Checked {
        let before = self.at.insert(input, at);
        match self.journaled.insert(input, body) {
            None => Ok(()),
            // The kind says that it knows such an input in another way: what follows from it is judged.
            Some(_) if before.is_some_and(|before| at.since(before) > K::MEMORY.age) => Ok(()),
            Some(_) if self.forgotten.remove(&input) => {
                K::again(&mut self.own, input);
                Ok(())
            }
            Some(_) => Err(JudgeViolation::new("D1", format!("`{input}` is in the journal twice"))),
        }
    }
}

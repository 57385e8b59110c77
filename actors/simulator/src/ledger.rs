//! What has really happened, checked after every step: the durable journals, folded again with
//! the kernel's own fold, and what was seen outside of them.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_actors::session::Session;
use clawnode_cluster::Record;
use clawnode_kernel::{Core, Entity, Loaded, Service, core::position_of};
use clawnode_proto::{
    Attempt, CallId, CodecError, Digest, EntityId, Epoch, Incarnation, Input, InputId, Position,
    Sealed, TurnId, codec,
    event::decode_record,
    kernel::{Accepted, KernelEvent, RESTORED, Restored},
    limits::{CLAIMS_BEFORE_PROBATION, CLAIMS_WITHOUT_PROGRESS},
    llm::FailureClass,
    session::{SessionEvent, SessionInput},
};
use clawnode_sim::Change;

use super::{
    Violation,
    known::{Call, Turn},
    tools::ToolBook,
    violation::{encoded, of_fold},
};

/// What is known of one entity.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) entity: Entity<Session>,
    /// Where the store has its last record.
    position: Position,
    /// Copies of inputs that wait in the inbox.
    pub(super) waiting: BTreeMap<InputId, u32>,
    pub(super) journaled: BTreeMap<InputId, Option<SessionInput>>,
    pub(super) turns: BTreeMap<TurnId, Turn>,
    pub(super) calls: BTreeMap<CallId, Call>,
    tools: ToolBook,
    /// The turn whose call was begun last.
    last_turn: Option<TurnId>,
    pub(super) deletions: u32,
    /// Inputs that were in a journal which was damaged and buried.
    forgotten: BTreeSet<InputId>,
    /// Its journal is damaged, so what follows there proves nothing until it is replaced.
    pub(super) damaged: bool,
}

/// Deaths with an entity in hand that may look as if it had caused them: as many as there are claims
/// between the first probation and the end.
const DEATHS: u32 = CLAIMS_WITHOUT_PROGRESS - CLAIMS_BEFORE_PROBATION;

/// All entities.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) books: BTreeMap<EntityId, Book>,
    /// How often somebody died with an entity in hand: that many deaths are held against it.
    pub(super) struck: BTreeMap<EntityId, u32>,
    /// The session that kills its actor, if one does.
    pub(super) poisoned: Option<EntityId>,
    /// Inputs whose senders were told that they are stored.
    accepted: BTreeMap<InputId, Input>,
}

pub(super) type Checked = Result<(), Violation>;

impl Ledger {
    fn book(&mut self, entity: EntityId) -> &mut Book {
        self.books.entry(entity).or_insert_with(|| Book::new(entity))
    }

    /// Takes one change of the stores.
    pub(super) fn change(
        &mut self,
        change: &Change,
        stored: impl FnOnce() -> Loaded,
        archived: impl FnOnce(Digest) -> Option<Loaded>,
    ) -> Checked {
        match change {
            Change::Appended { entity, record, rollup } => {
                let book = self.book(*entity);
                book.position = record.position;
                if *rollup {
                    book.replaced(&stored(), archived)?;
                } else {
                    book.appended(record)?;
                }
                book.anchored()?;
                let struck = self.struck.get(entity).copied().unwrap_or_default();
                let planned = struck >= DEATHS || self.poisoned == Some(*entity);
                self.book(*entity).is_rightly_out(planned)
            }
            Change::Put(entity, input) => {
                *self.book(*entity).waiting.entry(*input).or_insert(0) += 1;
                Ok(())
            }
            Change::Removed(entity, input) => {
                let book = self.book(*entity);
                if let Some(copies) = book.waiting.get_mut(input) {
                    *copies -= 1;
                    if *copies == 0 {
                        book.waiting.remove(input);
                    }
                }
                if !book.journaled.contains_key(input) {
                    let text = format!("`{input}` left the inbox, but the journal has it not");
                    return Err(Violation::new("I4", text));
                }
                book.anchored()
            }
            Change::JobPut(_) | Change::JobRemoved(_) => Ok(()),
        }
    }

    /// A journal was damaged.
    pub(super) fn damaged(&mut self, entity: EntityId) {
        self.book(entity).damaged = true;
    }

    /// A sender was told that its input is stored.
    pub(super) fn accepted(&mut self, input: Input) {
        self.accepted.insert(input.id, input);
    }

    /// Whether it was deleted last.
    pub(super) fn is_deleted(&self, entity: EntityId) -> bool {
        let deleted = |book: &Book| book.entity.core.service == Service::Deleted;
        self.books.get(&entity).is_some_and(deleted)
    }

    /// Whether all that was accepted must have come to its end.
    pub(super) fn serves(&self, entity: EntityId) -> bool {
        self.books.get(&entity).is_some_and(|book| !book.is_quarantined() && !book.damaged)
    }

    /// A machine says that an input is done with.
    pub(super) fn completing(&mut self, entity: EntityId, input: InputId) -> Checked {
        if self.book(entity).journaled.contains_key(&input) {
            return Ok(());
        }
        let text = format!("`{input}` is acknowledged, but the journal has it not");
        Err(Violation::new("I4", text))
    }

    /// A model call is about to be made.
    pub(super) fn calling(
        &mut self,
        entity: EntityId,
        by: Incarnation,
        call: CallId,
        attempt: Attempt,
    ) -> Checked {
        let known = self.book(entity).calls.entry(call).or_default();
        let mine = |(one, who, _): &&(Attempt, Incarnation, Epoch)| *one == attempt && *who == by;
        if known.begun.iter().find(mine).is_none() {
            let name = if known.recorded { "C7" } else { "I8" };
            let text = format!("attempt {attempt} at `{call}` was not begun in the journal");
            return Err(Violation::new(name, text));
        }
        if !known.made.insert(attempt) {
            let text = format!("attempt {attempt} at `{call}` is made twice");
            return Err(Violation::new("C6", text));
        }
        Ok(())
    }

    /// A tool is about to run; who lost the entity, and does not know it yet, may run a safe one.
    pub(super) fn tool_runs(&mut self, entity: EntityId, by: Incarnation, call: CallId) -> Checked {
        let book = self.book(entity);
        book.tools.runs(call, book.entity.core.incarnation == Some(by))
    }

    /// A turn's post-turn effects are about to be shown.
    pub(super) fn emitting(&mut self, entity: EntityId, turn: TurnId) -> Checked {
        if self.book(entity).turns.get(&turn).is_some_and(|known| known.outcome.is_some()) {
            return Ok(());
        }
        let text = format!("the end of `{turn}` is shown, but the journal has it not");
        Err(Violation::new("I5", text))
    }

    /// A turn's post-turn effects were shown.
    pub(super) fn emitted(&mut self, entity: EntityId, turn: TurnId) {
        self.book(entity).turns.entry(turn).or_default().emitted = true;
    }

    /// After a power cut: what was answered is still there.
    pub(super) fn durable(
        &self,
        journal: impl Fn(EntityId) -> Vec<Record>,
        waits: impl Fn(&Input) -> bool,
    ) -> Checked {
        for (entity, book) in &self.books {
            if position_of(&journal(*entity)) < book.position {
                let text = format!("the journal of `{entity}` lost records that were answered for");
                return Err(Violation::new("S1", text));
            }
        }
        for (id, input) in &self.accepted {
            let journaled =
                self.books.get(&input.entity).is_some_and(|book| book.journaled.contains_key(id));
            if !journaled && !waits(input) {
                return Err(Violation::new("S1", format!("`{id}` was answered for and is gone")));
            }
        }
        Ok(())
    }

    /// Whether every accepted input has come to its end.
    pub(super) fn unfinished(&self) -> Option<String> {
        self.accepted.values().find_map(|input| {
            let Some(book) = self.books.get(&input.entity) else {
                return Some(format!("`{}` was never seen by its entity", input.id));
            };
            book.unfinished(input.id)
        })
    }

    /// What must hold once all is quiet.
    pub(super) fn at_the_end(&self) -> Checked {
        if let Some(text) = self.unfinished() {
            return Err(Violation::new("E1", text));
        }
        self.books.values().try_for_each(Book::at_the_end)
    }

    /// How much has happened: turns that ended, calls made, attempts begun.
    pub(super) fn tally(&self) -> (usize, usize, usize) {
        let turns = self.books.values().map(|book| book.turns.len()).sum();
        let calls = self.books.values().flat_map(|book| book.calls.values());
        let (made, begun) = calls
            .fold((0, 0), |(made, begun), call| (made + call.made.len(), begun + call.begun.len()));
        (turns, made, begun)
    }

    /// Entities that are out of service.
    pub(super) fn quarantined(&self) -> usize {
        self.books.values().filter(|book| book.is_quarantined()).count()
    }
}

impl Book {
    fn new(entity: EntityId) -> Self {
        Self {
            entity: Entity::unborn(entity),
            position: Position(0),
            waiting: BTreeMap::new(),
            journaled: BTreeMap::new(),
            turns: BTreeMap::new(),
            calls: BTreeMap::new(),
            tools: ToolBook::default(),
            last_turn: None,
            deletions: 0,
            forgotten: BTreeSet::new(),
            damaged: false,
        }
    }

    pub(super) fn is_quarantined(&self) -> bool {
        matches!(self.entity.core.service, Service::Quarantined { .. })
    }

    /// OUT-1: nothing is out of service but what kills its actor, or was damaged.
    fn is_rightly_out(&self, planned: bool) -> Checked {
        match &self.entity.core.service {
            Service::Quarantined { reason } if !planned && !self.damaged => {
                let text = format!("`{}` is harmless and out of service: {reason}", self.entity.id);
                Err(Violation::new("OUT-1", text))
            }
            _ => Ok(()),
        }
    }

    fn appended(&mut self, record: &Record) -> Checked {
        let events = decode_record(&record.bytes)
            .map_err(|error| Violation::new("I1", error.to_string()))?;
        for sealed in &events {
            let parked = self.entity.core.parked.clone();
            match self.entity.apply(sealed) {
                // A claim behind what is damaged.
                Err(_) if self.damaged => return Ok(()),
                applied => applied.map_err(|error| of_fold(&error))?,
            }
            self.note(sealed)?;
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
                .map_err(|error| Violation::new("I1", error.to_string()))?;
            self.journaled.insert(input.id, Some(body));
        }
        Ok(())
    }

    /// A record replaced all before it: a snapshot, or a tombstone.
    fn replaced(
        &mut self,
        loaded: &Loaded,
        archived: impl FnOnce(Digest) -> Option<Loaded>,
    ) -> Checked {
        let id = self.entity.id;
        let folded = Entity::<Session>::of(id, loaded).map_err(|error| of_fold(&error))?;
        let deleted = folded.core.service == Service::Deleted;
        if deleted {
            self.buried(&folded.core);
        } else if self.damaged {
            // Written from a memory that is older than the damage.
            self.damaged = false;
        } else {
            let expected = encoded(&self.entity)?;
            let record = loaded.records.first();
            let events = record.map(|record| decode_record(&record.bytes));
            let Some(Ok(events)) = events else {
                return Err(Violation::new("I1", "a snapshot that is not readable".to_owned()));
            };
            if let Some(Ok(Some(KernelEvent::Snapshot(snapshot)))) =
                events.first().map(Sealed::event)
            {
                let archive = snapshot.archive.and_then(archived).unwrap_or_default();
                let core = Core::of(id, &archive, &|_| true).map_err(|error| of_fold(&error))?;
                if core.tail != snapshot.tail {
                    let text = format!("the archive of `{id}` is not all that it replaced");
                    return Err(Violation::new("I1", text));
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
                return Err(Violation::new("I1", text));
            }
        }
        self.entity = folded;
        Ok(())
    }

    /// What waited is gone with it, and what was not told is told by the deletion.
    fn buried(&mut self, core: &Core) {
        self.deletions += 1;
        for input in self.waiting.keys().filter(|input| core.has(**input)) {
            self.journaled.entry(*input).or_insert(None);
        }
        if self.damaged {
            // What only the damaged journal knew may come again.
            let known = self.journaled.keys().copied();
            self.forgotten.extend(known.filter(|input| !core.has(*input)));
            self.calls.clear();
            self.tools = ToolBook::default();
        }
        if std::mem::take(&mut self.damaged) || self.is_quarantined() {
            self.turns.values_mut().for_each(|turn| turn.emitted = true);
        }
    }

    /// Counts what may happen only once.
    fn note(&mut self, sealed: &Sealed) -> Checked {
        let damaged = |error: CodecError| Violation::new("I1", error.to_string());
        let head = &sealed.head;
        match sealed.event::<KernelEvent>().map_err(damaged)? {
            Some(
                KernelEvent::Accepted(Accepted { input: order @ Input { order: Some(_), .. } })
                | KernelEvent::Restored(Restored { input: order }),
            ) => return self.journaled(order.id, None),
            Some(KernelEvent::Accepted(accepted)) => {
                let body = codec::decode(&accepted.input.body).map_err(damaged)?;
                return self.journaled(accepted.input.id, Some(body));
            }
            Some(KernelEvent::Parked(parked)) => return self.journaled(parked.input.id, None),
            Some(KernelEvent::Deleted(deleted)) => {
                return deleted.dropped.iter().try_for_each(|one| self.journaled(*one, None));
            }
            _ => {}
        }
        match sealed.event::<SessionEvent>().map_err(damaged)? {
            Some(SessionEvent::ModelBegun(begun)) => {
                let turn = self.turns.entry(begun.turn).or_default();
                turn.begun.get_or_insert(head.ts);
                self.last_turn = Some(begun.turn);
                let call = self.calls.entry(begun.call).or_default();
                if call.begun.iter().any(|(_, _, epoch)| *epoch == head.epoch) {
                    let text = format!("`{}` is begun twice by one owner", begun.call);
                    return Err(Violation::new("C6", text));
                }
                call.begun.push((begun.attempt, head.incarnation, head.epoch));
            }
            Some(SessionEvent::ModelDone(done)) => {
                self.calls.entry(done.call).or_default().recorded = true;
            }
            Some(SessionEvent::ModelFailed(failed)) => {
                self.calls.entry(failed.call).or_default().recorded = true;
                let own = [FailureClass::GlobalTime, FailureClass::StepTime];
                if let Some(turn) = self.last_turn {
                    self.turns.entry(turn).or_default().late_call =
                        own.contains(&failed.failure.class);
                }
            }
            Some(SessionEvent::Reply(reply)) => {
                self.turns.entry(reply.turn).or_default().replies += 1;
            }
            Some(SessionEvent::TurnDone(done)) => {
                let turn = self.turns.entry(done.turn).or_default();
                turn.in_time(&done.outcome, head.ts)?;
                if turn.outcome.replace(done.outcome).is_some() {
                    let text = format!("`{}` has ended twice", done.turn);
                    return Err(Violation::new("E2", text));
                }
            }
            Some(SessionEvent::Settled(settled)) => {
                self.turns.entry(settled.turn).or_default().settled += 1;
            }
            Some(SessionEvent::StepPlanned(it)) => {
                self.turns.entry(it.turn).or_default().step(it.step, head.ts)?;
            }
            Some(event) => self.tools.event(&event)?,
            None => {}
        }
        Ok(())
    }

    fn journaled(&mut self, input: InputId, body: Option<SessionInput>) -> Checked {
        match self.journaled.insert(input, body) {
            None => Ok(()),
            Some(_) if self.forgotten.remove(&input) => {
                self.turns.remove(&TurnId::from(input));
                Ok(())
            }
            Some(_) => Err(Violation::new("D1", format!("`{input}` is in the journal twice"))),
        }
    }
}

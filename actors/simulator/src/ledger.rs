//! What has really happened, checked after every step: the durable journals, folded again with
//! the kernel's own fold, and what was seen outside of them.

use std::collections::BTreeMap;

use clawnode_actors::session::Session;
use clawnode_cluster::Record;
use clawnode_kernel::{EntityKind as _, LoadedJournal, core::position_of};
use clawnode_proto::{
    Attempt, CallId, Digest, EntityId, Epoch, Incarnation, Input, InputId, Kind, TurnId,
    limits::{CLAIMS_BEFORE_PROBATION, CLAIMS_WITHOUT_PROGRESS},
    session::TurnOutcome,
};
use clawnode_sim::StoreChange;

use super::{
    JudgeViolation,
    book::{AnyBook, Book, Checked},
    known::KnownTurn,
};

/// Deaths with an entity in hand that may look as if it had caused them: as many as there are claims
/// between the first probation and the end.
const DEATHS: u32 = CLAIMS_WITHOUT_PROGRESS - CLAIMS_BEFORE_PROBATION;

/// All entities.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) books: BTreeMap<EntityId, Book<Session>>,
    /// Those of every other kind.
    others: BTreeMap<EntityId, Box<dyn AnyBook>>,
    /// How many processes died with an entity in hand: that many deaths count against it.
    pub(super) struck: BTreeMap<EntityId, u32>,
    /// The session that kills its actor, if one does.
    pub(super) poisoned: Option<EntityId>,
    /// Inputs whose senders were told that they are stored.
    pub(super) accepted: BTreeMap<InputId, Input>,
}

impl Ledger {
    /// Keeps this book; an entity without one is a session.
    pub(super) fn keep(&mut self, entity: EntityId, book: Box<dyn AnyBook>) {
        self.others.insert(entity, book);
    }

    /// Of which kind it is.
    pub(super) fn kind_of(&self, entity: EntityId) -> Kind {
        self.others.get(&entity).map_or(Session::KIND, |book| book.kind())
    }

    pub(super) fn book(&mut self, entity: EntityId) -> &mut Book<Session> {
        self.books.entry(entity).or_insert_with(|| Book::new(entity))
    }

    fn any(&mut self, entity: EntityId) -> &mut dyn AnyBook {
        match self.others.get_mut(&entity) {
            Some(book) => book.as_mut(),
            None => self.books.entry(entity).or_insert_with(|| Book::new(entity)),
        }
    }

    fn known(&self, entity: EntityId) -> Option<&dyn AnyBook> {
        let session = || self.books.get(&entity).map(|book| book as &dyn AnyBook);
        self.others.get(&entity).map(AsRef::as_ref).or_else(session)
    }

    fn all(&self) -> impl Iterator<Item = (&EntityId, &dyn AnyBook)> {
        let sessions = self.books.iter().map(|(id, book)| (id, book as &dyn AnyBook));
        sessions.chain(self.others.iter().map(|(id, book)| (id, book.as_ref())))
    }

    /// Takes one change of the stores.
    pub(super) fn change(
        &mut self,
        change: &StoreChange,
        stored: impl FnOnce() -> LoadedJournal,
        archived: impl FnMut(Digest) -> Option<LoadedJournal>,
    ) -> Checked {
        match change {
            StoreChange::Appended { entity, record, rollup } => {
                let struck = self.struck.get(entity).copied().unwrap_or_default();
                let planned = struck >= DEATHS || self.poisoned == Some(*entity);
                let book = self.any(*entity);
                if *rollup {
                    let mut archived = archived;
                    book.replaces(record, &stored(), &mut archived)?;
                } else {
                    book.adds(record)?;
                }
                book.anchored()?;
                book.is_rightly_out(planned)
            }
            StoreChange::Put(entity, input) => {
                self.any(*entity).put(*input);
                Ok(())
            }
            StoreChange::Removed(entity, input) => self.any(*entity).removed(*input),
            StoreChange::JobPut(_) | StoreChange::JobRemoved(_) => Ok(()),
        }
    }

    /// A journal was damaged.
    pub(super) fn damaged(&mut self, entity: EntityId) {
        self.any(entity).damage();
    }

    /// A sender got the answer that its input is stored.
    pub(super) fn accepted(&mut self, input: Input) {
        self.accepted.insert(input.id, input);
    }

    /// Whether it was deleted last.
    pub(super) fn is_deleted(&self, entity: EntityId) -> bool {
        self.known(entity).is_some_and(AnyBook::is_deleted)
    }

    /// The number of its last event.
    pub(super) fn last_event(&self, entity: EntityId) -> u64 {
        self.known(entity).map_or(0, AnyBook::last_event)
    }

    /// Whether all that was accepted must have come to its end.
    pub(super) fn serves(&self, entity: EntityId) -> bool {
        self.known(entity).is_some_and(|book| !book.is_quarantined() && !book.is_damaged())
    }

    /// A machine says that an input is done with.
    pub(super) fn completing(&mut self, entity: EntityId, input: InputId) -> Checked {
        if self.any(entity).has(input) {
            return Ok(());
        }
        let text = format!("`{input}` is acknowledged, but the journal has it not");
        Err(JudgeViolation::new("I4", text))
    }

    /// A model call is about to be made.
    pub(super) fn calling(
        &mut self,
        entity: EntityId,
        by: Incarnation,
        call: CallId,
        attempt: Attempt,
    ) -> Checked {
        let own = &mut self.book(entity).own;
        // Its journal was damaged and deleted since it had begun, and its owner does not know it yet.
        if own.begun_before.remove(&(call, attempt, by)) {
            return Ok(());
        }
        let known = own.calls.entry(call).or_default();
        if known.gave_way.contains_key(&attempt) {
            let text = format!("attempt {attempt} at `{call}` is made, and gave way before");
            return Err(JudgeViolation::new("GIVE-1", text));
        }
        let mine = |(one, who, _): &&(Attempt, Incarnation, Epoch)| *one == attempt && *who == by;
        if known.begun.iter().find(mine).is_none() {
            let name = if known.recorded { "C7" } else { "I8" };
            let text = format!("attempt {attempt} at `{call}` was not begun in the journal");
            return Err(JudgeViolation::new(name, text));
        }
        if !known.made.insert(attempt) {
            let text = format!("attempt {attempt} at `{call}` is made twice");
            return Err(JudgeViolation::new("C6", text));
        }
        Ok(())
    }

    /// A tool is about to run; who lost the entity, and does not know it yet, may run a safe one.
    pub(super) fn tool_runs(&mut self, entity: EntityId, by: Incarnation, call: CallId) -> Checked {
        let book = self.book(entity);
        book.own.tools.runs(call, book.entity.core.incarnation == Some(by))
    }

    /// A turn's post-turn effects are about to be shown.
    pub(super) fn emitting(
        &mut self,
        entity: EntityId,
        turn: TurnId,
        shown: &TurnOutcome,
    ) -> Checked {
        let known = self.book(entity).own.turns.get(&turn);
        match known.and_then(|known| known.outcome.as_ref()) {
            Some(outcome) if outcome == shown => Ok(()),
            Some(outcome) => {
                let (shown, ended) = (shown.name(), outcome.name());
                let text = format!("`{turn}` is shown to be {shown}, and ended as {ended}");
                Err(JudgeViolation::new("MSG-1", text))
            }
            None => {
                let text = format!("the end of `{turn}` is shown, but the journal has it not");
                Err(JudgeViolation::new("I5", text))
            }
        }
    }

    /// A turn's post-turn effects were shown.
    pub(super) fn emitted(&mut self, entity: EntityId, turn: TurnId) {
        self.book(entity).own.turns.entry(turn).or_default().emitted = true;
    }

    /// Memories were sent what feedback moves.
    pub(super) fn sent(&mut self, entity: EntityId, feedback: InputId) {
        self.book(entity).own.sent_beside.insert(TurnId::from(feedback));
    }

    /// The memory of a peer was sent what this call wrote that looked back.
    pub(super) fn taught(&mut self, entity: EntityId, call: CallId) {
        self.book(entity).own.sent_beside.insert(TurnId::from_u128(call.as_u128()));
    }

    /// After a power cut: what was answered is still there.
    pub(super) fn durable(
        &self,
        journal: impl Fn(EntityId) -> Vec<Record>,
        waits: impl Fn(&Input) -> bool,
    ) -> Checked {
        for (entity, book) in self.all() {
            if position_of(&journal(*entity)) < book.position() {
                let text = format!("the journal of `{entity}` lost records that were answered for");
                return Err(JudgeViolation::new("S1", text));
            }
        }
        for (id, input) in &self.accepted {
            let journaled = self.known(input.entity).is_some_and(|book| book.has(*id));
            if !journaled && !waits(input) {
                return Err(JudgeViolation::new(
                    "S1",
                    format!("`{id}` was answered for and is gone"),
                ));
            }
        }
        Ok(())
    }

    /// Whether every accepted input has come to its end.
    pub(super) fn unfinished(&self) -> Option<String> {
        self.accepted.values().find_map(|input| {
            let Some(book) = self.known(input.entity) else {
                return Some(format!("`{}` was never seen by its entity", input.id));
            };
            book.unfinished(input.id)
        })
    }

    /// What must hold once all is quiet.
    pub(super) fn at_the_end(&self) -> Checked {
        if let Some(text) = self.unfinished() {
            return Err(JudgeViolation::new("E1", text));
        }
        self.all().try_for_each(|(_, book)| book.at_the_end(&self.accepted))
    }

    /// How much has happened: turns that ended, calls made, attempts begun.
    pub(super) fn tally(&self) -> (usize, usize, usize) {
        let turns = self.books.values().map(|book| book.own.turns.len()).sum();
        let calls = self.books.values().flat_map(|book| book.own.calls.values());
        let (made, begun) = calls
            .fold((0, 0), |(made, begun), call| (made + call.made.len(), begun + call.begun.len()));
        (turns, made, begun)
    }

    /// Attempts that gave way.
    pub(super) fn gave_way(&self) -> usize {
        let calls = self.books.values().flat_map(|book| book.own.calls.values());
        calls.map(|call| call.gave_way.len()).sum()
    }

    /// How many summaries were stored.
    pub(super) fn summaries(&self) -> usize {
        self.books.values().map(|book| book.own.summaries.len()).sum()
    }

    /// How many turns ended because their reply never fitted its schema.
    pub(super) fn misfits(&self) -> usize {
        let turns = self.books.values().flat_map(|book| book.own.turns.values());
        let failed =
            |turn: &&KnownTurn| matches!(turn.outcome, Some(TurnOutcome::SchemaFailed { .. }));
        turns.filter(failed).count()
    }

    /// Entities that are out of service.
    pub(super) fn quarantined(&self) -> usize {
        self.all().filter(|(_, book)| book.is_quarantined()).count()
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::ProcessId;

    use super::*;
    use crate::book::Booked as _;

    /// I8: the owner of a journal that was damaged and deleted may make what it had begun before, once.
    #[test]
    fn i8_what_was_begun_before_a_deletion_is_made_once_by_its_owner() {
        let (entity, call) = (EntityId::from_u128(1), CallId::from_u128(2));
        let by = |process| Incarnation { process: ProcessId::from_u128(process), counter: 1 };
        let mut ledger = Ledger::default();
        let begun = [(Attempt(1), by(3), Epoch(1)), (Attempt(2), by(4), Epoch(2))];
        ledger.book(entity).own.calls.entry(call).or_default().begun.extend(begun);
        ledger.calling(entity, by(3), call, Attempt(1)).unwrap();
        Session::forget(&mut ledger.book(entity).own);
        let mut makes = |process, attempt| {
            let made = ledger.calling(entity, by(process), call, Attempt(attempt));
            made.map_err(|violation| violation.name)
        };
        assert_eq!(makes(3, 1), Err("I8"), "it was made before");
        assert_eq!(makes(3, 2), Err("I8"), "another has begun it");
        assert_eq!(makes(4, 3), Err("I8"), "it was not begun");
        assert_eq!(makes(4, 2), Ok(()));
        assert_eq!(makes(4, 2), Err("I8"), "it is made twice");
    }
}

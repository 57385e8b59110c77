//! What was learned and recalled, judged by what journals and requests say: it shares no code with what it judges.
//!
//! - **MEM-1** a model is shown points of the memories of its session and agent alone, and passages of its own conversation.
//! - **MEM-2** what a model is shown is in the journal before its call, in the same order and words, at each attempt.
//! - **MEM-3** a fact of a completed turn is one point of its peer's memory, from its message. What was cancelled teaches none.
//! - **MEM-4** nothing is recalled that was masked, superseded or joined before the search.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_memory::store::{Document, FoundDocument, StoreScope, score::ScoreParts};
use clawnode_proto::{
    EntityId, Incarnation, MemoryPointId, Sealed, SessionKey, Timestamp, TurnId, codec,
    event::decode_record,
    kernel::{DELETED, KernelEvent, RESTORED},
    llm::{Message, Role},
    memory::{MemoryKey, MemorySource, MemoryTrust},
    memory_point::{MemoryEvent, MemoryPoint},
    recall::Recalled,
    session::{SessionEvent, SessionInput, TurnOutcome},
};
use clawnode_sim::StoreChange;

use super::{
    documents::{passage_document, point_document},
    feedback_judge::{FeedbackJudge, FeedbackTally, PointPlace},
    lesson_judge::{RecordedLessons, may_supersede},
    shown::{all_points, journaled_lines, shown_lines},
    told::{LESSON, READ, is_of_model, memories, of_peer, said_once, token_in},
};
use crate::{JudgeViolation, book::Checked};

/// What was learned and recalled in a world.
#[derive(Debug, Default)]
pub(crate) struct RecallJudge {
    sessions: BTreeMap<EntityId, JudgedSession>,
    memories: BTreeMap<EntityId, MemoryKey>,
    points: BTreeMap<PointPlace, JudgedPoint>,
    messages: BTreeMap<TurnId, JudgedMessage>,
    /// Turns that have ended, and whether with a reply or taken back.
    ended: BTreeMap<TurnId, TurnEnd>,
    recalled: BTreeMap<TurnId, JournaledRecall>,
    /// What was masked or superseded when an activation searched for a turn.
    searches: BTreeMap<(TurnId, Incarnation), BTreeSet<PointPlace>>,
    /// Entities of whose past not all is known: they were deleted or out of service.
    lost: BTreeSet<EntityId>,
    /// The turn in which each thing that is said once was shown first.
    shown_in: BTreeMap<String, TurnId>,
    /// Turns that were shown something.
    reminded: BTreeSet<TurnId>,
    passages: usize,
    feedback: FeedbackJudge,
    /// What models wrote that looked back, by session and event.
    lessons: RecordedLessons,
}

/// How much was recalled and learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecallTally {
    /// Turns that were shown something.
    pub reminded: usize,
    /// Passages of conversations that calls were shown.
    pub passages: usize,
    /// Points that sessions taught memories.
    pub taught: usize,
    /// What was said of turns.
    pub feedback: FeedbackTally,
    /// Of these, lessons of models that looked back.
    pub lessons: usize,
    /// Facts that models found.
    pub facts: usize,
}

#[derive(Debug)]
struct JudgedSession {
    key: SessionKey,
    /// The memories that it may read.
    reads: BTreeSet<EntityId>,
    /// That of its peer.
    peer: EntityId,
}

#[derive(Debug)]
struct JudgedPoint {
    point: MemoryPoint,
    /// Masked, superseded, joined or archived.
    is_gone: bool,
}

/// A message that a session has accepted.
#[derive(Clone, Debug)]
struct JudgedMessage {
    session: EntityId,
    event: u64,
    at: Timestamp,
    text: String,
    /// Its session was deleted since.
    is_deleted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnEnd {
    Completed,
    TakenBack,
    Otherwise,
}

#[derive(Debug)]
struct JournaledRecall {
    recalled: Recalled,
    by: Incarnation,
}

fn broken(name: &'static str, text: String) -> Checked {
    Err(JudgeViolation::new(name, text))
}

// === impl RecallJudge ===

impl RecallJudge {
    /// Of a world with so many sessions, of which this is the key, and which keep all their turns or not.
    pub(crate) fn new(
        count: usize,
        key: impl Fn(usize) -> Option<SessionKey>,
        keeps_turns: bool,
    ) -> Self {
        let entity = |text: &str| text.parse().ok().map(|key: MemoryKey| key.entity());
        let session = |number| {
            let (key, peer) = (key(number)?, entity(&of_peer(number))?);
            let reads = READ.into_iter().filter_map(entity).chain([peer]).collect();
            Some((key.entity(), JudgedSession { key, reads, peer }))
        };
        let memories = memories(count).into_iter().map(|key| (key.entity(), key));
        let sessions: BTreeMap<EntityId, JudgedSession> = (0..count).filter_map(session).collect();
        let reads = sessions.iter().map(|(entity, known)| (*entity, known.reads.clone()));
        Self {
            feedback: FeedbackJudge::new(reads.collect(), keeps_turns),
            sessions,
            memories: memories.collect(),
            ..Self::default()
        }
    }

    // === what journals say ===

    /// The stores changed.
    pub(crate) fn change(&mut self, change: &StoreChange) -> Checked {
        let StoreChange::Appended { entity, record, .. } = change else { return Ok(()) };
        for sealed in decode_record(&record.bytes).unwrap_or_default() {
            let points = &self.points;
            let is_live = |point: MemoryPointId| {
                points.get(&(*entity, point)).is_some_and(|known| !known.is_gone)
            };
            self.feedback.says(*entity, &sealed, is_live)?;
            if sealed.head.kind == DELETED {
                self.loses(*entity);
            } else if sealed.head.kind == RESTORED {
                // What it had is still there; what was parked meanwhile is not known.
                self.lost.insert(*entity);
            } else if self.memories.contains_key(entity) {
                self.memory_says(*entity, &sealed)?;
            } else if self.sessions.contains_key(entity) {
                self.session_says(*entity, &sealed);
            }
        }
        Ok(())
    }

    /// What an entity had is not there any more.
    pub(crate) fn loses(&mut self, entity: EntityId) {
        self.lost.insert(entity);
        let points = self.points.iter_mut().filter(|((memory, _), _)| *memory == entity);
        points.for_each(|(_, point)| point.is_gone = true);
        let said = self.messages.values_mut().filter(|message| message.session == entity);
        said.for_each(|message| message.is_deleted = true);
        self.feedback.loses(entity);
    }

    /// The journal of a session was damaged.
    pub(crate) fn damaged(&mut self, session: EntityId) {
        self.loses(session);
        self.feedback.damaged(session);
    }

    fn memory_says(&mut self, memory: EntityId, sealed: &Sealed) -> Checked {
        let mut is_late = false;
        let (left, added) = match sealed.event::<MemoryEvent>() {
            Ok(Some(MemoryEvent::Added(added))) => {
                let old = |id: &MemoryPointId| self.points.get(&(memory, *id));
                let old = added.supersedes.iter().filter_map(old).map(|known| &known.point);
                may_supersede(&added.point, old)?;
                is_late = added.superseded_by.is_some();
                (added.supersedes, Some(added.point))
            }
            Ok(Some(MemoryEvent::Masked(masked))) => (masked.points, None),
            Ok(Some(MemoryEvent::Consolidated(consolidated))) => {
                let joined = consolidated.joined.iter().map(|joined| joined.point);
                (joined.chain(consolidated.archived.iter().copied()).collect(), None)
            }
            _ => return Ok(()),
        };
        for id in left {
            if let Some(point) = self.points.get_mut(&(memory, id)) {
                point.is_gone = true;
            }
        }
        let Some(point) = added else { return Ok(()) };
        if !self.lost.contains(&memory) {
            self.is_new(memory, &point)?;
        }
        let place = (memory, point.source.point());
        self.points.insert(place, JudgedPoint { point, is_gone: is_late });
        Ok(())
    }

    /// MEM-3: no other point says what a message said once.
    fn is_new(&self, memory: EntityId, point: &MemoryPoint) -> Checked {
        let Some(token) = said_once(&point.content.text) else { return Ok(()) };
        let says = |known: &&JudgedPoint| said_once(&known.point.content.text) == Some(token);
        // A journal that was damaged and deleted takes messages again, as other events.
        let is_known = |known: &JudgedPoint| !self.lost.contains(&known.point.source.entity);
        let mut others = self.points.values().filter(says).filter(|known| is_known(known));
        match others.next() {
            Some(other) => {
                let (first, second) = (&other.point.source, &point.source);
                let text = format!("`{memory}` learns `{token}` of {first:?} and of {second:?}");
                broken("MEM-3", text)
            }
            None => Ok(()),
        }
    }

    fn session_says(&mut self, session: EntityId, sealed: &Sealed) {
        if let Ok(Some(KernelEvent::Accepted(accepted))) = sealed.event::<KernelEvent>() {
            let (event, at) = (sealed.head.n.0, sealed.head.ts);
            let said = codec::decode::<SessionInput>(&accepted.input.body);
            if let Ok(SessionInput::UserMessage(message) | SessionInput::Steer(message)) = said
                && let Some(text) = message.content.inline()
            {
                let text = text.to_owned();
                let message = JudgedMessage { session, event, at, text, is_deleted: false };
                self.messages.insert(TurnId::from(accepted.input.id), message);
            }
            return;
        }
        match sealed.event::<SessionEvent>() {
            Ok(Some(SessionEvent::Recalled(recalled))) => {
                let by = sealed.head.incarnation;
                self.recalled.insert(recalled.turn, JournaledRecall { recalled, by });
            }
            Ok(Some(SessionEvent::TurnDone(done))) => {
                let end = match done.outcome {
                    TurnOutcome::Completed { .. } => TurnEnd::Completed,
                    TurnOutcome::Cancelled | TurnOutcome::Blocked { .. } => TurnEnd::TakenBack,
                    _ => TurnEnd::Otherwise,
                };
                self.ended.insert(done.turn, end);
            }
            Ok(Some(SessionEvent::Reflected(done))) => {
                self.lessons.add(session, sealed.head.n.0, done);
            }
            _ => {}
        }
    }

    // === searches ===

    /// An activation searches now.
    pub(super) fn searches(&mut self, turn: TurnId, by: Incarnation) {
        let gone = self.points.iter().filter(|(_, point)| point.is_gone);
        self.searches.insert((turn, by), gone.map(|(place, _)| *place).collect());
    }

    /// All that was ever in some memory or said in some conversation, as a store has it.
    pub(super) fn ever(&self) -> Vec<FoundDocument> {
        let points = self.points.iter().filter_map(|((memory, _), known)| {
            let scope = StoreScope::of_memory(self.memories.get(memory)?);
            let document = point_document(&known.point);
            Some(FoundDocument { scope, document, score: ScoreParts::default() })
        });
        let passages = self.messages.values().filter_map(|message| {
            let scope = StoreScope::of_session(&self.sessions.get(&message.session)?.key);
            let JudgedMessage { session, event, at, text, .. } = message;
            let document = passage_document(*session, *event, *at, text);
            Some(FoundDocument { scope, document, score: ScoreParts::default() })
        });
        points.chain(passages).collect()
    }

    /// What was said in a conversation, as passages.
    pub(super) fn said_in(&self, session: EntityId) -> Vec<Document> {
        let said = self.messages.values().filter(|message| message.session == session);
        said.map(|message| {
            let JudgedMessage { session, event, at, text, .. } = message;
            passage_document(*session, *event, *at, text)
        })
        .collect()
    }

    // === what models are shown ===

    /// A call of this turn shows these messages.
    pub(crate) fn shows(
        &mut self,
        session: EntityId,
        turn: TurnId,
        messages: &[Message],
    ) -> Checked {
        self.says(turn, messages);
        let shown = shown_lines(messages);
        if shown.is_empty() && !self.recalled.contains_key(&turn) {
            return Ok(());
        }
        let Some(journaled) = self.recalled.get(&turn) else {
            return broken(
                "MEM-2",
                format!("`{turn}` shows {shown:?}, and its journal has nothing"),
            );
        };
        let expected = journaled_lines(&journaled.recalled);
        if shown != expected {
            let text = format!("`{turn}` shows {shown:?}, and its journal has {expected:?}");
            return broken("MEM-2", text);
        }
        self.is_of_its_scopes(session, &journaled.recalled)?;
        self.is_live(turn, journaled)?;
        if !shown.is_empty() {
            self.reminded.insert(turn);
            self.passages += shown.iter().filter(|line| line.label == "passage").count();
        }
        Ok(())
    }

    /// What was said once and is shown to a model now, in the turn that begins with it or that it has joined.
    fn says(&mut self, turn: TurnId, messages: &[Message]) {
        let texts = messages.iter().filter(|message| message.role == Role::User);
        let texts = texts.filter_map(|message| message.content.inline());
        for token in texts.filter(|text| text.starts_with('#')).filter_map(token_in) {
            if !self.shown_in.contains_key(token) {
                self.shown_in.insert(token.to_owned(), turn);
            }
        }
    }

    /// MEM-1.
    fn is_of_its_scopes(&self, session: EntityId, recalled: &Recalled) -> Checked {
        let Some(known) = self.sessions.get(&session) else { return Ok(()) };
        for point in all_points(recalled) {
            let memory = point.memory.entity();
            let has = self.points.get(&(memory, point.point));
            let is_its = has.is_some_and(|has| {
                let content = &has.point.content;
                (&content.text, content.trust) == (&point.text, point.trust)
            });
            if !known.reads.contains(&memory) || !is_its {
                let (turn, key) = (recalled.turn, &point.memory);
                let text =
                    format!("`{turn}` of `{}` is shown `{}` of `{key}`", known.key, point.text);
                return broken("MEM-1", text);
            }
        }
        for passage in &recalled.passages {
            let said = |message: &JudgedMessage| {
                message.session == session
                    && !message.is_deleted
                    && message.event == passage.event
                    && message.text == passage.text
                    && passage.trust == MemoryTrust::Person
            };
            if passage.session != known.key || !self.messages.values().any(said) {
                let text = format!("`{}` is shown the passage {passage:?}", recalled.turn);
                return broken("MEM-1", text);
            }
        }
        Ok(())
    }

    /// MEM-4.
    fn is_live(&self, turn: TurnId, journaled: &JournaledRecall) -> Checked {
        let Some(gone) = self.searches.get(&(turn, journaled.by)) else {
            let text = format!("`{turn}` is shown what `{}` did not search for", journaled.by);
            return broken("MEM-2", text);
        };
        let mut points = all_points(&journaled.recalled);
        match points.find(|point| gone.contains(&(point.memory.entity(), point.point))) {
            Some(point) => {
                let text = format!("`{turn}` is shown `{}`, which was gone", point.text);
                broken("MEM-4", text)
            }
            None => Ok(()),
        }
    }

    /// How much was recalled and learned.
    pub(crate) fn tally(&self) -> RecallTally {
        let of_session =
            |known: &&JudgedPoint| self.sessions.contains_key(&known.point.source.entity);
        let taught = self.points.values().filter(of_session).count();
        let (reminded, passages) = (self.reminded.len(), self.passages);
        let feedback = self.feedback.tally();
        let lessons = self.points.values();
        let lessons = lessons.filter(|known| known.point.content.text.starts_with(LESSON)).count();
        let facts = self.lessons.facts();
        RecallTally { reminded, passages, taught, feedback, lessons, facts }
    }

    // === the end ===

    /// MEM-3, once all is quiet: what completed turns said is there, and nothing else. What is not served proves nothing.
    pub(crate) fn at_the_end(&self, serves: impl Fn(EntityId) -> bool) -> Checked {
        for (turn, message) in &self.messages {
            let Some(session) = self.sessions.get(&message.session) else { continue };
            let is_known = |entity| serves(entity) && !self.lost.contains(&entity);
            if !is_known(message.session) || !is_known(session.peer) {
                continue;
            }
            let Some(token) = token_in(&message.text) else { continue };
            let says = |known: &JudgedPoint| token_in(&known.point.content.text) == Some(token);
            let mut found = self.points.iter().filter(|(_, known)| says(known));
            // What began no turn has joined one, which learns from it as well.
            let joined = || self.ended.get(self.shown_in.get(token)?);
            let end = self.ended.get(turn).or_else(joined);
            match (end, found.next()) {
                (Some(TurnEnd::Completed), None) => {
                    let text = format!("no memory has `{token}` of `{turn}`, which is completed");
                    return broken("MEM-3", text);
                }
                (Some(TurnEnd::TakenBack), Some(_)) => {
                    let text = format!("`{token}` is learned of `{turn}`, which was taken back");
                    return broken("MEM-3", text);
                }
                (_, Some(((memory, _), known))) => {
                    let MemorySource { entity, event, .. } = known.point.source;
                    if *memory != session.peer
                        || (entity, event) != (message.session, message.event)
                    {
                        let text = format!("`{token}` of `{turn}` is in `{memory}`, of `{entity}`");
                        return broken("MEM-3", text);
                    }
                }
                (_, None) => {}
            }
        }
        self.comes_from_somewhere()?;
        let knows = |memory| serves(memory) && !self.lost.contains(&memory);
        let peer = |session| self.sessions.get(&session).map(|known| known.peer);
        let peer = |session| peer(session).filter(|peer| knows(session) && knows(*peer));
        let point = |memory, id| self.points.get(&(memory, id)).map(|known| &known.point);
        self.lessons.are_known(peer, point)?;
        self.feedback.at_the_end(&serves, knows)
    }

    /// What has a session as its source says what a message there said.
    fn comes_from_somewhere(&self) -> Checked {
        for known in self.points.values() {
            let MemorySource { entity, event, .. } = known.point.source;
            if !self.sessions.contains_key(&entity) || self.lost.contains(&entity) {
                continue;
            }
            let said =
                |message: &&JudgedMessage| message.session == entity && message.event == event;
            let text = &known.point.content.text;
            if is_of_model(text) {
                self.lessons.recorded(entity, event, text)?;
                continue;
            }
            let token = token_in(text);
            let is_said = self
                .messages
                .values()
                .find(said)
                .is_some_and(|message| token.is_some() && token_in(&message.text) == token);
            if !is_said {
                let text = format!("`{entity}` did not say `{}`", known.point.content.text);
                return broken("MEM-3", text);
            }
        }
        Ok(())
    }
}

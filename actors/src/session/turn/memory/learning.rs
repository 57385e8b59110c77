//! What memories learn from a turn that has ended: which messages are looked at, and what a reflection gives. Pure.
//!
//! C23: the turn is done, and the memory does not have its facts yet. They are a part of the turn's post-turn effects, so they
//! are sent again under the same key until `Emitted` is folded, and the message is not acknowledged before.
//!
//! - MEM-3 the source of a point is the event with the person's message, so a message that is sent again adds nothing.
//! - Only messages of persons count that a model was shown, and that were neither cancelled nor blocked.
//! - S-22 lessons of a reflection have the trust of an agent: they supersede nothing that people said, and are not shown as
//!   standing instructions, whatever they say. Neither are facts that a model found; `fact_request` says which trust they have.

use clawnode_memory::{Memory, extract::facts};
use clawnode_proto::{
    CallId, Head, IdempotencyKey, Input, SessionKey, Timestamp, TurnId,
    codec::CodecError,
    llm::Text,
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{IMPORTANCE_DEFAULT, LearnedPoint, MemoryInput, PointContent},
    session::TurnOutcome,
};

use super::super::{
    state::{SessionState, Turn},
    state_parts::reflection_state::EndedReflection,
};
use super::unlearned_messages::HeardMessage;
use crate::agent::AgentMemory;

/// How certain a lesson is, in percent: a model has seen one turn.
const LESSON_CONFIDENCE: u8 = 50;

/// What memories may learn from a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnJob {
    /// Whose turn.
    pub session: SessionKey,
    /// What persons said in it.
    pub said: Vec<SaidMessage>,
}

/// A message of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidMessage {
    /// Which one.
    pub heard: HeardMessage,
    /// Its text.
    pub text: Text,
}

/// What follows from a reflection that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LessonsJob {
    /// Whose turn was looked back at.
    pub session: SessionKey,
    /// How it ended.
    pub ended: EndedReflection,
    /// Whether the session is deleted: then nothing is learned.
    pub doomed: bool,
}

/// What memories may learn from this turn.
pub(in crate::session::turn) fn job(state: &SessionState, turn: &Turn) -> Option<LearnJob> {
    let session = state.key.clone().filter(|key| !key.is_stateless() && !state.doomed)?;
    let is_withdrawn =
        matches!(turn.outcome, None | Some(TurnOutcome::Cancelled | TurnOutcome::Blocked { .. }));
    if turn.plan.is_some() || turn.steps.is_empty() || is_withdrawn {
        return None;
    }
    // `said` has the message that began the turn, then those that joined it, in their order.
    let ids = std::iter::once(&turn.id).chain(&turn.joined);
    let said = turn.said.iter().zip(ids).filter_map(|((_, text), id)| {
        let heard = turn.heard.iter().find(|heard| heard.turn == *id)?;
        Some(SaidMessage { heard: *heard, text: text.clone() })
    });
    let said: Vec<SaidMessage> = said.filter(|said| said.text.bytes() > 0).collect();
    (!said.is_empty()).then_some(LearnJob { session, said })
}

// === impl LearnJob ===

impl LearnJob {
    /// The memory that learns: that of the session's peer (MEM-1).
    pub(in crate::session) fn memory(&self) -> MemoryKey {
        MemoryKey::of_peer(&self.session)
    }

    /// What the memory is sent of a message that says `text`, as `memory` is configured; nothing if it says no fact.
    /// Sent again, it is the same input.
    pub fn lesson(
        &self,
        said: &SaidMessage,
        text: &str,
        memory: &AgentMemory,
        now: Timestamp,
    ) -> Result<Option<Input>, CodecError> {
        let mut contents = facts(text);
        contents.retain(|content| memory.layers.contains(&content.layer));
        if contents.is_empty() {
            return Ok(None);
        }
        let name = format!("learned:{}", said.heard.turn).parse::<IdempotencyKey>();
        let Ok(name) = name else { return Ok(None) };
        let body = MemoryInput::Put { points: self.points(said, contents) };
        Memory::input(&self.memory(), name, now, &body).map(Some)
    }

    /// The points that a message gives: each has a part of its event as its source.
    pub(in crate::session) fn points(
        &self,
        said: &SaidMessage,
        contents: Vec<PointContent>,
    ) -> Vec<LearnedPoint> {
        let HeardMessage { event, at, .. } = said.heard;
        let entity = self.session.entity();
        let source = |part| Some(MemorySource { entity, event, part, at });
        let points = contents.into_iter().zip(0..);
        points.map(|(content, part)| LearnedPoint { content, source: source(part) }).collect()
    }
}

// === impl LessonsJob ===

impl LessonsJob {
    /// What the memory of the session's peer is sent (MEM-1); nothing if there is no lesson and no fact. Sent again, it is the
    /// same input.
    pub fn lessons(&self, now: Timestamp) -> Result<Option<Input>, CodecError> {
        let EndedReflection { call, event, at, ref lessons, ref facts, .. } = self.ended;
        let name = format!("reflected:{call}").parse::<IdempotencyKey>();
        let Ok(name) = name else { return Ok(None) };
        let doomed = self.doomed;
        #[cfg(feature = "test-util")]
        let doomed = doomed && !clawnode_kernel::KernelBug::LearnsOfDeleted.is_in_folds();
        if doomed || lessons.is_empty() && facts.is_empty() {
            return Ok(None);
        }
        let entity = self.session.entity();
        let lesson = |text: &String| PointContent {
            layer: MemoryLayer::Procedural,
            text: text.clone(),
            subject: None,
            predicate: None,
            object: None,
            confidence: LESSON_CONFIDENCE,
            importance: IMPORTANCE_DEFAULT,
            trust: MemoryTrust::Agent,
        };
        let contents = lessons.iter().map(lesson).chain(facts.iter().cloned());
        let points = contents.zip(0..).map(|(content, part)| {
            let source = Some(MemorySource { entity, event, part, at });
            LearnedPoint { content, source }
        });
        let body = MemoryInput::Put { points: points.collect() };
        Memory::input(&MemoryKey::of_peer(&self.session), name, now, &body).map(Some)
    }
}

// === impl SessionState ===

impl SessionState {
    /// What follows from this reflection, while memories may not have its lessons.
    pub(in crate::session::turn) fn lessons(&self, call: CallId) -> Option<LessonsJob> {
        let ended = self.reflections.unsent.iter().find(|ended| ended.call == call)?.clone();
        Some(LessonsJob { session: self.key.clone()?, ended, doomed: self.doomed })
    }

    /// Takes note of the event that has a person's message.
    pub(in crate::session::turn) fn heard(&mut self, id: TurnId, head: &Head) {
        let has = |turn: &&mut Turn| turn.id == id || turn.joined.contains(&id);
        if let Some(turn) = self.open.iter_mut().find(has) {
            turn.heard.push(HeardMessage { turn: id, event: head.n.0, at: head.ts });
        }
    }
}

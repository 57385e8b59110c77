//! What models wrote or found that looked back at turns, by the journals that recorded it.

use std::collections::BTreeMap;

use clawnode_proto::{
    EntityId, MemoryPointId, memory::MemoryTrust, memory_point::MemoryPoint, session::Reflected,
};

use super::told::LESSON;
use crate::{JudgeViolation, book::Checked};

/// Lessons and facts with the trust that they have, by session and event.
#[derive(Debug, Default)]
pub(super) struct RecordedLessons(BTreeMap<(EntityId, u64), Vec<(String, MemoryTrust)>>);

/// What an agent concluded supersedes nothing that a person or an operator said.
pub(super) fn may_supersede<'a>(
    new: &MemoryPoint,
    old: impl Iterator<Item = &'a MemoryPoint>,
) -> Checked {
    let is_agents = new.content.trust == MemoryTrust::Agent;
    let mut others = old.filter(|old| is_agents && old.content.trust > MemoryTrust::Agent);
    others.next().map_or(Ok(()), |old| {
        let (new, old) = (&new.content.text, &old.content.text);
        Err(JudgeViolation::new("REFL-2", format!("`{new}` of a model supersedes `{old}`")))
    })
}

// === impl RecordedLessons ===

impl RecordedLessons {
    pub(super) fn add(&mut self, session: EntityId, event: u64, done: Reflected) {
        let lessons = done.lessons.into_iter().map(|text| (text, MemoryTrust::Agent));
        let facts = done.facts.into_iter().map(|fact| (fact.text, fact.trust));
        self.0.insert((session, event), lessons.chain(facts).collect());
    }

    /// How many facts were found.
    pub(super) fn facts(&self) -> usize {
        let texts = self.0.values().flatten();
        texts.filter(|(text, _)| !text.starts_with(LESSON)).count()
    }

    /// MEM-3: a point that comes from this event says what it recorded.
    pub(super) fn recorded(&self, session: EntityId, event: u64, text: &str) -> Checked {
        let lessons = self.0.get(&(session, event));
        if lessons.is_some_and(|all| all.iter().any(|(known, _)| known == text)) {
            return Ok(());
        }
        Err(JudgeViolation::new("MEM-3", format!("`{session}` did not record `{text}`")))
    }

    /// MEM-3: each lesson and each fact is in the memory of the session's peer, of its own event. There is no `peer` where nothing can
    /// be said of either.
    pub(super) fn are_known<'a>(
        &self,
        peer: impl Fn(EntityId) -> Option<EntityId>,
        point: impl Fn(EntityId, MemoryPointId) -> Option<&'a MemoryPoint>,
    ) -> Checked {
        for ((session, event), lessons) in &self.0 {
            let Some(memory) = peer(*session) else { continue };
            for (part, (lesson, trust)) in (0..).zip(lessons) {
                let found = point(memory, MemoryPointId::derive(*session, *event, part));
                let is_it = |point: &MemoryPoint| {
                    point.content.text == *lesson && point.content.trust == *trust
                };
                if !found.is_some_and(is_it) {
                    let text = format!("no memory has `{lesson}` of event {event} of `{session}`");
                    return Err(JudgeViolation::new("MEM-3", text));
                }
            }
        }
        Ok(())
    }
}

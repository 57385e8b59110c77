//! What models wrote that looked back at turns, by the journals that recorded it.

use std::collections::BTreeMap;

use clawnode_proto::{EntityId, MemoryPointId, memory::MemoryTrust, memory_point::MemoryPoint};

use crate::{JudgeViolation, book::Checked};

/// Lessons, by session and event.
#[derive(Debug, Default)]
pub(super) struct RecordedLessons(BTreeMap<(EntityId, u64), Vec<String>>);

// === impl RecordedLessons ===

impl RecordedLessons {
    pub(super) fn add(&mut self, session: EntityId, event: u64, lessons: Vec<String>) {
        self.0.insert((session, event), lessons);
    }

    /// MEM-3: a point that comes from this event says what it recorded.
    pub(super) fn recorded(&self, session: EntityId, event: u64, text: &str) -> Checked {
        let lessons = self.0.get(&(session, event));
        if lessons.is_some_and(|all| all.iter().any(|lesson| lesson == text)) {
            return Ok(());
        }
        Err(JudgeViolation::new("MEM-3", format!("`{session}` did not record `{text}`")))
    }

    /// MEM-3: each lesson is in the memory of the session's peer, of its own event. There is no `peer` where nothing can
    /// be said of either.
    pub(super) fn are_known<'a>(
        &self,
        peer: impl Fn(EntityId) -> Option<EntityId>,
        point: impl Fn(EntityId, MemoryPointId) -> Option<&'a MemoryPoint>,
    ) -> Checked {
        for ((session, event), lessons) in &self.0 {
            let Some(memory) = peer(*session) else { continue };
            for (part, lesson) in (0..).zip(lessons) {
                let found = point(memory, MemoryPointId::derive(*session, *event, part));
                let is_it = |point: &MemoryPoint| {
                    point.content.text == *lesson && point.content.trust == MemoryTrust::Agent
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

//! C23: what a turn teaches is with the memory of its peer before the turn's end is confirmed.

use clawnode_actors::session::{Effect, turn::prepare::EmitJob};
use clawnode_kernel::KernelBug;
use clawnode_memory::Memory;
use clawnode_proto::{IdempotencyKey, Input, ProcessId, codec, memory_point::MemoryInput};
use clawnode_sim::StoreRequest;
use rand::Rng;

use super::stores::agent_memory;
use crate::{Sim, any_machine::ActivationPlace, process::PlannedNote, settle::PostTurnWork};

/// How much later than its turn a memory hears of it at most, with a planted bug, in milliseconds.
const LATE_MOST: u64 = 8_000;

impl Sim {
    /// What the memory of the peer is sent of a turn that has ended; production finds it.
    pub(crate) fn lessons(&self, at: ActivationPlace, job: &EmitJob) -> Vec<Input> {
        let Some(learns) = job.learns.as_ref().filter(|_| self.recall.is_some()) else {
            return Vec::new();
        };
        let (memory, now) = (agent_memory(), self.now(at.process).wall);
        let lessons = learns.said.iter().filter_map(|said| {
            let text = said.text.inline()?;
            learns.lesson(said, text, &memory, now).ok().flatten()
        });
        let by_owner = self.planted == KernelBug::LessonsByOwner;
        lessons.map(|lesson| if by_owner { of_owner(at.process, lesson) } else { lesson }).collect()
    }

    /// What memories are sent next; nothing if they have all.
    pub(crate) fn next_for_memory(
        &mut self,
        to: ProcessId,
        work: &mut PostTurnWork,
    ) -> Option<StoreRequest> {
        let teaches = matches!(work.effect, Effect::Emit { .. });
        if self.planted == KernelBug::ConfirmsUntaught && teaches {
            for lesson in std::mem::take(&mut work.for_memories) {
                let after = self.world.rng.random_range(1..LATE_MOST);
                let late = PlannedNote::own("teaches late".to_owned(), move |sim| {
                    sim.world.submit(to, StoreRequest::Put(lesson));
                    Ok(())
                });
                self.world.later(to, after, late);
            }
        }
        work.for_memories.last().cloned().map(StoreRequest::Put)
    }

    /// The inbox of a memory has what it was sent.
    pub(crate) fn memory_has(&mut self, work: &mut PostTurnWork) {
        if let Some(input) = work.for_memories.pop() {
            self.ledger.accepted(input);
        }
    }
}

/// A planted bug: the same facts as this owner's own.
pub(crate) fn of_owner(owner: ProcessId, lesson: Input) -> Input {
    let part = u32::try_from(owner.as_u128() % 10_007).unwrap_or(0);
    let name = format!("learned:{}:{part}", lesson.id).parse::<IdempotencyKey>();
    let (Ok(MemoryInput::Put { mut points }), Ok(name), Ok(key)) =
        (codec::decode(&lesson.body), name, lesson.key.parse())
    else {
        return lesson;
    };
    for source in points.iter_mut().filter_map(|point| point.source.as_mut()) {
        source.part += part;
    }
    let own = Memory::input(&key, name, lesson.sent, &MemoryInput::Put { points });
    own.unwrap_or(lesson)
}

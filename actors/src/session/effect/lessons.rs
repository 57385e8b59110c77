//! Sends the memory of a person the lessons or facts of a reflection that has ended, and says what the call used.
//!
//! Like what a turn teaches: done again after a crash, under the same key, until all of it is stored.

use clawnode_kernel::driver::{Performing, Port};
use clawnode_proto::{Attempt, EntityId, llm::UsageRecord, memory::MemoryLayer};
use tracing::{info, warn};

use super::session_runner::SessionRunner;
use crate::{
    agent::FactExtraction,
    session::turn::{
        effect::Effect, kind::Session, memory::learning::LessonsJob,
        state_parts::reflection_state::EndedReflection,
    },
};

// === impl SessionRunner ===

impl SessionRunner {
    /// Sends what there is to send, and confirms the effect when the inbox of the memory has it.
    pub(super) fn lessons(
        self,
        entity: EntityId,
        mut job: LessonsJob,
        port: Port<Session>,
        effect: Effect,
    ) -> Performing {
        Box::pin(async move {
            let EndedReflection { turn, ref why, .. } = job.ended;
            if let Some(why) = why {
                info!(%entity, %turn, why, "a model gives no rating of a turn, no lessons and no facts");
            }
            self.record_reflection(entity, &job).await;
            self.leave_out(entity, &mut job);
            self.send_lessons(entity, &job).await;
            port.confirmed(effect);
        })
    }

    /// Leaves out what its agent does not learn, as it is configured now, like the tools of memories.
    fn leave_out(&self, entity: EntityId, job: &mut LessonsJob) {
        let options = self.parts.agents.options(&job.session.agent);
        let memory = options.and_then(|options| options.memory);
        let has = |layer: MemoryLayer| {
            memory.as_ref().is_some_and(|memory| memory.layers.contains(&layer))
        };
        let extracts =
            memory.as_ref().is_some_and(|memory| memory.extract == FactExtraction::Model);
        let ended = &mut job.ended;
        let found = ended.lessons.len().saturating_add(ended.facts.len());
        ended.lessons.retain(|_| has(MemoryLayer::Procedural));
        ended.facts.retain(|fact| extracts && has(fact.layer));
        let turn = ended.turn;
        let left_out = found.saturating_sub(ended.lessons.len()).saturating_sub(ended.facts.len());
        if left_out > 0 {
            warn!(%entity, %turn, left_out, "lessons or facts are left out: the memory of their agent has no such layer, or `extract` has changed");
        }
    }

    async fn send_lessons(&self, entity: EntityId, job: &LessonsJob) {
        let turn = job.ended.turn;
        match job.lessons(self.parts.clock.now()) {
            Ok(Some(input)) => self.store_for_memory(entity, &input, "lessons or facts").await,
            Ok(None) => {}
            Err(error) => {
                warn!(%entity, %turn, %error, "cannot tell a memory the lessons or facts of a turn");
            }
        }
    }

    async fn record_reflection(&self, entity: EntityId, job: &LessonsJob) {
        let EndedReflection { turn, call, attempt, usage, ref model, .. } = job.ended;
        let Some(model) = model.clone().filter(|_| attempt != Attempt(0)) else { return };
        let (session, agent) = (entity, job.session.agent.clone());
        self.record(&UsageRecord { session, agent, model, turn, call, attempt, usage }).await;
    }
}

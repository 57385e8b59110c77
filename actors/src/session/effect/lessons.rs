//! Sends the memory of a person the lessons of a reflection that has ended, and says what the call used.
//!
//! Like what a turn teaches: done again after a crash, under the same key, until all of it is stored.

use clawnode_kernel::driver::{Performing, Port};
use clawnode_proto::{Attempt, EntityId, llm::UsageRecord, memory::MemoryLayer};
use tracing::{info, warn};

use super::run::SessionRunner;
use crate::session::turn::{
    effect::Effect, kind::Session, learning::LessonsJob, reflection::EndedReflection,
};

// === impl SessionRunner ===

impl SessionRunner {
    /// Sends what there is to send, and confirms the effect when the inbox of the memory has it.
    pub(super) fn lessons(
        self,
        entity: EntityId,
        job: LessonsJob,
        port: Port<Session>,
        effect: Effect,
    ) -> Performing {
        Box::pin(async move {
            let EndedReflection { turn, ref why, .. } = job.ended;
            if let Some(why) = why {
                info!(%entity, %turn, why, "a turn has no rating by a model, and no lessons");
            }
            self.record_reflection(entity, &job).await;
            self.send_lessons(entity, &job).await;
            port.confirmed(effect);
        })
    }

    async fn send_lessons(&self, entity: EntityId, job: &LessonsJob) {
        // As it is configured now, like the tools of memories.
        let options = self.parts.agents.options(&job.session.agent);
        let layers = options.and_then(|options| options.memory).map(|memory| memory.layers);
        let turn = job.ended.turn;
        if !layers.is_some_and(|layers| layers.contains(&MemoryLayer::Procedural)) {
            if !job.ended.lessons.is_empty() {
                warn!(%entity, %turn, "lessons are left out: their agent has no memory for the layer `procedural`");
            }
            return;
        }
        match job.lessons(self.parts.clock.now()) {
            Ok(Some(input)) => self.store_for_memory(entity, &input, "lessons of a turn").await,
            Ok(None) => {}
            Err(error) => {
                warn!(%entity, %turn, %error, "cannot tell a memory the lessons of a turn");
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

//! Sends the memory of a person what they said of themselves in a turn that has ended.
//!
//! Part of the turn's post-turn effects: done again after a crash, under the same keys, until all of it is stored.

use clawnode_cluster::{Backoff, StoreError};
use clawnode_proto::{EntityId, ErrorChain, Input, limits::PENDING_INPUTS};
use tracing::{debug, warn};

use super::session_runner::{AGAIN, SessionRunner};
use crate::{
    agent::{AgentMemory, FactExtraction},
    session::turn::memory::learning::{LearnJob, SaidMessage},
};

/// Looks at the inbox of a memory that has no room, before its facts are left out: a memory that is out of service must not
/// keep its sessions from their rest.
const LOOKS_MOST: u32 = 20;

// === impl SessionRunner ===

impl SessionRunner {
    /// Sends all that is to be learned; each message once. Ends when the inbox of the memory has it.
    pub(super) async fn teach(&self, entity: EntityId, job: &LearnJob) {
        // As it is configured now, like the tools of memories.
        let options = self.parts.agents.options(&job.session.agent);
        let memory = options.and_then(|options| options.memory);
        let Some(memory) = memory.filter(|memory| memory.extract != FactExtraction::Off) else {
            return;
        };
        for said in &job.said {
            if let Some(input) = self.lesson(job, said, &memory).await {
                self.store_for_memory(entity, &input, "a turn's facts").await;
            }
        }
    }

    /// What the memory is sent of one message, if it says anything.
    async fn lesson(
        &self,
        job: &LearnJob,
        said: &SaidMessage,
        memory: &AgentMemory,
    ) -> Option<Input> {
        let turn = said.heard.turn;
        let text = match self.text(&said.text).await {
            Ok(text) => text,
            Err(failure) => {
                warn!(%turn, failure.message, "nothing is learned from a message that cannot be read");
                return None;
            }
        };
        match job.lesson(said, &text, memory, self.parts.clock.now()) {
            Ok(input) => input,
            Err(error) => {
                warn!(%turn, %error, "cannot tell a memory what a message says");
                None
            }
        }
    }

    /// Stores an input for a memory; repeats until its inbox has it.
    pub(super) async fn store_for_memory(&self, entity: EntityId, input: &Input, what: &str) {
        let memory = &input.key;
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let mut looks = 0;
        loop {
            match self.parts.storage.inbox.put_if_room(input, PENDING_INPUTS).await {
                Ok(Some(_)) => return,
                Ok(None) if looks >= LOOKS_MOST => {
                    warn!(%entity, %memory, what, "left out, because the inbox of the memory is full");
                    return;
                }
                Ok(None) => looks += 1,
                Err(StoreError::Refused { detail, .. }) => {
                    warn!(%entity, %memory, what, detail, "refused by the inbox of the memory");
                    return;
                }
                Err(failure) => {
                    let failure = ErrorChain(&failure);
                    debug!(%entity, %memory, what, %failure, "not stored now; trying again");
                }
            }
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }
}

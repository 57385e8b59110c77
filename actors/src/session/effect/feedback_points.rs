//! Sends memories which points the feedback of a turn moves.
//!
//! Like what a turn teaches: done again after a crash, under the same keys, until all of it is stored.

use clawnode_kernel::driver::{Performing, Port};
use clawnode_proto::{EntityId, Input};
use tracing::warn;

use super::session_runner::SessionRunner;
use crate::session::turn::{effect::Effect, kind::Session, memory::turn_feedback::MemoryRating};

// === impl SessionRunner ===

impl SessionRunner {
    /// Sends each memory what moves, and confirms the effect when the inboxes have it.
    pub(super) fn rating(
        self,
        entity: EntityId,
        ratings: Vec<MemoryRating>,
        port: Port<Session>,
        effect: Effect,
    ) -> Performing {
        Box::pin(async move {
            for rating in &ratings {
                if let Some(input) = self.memory_input(rating) {
                    self.store_for_memory(entity, &input, "feedback").await;
                }
            }
            port.confirmed(effect);
        })
    }

    fn memory_input(&self, rating: &MemoryRating) -> Option<Input> {
        match rating.input(self.parts.clock.now()) {
            Ok(input) => input,
            Err(error) => {
                let memory = &rating.memory;
                warn!(%memory, %error, "cannot tell a memory of feedback");
                None
            }
        }
    }
}

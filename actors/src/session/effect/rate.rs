//! Sends memories which points the feedback of a turn moves.
//!
//! Like what a turn teaches: done again after a crash, under the same keys, until all of it is stored.

use clawnode_kernel::driver::{Performing, Port};
use clawnode_memory::Memory;
use clawnode_proto::{EntityId, IdempotencyKey, Input, memory_point::MemoryInput};
use tracing::warn;

use super::run::SessionRunner;
use crate::session::turn::{effect::Effect, feedback::MemoryRating, kind::Session};

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

    /// What a memory is sent: the same input each time.
    fn memory_input(&self, MemoryRating { memory, rating }: &MemoryRating) -> Option<Input> {
        let name = format!("rated:{}", rating.feedback).parse::<IdempotencyKey>().ok()?;
        let body = MemoryInput::Rate(rating.clone());
        match Memory::input(memory, name, self.parts.clock.now(), &body) {
            Ok(input) => Some(input),
            Err(error) => {
                warn!(%memory, %error, "cannot tell a memory of feedback");
                None
            }
        }
    }
}

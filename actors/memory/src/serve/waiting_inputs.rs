//! What memories were sent and have not journaled yet.
//!
//! What a turn teaches is in the inbox of a memory before the next turn of its session searches. The journal of the memory has it a
//! moment later. So a search first waits until the journals of its memories have what waited in their inboxes; the memory of one that
//! takes too long is `degraded`.

use std::time::Duration;

use clawnode_kernel::{Entity, Service};
use clawnode_proto::{ErrorChain, Input, InputId, Position, codec};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::{error::FillError, served::ServedStore};
use crate::{points::Memory, store::StoreScope};

/// How long a search waits for that: half the time that a turn has, so that the rest is enough to search.
pub(super) const TAKEN_WITHIN: Duration = Duration::from_millis(75);
/// How often it looks again.
const LOOK: Duration = Duration::from_millis(5);

// === impl ServedStore ===

impl ServedStore {
    /// Waits until the journal of a memory has all that it was sent, at most so long. Whether it has.
    pub(super) async fn has_taken_all(&self, scope: &StoreScope, within: Duration) -> bool {
        let until = Instant::now() + within;
        // Each read of a store may take longer than that, too.
        let taken = timeout_at(until, self.takes_all(scope, until)).await.unwrap_or(Ok(false));
        taken.unwrap_or_else(|failure| {
            let failure = ErrorChain(&failure);
            debug!(%scope, %failure, "what a memory was sent cannot be compared with its journal");
            false
        })
    }

    async fn takes_all(&self, scope: &StoreScope, until: Instant) -> Result<bool, FillError> {
        let (entity, storage) = (scope.entity(), self.storage());
        let mut waiting = Vec::new();
        // Before the journal: what has left the inbox is in the journal.
        for one in storage.inbox.read(entity, Position(0)).await? {
            waiting.push(codec::decode::<Input>(&one.bytes)?.id);
        }
        let mut read = Position(0);
        while !waiting.is_empty() {
            let position = storage.journal.position(entity).await?;
            let has_moved = position > read;
            if has_moved {
                read = position;
                let (memory, truth, _) = self.read_memory(scope).await?;
                // The search needs it next.
                self.truths().put(entity, truth);
                if !matches!(memory.core.service, Service::Active | Service::Deleted) {
                    return Ok(false);
                }
                waiting.retain(|input| !has_taken(&memory, *input));
            }
            // Also while the journal moves: each look loads all of a memory.
            if Instant::now() >= until {
                return Ok(waiting.is_empty());
            }
            if !has_moved {
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(true)
    }
}

/// Whether all that follows from an input is in the journal.
fn has_taken(memory: &Entity<Memory>, input: InputId) -> bool {
    memory.core.has(input) && !memory.state.is_waiting(input)
}

//! What performs the effects of memories.

use std::sync::Arc;

use clawnode_actors::session::RunnerParts;
use clawnode_memory::MemoryRunner;

use crate::node::base::NodeBase;

/// Performs the effects of memories.
pub fn runner(base: &NodeBase, parts: &RunnerParts) -> MemoryRunner {
    MemoryRunner {
        storage: base.storage.clone(),
        clock: Arc::clone(&base.clock),
        feed: parts.feed.clone(),
    }
}

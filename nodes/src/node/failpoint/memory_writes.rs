//! The writes that follow from inputs of memories, counted.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use clawnode_proto::EntityId;

/// How many writes of memories are still made, that before which the process dies included.
///
/// Where a write does not say whose it is (blobs, acknowledgements, the cleaning of the store), all count once a memory
/// has had an input in this process.
#[derive(Debug)]
pub(super) struct MemoryWrites {
    left: AtomicU64,
    memories: Mutex<BTreeSet<EntityId>>,
}

impl MemoryWrites {
    /// Dies before this write; the first one is 1.
    pub(super) fn before(write: u64) -> Self {
        Self { left: AtomicU64::new(write), memories: Mutex::default() }
    }

    /// A memory has an input: its writes count from here on.
    pub(super) fn follow(&self, memory: EntityId) {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner).insert(memory);
    }

    /// Counts a write of this entity, and says whether it is the last one.
    pub(super) fn is_last_of(&self, entity: EntityId) -> bool {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.contains(&entity) && self.counts()
    }

    /// Counts a write of any entity, and says whether it is the last one.
    pub(super) fn is_last(&self) -> bool {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        !memories.is_empty() && self.counts()
    }

    fn counts(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

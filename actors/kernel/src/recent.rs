//! What was used lately, by entity.

use std::collections::HashMap;

use clawnode_proto::EntityId;

/// What is remembered of each of the last `most` to twice as many entities that were put.
#[derive(Debug)]
pub struct RecentEntities<T> {
    most: usize,
    young: HashMap<EntityId, T>,
    old: HashMap<EntityId, T>,
}

// === impl RecentEntities ===

impl<T> RecentEntities<T> {
    /// Nothing is remembered yet.
    pub fn new(most: usize) -> Self {
        Self { most, young: HashMap::new(), old: HashMap::new() }
    }

    /// What is remembered of an entity; it is not any more.
    pub fn take(&mut self, id: EntityId) -> Option<T> {
        self.young.remove(&id).or_else(|| self.old.remove(&id))
    }

    /// Remembers this of an entity.
    pub fn put(&mut self, id: EntityId, value: T) {
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, value);
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

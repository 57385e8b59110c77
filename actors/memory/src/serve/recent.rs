//! What was used lately, by entity.

use std::collections::HashMap;

use clawnode_proto::EntityId;

/// What is remembered of each of the last `most` to twice as many entities that were put.
#[derive(Debug)]
pub(super) struct RecentPlaces<T> {
    most: usize,
    young: HashMap<EntityId, T>,
    old: HashMap<EntityId, T>,
}

// === impl RecentPlaces ===

impl<T> RecentPlaces<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, young: HashMap::new(), old: HashMap::new() }
    }

    pub(super) fn take(&mut self, id: EntityId) -> Option<T> {
        self.young.remove(&id).or_else(|| self.old.remove(&id))
    }

    pub(super) fn put(&mut self, id: EntityId, value: T) {
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, value);
    }

    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

//! Which scopes are being filled: each by one task at a time, and a few of them together.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use clawnode_proto::EntityId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore, SemaphorePermit};

/// Scopes that are filled at the same time: each may have its whole journal in memory.
pub(super) const FILLED_AT_ONCE: usize = 8;

/// A lock for each scope that a task fills or waits for. There are no others: as many as there are such tasks at most.
#[derive(Debug)]
pub(super) struct FillLocks {
    pub(super) places: Semaphore,
    scopes: Mutex<BTreeMap<EntityId, Arc<AsyncMutex<()>>>>,
}

/// While it is there, nothing else fills the scope.
#[derive(Debug)]
pub(super) struct FillLock<'a> {
    _place: Option<SemaphorePermit<'a>>,
    _scope: OwnedMutexGuard<()>,
}

// === impl FillLocks ===

impl Default for FillLocks {
    fn default() -> Self {
        Self { places: Semaphore::new(FILLED_AT_ONCE), scopes: Mutex::default() }
    }
}

impl FillLocks {
    /// Waits until nothing else fills the scope of this entity, and then for a place.
    pub(super) async fn lock(&self, entity: EntityId) -> FillLock<'_> {
        let scope = self.of(entity).lock_owned().await;
        // In this order: tasks that wait for a slow scope take no places from others. They are never closed.
        let place = self.places.acquire().await.ok();
        FillLock { _place: place, _scope: scope }
    }

    fn of(&self, entity: EntityId) -> Arc<AsyncMutex<()>> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        // What only the list has is neither held nor waited for. Tasks may give up at any moment, so it is looked for here.
        scopes.retain(|_, scope| Arc::strong_count(scope) > 1);
        Arc::clone(scopes.entry(entity).or_default())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn entity(number: usize) -> EntityId {
        EntityId::from_u128(u128::try_from(number).unwrap())
    }

    #[test]
    fn a_slow_scope_makes_only_its_own_tasks_wait() {
        let locks = FillLocks::default();
        let slow = locks.lock(entity(0)).now_or_never().unwrap();
        for _ in 0..2 * FILLED_AT_ONCE {
            assert!(locks.lock(entity(0)).now_or_never().is_none(), "one at a time");
        }
        let others: Vec<_> = (1..FILLED_AT_ONCE)
            .map(|number| locks.lock(entity(number)).now_or_never().unwrap())
            .collect();
        assert!(
            locks.lock(entity(FILLED_AT_ONCE)).now_or_never().is_none(),
            "all places are taken"
        );
        drop(others);
        assert!(locks.lock(entity(FILLED_AT_ONCE)).now_or_never().is_some());
        drop(slow);
        assert!(locks.lock(entity(0)).now_or_never().is_some());
    }

    #[test]
    fn there_are_no_more_locks_than_tasks() {
        let locks = FillLocks::default();
        for number in 0..100 {
            assert!(locks.lock(entity(number)).now_or_never().is_some());
            assert!(locks.scopes.lock().unwrap().len() <= 1);
        }
    }
}

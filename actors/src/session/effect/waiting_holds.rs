//! The model calls of a process that wait for money.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use clawnode_proto::EntityId;

use crate::session::turn::effect::Effect;

/// The calls that wait, by session and effect.
type WaitingByCall = BTreeMap<(EntityId, Effect), Arc<WaitingHold>>;

/// The calls of a process that wait for money, so that they can be withdrawn.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct WaitingHolds(Arc<Mutex<WaitingByCall>>);

/// One call that waits.
#[derive(Debug, Default)]
pub(in crate::session) struct WaitingHold {
    /// Whether the session knows the answer. Locked while that is sent, so that `deferred` never comes after it.
    answered: Mutex<bool>,
    withdrawn: AtomicBool,
}

// === impl WaitingHolds ===

impl WaitingHolds {
    pub(in crate::session) fn add(&self, key: (EntityId, Effect), waiting: &Arc<WaitingHold>) {
        self.map().insert(key, Arc::clone(waiting));
    }

    pub(in crate::session) fn forget(&self, key: (EntityId, Effect), waiting: &Arc<WaitingHold>) {
        let mut map = self.map();
        if map.get(&key).is_some_and(|found| Arc::ptr_eq(found, waiting)) {
            map.remove(&key);
        }
    }

    /// The session does not want the call any more.
    pub(in crate::session) fn withdraw(&self, entity: EntityId, effect: Effect) {
        if let Some(waiting) = self.map().remove(&(entity, effect)) {
            waiting.withdrawn.store(true, Ordering::Relaxed);
        }
    }

    fn map(&self) -> MutexGuard<'_, WaitingByCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl WaitingHold ===

impl WaitingHold {
    /// Whether the session knows the answer; it hears of nothing else until this is dropped.
    pub(in crate::session) fn answered(&self) -> MutexGuard<'_, bool> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::session) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }
}

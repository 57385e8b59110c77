//! The model calls of a process that wait for money.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use clawnode_proto::EntityId;

use crate::{agent::Permit, session::turn::effect::Effect};

/// The calls that wait, by session and effect.
type WaitingByCall = BTreeMap<(EntityId, Effect), Arc<WaitingHold>>;

/// The calls of a process that wait for money, so that they can be withdrawn.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct WaitingHolds(Arc<Mutex<WaitingByCall>>);

/// One call that waits.
#[derive(Debug, Default)]
pub(in crate::session) struct WaitingHold {
    /// Locked while the answer is sent, so that `deferred` never comes after it.
    wait: Mutex<HoldWait>,
    withdrawn: AtomicBool,
}

/// How far a call is that waits.
#[derive(Debug, Default)]
pub(in crate::session) struct HoldWait {
    /// Whether the wait is over: its session knows the answer, or the call has given its place back and waits for
    /// another one.
    pub(in crate::session) is_over: bool,
    /// The place that the call has meanwhile.
    pub(in crate::session) permit: Option<Arc<Permit>>,
}

// === impl WaitingHolds ===

impl WaitingHolds {
    pub(in crate::session) fn add(
        &self,
        entity: EntityId,
        effect: Effect,
        waiting: &Arc<WaitingHold>,
    ) {
        self.map().insert((entity, effect), Arc::clone(waiting));
    }

    pub(in crate::session) fn forget(
        &self,
        entity: EntityId,
        effect: Effect,
        waiting: &Arc<WaitingHold>,
    ) {
        let key = (entity, effect);
        let mut map = self.map();
        if map.get(&key).is_some_and(|found| Arc::ptr_eq(found, waiting)) {
            map.remove(&key);
        }
    }

    /// The session does not want the call any more.
    pub(in crate::session) fn withdraw(&self, entity: EntityId, effect: Effect) {
        if let Some(waiting) = self.map().remove(&(entity, effect)) {
            waiting.withdraw();
        }
    }

    fn map(&self) -> MutexGuard<'_, WaitingByCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl WaitingHold ===

impl WaitingHold {
    /// Of a call that has this place.
    pub(in crate::session) fn with(permit: &Arc<Permit>) -> Self {
        let wait = HoldWait { is_over: false, permit: Some(Arc::clone(permit)) };
        Self { wait: Mutex::new(wait), withdrawn: AtomicBool::new(false) }
    }

    /// How far it is; the session hears of nothing until this is dropped.
    pub(in crate::session) fn wait(&self) -> MutexGuard<'_, HoldWait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is not wanted any more.
    pub(in crate::session) fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Relaxed);
    }

    pub(in crate::session) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }
}

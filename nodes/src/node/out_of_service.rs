//! Which entities are out of service, as far as this process has looked: `status` must not wait for
//! that.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clawnode_kernel::Entities;
use clawnode_proto::EntityId;
use tokio::{sync::Notify, time::Instant};
use tracing::debug;

/// How many entities one search reads. The next one continues after them.
const LOOK_MAX: usize = 2_000;
/// How old a look may be before there is another.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long the very first look is waited for.
const FIRST_LOOK: Duration = Duration::from_millis(75);

/// The result so far, and the running search.
#[derive(Clone, Debug, Default)]
pub struct OutOfServiceScan(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    found: Mutex<ScanResult>,
    looking: AtomicBool,
    done: Notify,
}

/// What was found, over all looks since the last one that began with the first entity.
#[derive(Clone, Debug, Default)]
pub struct ScanResult {
    /// When the last look ended; none has if absent.
    pub at: Option<Instant>,
    /// How many entities were looked at in this round.
    pub entities: u64,
    /// Those that are out of service.
    pub quarantined: BTreeSet<EntityId>,
    /// Entities found out of service in this round; at its end they replace those above.
    round: BTreeSet<EntityId>,
    /// How many this round has seen so far.
    seen: u64,
    /// The next search continues after this one.
    after: Option<EntityId>,
}

/// Lets another look begin, also if this one is dropped.
struct Looking(Arc<Inner>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looking.store(false, Ordering::Release);
        self.0.done.notify_waiters();
    }
}

// === impl OutOfServiceScan ===

impl OutOfServiceScan {
    /// What is known now. If that is old, a further look is begun; only the first is waited for,
    /// and not for long.
    pub async fn get(&self, entities: &Entities) -> ScanResult {
        let found = self.found();
        if found.at.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return found;
        }
        let done = self.0.done.notified();
        if !self.0.looking.swap(true, Ordering::Acquire) {
            let (looking, entities) = (Looking(Arc::clone(&self.0)), entities.clone());
            // Detached: it ends by itself, and the caller may be gone before.
            drop(tokio::spawn(look(looking, entities)));
        }
        if found.at.is_none() && tokio::time::timeout(FIRST_LOOK, done).await.is_err() {
            debug!("the check of the entities still runs");
        }
        self.found()
    }

    fn found(&self) -> ScanResult {
        self.0.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn look(looking: Looking, entities: Entities) {
    let after = {
        let found = looking.0.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.after
    };
    match entities.look(after, LOOK_MAX).await {
        Ok(seen) => {
            let more = seen.last.filter(|_| seen.entities == LOOK_MAX);
            let mut found = looking.0.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.take(seen.entities as u64, &seen.quarantined, more);
        }
        Err(failure) => debug!(%failure, "cannot check the entities now"),
    }
}

// === impl ScanResult ===

impl ScanResult {
    /// Whether there are entities that were not looked at yet.
    pub const fn is_partial(&self) -> bool {
        self.after.is_some()
    }

    fn take(&mut self, entities: u64, quarantined: &[EntityId], more: Option<EntityId>) {
        self.at = Some(Instant::now());
        self.seen += entities;
        self.round.extend(quarantined);
        // Within a round nothing is taken back: what was found before may only come up again later.
        self.quarantined.extend(quarantined);
        self.entities = self.entities.max(self.seen);
        self.after = more;
        if more.is_none() {
            self.quarantined = std::mem::take(&mut self.round);
            self.entities = std::mem::take(&mut self.seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> EntityId {
        EntityId::from_u128(number)
    }

    #[test]
    fn looks_go_round_and_forget_what_is_back_in_service() {
        let mut found = ScanResult::default();
        found.take(2_000, &[id(1)], Some(id(5)));
        found.take(500, &[id(7)], None);
        assert_eq!((found.entities, found.quarantined.len()), (2_500, 2));
        // In the next round the first one is back in service; it is known at the round's end.
        found.take(2_000, &[], Some(id(5)));
        assert_eq!((found.entities, found.quarantined.len()), (2_500, 2));
        found.take(500, &[id(7)], None);
        assert_eq!(found.quarantined, BTreeSet::from([id(7)]));
    }
}

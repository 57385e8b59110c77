//! Entities that may have killed their process: tried one at a time, and noted as in hand.
//!
//! The note is a value in the bucket, so the worker that recovers the entity finds it, on this host
//! or another. It is there from before the entity is claimed until all that it begins with has
//! begun and [`GRACE`] has passed. After that it stays only while the entity is alone, for up to
//! [`SURVIVES_AFTER`]: if several run when a process dies, any of them may be the cause.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{BucketError, StoreError};
use clawnode_proto::{EntityId, Position, subject::probation_key};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::WorkerContext;
/// How long an entity whose work has begun is still tried alone: an entity that kills at the start
/// of a call does so by then. Longer delays the other suspects after several crashes in a row.
const GRACE: Duration = Duration::from_millis(100);
/// An entity that ran so long without harm did not kill its process.
const SURVIVES_AFTER: Duration = Duration::from_secs(10);
/// How long a note stays at most: no worker looks for it after that.
const NOTE_KEPT: Duration = Duration::from_hours(24);
/// Tries at a note; serving an entity matters more than noting it.
const TRIES_MAX: u32 = 40;
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// The entities on probation in this process.
#[derive(Clone, Debug, Default)]
pub struct Probations(Arc<Mutex<KnownSuspects>>);

#[derive(Debug, Default)]
struct KnownSuspects {
    /// The one that is tried.
    tried: Option<EntityId>,
    /// Those that wait for their turn.
    waiting: BTreeMap<EntityId, oneshot::Sender<()>>,
    /// Suspects that run now, and since when.
    running: BTreeMap<EntityId, Instant>,
    /// Of which there is a note.
    noted: BTreeSet<EntityId>,
}

impl Probations {
    fn known(&self) -> MutexGuard<'_, KnownSuspects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the entity's turn; says whether it was in hand when its last owner died.
    pub(super) async fn enter(&self, context: &WorkerContext, id: EntityId) -> bool {
        let turn = self.known().ask(id);
        if let Some(turn) = turn
            && turn.await.is_err()
        {
            debug!(entity = %id, "an entity that waits to be tried was given up");
        }
        // It is not the only one any more.
        let others = std::mem::take(&mut self.known().noted);
        for other in others.into_iter().filter(|other| *other != id) {
            strike(context, other).await;
        }
        self.known().noted.insert(id);
        note(context, id).await
    }

    /// All that the entity begins with has begun.
    pub(super) async fn leave(&self, context: &WorkerContext, id: EntityId, runs: bool) {
        if !runs {
            return self.over(context, id).await;
        }
        sleep(GRACE).await;
        let is_alone = self.known().runs(id);
        if is_alone {
            self.known().next(id);
            sleep(SURVIVES_AFTER).await;
        }
        self.struck(context, id).await;
        self.known().next(id);
    }

    /// The entity's actor is gone, for any reason: the next one is tried. Notes stay.
    pub(super) fn lost(&self, id: EntityId) {
        let mut known = self.known();
        known.waiting.remove(&id);
        known.running.remove(&id);
        known.next(id);
    }

    /// The entity is not in hand any more: it left memory, or nothing runs for it.
    pub(super) async fn over(&self, context: &WorkerContext, id: EntityId) {
        self.known().running.remove(&id);
        self.struck(context, id).await;
        self.known().next(id);
    }

    /// Whether there is a note that the entity is in hand.
    pub(super) fn notes(&self, id: EntityId) -> bool {
        self.known().noted.contains(&id)
    }

    async fn struck(&self, context: &WorkerContext, id: EntityId) {
        let noted = self.known().noted.remove(&id);
        if noted {
            strike(context, id).await;
        }
    }
}

impl KnownSuspects {
    /// It is tried now, or after others.
    fn ask(&mut self, id: EntityId) -> Option<oneshot::Receiver<()>> {
        if self.tried.is_none() {
            self.tried = Some(id);
            return None;
        }
        let (turn, waits) = oneshot::channel();
        self.waiting.insert(id, turn);
        Some(waits)
    }

    /// If this one is tried, it is another's turn: any, so that a process which dies after the same
    /// time again and again does not find the same one in hand.
    fn next(&mut self, id: EntityId) {
        if self.tried != Some(id) {
            return;
        }
        self.tried = None;
        while self.tried.is_none() && !self.waiting.is_empty() {
            let any = rand::random_range(0..self.waiting.len());
            let Some(next) = self.waiting.keys().nth(any).copied() else { return };
            if self.waiting.remove(&next).is_some_and(|turn| turn.send(()).is_ok()) {
                self.tried = Some(next);
            }
        }
    }

    /// It runs; says whether it is the only suspect that does.
    fn runs(&mut self, id: EntityId) -> bool {
        self.running.retain(|_, since| since.elapsed() < SURVIVES_AFTER);
        self.running.insert(id, Instant::now());
        self.running.len() == 1
    }
}

/// Notes that the entity is in hand; says whether it was noted already.
async fn note(context: &WorkerContext, id: EntityId) -> bool {
    let bucket = &context.storage.bucket;
    let key = probation_key(id);
    let value = Bytes::from(context.process.to_string());
    for _ in 0..TRIES_MAX {
        let noted = async {
            let before = bucket.get(&key).await?;
            let position = before.as_ref().map_or(Position(0), |entry| entry.position);
            match bucket.put(&key, position, value.clone(), Some(NOTE_KEPT)).await {
                // A note of this process is of an activation that ended while the process lived on.
                Ok(_) => Ok(Some(before.is_some_and(|before| before.value != value))),
                Err(BucketError::Conflict { .. }) => Ok(None),
                Err(BucketError::Store(failure)) => Err(failure),
            }
        };
        match noted.await {
            Ok(Some(before)) => return before,
            Ok(None) => {}
            Err(failure) => debug!(entity = %id, %failure, "a note cannot be written now"),
        }
        sleep(TRY_AGAIN).await;
    }
    warn!(entity = %id, "cannot record that an entity is being served; a crash would not be counted");
    false
}

/// Removes the own note. One that stays counts a crash too many, once.
async fn strike(context: &WorkerContext, id: EntityId) {
    let key = probation_key(id);
    for _ in 0..TRIES_MAX {
        let removed: Result<bool, StoreError> = async {
            let bucket = &context.storage.bucket;
            let Some(entry) = bucket.get(&key).await? else { return Ok(true) };
            if entry.value != context.process.to_string() {
                return Ok(true);
            }
            match bucket.delete(&key, entry.position).await {
                Ok(()) => Ok(true),
                Err(BucketError::Conflict { .. }) => Ok(false),
                Err(BucketError::Store(failure)) => Err(failure),
            }
        }
        .await;
        match removed {
            Ok(true) => return,
            Ok(false) => {}
            Err(failure) => debug!(entity = %id, %failure, "a note cannot be removed now"),
        }
        sleep(TRY_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::Kind;

    use super::*;

    fn entity(n: usize) -> EntityId {
        EntityId::derive(Kind::SESSION, &format!("main:web:a:{n}"))
    }

    #[test]
    fn suspects_are_tried_one_at_a_time_until_all_were() {
        let probations = Probations::default();
        assert!(probations.known().ask(entity(0)).is_none(), "it is its turn at once");
        let mut waiting: BTreeMap<EntityId, oneshot::Receiver<()>> =
            (1..20).map(|n| (entity(n), probations.known().ask(entity(n)).unwrap())).collect();
        // An entity that no longer waits has no turn, and no other waits for it.
        waiting.remove(&entity(7));
        probations.lost(entity(7));
        let mut last = entity(0);
        while !waiting.is_empty() {
            let have_turn =
                |waiting: &mut BTreeMap<EntityId, oneshot::Receiver<()>>| -> Vec<EntityId> {
                    let now = waiting
                        .iter_mut()
                        .filter_map(|(id, turn)| turn.try_recv().is_ok().then_some(*id));
                    now.collect()
                };
            assert_eq!(have_turn(&mut waiting), [], "not before the one before is through");
            probations.lost(last);
            let [next] = have_turn(&mut waiting)[..] else { panic!("one has its turn") };
            waiting.remove(&next);
            last = next;
        }
        probations.lost(last);
        assert_eq!(probations.known().tried, None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_one_that_runs_alone_can_be_told_to_have_killed_its_process() {
        let probations = Probations::default();
        assert!(probations.known().runs(entity(0)));
        assert!(!probations.known().runs(entity(1)));
        tokio::time::advance(SURVIVES_AFTER).await;
        assert!(probations.known().runs(entity(2)), "the others did not kill it");
    }
}

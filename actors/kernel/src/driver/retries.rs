//! What the runners of kinds share: they try again until something is stored or erased, and they show operators what
//! happened to an entity.

use std::{fmt, time::Duration};

use clawnode_cluster::{Backoff, BucketError, Feed, StoreError};
use clawnode_proto::{
    Digest, EntityId, Epoch, ProcessId,
    feed::{EventBody, brief},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Port;
use crate::{ActivationEnd, EntityKind};

/// The first and the longest wait before a store that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Repeats one try of an effect that only stores something, and reports to the entity that it is done, or that it was
/// cancelled before.
pub async fn store_until_done<K, F>(
    port: Port<K>,
    entity: EntityId,
    effect: K::Effect,
    cancelled: CancellationToken,
    attempt: impl FnMut() -> F,
) where
    K: EntityKind,
    F: Future<Output = Result<(), StoreError>>,
{
    let failed = |failure: &StoreError| {
        debug!(%entity, kind = %K::KIND, %failure, "cannot store something now; trying again");
    };
    match until_done(&cancelled, failed, attempt).await {
        Some(()) => port.confirmed(effect),
        None => port.gone(effect),
    }
}

/// Repeats one try of a deletion until it succeeds. Returns the snapshot that stays.
pub async fn erase_until_done<E, F>(entity: EntityId, attempt: impl FnMut() -> F) -> Option<Digest>
where
    E: fmt::Display,
    F: Future<Output = Result<Option<Digest>, E>>,
{
    let failed = |failure: &E| warn!(%entity, %failure, "a deletion failed; trying again");
    until_done(&CancellationToken::new(), failed, attempt).await.flatten()
}

/// Repeats this until it succeeds; nothing if it was cancelled between two tries.
async fn until_done<T, E, F>(
    cancelled: &CancellationToken,
    failed: impl Fn(&E),
    mut attempt: impl FnMut() -> F,
) -> Option<T>
where
    F: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    loop {
        match attempt().await {
            Ok(done) => return Some(done),
            Err(failure) => failed(&failure),
        }
        let wait = backoff.next(&mut rand::rng());
        tokio::select! {
            () = cancelled.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The failure of a change in the bucket. One that met another change is to be tried again.
pub fn unchanged(failure: BucketError) -> StoreError {
    match failure {
        BucketError::Conflict { .. } => {
            StoreError::Refused { store: "bucket", detail: "it has just changed".to_owned() }
        }
        BucketError::Store(failure) => failure,
    }
}

/// Shows operators that an entity was claimed.
pub fn show_claimed(feed: &Feed, entity: EntityId, from: ProcessId, epoch: Epoch) {
    feed.tell(EventBody::Claimed { session: entity, from, epoch });
}

/// Shows operators why an entity of a kind left memory, if they have to know.
pub fn show_left<K: EntityKind>(feed: &Feed, entity: EntityId, stop: &ActivationEnd) {
    if let Some(event) = left_event::<K>(entity, stop) {
        feed.tell(event);
    }
}

fn left_event<K: EntityKind>(entity: EntityId, stop: &ActivationEnd) -> Option<EventBody> {
    match stop {
        ActivationEnd::Passivated
        | ActivationEnd::Released
        | ActivationEnd::GaveWay
        | ActivationEnd::TooNew(_)
        | ActivationEnd::Defect(_) => None,
        ActivationEnd::Fenced => Some(EventBody::Fenced { session: entity }),
        ActivationEnd::Quarantined(reason) => {
            Some(EventBody::Quarantined { session: entity, reason: brief(reason) })
        }
        ActivationEnd::Corrupt(detail) | ActivationEnd::Diverged(detail) => {
            let name = format!("{}.corrupt", K::KIND);
            let message = brief(&format!("{} `{entity}`: {detail}", K::KIND));
            Some(EventBody::Warning { name, message })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::counter::Counter;

    #[tokio::test(start_paused = true)]
    async fn it_is_tried_until_it_is_done_and_not_again_once_it_is_cancelled() {
        let (tries, heard) = (Cell::new(0), Cell::new(0));
        let failed = |_: &&str| heard.set(heard.get() + 1);
        let third = || {
            tries.set(tries.get() + 1);
            std::future::ready(if tries.get() < 3 { Err("not now") } else { Ok("done") })
        };
        let cancelled = CancellationToken::new();
        assert_eq!(until_done(&cancelled, failed, third).await, Some("done"));
        assert_eq!((tries.get(), heard.get()), (3, 2));

        // The try itself is not broken off: it may have stored something.
        let stops = || {
            tries.set(tries.get() + 1);
            cancelled.cancel();
            std::future::ready(Err::<(), _>("not now"))
        };
        assert_eq!(until_done(&cancelled, failed, stops).await, None);
        assert_eq!(tries.get(), 4);
        let stored = || std::future::ready(Ok("stored"));
        assert_eq!(until_done(&cancelled, failed, stored).await, Some("stored"));
    }

    #[test]
    fn operators_see_damage_by_its_kind_and_nothing_of_a_usual_end() {
        let entity = EntityId::from_u128(7);
        let event = |stop| left_event::<Counter>(entity, &stop);
        for usual in [ActivationEnd::Passivated, ActivationEnd::Released, ActivationEnd::GaveWay] {
            assert_eq!(event(usual), None);
        }
        let message = format!("counter `{entity}`: torn");
        let damaged = EventBody::Warning { name: "counter.corrupt".to_owned(), message };
        assert_eq!(event(ActivationEnd::Corrupt("torn".to_owned())), Some(damaged.clone()));
        assert_eq!(event(ActivationEnd::Diverged("torn".to_owned())), Some(damaged));
        assert_eq!(event(ActivationEnd::Fenced), Some(EventBody::Fenced { session: entity }));
    }
}

//! Performs the effects of memories: sets timers, and lists memories.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use clawnode_cluster::{Backoff, BucketError, Clock, Feed, Storage, StoreError};
use clawnode_kernel::{
    ActivationEnd, Entities, EntityKind as _, KnownKinds, MachineOptions,
    driver::{AddKind, EffectRunner, Kinds, Performing, Port},
};
use clawnode_proto::{
    Digest, EntityId, Epoch, Input, InputId, Position, ProcessId, codec,
    feed::{EventBody, brief},
    memory_view::ListedMemory,
    subject::memory_key,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::points::{Memory, MemoryEffect, MemoryJob};

/// The first and the longest wait before a store that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Runs the effects of memories. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemoryRunner {
    /// The storage of memories.
    pub storage: Storage,
    /// The clock of deletions.
    pub clock: Arc<dyn Clock>,
    /// Where operators see what happens to memories.
    pub feed: Feed,
}

// === impl MemoryRunner ===

impl MemoryRunner {
    /// Performs one try.
    async fn perform(&self, entity: EntityId, job: &MemoryJob) -> Result<(), StoreError> {
        match job {
            MemoryJob::Timer(timer) => self.storage.timers.set(timer).await,
            MemoryJob::List(listed) => self.list(entity, listed).await,
        }
    }

    /// Lists a memory under the key of its entity, unless it is listed.
    async fn list(&self, entity: EntityId, listed: &ListedMemory) -> Result<(), StoreError> {
        let bytes = codec::encode(listed)
            .map_err(|error| StoreError::Refused { store: "bucket", detail: error.to_string() })?;
        match self.storage.bucket.put(&memory_key(entity), Position(0), bytes.into(), None).await {
            Ok(_) | Err(BucketError::Conflict { .. }) => Ok(()),
            Err(BucketError::Store(failure)) => Err(failure),
        }
    }

    /// A memory that is deleted is not listed any more.
    async fn unlist(&self, entity: EntityId) -> Result<(), StoreError> {
        let key = memory_key(entity);
        let Some(found) = self.storage.bucket.get(&key).await? else { return Ok(()) };
        match self.storage.bucket.delete(&key, found.position).await {
            Ok(()) => Ok(()),
            Err(BucketError::Conflict { .. }) => {
                let detail = "it has just changed".to_owned();
                Err(StoreError::Refused { store: "bucket", detail })
            }
            Err(BucketError::Store(failure)) => Err(failure),
        }
    }
}

impl AddKind for Memory {
    fn serve(kinds: Kinds, runner: Arc<dyn EffectRunner<Self>>, machine: MachineOptions) -> Kinds {
        kinds.with::<Self>(runner, machine)
    }

    fn know(known: KnownKinds) -> KnownKinds {
        known.with::<Self>()
    }
}

impl EffectRunner<Memory> for MemoryRunner {
    fn acquire(
        &self,
        _: EntityId,
        _: MemoryEffect,
        want: Infallible,
        _: &Port<Memory>,
    ) -> Option<()> {
        match want {}
    }

    fn run(
        &self,
        entity: EntityId,
        effect: MemoryEffect,
        job: MemoryJob,
        port: Port<Memory>,
        cancelled: CancellationToken,
    ) -> Performing {
        let runner = self.clone();
        Box::pin(async move {
            let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
            while let Err(failure) = runner.perform(entity, &job).await {
                debug!(%entity, %failure, "a memory cannot store something now; trying again");
                let wait = backoff.next(&mut rand::rng());
                tokio::select! {
                    () = cancelled.cancelled() => return port.gone(effect),
                    () = tokio::time::sleep(wait) => {}
                }
            }
            port.confirmed(effect);
        })
    }

    fn erase(
        &self,
        entity: EntityId,
        dropped: Vec<Input>,
    ) -> Pin<Box<dyn Future<Output = Option<Digest>> + Send>> {
        // A memory names no blobs, but its snapshots have archives.
        let kinds = KnownKinds::default().with::<Memory>();
        let entities = Entities::new(self.storage.clone(), Arc::clone(&self.clock), kinds);
        let runner = self.clone();
        Box::pin(async move {
            let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
            loop {
                let unlisted = runner.unlist(entity).await.map_err(Into::into);
                let erased = match unlisted {
                    Ok(()) => entities.erase(Memory::KIND, entity, &dropped).await,
                    Err(failure) => Err(failure),
                };
                match erased {
                    Ok(snapshot) => return snapshot,
                    Err(failure) => warn!(%entity, %failure, "a deletion failed; trying again"),
                }
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
        })
    }

    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch) {
        self.feed.tell(EventBody::Claimed { session: entity, from, epoch });
    }

    fn left(&self, entity: EntityId, _: &[InputId], stop: &ActivationEnd) {
        match stop {
            ActivationEnd::Quarantined(reason) => {
                let reason = brief(reason);
                self.feed.tell(EventBody::Quarantined { session: entity, reason });
            }
            ActivationEnd::Corrupt(detail) | ActivationEnd::Diverged(detail) => {
                let message = brief(&format!("memory `{entity}`: {detail}"));
                self.feed.tell(EventBody::Warning { name: "memory.corrupt".to_owned(), message });
            }
            ActivationEnd::Fenced => self.feed.tell(EventBody::Fenced { session: entity }),
            ActivationEnd::Passivated
            | ActivationEnd::Released
            | ActivationEnd::GaveWay
            | ActivationEnd::TooNew(_)
            | ActivationEnd::Defect(_) => {}
        }
    }
}

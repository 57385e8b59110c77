//! Performs the effects of memories: sets timers, and lists memories.

use std::{convert::Infallible, pin::Pin, sync::Arc};

use clawnode_cluster::{BucketError, Clock, Feed, Storage, StoreError};
use clawnode_kernel::{
    ActivationEnd, Entities, EntityKind as _, KnownKinds, MachineOptions,
    driver::{
        AddKind, EffectRunner, Kinds, Performing, Port, erase_until_done, show_claimed, show_left,
        store_until_done, unchanged,
    },
};
use clawnode_proto::{
    Digest, EntityId, Epoch, Input, InputId, Position, ProcessId, codec, memory_view::ListedMemory,
    subject::memory_key,
};
use tokio_util::sync::CancellationToken;

use crate::points::{Memory, MemoryEffect, MemoryJob};

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
        self.storage.bucket.delete(&key, found.position).await.map_err(unchanged)
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
            let attempt = || runner.perform(entity, &job);
            store_until_done(port, entity, effect, cancelled, attempt).await;
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
            let erase = async || {
                runner.unlist(entity).await?;
                entities.erase(Memory::KIND, entity, &dropped).await
            };
            erase_until_done(entity, erase).await
        })
    }

    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch) {
        show_claimed(&self.feed, entity, from, epoch);
    }

    fn left(&self, entity: EntityId, _: &[InputId], stop: &ActivationEnd) {
        show_left::<Memory>(&self.feed, entity, stop);
    }
}

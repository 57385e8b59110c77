//! Performs the effects of accounts: tells processes how things stand, sets timers, and shows limits.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use clawnode_cluster::{Bucket, Clock, Feed, Storage, StoreError};
use clawnode_kernel::{
    ActivationEnd, Entities, EntityKind as _, KnownKinds, MachineOptions,
    driver::{
        AddKind, EffectRunner, Kinds, Performing, Port, erase_until_done, show_claimed, show_left,
        store_until_done, unchanged,
    },
};
use clawnode_proto::{
    Digest, EntityId, Epoch, Input, InputId, Position, ProcessId, Timestamp,
    budget::{AccountVersion, BudgetView, ProcessStanding},
    codec,
    node::NodeRequest,
    subject::budget_key,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    account::{Budget, BudgetEffect, BudgetJob},
    holder::HolderHandle,
};

/// Runs the effects of accounts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BudgetRunner {
    /// The holder of this process, which hears without the bus what its accounts say.
    pub holder: HolderHandle,
    /// The storage of accounts.
    pub storage: Storage,
    /// The clock of deletions.
    pub clock: Arc<dyn Clock>,
    /// Where operators see what happens to accounts.
    pub feed: Feed,
}

/// What is always to be read of limits that are shown.
#[derive(Deserialize)]
struct ShownVersion {
    version: u64,
    #[serde(default)]
    begun: Option<Timestamp>,
}

// === impl BudgetRunner ===

impl BudgetRunner {
    /// Sent once: who does not hear it asks again.
    async fn tell(&self, process: ProcessId, standing: ProcessStanding) {
        if process == self.holder.process() {
            self.holder.tells(standing);
            return;
        }
        let request = NodeRequest::BudgetStanding { standing };
        let bytes = match codec::encode(&request) {
            Ok(bytes) => Bytes::from(bytes),
            Err(failure) => {
                warn!(%process, %failure, "what a budget says cannot be written");
                return;
            }
        };
        let subject = self.storage.prefix.rpc(process);
        if let Err(failure) = self.storage.bus.publish(subject, None, bytes).await {
            debug!(%process, %failure, "a process does not hear a budget; it asks again");
        }
    }

    /// Performs one try; whether it is done.
    async fn perform(&self, entity: EntityId, job: &BudgetJob) -> Result<(), StoreError> {
        match job {
            BudgetJob::Tell(process, standing) => {
                self.tell(*process, standing.clone()).await;
                Ok(())
            }
            BudgetJob::News(news) => {
                self.feed.tell(news.clone());
                Ok(())
            }
            BudgetJob::Timer(timer) => self.storage.timers.set(timer).await,
            BudgetJob::Show(view) => {
                show(self.storage.bucket.as_ref(), entity, view).await?;
                self.holder.knows(view.clone());
                Ok(())
            }
        }
    }
}

/// Stores the limits of an account, unless later ones are there.
async fn show(bucket: &dyn Bucket, entity: EntityId, view: &BudgetView) -> Result<(), StoreError> {
    let key = budget_key(entity);
    let refused = |detail: String| StoreError::Refused { store: "bucket", detail };
    let bytes = codec::encode(view).map_err(|failure| refused(failure.to_string()))?;
    let found = bucket.get(&key).await?;
    let shown = found.as_ref().and_then(|entry| codec::decode::<ShownVersion>(&entry.value).ok());
    let is_not_older = |shown: ShownVersion| {
        let ShownVersion { version: n, begun } = shown;
        !AccountVersion { begun, n }.is_before(view.said_at())
    };
    if shown.is_some_and(is_not_older) {
        return Ok(());
    }
    let expected = found.map_or(Position(0), |entry| entry.position);
    bucket.put(&key, expected, bytes.into(), None).await.map(|_| ()).map_err(unchanged)
}

/// Removes the limits of an account that is being deleted: what begins again under its key has none of them.
async fn hide(bucket: &dyn Bucket, entity: EntityId) -> Result<(), StoreError> {
    let key = budget_key(entity);
    match bucket.get(&key).await? {
        Some(found) => bucket.delete(&key, found.position).await.map_err(unchanged),
        None => Ok(()),
    }
}

impl AddKind for Budget {
    fn serve(kinds: Kinds, runner: Arc<dyn EffectRunner<Self>>, machine: MachineOptions) -> Kinds {
        kinds.with::<Self>(runner, machine)
    }

    fn know(known: KnownKinds) -> KnownKinds {
        known.with::<Self>()
    }
}

impl EffectRunner<Budget> for BudgetRunner {
    fn acquire(
        &self,
        _: EntityId,
        _: BudgetEffect,
        want: std::convert::Infallible,
        _: &Port<Budget>,
    ) -> Option<()> {
        match want {}
    }

    fn run(
        &self,
        entity: EntityId,
        effect: BudgetEffect,
        job: BudgetJob,
        port: Port<Budget>,
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
        // An account names no blobs, but its snapshots have archives.
        let kinds = Budget::know(KnownKinds::default());
        let entities = Entities::new(self.storage.clone(), Arc::clone(&self.clock), kinds);
        let bucket = Arc::clone(&self.storage.bucket);
        Box::pin(async move {
            let attempt = || async {
                hide(bucket.as_ref(), entity).await?;
                entities.erase(Budget::KIND, entity, &dropped).await
            };
            erase_until_done(entity, attempt).await
        })
    }

    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch) {
        show_claimed(&self.feed, entity, from, epoch);
    }

    fn left(&self, entity: EntityId, _: &[InputId], stop: &ActivationEnd) {
        show_left::<Budget>(&self.feed, entity, stop);
    }
}

//! Budgets of a node: the holder of its process, which accounts there are, and what the configuration says
//! of them.

use std::{sync::Arc, time::Duration};

use clawnode_actors::session::RunnerParts;
use clawnode_budget::{
    BudgetRunner,
    holder::{self, HolderHandle, HolderTasks},
};
use clawnode_cluster::{Peek as _, Storage};
use clawnode_proto::{Digest, ProcessId, budget::AccountKey, codec};
use ractor::SpawnErr;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::base::NodeBase;
use crate::{
    config::{Config, budgets::BudgetsSection},
    start_error::StartError,
};

/// How long a node tries to read which limits there are before it gives up starting.
const READ_WITHIN: Duration = Duration::from_secs(15);
/// How soon it tries again.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// The holder of a process that is about to start: no call begins before it is known which limits there
/// are. If that cannot be, the storage backend is closed.
pub async fn open(
    storage: &Storage,
    process: ProcessId,
    section: &BudgetsSection,
) -> Result<HolderHandle, StartError> {
    let handle = HolderHandle::new(process, section.holder());
    let read = async {
        while let Err(failure) = holder::read(&handle, storage.bucket.as_ref()).await {
            warn!(%failure, "cannot read the limits of budgets; trying again");
            sleep(READ_AGAIN).await;
        }
    };
    if timeout(READ_WITHIN, read).await.is_err() {
        storage.health.close().await;
        let message =
            "cannot read from the store which limits there are, so this node takes no work";
        return Err(StartError::unreachable("budgets_unreadable", message)
            .hint("check the servers with `clawnode doctor`, then start again"));
    }
    if !storage.shared {
        handle.marks_unjournaled_in(Arc::clone(&storage.bucket));
    }
    configure(&handle, section);
    Ok(handle)
}

/// What the configuration says is in force from now on; its accounts hear of it.
pub fn configure(handle: &HolderHandle, section: &BudgetsSection) {
    handle.configure(section.configured(), section.holder());
}

/// The digest of the settings of spending in a configuration: nodes should agree about it.
pub fn digest(config: &Config) -> Digest {
    let said = codec::encode(&(&config.budgets, &config.prices));
    said.map_or(Digest::ZERO, |bytes| Digest::of(&bytes))
}

/// Performs the effects of accounts.
pub fn runner(base: &NodeBase, parts: &RunnerParts) -> BudgetRunner {
    BudgetRunner {
        holder: base.budgets.clone(),
        storage: base.storage.clone(),
        clock: Arc::clone(&base.clock),
        feed: parts.feed.clone(),
    }
}

/// Keeps the view of accounts true and sends what the holder says, at every node: gateways explain and decide by the
/// view, and test models.
pub async fn follow(base: &NodeBase) -> Result<(), SpawnErr> {
    let (members, is_alone) = (base.members.clone(), !base.storage.shared);
    base.budgets.asks_for_dead(move |process| {
        is_alone || members.peek(|members| members.holds_dead(process))
    });
    let tasks = tasks(base);
    let sender = tasks.clone();
    base.supervisor.adopt_task("budget.follow", move || tasks.clone().follow()).await?;
    base.supervisor.adopt_task("budget.holder", move || sender.clone().send()).await
}

/// Sends accounts what the configuration of a worker says.
pub async fn begin(base: &NodeBase) -> Result<(), SpawnErr> {
    let NodeBase { budgets, supervisor, .. } = base;
    if budgets.configured().limits_of(&AccountKey::Cluster).is_empty() {
        warn!(
            "the configuration does not limit what this cluster may spend; see `[budgets.cluster]`"
        );
    }
    let tasks = tasks(base);
    supervisor.adopt_task("budget.announce", move || tasks.clone().announce()).await
}

fn tasks(base: &NodeBase) -> HolderTasks {
    let (holder, storage) = (base.budgets.clone(), base.storage.clone());
    HolderTasks { holder, storage, clock: Arc::clone(&base.clock) }
}

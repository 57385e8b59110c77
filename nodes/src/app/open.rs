//! The first phase: what the settings say, and the storage backend.

use std::sync::Arc;

use clawnode_actors::llm::circuit::Circuits;
use clawnode_cluster::{
    Clock,
    membership::{ClusterClock, Members},
};
use clawnode_kernel::supervise::Supervisor;
use clawnode_local::LocalControl;
use clawnode_proto::{ProcessId, node::NodeRole};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "nats")]
use crate::bus::name;
use crate::{
    config::LoadedConfig,
    failure::Failure,
    node::{
        agents_and_models::{Answering, AnsweringParts, answering},
        base::NodeBase,
        budget_holder, hooks, memories, panic,
        plugins::NodePlugins,
        process_state::NodeStatus,
        skills,
        storage::{self, Opening},
    },
    secret::Secret,
};

/// A node that has read everything and whose storage backend is open; nothing runs yet.
pub(super) struct Opened {
    pub(super) loaded: Arc<LoadedConfig>,
    pub(super) base: NodeBase,
    /// Who answers.
    pub(super) answering: Answering,
    /// Whether the process takes work.
    pub(super) node_status: Arc<NodeStatus>,
    /// What time it is, by the heartbeats of all.
    pub(super) cluster_clock: Arc<ClusterClock>,
    /// Where `base.members` comes from.
    pub(super) view: watch::Sender<Members>,
    /// The local store's word on its own health; none on NATS.
    pub(super) control: Option<LocalControl>,
}

/// Reads what the settings name, and opens the storage backend.
pub(super) async fn open(
    loaded: LoadedConfig,
    roles: Vec<NodeRole>,
    join: Option<Secret>,
    stop: CancellationToken,
) -> Result<Opened, Failure> {
    let cluster_clock = Arc::new(ClusterClock::default());
    let clock: Arc<dyn Clock> = Arc::clone(&cluster_clock) as _;
    let process = ProcessId::from_u128(ulid::Ulid::generate().0);
    let hooks = hooks::open(&loaded)?;
    let plugins = NodePlugins::load(&loaded.config).await;
    let parts = AnsweringParts { plugins, hooks, skills: skills::read(&loaded) };
    let circuits = Circuits::default();
    let opening = Opening { process, roles: &roles, join: join.as_ref() };
    let (answering, storage) = tokio::try_join!(
        answering(&loaded.config, loaded.env(), &clock, parts, &circuits),
        storage::open(&loaded, opening, &clock)
    )?;
    hooks::remember(&loaded);
    let (storage, control) = (storage.storage, storage.control);
    #[cfg(feature = "test-util")]
    let storage = crate::node::failpoint::arm(storage, loaded.env())?;
    let switch_gate = panic::open(&storage).await?;
    let budgets = budget_holder::open(&storage, process, &loaded.config.budgets).await?;
    let supervisor = Supervisor::spawn().await?;
    #[cfg(feature = "nats")]
    let mut loaded = loaded;
    #[cfg(feature = "nats")]
    if let Err(failure) = name::begin(&mut loaded, process, &storage, &supervisor).await {
        supervisor.stop().await;
        storage.health.close().await;
        return Err(failure.into());
    }
    let bucket = Arc::clone(&storage.bucket);
    let (gate, holder) = (switch_gate.clone(), budgets.clone());
    let node_status = NodeStatus::new(stop, &loaded.config.node, gate, holder, bucket);
    node_status.spends_by(budget_holder::digest(&loaded.config));
    let (view, members) = watch::channel(Members::default());
    let memory = memories::store(&loaded, &storage, &clock).await?;
    let base = NodeBase {
        process,
        roles,
        storage,
        clock,
        members,
        switch_gate,
        budgets,
        supervisor,
        memory,
    };
    let loaded = Arc::new(loaded);
    Ok(Opened { loaded, base, answering, node_status, cluster_clock, view, control })
}

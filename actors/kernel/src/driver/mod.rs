//! The ractor driver: one actor per partition (`dispatcher`) and one per resident entity (`entity`), each a
//! thin shell around its machine. All I/O is done by tasks that send their results back as messages; one that
//! panics ends its actor (`task_panics`).

mod dispatcher;
mod effect_runner;
mod entity;
mod entity_limit;
mod forward;
mod kinds;
mod overdue_timers;
mod probation;
mod reads;
mod requests;
mod retries;
mod task_panics;
mod worker;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
};

use clawnode_cluster::{Clock, Storage, membership::Members, placement::Placement};
use clawnode_proto::{ProcessId, node::VersionRange};
use semver::Version;
use tokio::sync::watch;

pub use dispatcher::{DispatcherHandle, DispatcherView};
pub use effect_runner::EffectRunner;
pub use entity::Port;
pub use entity_limit::ActiveEntities;
pub use forward::Lacks;
pub use kinds::{AddKind, Kinds};
pub use probation::Probations;
pub use requests::{AnswerFrames, TakeOrders, answer_requests};
pub use retries::{erase_until_done, show_claimed, show_left, store_until_done, unchanged};
pub use worker::{Worker, WorkerOptions};

/// Says which partitions are pulled, and at which rank.
type Placed = watch::Receiver<Arc<Placement>>;

/// An effect under way.
pub type Performing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Shared by all actors of a worker, for entities of any kind.
pub struct WorkerContext {
    pub process: ProcessId,
    /// All the storage of the process.
    pub storage: Storage,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// The kinds of entities that it serves.
    pub kinds: Kinds,
    /// Its version, as its heartbeats say it.
    pub version: Version,
    /// Makes incarnations unique within the process.
    pub activations: std::sync::atomic::AtomicU64,
    /// Resident entities.
    pub resident: std::sync::atomic::AtomicU64,
    /// The versions of inputs that this process reads.
    pub speaks: VersionRange,
    /// The processes that it hears of, to find one that can serve what it cannot.
    pub peers: watch::Receiver<Members>,
    /// What entities need and no living process knows.
    pub lacks: Lacks,
    /// Entities that may have killed their process.
    pub probations: Probations,
    /// How many entities it may have in hand.
    pub places: ActiveEntities,
    /// Whether it takes no more entities.
    pub cordoned: Arc<AtomicBool>,
}

impl fmt::Debug for WorkerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerContext").field("process", &self.process).finish_non_exhaustive()
    }
}

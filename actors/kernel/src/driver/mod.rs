//! The ractor driver: one actor per partition (`dispatcher`) and one per resident entity (`entity`), each a
//! thin shell around its machine. All I/O is done by tasks that send their results back as messages; one that
//! panics ends its actor (`fuse`).

mod dispatcher;
mod entity;
mod entity_limit;
mod forward;
mod fuse;
mod kinds;
mod overdue;
mod probation;
mod reads;
mod requests;
mod worker;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
};

use clawnode_cluster::{Clock, Storage, membership::Members, placement::Placement};
use clawnode_proto::{Digest, EntityId, Epoch, Input, InputId, ProcessId, node::VersionRange};
use semver::Version;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use dispatcher::{DispatcherHandle, DispatcherView};
pub use entity::Port;
pub use entity_limit::ActiveEntities;
pub use forward::Lacks;
pub use kinds::Kinds;
pub use probation::Probations;
pub use requests::{AnswerFrames, TakeOrders, answer_requests};
pub use worker::{Worker, WorkerOptions};

use super::{ActivationEnd, EntityKind};

/// Says which partitions are pulled, and at which rank.
type Placed = watch::Receiver<Arc<Placement>>;

/// An effect under way.
pub type Performing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the effects of a kind. Implementations hold what effects need.
pub trait EffectRunner<K: EntityKind>: Send + Sync + fmt::Debug + 'static {
    /// Asks for a grant, which is returned if there is one at hand. Otherwise the answer comes
    /// through the port, soon: `granted`, or `deferred` with `granted` later, or `refused`. If the
    /// question is lost, the port hears `forgotten`, and the machine asks again.
    fn acquire(
        &self,
        entity: EntityId,
        effect: K::Effect,
        want: K::Want,
        port: &Port<K>,
    ) -> Option<K::Grant>;

    /// Runs an effect to its end, and reports the end through the port. When `cancelled` fires, it
    /// ends soon, with what there is.
    fn run(
        &self,
        entity: EntityId,
        effect: K::Effect,
        job: K::Job,
        port: Port<K>,
        cancelled: CancellationToken,
    ) -> Performing;

    /// Removes the blobs of an entity that is to be deleted until they are gone, as far as its
    /// journal can be read, and those of the inputs that go with it. It keeps the state of the
    /// snapshot that the entity loads from, which it names.
    fn erase(
        &self,
        entity: EntityId,
        dropped: Vec<Input>,
    ) -> Pin<Box<dyn Future<Output = Option<Digest>> + Send>>;

    /// The entity was claimed, and another process had it before.
    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch);

    /// The entity left memory; `waiting` are inputs that no actor will answer for now, and why.
    fn left(&self, entity: EntityId, waiting: &[InputId], stop: &ActivationEnd);
}

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

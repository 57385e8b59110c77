//! A storage backend: the seven traits together, and its health.

use std::sync::Arc;

use async_trait::async_trait;
use clawnode_proto::{Partition, overview::BusView, subject::Prefix};

use crate::{Blobs, Bucket, Bus, Inbox, Jobs, Journal, Timers};

/// All the storage that an entity, a gateway or a worker uses.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Journals: what has happened.
    pub journal: Arc<dyn Journal>,
    /// Inboxes: unfinished inputs.
    pub inbox: Arc<dyn Inbox>,
    /// Job queues: calls for any process with the capability.
    pub jobs: Arc<dyn Jobs>,
    /// Messages that are not stored.
    pub bus: Arc<dyn Bus>,
    /// Small shared values.
    pub bucket: Arc<dyn Bucket>,
    /// Inputs for later.
    pub timers: Arc<dyn Timers>,
    /// Large content.
    pub blobs: Arc<dyn Blobs>,
    /// The state of the backend.
    pub health: Arc<dyn Health>,
    /// The first part of its subjects.
    pub prefix: Prefix,
    /// The number of its partitions, fixed at its birth.
    pub partitions: u16,
    /// Whether other processes may share it.
    pub shared: bool,
}

impl Storage {
    /// All its partitions.
    pub fn all_partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions).map(Partition)
    }
}

/// A condition that a person should know, with a stable name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Warning {
    /// For scripts: `bus.replicas`.
    pub name: String,
    /// The condition, and what it means.
    pub message: String,
    pub hint: String,
}

/// Why a backend is lost for good to this process; another process may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It refuses this node from now on.
    Refused(String),
    /// The connection is beyond repair.
    Broken(String),
}

/// The health of a storage backend.
#[async_trait]
pub trait Health: Send + Sync + std::fmt::Debug {
    /// Its kind and address, for people: `local /path`, `nats nats://host:4222`.
    fn describe(&self) -> String;

    /// Whether it can take new input now; the reason if not.
    async fn ready(&self) -> Result<(), String>;

    /// Conditions that a person should know, durability above all.
    async fn warnings(&self) -> Vec<Warning>;

    /// The state of its servers; `None` if there are none.
    async fn bus(&self) -> Option<BusView> {
        None
    }

    /// Which cluster it belongs to, as its birth named it; `None` if it has no name.
    fn cluster(&self) -> Option<String> {
        None
    }

    /// Waits until it is lost for good to this process, and says why.
    async fn lost(&self) -> Lost {
        std::future::pending().await
    }

    /// Stores what is under way and closes; safe to call twice.
    async fn close(&self);
}

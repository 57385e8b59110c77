//! A substrate: the seven traits together, and how it is doing.

use std::sync::Arc;

use async_trait::async_trait;
use clawnode_proto::{Partition, overview::BusView, subject::Prefix};

use crate::{Blobs, Bucket, Bus, Inbox, Jobs, Journal, Timers};

/// All the storage that an entity, a gateway or a worker uses.
#[derive(Clone, Debug)]
pub struct Storage {
    /// What has happened.
    pub journal: Arc<dyn Journal>,
    /// What is not finished.
    pub inbox: Arc<dyn Inbox>,
    /// What any process with the capability may do.
    pub jobs: Arc<dyn Jobs>,
    /// What is said in passing.
    pub bus: Arc<dyn Bus>,
    /// Small shared values.
    pub bucket: Arc<dyn Bucket>,
    /// What comes later.
    pub timers: Arc<dyn Timers>,
    /// What is large.
    pub blobs: Arc<dyn Blobs>,
    /// How it is doing.
    pub health: Arc<dyn Health>,
    /// What its subjects begin with.
    pub prefix: Prefix,
    /// How many partitions it was born with.
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

/// Something a person should know, by a stable name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Warning {
    /// For scripts: `bus.replicas`.
    pub name: String,
    /// What is so, and what it means.
    pub message: String,
    pub hint: String,
}

/// Why a substrate is lost for good to this process; another process may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It does not let this node in any more.
    Refused(String),
    /// The connection is beyond repair.
    Broken(String),
}

/// How a substrate is doing.
#[async_trait]
pub trait Health: Send + Sync + std::fmt::Debug {
    /// What it is, for people: `local /path`, `nats nats://host:4222`.
    fn describe(&self) -> String;

    /// Whether it can take new input now; the reason if not.
    async fn ready(&self) -> Result<(), String>;

    /// What a person should know, durability above all.
    async fn warnings(&self) -> Vec<Warning>;

    /// How the servers behind it are doing; `None` where there are none.
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

    /// Stores what is under way and lets go; safe to call twice.
    async fn close(&self);
}

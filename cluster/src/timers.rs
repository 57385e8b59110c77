//! The timers door: an input that arrives in an entity's inbox when its time has come.
//!
//! A timer fires at least once, never before it is due by the store's clock. Setting the same
//! timer again replaces it. The generation inside the input is the truth, not the time of arrival.

use async_trait::async_trait;
use clawnode_proto::{EntityId, Input, Partition, TimerId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// An input for later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Which timer of the entity named in `input`.
    pub id: TimerId,
    /// When.
    pub due: Timestamp,
    /// What then arrives.
    pub input: Input,
}

/// Inputs for later.
#[async_trait]
pub trait Timers: Send + Sync + std::fmt::Debug {
    /// Sets or replaces a timer; answers after it is durably stored.
    async fn set(&self, timer: &Timer) -> Result<(), StoreError>;

    /// Removes a timer. It may still fire if it was just due.
    async fn cancel(&self, entity: EntityId, timer: TimerId) -> Result<(), StoreError>;

    /// Timers of the partition that are stored and not fired, for sweeps and people.
    async fn pending(&self, partition: Partition) -> Result<Vec<Timer>, StoreError>;
}

//! The timers trait: an input that arrives in an entity's inbox when its time has come.
//!
//! A timer fires at least once, never before it is due by the store's clock. Setting the same
//! timer again replaces it. The generation inside the input is the truth, not the time of arrival.

use async_trait::async_trait;
use clawnode_proto::{EntityId, Input, Partition, Position, TimerId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// An input for later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// The id of the timer, for the entity named in `input`.
    pub id: TimerId,
    pub due: Timestamp,
    /// The input that arrives.
    pub input: Input,
}

/// Timers of a partition that one call of [`Timers::restore_overdue`] checks.
pub const OVERDUE_LOOKS: usize = 256;

/// The result of a look for overdue timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// How many were stored again.
    pub restored: usize,
    /// The timer after which to continue; absent once all were checked.
    pub next: Option<Position>,
}

/// Inputs for later.
#[async_trait]
pub trait Timers: Send + Sync + std::fmt::Debug {
    /// Sets or replaces a timer; answers after it is durably stored.
    async fn set(&self, timer: &Timer) -> Result<(), StoreError>;

    /// Removes a timer. It may still fire if it was just due.
    async fn cancel(&self, entity: EntityId, timer: TimerId) -> Result<(), StoreError>;

    /// Timers of the partition that are stored and not fired, for sweeps and people. Inputs that only
    /// newer builds take may lack what this build does not know.
    async fn pending(&self, partition: Partition) -> Result<Vec<Timer>, StoreError>;

    /// Stores again the timers of the partition that were due before `before` and have not fired,
    /// so that a backend which lost track of them fires them. It checks those after `after`, at
    /// most [`OVERDUE_LOOKS`] of them if each costs a request. A timer that is set again, cancelled
    /// or fired meanwhile stays so. Inputs are stored as they are, also those that only newer builds
    /// take.
    async fn restore_overdue(
        &self,
        partition: Partition,
        before: Timestamp,
        after: Position,
    ) -> Result<Overdue, StoreError>;
}

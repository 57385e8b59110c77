//! The points of timers.

use async_trait::async_trait;
use clawnode_cluster::{Overdue, StoreError, Timer, Timers};
use clawnode_proto::{EntityId, Partition, Position, TimerId, Timestamp};

use super::stores::WithFailpoints;

#[async_trait]
impl Timers for WithFailpoints<dyn Timers> {
    async fn set(&self, timer: &Timer) -> Result<(), StoreError> {
        self.armed.write_of(timer.input.entity);
        self.inner.set(timer).await
    }

    async fn cancel(&self, entity: EntityId, timer: TimerId) -> Result<(), StoreError> {
        self.armed.write_of(entity);
        self.inner.cancel(entity, timer).await
    }

    async fn pending(&self, partition: Partition) -> Result<Vec<Timer>, StoreError> {
        self.inner.pending(partition).await
    }

    async fn restore_overdue(
        &self,
        partition: Partition,
        before: Timestamp,
        after: Position,
    ) -> Result<Overdue, StoreError> {
        self.inner.restore_overdue(partition, before, after).await
    }
}

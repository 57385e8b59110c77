//! The inbox trait: unfinished inputs of each entity, delivered at least once per partition.
//!
//! Contract: `put` answers after the input is durably stored. A delivery that is neither
//! acknowledged nor kept alive by `progress` for `limits::ACK_WAIT` is delivered again. An
//! acknowledgement removes the input, also a late one by an earlier holder: acks are not fenced.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{EntityId, Input, Partition, Position};

use crate::StoreError;

/// The highest rank, counted from 0, that pulls a partition.
pub const RANK_MAX: u8 = 3;

/// An input that its entity has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingInput {
    /// Where the store has it; orders the inputs of one entity.
    pub position: Position,
    /// The encoded [`Input`]; the receiver decodes it, so that bad bytes lose nothing.
    pub bytes: Bytes,
}

/// One delivery: a signal, with the input that caused it.
#[derive(Clone)]
pub struct Delivery {
    pub entity: EntityId,
    /// Where the store has the input.
    pub position: Position,
    /// Whether it was delivered before, to any process, as far as the store knows.
    pub redelivered: bool,
    /// Whether the store knows that no other input of the entity that waits is before this one:
    /// reading the inbox would show nothing else first.
    pub foremost: bool,
    /// The encoded input.
    pub bytes: Bytes,
    /// The handle for the answer.
    pub handle: Arc<dyn AckHandle>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("entity", &self.entity)
            .field("position", &self.position)
            .field("redelivered", &self.redelivered)
            .field("foremost", &self.foremost)
            .finish_non_exhaustive()
    }
}

/// The answer to one delivery. All are best effort; the next delivery repairs what is lost.
#[async_trait]
pub trait AckHandle: Send + Sync {
    /// The input is complete: remove it.
    async fn ack(&self) -> Result<(), StoreError>;
    /// Still working on it: do not deliver it again for another `ACK_WAIT`.
    async fn progress(&self) -> Result<(), StoreError>;
    /// Give it back: deliver it again after `delay`.
    async fn nak(&self, delay: Duration) -> Result<(), StoreError>;
}

/// A stream of the deliveries of one partition. Dropping it stops pulling.
#[async_trait]
pub trait Consumer: Send {
    /// The next delivery; waits for one. An error is transient unless it says otherwise.
    /// May be dropped before it is ready: no delivery is lost.
    async fn next(&mut self) -> Result<Delivery, StoreError>;

    /// Pulls at this rank from now on, without a gap. A delivery that was on its way when the rank
    /// got worse may come only with its redelivery: look for it.
    async fn set_rank(&mut self, rank: u8) -> Result<(), StoreError>;
}

/// How many inputs one partition has, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Not yet delivered.
    pub waiting: u64,
    /// Delivered and not finished.
    pub in_hand: u64,
}

/// The waiting inputs of entities.
#[async_trait]
pub trait Inbox: Send + Sync + std::fmt::Debug {
    /// Stores an input durably. Storing the same input again is harmless: the fold de-duplicates.
    async fn put(&self, input: &Input) -> Result<Position, StoreError>;

    /// The same, if fewer than `room` (at least 1) inputs of its entity wait, else `None`.
    /// Concurrent callers may go beyond `room`, by fewer than they are.
    async fn put_if_room(
        &self,
        input: &Input,
        room: usize,
    ) -> Result<Option<Position>, StoreError> {
        if self.pending(input.entity).await? >= room {
            return Ok(None);
        }
        self.put(input).await.map(Some)
    }

    /// All inputs of one entity that wait, after `after`, in stream order, delivered or not.
    async fn read(
        &self,
        entity: EntityId,
        after: Position,
    ) -> Result<Vec<WaitingInput>, StoreError>;

    /// How many inputs of one entity wait, delivered or not.
    async fn pending(&self, entity: EntityId) -> Result<usize, StoreError>;

    /// Entities of the partition that have inputs waiting.
    async fn scan(&self, partition: Partition) -> Result<Vec<EntityId>, StoreError>;

    /// How many inputs each partition has, in order; `None` where that would take a scan.
    async fn depths(&self) -> Result<Option<Vec<Depth>>, StoreError> {
        Ok(None)
    }

    /// Pulls the partition at this rank (0 is served first, at most [`RANK_MAX`]).
    async fn consume(
        &self,
        partition: Partition,
        rank: u8,
    ) -> Result<Box<dyn Consumer>, StoreError>;
}

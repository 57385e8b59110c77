//! The simulated inbox handle: an input is delivered when a caller asks for the next one.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    AckHandle, Consumer, Delivery, Inbox, StoreError, WaitingInput, inbox::RANK_MAX,
};
use clawnode_proto::{EntityId, Input, Partition, Position};

use super::{
    Delivered, StoreReply, StoreRequest, Token,
    world_driver::{WorldClient, stray},
};

const STORE: &str = "simulated inbox";

/// Inboxes of a world.
#[derive(Debug)]
pub(super) struct SimInbox(pub(super) WorldClient);

/// Pulls one partition.
struct SimConsumer {
    client: WorldClient,
    partition: Partition,
}

/// Answers one delivery.
struct SimHandle {
    client: WorldClient,
    token: Token,
}

#[async_trait]
impl Inbox for SimInbox {
    async fn put(&self, input: &Input) -> Result<Position, StoreError> {
        encoded(input)?;
        match self.0.ask(STORE, StoreRequest::Put(input.clone())).await? {
            StoreReply::Put(position) => Ok(position),
            other => Err(stray(STORE, &other)),
        }
    }

    async fn read(
        &self,
        entity: EntityId,
        after: Position,
    ) -> Result<Vec<WaitingInput>, StoreError> {
        let inputs = match self.0.ask(STORE, StoreRequest::Inbox(entity, after)).await? {
            StoreReply::Waiting(inputs) => inputs,
            other => return Err(stray(STORE, &other)),
        };
        let waiting = |(position, input): (Position, Input)| {
            Ok(WaitingInput { position, bytes: encoded(&input)? })
        };
        inputs.into_iter().map(waiting).collect()
    }

    async fn pending(&self, entity: EntityId) -> Result<usize, StoreError> {
        match self.0.ask(STORE, StoreRequest::Inbox(entity, Position(0))).await? {
            StoreReply::Waiting(inputs) => Ok(inputs.len()),
            other => Err(stray(STORE, &other)),
        }
    }

    async fn scan(&self, partition: Partition) -> Result<Vec<EntityId>, StoreError> {
        match self.0.ask(STORE, StoreRequest::Scan(partition)).await? {
            StoreReply::Entities(entities) => Ok(entities),
            other => Err(stray(STORE, &other)),
        }
    }

    async fn consume(
        &self,
        partition: Partition,
        rank: u8,
    ) -> Result<Box<dyn Consumer>, StoreError> {
        if rank > RANK_MAX || partition.0 >= self.0.shared.partitions {
            let partitions = self.0.shared.partitions;
            let detail =
                format!("partition {partition} of {partitions}, rank {rank} of {RANK_MAX}");
            return Err(StoreError::Refused { store: STORE, detail });
        }
        Ok(Box::new(SimConsumer { client: self.0.clone(), partition }))
    }
}

#[async_trait]
impl Consumer for SimConsumer {
    async fn next(&mut self) -> Result<Delivery, StoreError> {
        loop {
            let Delivered { entity, token, redelivered, foremost } =
                self.client.next(STORE, self.partition).await?;
            let position = token.0;
            let waiting = self.client.present(STORE)?.world.inbox(entity);
            // It may have been acknowledged on its way.
            let Some((_, input)) = waiting.into_iter().find(|(at, _)| *at == position) else {
                continue;
            };
            let bytes = encoded(&input)?;
            let handle = Arc::new(SimHandle { client: self.client.clone(), token });
            let foremost = foremost.is_some();
            return Ok(Delivery { entity, position, redelivered, foremost, bytes, handle });
        }
    }

    /// Ranks order processes; here is one.
    async fn set_rank(&mut self, _rank: u8) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl AckHandle for SimHandle {
    async fn ack(&self) -> Result<(), StoreError> {
        self.client.ask(STORE, StoreRequest::Ack(self.token)).await.map(drop)
    }

    async fn progress(&self) -> Result<(), StoreError> {
        self.client.ask(STORE, StoreRequest::Progress(self.token)).await.map(drop)
    }

    async fn nak(&self, delay: Duration) -> Result<(), StoreError> {
        self.client.ask(STORE, StoreRequest::Nak(self.token, delay)).await.map(drop)
    }
}

fn encoded(input: &Input) -> Result<Bytes, StoreError> {
    let bytes = input
        .to_bytes()
        .map_err(|error| StoreError::Refused { store: STORE, detail: error.to_string() })?;
    Ok(Bytes::from(bytes))
}

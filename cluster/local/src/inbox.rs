//! The inbox handle.
//!
//! An acknowledgement returns when it is queued, not when it is durable: it is written with the
//! next group. If the process dies before, the input is delivered again, which its fold makes
//! harmless.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{AckHandle, Consumer, Delivery, Inbox, StoreError, WaitingInput};
use clawnode_proto::{EntityId, Input, Partition, Position, limits};
use tokio::sync::oneshot;

use super::{
    in_flight::Popped,
    index::Loc,
    queue::EngineOp,
    read_threads::{blocking, is_small},
    record::{Header, RecordKind, split_timer},
    shared::{DirectoryClient, OpenDirectory},
};

/// The name of this store in errors.
pub(super) const STORE: &str = "local inbox";
/// Bytes of one encoded input: a message and its envelope.
pub(super) const INPUT_BYTES: usize = limits::MESSAGE_BYTES + (64 << 10);

/// Inboxes in the log.
#[derive(Debug)]
pub(super) struct LocalInbox(pub(super) Arc<DirectoryClient>);

/// Pulls one partition.
struct LocalConsumer {
    client: Arc<DirectoryClient>,
    partition: Partition,
}

/// Answers one delivery.
struct LocalHandle {
    client: Arc<DirectoryClient>,
    entity: EntityId,
    position: Position,
}

#[async_trait]
impl Inbox for LocalInbox {
    async fn put(&self, input: &Input) -> Result<Position, StoreError> {
        let bytes = encode(STORE, input)?;
        let (reply, answer) = oneshot::channel();
        let len = bytes.len();
        let op = EngineOp::Put { entity: input.entity, bytes, reply };
        self.0.0.ask(STORE, op, len, answer).await?
    }

    async fn read(
        &self,
        entity: EntityId,
        after: Position,
    ) -> Result<Vec<WaitingInput>, StoreError> {
        // A damaged journal does not refuse it: orders about the damage come through here.
        let shared = &self.0.0;
        let places = shared.look(STORE, |_| Ok(shared.deliveries().of(entity, after)))?;
        if is_small(places.iter().map(|(_, loc)| *loc)) {
            return read_all(shared, entity, places);
        }
        // The cleaner may move records while the read waits for its thread, so it looks again
        // there.
        let read = move |shared: &OpenDirectory| {
            let places = shared.look(STORE, |_| Ok(shared.deliveries().of(entity, after)))?;
            read_all(shared, entity, places)
        };
        blocking(shared, STORE, read).await
    }

    async fn pending(&self, entity: EntityId) -> Result<usize, StoreError> {
        self.0.0.look(STORE, |_| Ok(self.0.0.deliveries().count(entity)))
    }

    async fn scan(&self, partition: Partition) -> Result<Vec<EntityId>, StoreError> {
        self.0.0.look(STORE, |_| Ok(self.0.0.deliveries().entities(partition)))
    }

    async fn consume(
        &self,
        partition: Partition,
        _rank: u8,
    ) -> Result<Box<dyn Consumer>, StoreError> {
        // Ranks order processes; here there is only one.
        if partition.0 >= self.0.0.partitions {
            let detail = format!("partition {partition} of {}", self.0.0.partitions);
            return Err(StoreError::Refused { store: STORE, detail });
        }
        Ok(Box::new(LocalConsumer { client: Arc::clone(&self.0), partition }))
    }
}

#[async_trait]
impl Consumer for LocalConsumer {
    async fn next(&mut self) -> Result<Delivery, StoreError> {
        let shared = &self.client.0;
        let bell = &shared.bells[usize::from(self.partition.0)];
        loop {
            if shared.index().is_none() {
                // Others may wait for this notification, and they must hear it too.
                bell.notify_one();
                return Err(shared.closed(STORE));
            }
            let popped = {
                let mut deliveries = shared.deliveries();
                let popped = deliveries.pop(self.partition, Instant::now(), shared.ack_wait);
                if deliveries.has_ready(self.partition.0) {
                    bell.notify_one();
                }
                popped
            };
            let Some((Popped { position, item, wake }, foremost)) = popped else {
                bell.notified().await;
                continue;
            };
            if wake {
                shared.queue.poke();
            }
            let bytes = match input_at(shared, item.of, position, item.loc) {
                Ok(bytes) => bytes,
                // It stays in hand until its time is over: then it is tried again.
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    shared.deliveries().set_damaged(position);
                    return Err(error);
                }
            };
            let (client, entity) = (Arc::clone(&self.client), item.of);
            let handle = Arc::new(LocalHandle { client, entity, position });
            let redelivered = item.seen;
            return Ok(Delivery { entity, position, redelivered, foremost, bytes, handle });
        }
    }

    /// Ranks order processes; here there is only one.
    async fn set_rank(&mut self, _rank: u8) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl AckHandle for LocalHandle {
    async fn ack(&self) -> Result<(), StoreError> {
        let shared = &self.client.0;
        let removed = shared.deliveries().remove(self.position);
        if removed.is_none() {
            return Ok(());
        }
        shared
            .queue
            .push_ack(self.entity, self.position)
            .map_err(|detail| StoreError::Closed { store: STORE, detail })
    }

    async fn progress(&self) -> Result<(), StoreError> {
        self.put_off(self.client.0.ack_wait, false);
        Ok(())
    }

    async fn nak(&self, delay: Duration) -> Result<(), StoreError> {
        self.put_off(delay, true);
        Ok(())
    }
}

impl LocalHandle {
    fn put_off(&self, delay: Duration, always: bool) {
        let shared = &self.client.0;
        let until = Instant::now() + delay;
        let wake = shared.deliveries().put_off(self.position, until, always);
        if wake {
            shared.queue.poke();
        }
    }
}

/// An input's bytes, if they are not too many.
pub(super) fn encode(store: &'static str, input: &Input) -> Result<Bytes, StoreError> {
    let bytes = input
        .to_bytes()
        .map_err(|error| StoreError::Refused { store, detail: error.to_string() })?;
    if bytes.len() > INPUT_BYTES {
        let detail = format!("{} bytes in one input, at most {INPUT_BYTES}", bytes.len());
        return Err(StoreError::Refused { store, detail });
    }
    Ok(Bytes::from(bytes))
}

/// The inputs in the records at these places.
fn read_all(
    shared: &OpenDirectory,
    entity: EntityId,
    places: Vec<(Position, Loc)>,
) -> Result<Vec<WaitingInput>, StoreError> {
    let mut waiting = Vec::with_capacity(places.len());
    for (position, loc) in places {
        match input_at(shared, entity, position, loc) {
            Ok(bytes) => waiting.push(WaitingInput { position, bytes }),
            Err(failure) if failure.is_transient() => return Err(failure),
            // Reported where it was found; its journal refuses its entity.
            Err(_) => {}
        }
    }
    Ok(waiting)
}

/// The input in the record at `loc`, which may not be written yet.
fn input_at(
    shared: &OpenDirectory,
    entity: EntityId,
    position: Position,
    loc: Loc,
) -> Result<Bytes, StoreError> {
    let early = shared.deliveries().early(position);
    if let Some(bytes) = early {
        return Ok(bytes);
    }
    let (header, body): (Header, Bytes) = shared.read(entity, position, loc)?;
    if header.kind != RecordKind::Fired {
        return Ok(body);
    }
    let skip = body.len() - split_timer(&body).map_or(body.len(), |(_, input)| input.len());
    Ok(body.slice(skip..))
}

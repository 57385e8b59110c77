//! The inbox: one work-queue stream, one consumer for each partition.

use std::{sync::Arc, time::Duration};

use async_nats::HeaderMap;
use async_trait::async_trait;
use clawnode_cluster::{
    Consumer, Depth, Inbox, StoreError, WaitingInput, clock::Backoff, inbox::RANK_MAX,
};
use clawnode_proto::{
    EntityId, Input, Partition, Position,
    subject::{Prefix, entity_of},
};
use tokio::{sync::OnceCell, time::Instant};
use tracing::debug;

use super::{
    api::{Api, RequestFailure},
    foreign_messages::is_foreign,
    journal::expecting,
    pull::{FOREMOST, Pull, STORE},
    signals::{Forgotten, elections, partition_of_consumer},
    spec::TopologyError,
    stream::StreamReader,
    topology,
};

/// How long `put` tries again while the stream has no leader: an election takes up to 8 s, and a
/// client waits for the answer.
const PUT_PATIENCE: Duration = Duration::from_secs(12);

/// The inbox on `JetStream`.
#[derive(Debug)]
pub(super) struct NatsInbox {
    api: Api,
    prefix: Prefix,
    partitions: u16,
    ack_wait: Duration,
    reader: StreamReader,
    /// Subscribed when the first partition is pulled; a process that never pulls does not need it.
    forgotten: OnceCell<Arc<Forgotten>>,
}

// === impl NatsInbox ===

impl NatsInbox {
    pub(super) fn new(
        api: Api,
        prefix: Prefix,
        partitions: u16,
        ack_wait: Duration,
        reader: StreamReader,
    ) -> Self {
        Self { api, prefix, partitions, ack_wait, reader, forgotten: OnceCell::new() }
    }

    /// The source of news about pulls that the server forgot.
    async fn forgotten(&self) -> Result<&Arc<Forgotten>, RequestFailure> {
        self.forgotten
            .get_or_try_init(|| async {
                let elections = self.api.client.subscribe(elections(self.reader.name(), "*")).await;
                let elections =
                    elections.map_err(|error| RequestFailure::Unknown(error.to_string()))?;
                let closing = self.api.closing.clone();
                Ok(Forgotten::watch(&self.api.signals, self.partitions, elections, closing))
            })
            .await
    }

    /// Stores an input marked as foremost, if nothing of its entity waits; `None` if something
    /// does. The server decides that with the store, so there is no moment between the two.
    async fn put_foremost(&self, input: &Input) -> Result<Option<Position>, RequestFailure> {
        let mut headers = expecting(Position(0));
        headers.insert(FOREMOST, "1");
        match self.store(input, headers).await {
            Ok(position) => Ok(Some(position)),
            Err(failure) if failure.is_wrong_last_sequence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn store(&self, input: &Input, headers: HeaderMap) -> Result<Position, RequestFailure> {
        let bytes =
            input.to_bytes().map_err(|error| RequestFailure::Rejected(error.to_string()))?;
        self.api.publish(self.subject(input.entity), headers, bytes.into()).await
    }

    async fn count(&self, entity: EntityId) -> Result<usize, RequestFailure> {
        let subject = self.subject(entity);
        let count = self.reader.subjects(&subject).await?.get(&subject).copied();
        Ok(usize::try_from(count.unwrap_or_default()).unwrap_or(usize::MAX))
    }

    /// Tries until then, as long as time may help.
    async fn patiently<T, F>(&self, until: Instant, call: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, RequestFailure>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            match call().await {
                Err(failure) if failure.is_transient() && Instant::now() < until => {
                    debug!(%failure, tries = backoff.tries(), "a put is tried again");
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                done => return done.map_err(store_error),
            }
        }
    }

    fn subject(&self, entity: EntityId) -> String {
        self.prefix.input(entity.partition(self.partitions), entity)
    }

    /// Checks the partition's consumer, and makes it again if it was removed. Waiting messages are
    /// in the stream, so nothing is lost with the consumer.
    async fn ensure_consumer(&self, partition: Partition) -> Result<(), StoreError> {
        let spec = topology::partition_consumer(&self.prefix, partition, self.ack_wait);
        let checked = match spec.check(&self.api).await {
            Err(TopologyError::Failed { failure, .. }) if failure.is_consumer_not_found() => {
                spec.create(&self.api).await
            }
            checked => checked,
        };
        checked.map_err(|error| match error {
            TopologyError::Failed { failure, .. } => failure.of_store(STORE),
            TopologyError::Different { .. } => {
                StoreError::Refused { store: STORE, detail: error.to_string() }
            }
        })
    }
}

#[async_trait]
impl Inbox for NatsInbox {
    async fn put(&self, input: &Input) -> Result<Position, StoreError> {
        let until = Instant::now() + PUT_PATIENCE;
        self.patiently(until, || self.store(input, HeaderMap::new())).await
    }

    async fn put_if_room(
        &self,
        input: &Input,
        room: usize,
    ) -> Result<Option<Position>, StoreError> {
        let until = Instant::now() + PUT_PATIENCE;
        let foremost = self.patiently(until, || self.put_foremost(input)).await?;
        if foremost.is_some() {
            return Ok(foremost);
        }
        if self.patiently(until, || self.count(input.entity)).await? >= room {
            return Ok(None);
        }
        self.patiently(until, || self.store(input, HeaderMap::new())).await.map(Some)
    }

    async fn read(
        &self,
        entity: EntityId,
        after: Position,
    ) -> Result<Vec<WaitingInput>, StoreError> {
        let messages = self.reader.all(&self.subject(entity), after).await.map_err(store_error)?;
        Ok(messages
            .into_iter()
            .filter(|message| !is_foreign(Some(&message.headers), &message.payload))
            .map(|message| WaitingInput {
                position: Position(message.sequence),
                bytes: message.payload,
            })
            .collect())
    }

    async fn pending(&self, entity: EntityId) -> Result<usize, StoreError> {
        self.count(entity).await.map_err(store_error)
    }

    async fn scan(&self, partition: Partition) -> Result<Vec<EntityId>, StoreError> {
        let filter = self.prefix.inputs_of(partition);
        let subjects = self.reader.subjects(&filter).await.map_err(store_error)?;
        Ok(subjects.keys().filter_map(|subject| entity_of(subject)).collect())
    }

    async fn depths(&self) -> Result<Option<Vec<Depth>>, StoreError> {
        let backlogs = self.reader.backlogs().await.map_err(store_error)?;
        let mut depths = vec![Depth::default(); usize::from(self.partitions)];
        for (name, (waiting, in_hand)) in backlogs {
            let partition = partition_of_consumer(&name);
            if let Some(depth) = partition.and_then(|at| depths.get_mut(at)) {
                *depth = Depth { waiting, in_hand };
            }
        }
        Ok(Some(depths))
    }

    async fn consume(
        &self,
        partition: Partition,
        rank: u8,
    ) -> Result<Box<dyn Consumer>, StoreError> {
        let refused = |detail| StoreError::Refused { store: STORE, detail };
        if rank > RANK_MAX {
            return Err(refused(format!("rank {rank} is over the highest rank {RANK_MAX}")));
        }
        let forgotten =
            self.forgotten().await.map_err(store_error)?.of(partition).ok_or_else(|| {
                refused(format!("partition {partition} is not one of {}", self.partitions))
            })?;
        self.ensure_consumer(partition).await?;
        let consumer = format!("{}.p{partition}", self.reader.name());
        let pull = Pull::open(self.api.clone(), &consumer, rank, forgotten).await;
        Ok(Box::new(pull.map_err(store_error)?))
    }
}

fn store_error(failure: RequestFailure) -> StoreError {
    failure.of_store(STORE)
}

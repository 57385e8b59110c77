//! The handles of a simulated world: a [`Storage`] over a [`World`] in the runtime's time.
//!
//! Every call is a request to the world and comes back when the world answers it, so all faults of
//! [`Faults`] may be put on. The bus has no part in the world: it is the local one, without faults.
//!
//! Dropping the future of an append does not take the append back, as with every other storage backend.

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{
    Digest, EntityId, Partition, Position, TimerId, Timestamp, limits::APPEND_BYTES,
    subject::Prefix,
};
use futures_util::Stream;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use super::world_driver::SimClock;
use clawnode_cluster::{
    AppendAnswer, Blobs, Bucket, BucketChange, BucketEntry, BucketError, FeedPage, Health, Journal,
    Overdue, Record, Storage, StoreError, Timer, Timers, Warning, Write,
};
use clawnode_local::LocalBus;

use super::{
    Bugs, Faults, StoreReply, StoreRequest, World,
    storage_inbox::SimInbox,
    storage_jobs::SimJobs,
    world_driver::{WorldClient, WorldDriver, stray},
};

const JOURNAL: &str = "simulated journal";
const BUCKET: &str = "simulated bucket";
const TIMERS: &str = "simulated timers";
const BLOBS: &str = "simulated blobs";

/// What a simulated storage backend is like.
#[derive(Clone, Debug)]
pub struct SimStorageOptions {
    /// Where all chance comes from.
    pub seed: u64,
    /// What goes wrong, and how often.
    pub faults: Faults,
    /// What is wrong with the store itself.
    pub bugs: Bugs,
    /// How many partitions there are.
    pub partitions: u16,
    /// How long a delivery may go without an answer.
    pub ack_wait: Duration,
}

/// A world that outlives the processes that use it.
#[derive(Clone, Debug)]
pub struct SimStores(Arc<WorldDriver>);

impl Default for SimStorageOptions {
    /// A calm world.
    fn default() -> Self {
        Self {
            seed: 0,
            faults: Faults::none(),
            bugs: Bugs::default(),
            partitions: 4,
            ack_wait: Duration::from_millis(500),
        }
    }
}

// === impl SimStores ===

impl SimStores {
    /// A new world with nothing in it. Its time is the runtime's, in which this must be called.
    pub fn new(options: &SimStorageOptions) -> Self {
        let mut world = World::new(options.seed, options.partitions, false, options.bugs);
        world.faults = options.faults;
        world.ack_wait = options.ack_wait;
        world.on_demand();
        Self(WorldDriver::start(world, options.partitions))
    }

    /// The world's time of day.
    pub fn clock(&self) -> SimClock {
        self.0.clock
    }

    /// From here on this goes wrong, and chance goes on from this seed.
    pub fn disturb(&self, seed: u64, faults: Faults) {
        let mut state = self.0.lock();
        state.world.rng = ChaCha8Rng::seed_from_u64(seed);
        state.world.faults = faults;
    }

    /// A new process in front of the world; the one before it is gone, and hears so.
    pub fn open(&self) -> Storage {
        let client = WorldClient::enter(&self.0);
        let bus = LocalBus::new();
        Storage {
            journal: Arc::new(SimJournal(client.clone())),
            inbox: Arc::new(SimInbox(client.clone())),
            jobs: Arc::new(SimJobs(client.clone())),
            bus: Arc::new(bus.clone()),
            bucket: Arc::new(SimBucket(client.clone())),
            timers: Arc::new(SimTimers(client.clone())),
            blobs: Arc::new(SimBlobs(client.clone())),
            health: Arc::new(SimHealth { client, bus }),
            prefix: Prefix::default(),
            partitions: self.0.partitions,
            shared: false,
        }
    }
}

// === journal ===

#[derive(Debug)]
struct SimJournal(WorldClient);

#[async_trait]
impl Journal for SimJournal {
    async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer {
        let bytes = write.bytes.len();
        if bytes > APPEND_BYTES {
            let detail = format!("{bytes} bytes in one append, at most {APPEND_BYTES}");
            return AppendAnswer::Defect(StoreError::Refused { store: JOURNAL, detail });
        }
        match self.0.ask(JOURNAL, StoreRequest::Append { entity, expected, write }).await {
            Ok(StoreReply::Append(answer)) => answer,
            Ok(other) => AppendAnswer::Unknown(stray(JOURNAL, &other)),
            Err(error) => AppendAnswer::Unknown(error),
        }
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        match self.0.ask(JOURNAL, StoreRequest::Journal(entity, after)).await? {
            StoreReply::Records(records) => Ok(records),
            other => Err(stray(JOURNAL, &other)),
        }
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        match self.0.ask(JOURNAL, StoreRequest::Tail(entity)).await? {
            StoreReply::Tail(tail) => Ok(tail),
            other => Err(stray(JOURNAL, &other)),
        }
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        match self.0.ask(JOURNAL, StoreRequest::Entities(after, limit)).await? {
            StoreReply::Entities(entities) => Ok(entities),
            other => Err(stray(JOURNAL, &other)),
        }
    }

    async fn end(&self) -> Result<Position, StoreError> {
        match self.0.ask(JOURNAL, StoreRequest::End).await? {
            StoreReply::End(position) => Ok(position),
            other => Err(stray(JOURNAL, &other)),
        }
    }

    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
        match self.0.ask(JOURNAL, StoreRequest::Follow(after, limit)).await? {
            StoreReply::Page(page) => Ok(page),
            other => Err(stray(JOURNAL, &other)),
        }
    }
}

// === bucket ===

#[derive(Debug)]
struct SimBucket(WorldClient);

impl SimBucket {
    async fn change(&self, key: &str, request: StoreRequest) -> Result<Position, BucketError> {
        match self.0.ask(BUCKET, request).await? {
            StoreReply::Changed(Some(position)) => Ok(position),
            StoreReply::Changed(None) => Err(BucketError::Conflict { key: key.to_owned() }),
            other => Err(stray(BUCKET, &other).into()),
        }
    }
}

#[async_trait]
impl Bucket for SimBucket {
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError> {
        match self.0.ask(BUCKET, StoreRequest::Value(key.to_owned())).await? {
            StoreReply::Value(entry) => Ok(entry),
            other => Err(stray(BUCKET, &other)),
        }
    }

    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Position, BucketError> {
        let request = StoreRequest::SetValue { key: key.to_owned(), expected, value, ttl };
        self.change(key, request).await
    }

    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError> {
        self.change(key, StoreRequest::RemoveValue(key.to_owned(), expected)).await.map(drop)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        match self.0.ask(BUCKET, StoreRequest::Values(prefix.to_owned())).await? {
            StoreReply::Values(values) => Ok(values),
            other => Err(stray(BUCKET, &other)),
        }
    }

    async fn watch(
        &self,
        prefix: &str,
    ) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, StoreError> {
        // Under the same lock as every change, so that none falls between what is and what comes.
        let state = self.0.present(BUCKET)?;
        let present = state.world.values(prefix);
        Ok(Box::pin(self.0.shared.watchers.add(prefix.to_owned(), present)))
    }
}

// === timers ===

#[derive(Debug)]
struct SimTimers(WorldClient);

#[async_trait]
impl Timers for SimTimers {
    async fn set(&self, timer: &Timer) -> Result<(), StoreError> {
        self.0.ask(TIMERS, StoreRequest::SetTimer(timer.clone())).await.map(drop)
    }

    async fn cancel(&self, entity: EntityId, timer: TimerId) -> Result<(), StoreError> {
        self.0.ask(TIMERS, StoreRequest::CancelTimer(entity, timer)).await.map(drop)
    }

    async fn pending(&self, partition: Partition) -> Result<Vec<Timer>, StoreError> {
        match self.0.ask(TIMERS, StoreRequest::Timers(partition)).await? {
            StoreReply::Timers(timers) => Ok(timers),
            other => Err(stray(TIMERS, &other)),
        }
    }

    async fn restore_overdue(
        &self,
        partition: Partition,
        before: Timestamp,
        _: Position,
    ) -> Result<Overdue, StoreError> {
        let mut overdue = self.pending(partition).await?;
        overdue.retain(|timer| timer.due < before);
        for timer in &overdue {
            self.set(timer).await?;
        }
        Ok(Overdue { restored: overdue.len(), next: None })
    }
}

// === blobs ===

#[derive(Debug)]
struct SimBlobs(WorldClient);

#[async_trait]
impl Blobs for SimBlobs {
    async fn put(&self, content: Bytes) -> Result<Digest, StoreError> {
        match self.0.ask(BLOBS, StoreRequest::PutBlob(content)).await? {
            StoreReply::Stored(digest) => Ok(digest),
            other => Err(stray(BLOBS, &other)),
        }
    }

    async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        match self.0.ask(BLOBS, StoreRequest::GetBlob(digest)).await? {
            StoreReply::Blob(blob) => Ok(blob),
            other => Err(stray(BLOBS, &other)),
        }
    }

    async fn delete(&self, digest: Digest) -> Result<(), StoreError> {
        self.0.ask(BLOBS, StoreRequest::RemoveBlob(digest)).await.map(drop)
    }

    async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        match self.0.ask(BLOBS, StoreRequest::Blobs).await? {
            StoreReply::Digests(digests) => Ok(digests),
            other => Err(stray(BLOBS, &other)),
        }
    }
}

// === health ===

#[derive(Debug)]
struct SimHealth {
    client: WorldClient,
    bus: LocalBus,
}

#[async_trait]
impl Health for SimHealth {
    fn describe(&self) -> String {
        "simulated".to_owned()
    }

    async fn ready(&self) -> Result<(), String> {
        self.client.present(JOURNAL).map(drop).map_err(|error| error.to_string())
    }

    async fn warnings(&self) -> Vec<Warning> {
        let warning = |name: &str, message: &str, hint: &str| Warning {
            name: name.to_owned(),
            message: message.to_owned(),
            hint: hint.to_owned(),
        };
        vec![warning(
            "simulated",
            "everything is gone when this process ends",
            "for tests; use the local storage backend or NATS for anything else",
        )]
    }

    async fn close(&self) {
        self.bus.close();
        self.client.close();
    }
}

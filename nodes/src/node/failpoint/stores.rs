//! The points of journals, inboxes and the bus, and the handles with points in them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    AckHandle, AppendAnswer, Bus, BusConnection, Consumer, Delivery, Depth, FeedPage, Inbox,
    Journal, Record, RequestError, StoreError, Subscription, WaitingInput, Write,
};
use clawnode_proto::{
    EntityId, Input, Kind, Partition, Position, ProcessId, Traceparent, codec,
    event::decode_record,
    frame::{FrameBatch, FrameBody},
    kernel::{CLAIM, PURGE_BEGUN, QUARANTINED},
};
use tokio::sync::broadcast;

use super::{
    chance::{Chance, stumble},
    memory_writes::MemoryWrites,
    point::{POINTS, Point},
};

/// What is armed.
#[derive(Debug)]
pub(super) enum Armed {
    /// One point, and how many times it is still passed.
    Point(Point, AtomicU64),
    /// A text that kills the process that folds it, and the sessions that are known to have it.
    Poison(String, Mutex<BTreeSet<EntityId>>, Dies),
    /// The caller of a handle panics, by chance.
    Panics(Chance),
    /// Once a message is stored, all workers of the runtime are blocked for so long, once.
    Blocks(Duration, AtomicBool),
    /// One of the writes that follow from inputs of memories.
    MemoryWrite(MemoryWrites),
}

/// What dies of a poison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dies {
    Process,
    /// The actor that folds it: it panics.
    Actor,
}

/// A handle with points in it.
#[derive(Debug)]
pub(super) struct WithFailpoints<T: ?Sized> {
    pub(super) inner: Arc<T>,
    pub(super) armed: Arc<Armed>,
}

// === impl Armed ===

impl Armed {
    pub(super) fn parse(text: &str) -> Option<Self> {
        for (prefix, dies) in [("poison:", Dies::Process), ("poison-panic:", Dies::Actor)] {
            if let Some(poison) = text.strip_prefix(prefix) {
                return Some(Self::Poison(poison.to_owned(), Mutex::default(), dies));
            }
        }
        if let Some(chance) = text.strip_prefix("panics:") {
            return Chance::parse(chance).map(Self::Panics);
        }
        if let Some(seconds) = text.strip_prefix("blocks:") {
            let time = Duration::from_secs(seconds.parse().ok()?);
            return Some(Self::Blocks(time, AtomicBool::new(false)));
        }
        if let Some(write) = text.strip_prefix("memory-write:") {
            return write.parse().ok().map(MemoryWrites::before).map(Self::MemoryWrite);
        }
        let (name, times) = text.split_once(':').unwrap_or((text, "1"));
        let (_, point) = POINTS.iter().find(|(known, _)| *known == name)?;
        Some(Self::Point(*point, AtomicU64::new(times.parse().ok()?)))
    }

    pub(super) fn pass(&self, here: Point) {
        if let Self::Blocks(time, done) = self
            && here == Point::AfterPut
            && !done.swap(true, Ordering::Relaxed)
        {
            block(*time);
        }
        if let Self::Point(point, left) = self
            && *point == here
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            die();
        }
    }

    /// Something of this entity is to be written; dies of it if that is the armed write of memories.
    pub(super) fn write_of(&self, entity: EntityId) {
        if let Self::MemoryWrite(writes) = self
            && writes.is_last_of(entity)
        {
            die();
        }
    }

    /// The same where nothing says which entity writes: for all, once a memory has had an input.
    pub(super) fn write(&self) {
        if let Self::MemoryWrite(writes) = self
            && writes.is_last()
        {
            die();
        }
    }

    /// An input is to be stored.
    fn input(&self, input: &Input) {
        if let Self::MemoryWrite(writes) = self
            && input.kind == Kind::MEMORY
        {
            writes.follow(input.entity);
        }
        self.write_of(input.entity);
        self.pass(Point::BeforePut);
    }

    /// The same for what a session sends to a memory: what a turn said, what `remember` was called with, feedback, or the
    /// lessons of a reflection.
    fn pass_lesson(&self, input: &Input, here: Point) {
        let (name, _) = input.idempotency_key.as_str().split_once(':').unwrap_or_default();
        if matches!(name, "learned" | "remember" | "rated" | "reflected") {
            self.pass(here);
        }
    }

    /// A handle is called, here: the caller may panic.
    pub(super) fn chance(&self, here: &'static str) {
        if let Self::Panics(chance) = self
            && chance.strikes()
        {
            stumble(here);
        }
    }

    /// The same where it ends more than one actor, whose next start waits longer each time.
    pub(super) fn rarely(&self, here: &'static str) {
        if let Self::Panics(chance) = self
            && chance.strikes_rarely()
        {
            stumble(here);
        }
    }

    /// Points before an append.
    fn before(&self, kinds: &[String], rollup: bool) {
        let has = |wanted: &str| kinds.iter().any(|kind| kind == wanted);
        if has("accepted") {
            self.pass(Point::BeforeAccepted);
        }
        if has("model_done") {
            self.pass(Point::BeforeOutcome);
        }
        if has("model_gave_way") {
            self.pass(Point::BeforeGiveWay);
        }
        if has(PURGE_BEGUN) {
            self.pass(Point::BeforePurge);
        }
        if rollup {
            self.pass(Point::BeforeSnapshot);
        }
    }

    /// Points after an append.
    fn after(&self, kinds: &[String], rollup: bool) {
        let has = |wanted: &str| kinds.iter().any(|kind| kind == wanted);
        if kinds.iter().all(|kind| kind == CLAIM) {
            self.pass(Point::AfterClaim);
        }
        if has("accepted") {
            self.pass(Point::AfterAccepted);
        }
        if has("model_done") {
            self.pass(Point::AfterOutcome);
        }
        if has("model_gave_way") {
            self.pass(Point::AfterGiveWay);
        }
        if has(PURGE_BEGUN) {
            self.pass(Point::AfterPurge);
        }
        if rollup {
            self.pass(Point::AfterSnapshot);
        }
    }

    /// Remembers who has the poison.
    fn smell(&self, entity: EntityId, bytes: &[u8]) {
        if let Self::Poison(poison, sick, _) = self
            && bytes.windows(poison.len()).any(|window| window == poison.as_bytes())
        {
            sick.lock().unwrap_or_else(PoisonError::into_inner).insert(entity);
        }
    }

    /// What was appended is about to be folded, unless it takes the session out of service.
    fn fold(&self, entity: EntityId, kinds: &[String]) {
        if let Self::Poison(_, sick, dies) = self
            && !kinds.iter().any(|kind| kind == QUARANTINED || kind == "parked")
            && sick.lock().unwrap_or_else(PoisonError::into_inner).contains(&entity)
        {
            match dies {
                Dies::Process => die(),
                Dies::Actor => stumble("a poison"),
            }
        }
    }
}

/// Blocks all workers of the runtime, as a call that waits for the disk or a lock would.
fn block(time: Duration) {
    tracing::warn!(?time, "a planted block of the runtime");
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    // Some more than there are workers: one of them may wait where no other worker finds it.
    for _ in 0..workers * 2 {
        tokio::spawn(async move { std::thread::sleep(time) });
    }
    std::thread::sleep(time);
}

/// As `kill -9` does it: nothing is flushed, no other is notified.
fn die() -> ! {
    let killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    tracing::error!(?killed, "the process outlived its own kill");
    std::process::abort()
}

fn kinds(bytes: &[u8]) -> Vec<String> {
    decode_record(bytes)
        .map(|events| events.into_iter().map(|event| event.head.kind).collect())
        .unwrap_or_default()
}

#[async_trait]
impl Journal for WithFailpoints<dyn Journal> {
    async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer {
        self.armed.chance("journal.append");
        let (kinds, rollup) = (kinds(&write.bytes), write.rollup);
        self.armed.smell(entity, &write.bytes);
        self.armed.write_of(entity);
        self.armed.before(&kinds, rollup);
        let answer = self.inner.append(entity, expected, write).await;
        self.armed.chance("journal.appended");
        if matches!(answer, AppendAnswer::Stored(_)) {
            self.armed.after(&kinds, rollup);
            self.armed.fold(entity, &kinds);
        }
        answer
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        self.armed.chance("journal.read");
        let records = self.inner.read(entity, after).await?;
        for record in &records {
            self.armed.smell(entity, &record.bytes);
        }
        Ok(records)
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        self.armed.rarely("journal.tail");
        self.inner.tail(entity).await
    }

    async fn position(&self, entity: EntityId) -> Result<Position, StoreError> {
        self.inner.position(entity).await
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        self.inner.entities(after, limit).await
    }

    async fn end(&self) -> Result<Position, StoreError> {
        self.inner.end().await
    }

    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
        self.inner.follow(after, limit).await
    }

    async fn count(&self) -> Result<u64, StoreError> {
        self.inner.count().await
    }

    async fn scrub(&self) -> Result<(), StoreError> {
        self.armed.write();
        self.inner.scrub().await
    }
}

#[async_trait]
impl Inbox for WithFailpoints<dyn Inbox> {
    async fn put(&self, input: &Input) -> Result<Position, StoreError> {
        self.armed.chance("inbox.put");
        self.armed.input(input);
        let is_result = input.idempotency_key.as_str().starts_with("job:");
        if is_result {
            self.armed.pass(Point::BeforeResult);
        }
        self.armed.pass_lesson(input, Point::BeforeLearned);
        let position = self.inner.put(input).await?;
        self.armed.pass(Point::AfterPut);
        self.armed.pass_lesson(input, Point::AfterLearned);
        if is_result {
            self.armed.pass(Point::AfterResult);
        }
        Ok(position)
    }

    async fn put_if_room(
        &self,
        input: &Input,
        room: usize,
    ) -> Result<Option<Position>, StoreError> {
        self.armed.chance("inbox.put_if_room");
        self.armed.input(input);
        self.armed.pass_lesson(input, Point::BeforeLearned);
        let position = self.inner.put_if_room(input, room).await?;
        self.armed.pass(Point::AfterPut);
        self.armed.pass_lesson(input, Point::AfterLearned);
        Ok(position)
    }

    async fn read(
        &self,
        entity: EntityId,
        after: Position,
    ) -> Result<Vec<WaitingInput>, StoreError> {
        self.armed.rarely("inbox.read");
        self.inner.read(entity, after).await
    }

    async fn pending(&self, entity: EntityId) -> Result<usize, StoreError> {
        self.inner.pending(entity).await
    }

    async fn scan(&self, partition: Partition) -> Result<Vec<EntityId>, StoreError> {
        self.armed.rarely("inbox.scan");
        self.inner.scan(partition).await
    }

    async fn depths(&self) -> Result<Option<Vec<Depth>>, StoreError> {
        self.inner.depths().await
    }

    async fn consume(
        &self,
        partition: Partition,
        rank: u8,
    ) -> Result<Box<dyn Consumer>, StoreError> {
        self.armed.rarely("inbox.consume");
        let inner = self.inner.consume(partition, rank).await?;
        Ok(Box::new(FailpointConsumer { inner, armed: Arc::clone(&self.armed) }))
    }
}

/// A consumer whose deliveries have points in them.
struct FailpointConsumer {
    inner: Box<dyn Consumer>,
    armed: Arc<Armed>,
}

#[async_trait]
impl Consumer for FailpointConsumer {
    async fn next(&mut self) -> Result<Delivery, StoreError> {
        self.armed.rarely("inbox.next");
        let delivery = self.inner.next().await?;
        let handle = WithFailpoints { inner: delivery.handle, armed: Arc::clone(&self.armed) };
        Ok(Delivery { handle: Arc::new(handle), ..delivery })
    }

    async fn set_rank(&mut self, rank: u8) -> Result<(), StoreError> {
        self.inner.set_rank(rank).await
    }
}

#[async_trait]
impl AckHandle for WithFailpoints<dyn AckHandle> {
    async fn ack(&self) -> Result<(), StoreError> {
        self.armed.rarely("ack");
        self.armed.write();
        self.armed.pass(Point::BeforeAck);
        self.inner.ack().await
    }

    async fn progress(&self) -> Result<(), StoreError> {
        self.inner.progress().await
    }

    async fn nak(&self, delay: Duration) -> Result<(), StoreError> {
        self.armed.rarely("nak");
        self.inner.nak(delay).await
    }
}

#[async_trait]
impl Bus for WithFailpoints<dyn Bus> {
    async fn publish(
        &self,
        subject: String,
        traceparent: Option<Traceparent>,
        payload: Bytes,
    ) -> Result<(), StoreError> {
        self.armed.chance("bus.publish");
        let ends = codec::decode::<FrameBatch>(&payload).is_ok_and(|batch| {
            batch.frames.iter().any(|frame| matches!(frame.body, FrameBody::Done { .. }))
        });
        self.inner.publish(subject, traceparent, payload).await?;
        if ends {
            self.armed.pass(Point::AfterEmit);
        }
        Ok(())
    }

    async fn subscribe(&self, subject: String) -> Result<Subscription, StoreError> {
        self.inner.subscribe(subject).await
    }

    async fn request(
        &self,
        subject: String,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        self.inner.request(subject, payload, timeout).await
    }

    fn attached(&self) -> BusConnection {
        self.inner.attached()
    }

    fn partings(&self) -> Option<broadcast::Receiver<ProcessId>> {
        self.inner.partings()
    }
}

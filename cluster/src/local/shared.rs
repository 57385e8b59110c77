//! What the doors and the engine share: the queue between them, and what readers read.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{Capability, EntityId, JobId, Partition, Position, TimerId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::{
    bus::LocalBus,
    deliveries::{Deliveries, JobQueue},
    index::{Index, IndexError, Loc},
    lifetime::Lifetime,
    lock::DirLock,
    log::{Files, ReadError},
    reader::Damage,
    record::Header,
    watch::Watchers,
};
use crate::{AppendAnswer, BucketError, Clock, Health, Peek, PeekSeen, StoreError, Warning, Write};

/// Bytes of operations that wait for the disk at once, in KiB (16 MiB); what is beyond waits at
/// its door. The largest operation is far below it.
const QUEUE_KIB: u32 = 16 << 10;
/// Acknowledgements that wait for a group to ride in before they make one of their own.
const ACKS_MOST: usize = 512;
/// How long an acknowledgement waits for a group to ride in. Nobody waits for it, and a sync of
/// its own would delay the next operation that somebody does wait for.
const ACK_LINGER: Duration = Duration::from_millis(20);

/// Everything there is of one open directory.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) partitions: u16,
    pub(super) ack_wait: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// What values expire by.
    pub(super) lifetime: Lifetime,
    /// `None` once it is let go. The engine holds it for writing from the moment it answers until
    /// the answer is visible.
    pub(super) index: RwLock<Option<Index>>,
    pub(super) files: Arc<Files>,
    pub(super) deliveries: Mutex<Deliveries>,
    pub(super) jobs: Mutex<JobQueue>,
    /// One bell per partition: something can be delivered.
    pub(super) bells: Vec<Notify>,
    pub(super) watchers: Watchers,
    pub(super) damaged: Mutex<HashMap<EntityId, Damage>>,
    pub(super) queue: Queue,
    pub(super) bus: LocalBus,
    /// Why the store ended, if it did not end on request.
    pub(super) fatal: watch::Sender<Option<String>>,
    /// Whether everything is let go.
    pub(super) done: watch::Sender<bool>,
    /// Whether new input is refused for want of room.
    pub(super) low: AtomicBool,
    /// The free bytes below which it is.
    pub(super) head_room: u64,
    /// What keeps nodes away while this is open for reading.
    pub(super) reader_lock: Mutex<Option<DirLock>>,
}

/// The doors' share; when the last is dropped, the store closes.
#[derive(Debug)]
pub(super) struct Client(pub(super) Arc<Shared>);

/// What a node needs beyond the doors.
#[derive(Clone, Debug)]
pub struct LocalControl(pub(super) Arc<Client>);

/// Operations on their way to the engine.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    bell: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct QueueState {
    ops: Vec<Queued>,
    acks: Vec<(EntityId, Position)>,
    first_ack: Option<Instant>,
    poked: bool,
    scrub: bool,
    closing: bool,
    /// Nothing is taken any more, and why.
    gone: Option<String>,
}

/// An operation with its share of the queue's room.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) op: Op,
    _room: OwnedSemaphorePermit,
}

/// What the engine is asked to do.
#[derive(Debug)]
pub(super) enum Op {
    Append {
        entity: EntityId,
        expected: Position,
        write: Write,
        reply: oneshot::Sender<AppendAnswer>,
    },
    Put {
        entity: EntityId,
        bytes: Bytes,
        reply: oneshot::Sender<Result<Position, StoreError>>,
    },
    JobPut {
        job: JobId,
        capability: Capability,
        bytes: Bytes,
        reply: oneshot::Sender<Result<Position, StoreError>>,
    },
    ValuePut {
        key: String,
        expected: Position,
        value: Bytes,
        expires: u64,
        reply: oneshot::Sender<Result<Position, BucketError>>,
    },
    ValueDelete {
        key: String,
        expected: Position,
        reply: oneshot::Sender<Result<Position, BucketError>>,
    },
    TimerSet {
        entity: EntityId,
        timer: TimerId,
        due: u64,
        input: Bytes,
        reply: oneshot::Sender<Result<Position, StoreError>>,
    },
    TimerCancel {
        entity: EntityId,
        timer: TimerId,
        reply: oneshot::Sender<Result<Position, StoreError>>,
    },
    Checkpoint {
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// What the engine finds to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) ops: Vec<Queued>,
    pub(super) acks: Vec<(EntityId, Position)>,
    /// Removed records are to leave the disk.
    pub(super) scrub: bool,
    pub(super) closing: bool,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            bell: Condvar::new(),
            room: Arc::new(Semaphore::new(QUEUE_KIB as usize)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an operation of about `bytes` over, waiting for room; an error says why not.
    async fn push(&self, op: Op, bytes: usize) -> Result<(), String> {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).saturating_add(1).min(QUEUE_KIB);
        let room = match Arc::clone(&self.room).acquire_many_owned(kib).await {
            Ok(room) => room,
            Err(_closed) => return Err(self.why_gone()),
        };
        let mut state = self.lock();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        state.ops.push(Queued { op, _room: room });
        if state.ops.len() == 1 {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Hands an acknowledgement over; it rides in the next group. There are never more than there
    /// are waiting inputs and jobs.
    pub(super) fn push_ack(&self, entity: EntityId, position: Position) -> Result<(), String> {
        let mut state = self.lock();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        state.acks.push((entity, position));
        if state.first_ack.is_none() {
            state.first_ack = Some(Instant::now());
            self.bell.notify_one();
        } else if state.acks.len() == ACKS_MOST {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Makes the engine look at the deadlines again.
    pub(super) fn poke(&self) {
        self.lock().poked = true;
        self.bell.notify_one();
    }

    /// Has the engine clean up soon.
    pub(super) fn scrub(&self) -> Result<(), String> {
        let mut state = self.lock();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        (state.scrub, state.poked) = (true, true);
        self.bell.notify_one();
        Ok(())
    }

    /// Asks the engine to finish.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.bell.notify_one();
    }

    /// Takes nothing more; what waits is dropped, and its askers see that.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.lock();
        state.gone.get_or_insert_with(|| why.to_owned());
        let dropped = std::mem::take(&mut state.ops);
        drop(state);
        self.room.close();
        drop(dropped);
    }

    fn why_gone(&self) -> String {
        self.lock().gone.clone().unwrap_or_else(|| "the process stops".to_owned())
    }

    /// Waits for work, at most until `until`.
    pub(super) fn wait(&self, until: Option<Instant>) -> Work {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let linger_end = state.first_ack.map(|first| first + ACK_LINGER);
            let lingered =
                linger_end.is_some_and(|end| now >= end) || state.acks.len() >= ACKS_MOST;
            let is_time = state.poked || state.closing || until.is_some_and(|until| now >= until);
            if !state.ops.is_empty() || lingered || is_time {
                state.poked = false;
                let scrub = std::mem::take(&mut state.scrub);
                let mut work = Work { scrub, closing: state.closing, ..Work::default() };
                if !state.ops.is_empty() || lingered || state.closing {
                    work.ops = std::mem::take(&mut state.ops);
                    work.acks = std::mem::take(&mut state.acks);
                    state.first_ack = None;
                }
                return work;
            }
            state = match until.into_iter().chain(linger_end).min() {
                None => self.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.bell.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

// === impl Shared ===

impl Shared {
    /// The index, as long as the store is open. Short calls only: the engine waits for readers.
    pub(super) fn index(&self) -> RwLockReadGuard<'_, Option<Index>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, JobQueue> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> MutexGuard<'_, HashMap<EntityId, Damage>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks something up.
    pub(super) fn look<T>(
        &self,
        store: &'static str,
        look: impl FnOnce(&Index) -> Result<T, IndexError>,
    ) -> Result<T, StoreError> {
        match self.index().as_ref() {
            Some(index) => look(index).map_err(|error| StoreError::Closed {
                store,
                detail: format!("{error}; start the node again"),
            }),
            None => Err(self.closed(store)),
        }
    }

    /// The error of a closed store.
    pub(super) fn closed(&self, store: &'static str) -> StoreError {
        let fatal = self.fatal.peek(Clone::clone);
        StoreError::Closed { store, detail: fatal.unwrap_or_else(|| self.queue.why_gone()) }
    }

    /// Refuses an entity that is known to be damaged.
    pub(super) fn sound(&self, entity: EntityId) -> Result<(), StoreError> {
        match self.damaged().get(&entity) {
            Some(damage) => Err(corrupt(damage)),
            None => Ok(()),
        }
    }

    /// The body of an entity's record; damage is remembered.
    pub(super) fn read(
        &self,
        entity: EntityId,
        position: Position,
        loc: Loc,
    ) -> Result<(Header, Bytes), StoreError> {
        match self.files.read(loc) {
            Ok((header, body)) => Ok((header, Bytes::from(body))),
            Err(ReadError::Disk(error)) => {
                let detail = format!("cannot read the log: {error}");
                Err(StoreError::Unavailable { store: "local log", detail })
            }
            Err(ReadError::Damaged(detail)) => {
                let damage = Damage { entity, position, detail };
                tracing::error!(
                    %entity, %position, detail = damage.detail,
                    "a stored record is damaged; its entity is refused"
                );
                let error = corrupt(&damage);
                self.damaged().insert(entity, damage);
                Err(error)
            }
        }
    }

    /// An entity's past is replaced: what was damaged of it is gone, also if it was an input.
    pub(super) fn heal(&self, entity: EntityId) {
        let Some(damage) = self.damaged().remove(&entity) else { return };
        if self.deliveries().remove(damage.position).is_some()
            && let Err(why) = self.queue.push_ack(entity, damage.position)
        {
            tracing::debug!(%entity, why, "a damaged input is still there at the next start");
        }
    }

    /// Rings for one delivery in a partition.
    pub(super) fn ring(&self, partition: Partition) {
        if let Some(bell) = self.bells.get(usize::from(partition.0)) {
            bell.notify_one();
        }
    }

    /// Waits until everything is let go.
    async fn ended(&self) {
        let mut done = self.done.subscribe();
        // An error means that the sender is gone, which it is not before we are.
        if done.wait_for(|done| *done).await.is_err() {
            tracing::debug!("the store was gone before it was closed");
        }
    }

    /// Sends an operation to the engine and waits for its answer.
    pub(super) async fn ask<T>(
        &self,
        store: &'static str,
        op: Op,
        bytes: usize,
        answer: oneshot::Receiver<T>,
    ) -> Result<T, StoreError> {
        if let Err(detail) = self.queue.push(op, bytes).await {
            return Err(StoreError::Closed { store, detail });
        }
        if let Ok(answer) = answer.await {
            return Ok(answer);
        }
        // Dropped: the engine is ending, and will say why.
        self.ended().await;
        Err(self.closed(store))
    }
}

fn corrupt(damage: &Damage) -> StoreError {
    StoreError::Corrupt {
        entity: damage.entity,
        position: damage.position,
        detail: damage.detail.clone(),
    }
}

// === impl Client, LocalControl ===

impl Drop for Client {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl LocalControl {
    /// Waits until the store has failed for good, and says why. The process should then exit: what
    /// was answered is safe, and the next start finds it. Never resolves for a store that is
    /// closed on request.
    pub async fn fatal(&self) -> String {
        let mut fatal = self.0.0.fatal.subscribe();
        loop {
            if let Some(why) = fatal.peek_seen(Clone::clone) {
                return why;
            }
            if fatal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Copies what is live out of all segments but the last and removes them.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.0.ask("local log", Op::Checkpoint { reply }, 0, answer).await?
    }
}

#[async_trait]
impl Health for Client {
    fn describe(&self) -> String {
        format!("local {}", self.0.dir.display())
    }

    async fn ready(&self) -> Result<(), String> {
        if let Some(why) = self.0.fatal.peek(Clone::clone) {
            return Err(why);
        }
        if self.0.index().is_none() {
            return Err("the store is closed".to_owned());
        }
        if self.0.low.load(Ordering::Relaxed) {
            let mib = self.0.head_room >> 20;
            return Err(format!("less than {mib} MiB are free on the disk"));
        }
        Ok(())
    }

    async fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.0.low.load(Ordering::Relaxed) {
            warnings.push(Warning {
                name: "local.disk_full".to_owned(),
                message: format!(
                    "less than {} MiB are free below {}: new input is refused",
                    self.0.head_room >> 20,
                    self.0.dir.display()
                ),
                hint: "make room on that disk; no restart is needed".to_owned(),
            });
        }
        let mut damaged: Vec<_> = self.0.damaged().values().map(|damage| damage.entity).collect();
        damaged.sort_unstable();
        for entity in damaged {
            warnings.push(Warning {
                name: "local.damaged".to_owned(),
                message: format!("stored data of `{entity}` is damaged; only it is refused"),
                hint: "restore it from a backup, or delete it".to_owned(),
            });
        }
        warnings
    }

    async fn close(&self) {
        self.0.queue.close();
        self.0.ended().await;
        self.0.keep(None);
    }
}

//! The state that the handles and the engine share, and its reads.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Clock, Health, Peek, PeekSeen, StoreError, Warning};
use clawnode_proto::{EntityId, Partition, Position};
use tokio::sync::{Notify, oneshot, watch};

use super::{
    bus::LocalBus,
    deliveries::{Deliveries, LocalJobQueue},
    index::{Index, IndexError, Loc},
    lifetime::Lifetime,
    lock::DirLock,
    log::{ReadError, SegmentFiles},
    queue::{EngineOp, OpQueue},
    reader::Damage,
    record::Header,
    watch::Watchers,
};

/// Everything of one open directory.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    pub(super) dir: PathBuf,
    pub(super) partitions: u16,
    pub(super) ack_wait: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// The time by which values expire.
    pub(super) lifetime: Lifetime,
    /// `None` once it is closed. The engine holds it for writing from the moment it answers until
    /// the answer is visible.
    pub(super) index: RwLock<Option<Index>>,
    pub(super) files: Arc<SegmentFiles>,
    pub(super) deliveries: Mutex<Deliveries>,
    pub(super) jobs: Mutex<LocalJobQueue>,
    /// One bell per partition: something can be delivered.
    pub(super) bells: Vec<Notify>,
    pub(super) watchers: Watchers,
    pub(super) damaged: Mutex<HashMap<EntityId, Damage>>,
    pub(super) queue: OpQueue,
    pub(super) bus: LocalBus,
    /// Why the store ended, if it did not end on request.
    pub(super) fatal: watch::Sender<Option<String>>,
    /// Whether everything is closed.
    pub(super) done: watch::Sender<bool>,
    /// Whether new input is refused for want of room.
    pub(super) low: AtomicBool,
    /// The free bytes below which it is.
    pub(super) head_room: u64,
    /// The lock that keeps nodes away while this is open for reading.
    pub(super) reader_lock: Mutex<Option<DirLock>>,
}

/// The handles' share; when the last is dropped, the store closes.
#[derive(Debug)]
pub(super) struct DirectoryClient(pub(super) Arc<OpenDirectory>);

/// The control of a store for its node, besides the handles.
#[derive(Clone, Debug)]
pub struct LocalControl(pub(super) Arc<DirectoryClient>);

// === impl OpenDirectory ===

impl OpenDirectory {
    /// Holds a reader's lock for as long as this lives, or until it is closed.
    pub(super) fn keep(&self, lock: Option<DirLock>) {
        *self.reader_lock.lock().unwrap_or_else(PoisonError::into_inner) = lock;
    }

    /// The time by which values expire.
    pub(super) fn lifetime(&self) -> u64 {
        self.lifetime.now(&*self.clock)
    }

    /// The index, as long as the store is open. Short calls only: the engine waits for readers.
    pub(super) fn index(&self) -> RwLockReadGuard<'_, Option<Index>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, LocalJobQueue> {
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

    /// The body of an entity's record; remembers damage.
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

    /// An entity's past is replaced: its damage is gone, also that of its inputs.
    pub(super) fn heal(&self, entity: EntityId) {
        let Some(damage) = self.damaged().remove(&entity) else { return };
        if self.deliveries().remove(damage.position).is_some()
            && let Err(why) = self.queue.push_ack(entity, damage.position)
        {
            tracing::debug!(%entity, why, "cannot remove a damaged input; the next start finds it");
        }
    }

    /// Rings for one delivery in a partition.
    pub(super) fn ring(&self, partition: Partition) {
        if let Some(bell) = self.bells.get(usize::from(partition.0)) {
            bell.notify_one();
        }
    }

    /// Waits until everything is closed.
    async fn ended(&self) {
        let mut done = self.done.subscribe();
        // An error means that the sender is gone, but it lives as long as this value.
        if done.wait_for(|done| *done).await.is_err() {
            tracing::debug!("the store ended before it was closed");
        }
    }

    /// Sends an operation to the engine and waits for its answer.
    pub(super) async fn ask<T>(
        &self,
        store: &'static str,
        op: EngineOp,
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

impl Drop for DirectoryClient {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl LocalControl {
    /// Waits until the store has failed for good, and says why. The process should then exit:
    /// everything that was answered is safe, and the next start finds it. Never resolves for a
    /// store that is closed on request.
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

    /// Copies live records out of all segments but the last, and removes those segments.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.0.ask("local log", EngineOp::Checkpoint { reply }, 0, answer).await?
    }
}

#[async_trait]
impl Health for DirectoryClient {
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

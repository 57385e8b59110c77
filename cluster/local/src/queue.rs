//! Operations on their way from the handles to the engine.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, BucketError, StoreError, Write};
use clawnode_proto::{Capability, EntityId, JobId, Position, TimerId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Bytes of operations that wait for the disk at once, in KiB (16 MiB); others wait at their
/// handles. The largest operation is far below it.
const QUEUE_KIB: u32 = 16 << 10;
/// Acknowledgements that wait for a group to join before they make one of their own.
const ACKS_MOST: usize = 512;
/// How long an acknowledgement waits for a group to join. No caller waits for it, and a sync of its
/// own would delay the next operation that has a waiting caller.
const ACK_LINGER: Duration = Duration::from_millis(20);

/// Operations on their way to the engine.
#[derive(Debug)]
pub(super) struct OpQueue {
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
    closing: bool,
    /// The queue is closed, and why.
    gone: Option<String>,
}

/// An operation with its share of the queue's room.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) op: EngineOp,
    _room: OwnedSemaphorePermit,
}

/// An operation for the engine.
#[derive(Debug)]
pub(super) enum EngineOp {
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
    /// Removed records are to leave the disk.
    Scrub {
        /// The answer comes once that is noted.
        reply: oneshot::Sender<()>,
    },
}

/// The work that the engine takes.
#[derive(Debug, Default)]
pub(super) struct EngineWork {
    pub(super) ops: Vec<Queued>,
    pub(super) acks: Vec<(EntityId, Position)>,
    pub(super) closing: bool,
}

// === impl QueueState ===

impl QueueState {
    /// All operations and acknowledgements.
    fn take(&mut self) -> EngineWork {
        self.first_ack = None;
        let (ops, acks) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.acks));
        EngineWork { ops, acks, ..EngineWork::default() }
    }
}

// === impl OpQueue ===

impl OpQueue {
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

    /// Hands over an operation of about `bytes`, waiting for room; an error says why the queue is
    /// closed.
    pub(super) async fn push(&self, op: EngineOp, bytes: usize) -> Result<(), String> {
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
        let is_first = state.ops.len() == 1;
        // The thread that wakes needs the lock at once.
        drop(state);
        if is_first {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Hands over an acknowledgement; it is written with the next group. There are never more than
    /// there are waiting inputs and jobs.
    pub(super) fn push_ack(&self, entity: EntityId, position: Position) -> Result<(), String> {
        let mut state = self.lock();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        state.acks.push((entity, position));
        let is_first = state.first_ack.is_none();
        if is_first {
            state.first_ack = Some(Instant::now());
        }
        let wakes = is_first || state.acks.len() == ACKS_MOST;
        drop(state);
        if wakes {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Makes the engine check the deadlines again.
    pub(super) fn poke(&self) {
        self.lock().poked = true;
        self.bell.notify_one();
    }

    /// Asks the engine to finish.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.bell.notify_one();
    }

    /// Closes the queue; waiting operations are dropped, and their callers see that.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.lock();
        state.gone.get_or_insert_with(|| why.to_owned());
        let dropped = std::mem::take(&mut state.ops);
        drop(state);
        self.room.close();
        drop(dropped);
    }

    pub(super) fn why_gone(&self) -> String {
        self.lock().gone.clone().unwrap_or_else(|| "the process stops".to_owned())
    }

    /// Waits for operations, at most until `until`; takes those, and the acknowledgements that were
    /// given before them.
    pub(super) fn follow(&self, until: Instant) -> EngineWork {
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !state.ops.is_empty() || state.closing || left.is_zero() {
                return state.take();
            }
            let waited = self.bell.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for work, at most until `until`.
    pub(super) fn wait(&self, until: Option<Instant>) -> EngineWork {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let linger_end = state.first_ack.map(|first| first + ACK_LINGER);
            let lingered =
                linger_end.is_some_and(|end| now >= end) || state.acks.len() >= ACKS_MOST;
            let is_time = state.poked || state.closing || until.is_some_and(|until| now >= until);
            if !state.ops.is_empty() || lingered || is_time {
                state.poked = false;
                let mut work = EngineWork { closing: state.closing, ..EngineWork::default() };
                if !state.ops.is_empty() || lingered || state.closing {
                    work = EngineWork { closing: state.closing, ..state.take() };
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

//! The engine: the one thread that changes a store.
//!
//! It sleeps until there is an operation, a deadline of a delivery, or something due by the clock.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use clawnode_cluster::StoreError;
use clawnode_proto::{EntityId, Position};
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::{
    checkpoint::Cleaning,
    deletion_cleaning::{self, Scrub},
    directory::IndexState,
    index::{Applied, IndexError, keys},
    lock::DirLock,
    log::{SegmentLog, WriteError},
    queue::OpQueue,
    reply::answer,
    shared::OpenDirectory,
    staged::Staged,
};

/// How often it looks at the clock while something is to come due, because the clock may be set.
const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// How long a free-space reading is valid.
const ROOM_FOR: Duration = Duration::from_secs(1);
/// How often it looks at the free space while nothing happens, so that `ready` and the warnings
/// report a full disk before a message is refused. Less wakes an idle process for nothing.
const ROOM_LOOK: Duration = Duration::from_secs(5);
/// How many written bytes (16 MiB) make a free-space reading old.
const ROOM_BYTES: u64 = 16 << 20;

/// How long operations are gathered before the next group, if several came with the last ones: a
/// sync costs processor time, and writers at the same time can share it. The idea is `commit_delay`
/// of `PostgreSQL`; a single writer never waits.
const GATHER: Duration = Duration::from_millis(1);

/// How long an input that comes alone waits for the records of its actor, so that one sync does for
/// both.
pub(super) const FOLLOWS: Duration = Duration::from_micros(300);

/// The state of the one writer.
#[derive(Debug)]
pub(super) struct WriteEngine {
    pub(super) shared: Arc<OpenDirectory>,
    pub(super) log: SegmentLog,
    pub(super) index_state: IndexState,
    /// The position of the next record.
    pub(super) next_position: u64,
    /// The earliest moment by the clock at which something is due.
    pub(super) next_due: Option<u64>,
    /// Acknowledgements that could not be written yet.
    pub(super) owed_acks: Vec<(EntityId, Position)>,
    pub(super) cleaning: Option<Cleaning>,
    /// Checkpoints that were asked for and wait for a cleaning to end.
    pub(super) checkpoints: Vec<oneshot::Sender<Result<(), StoreError>>>,
    pub(super) scrub: Scrub,
    pub(super) room: FreeSpace,
    /// The last record of journals that were extended lately: a look into the index costs more.
    pub(super) tails: HashMap<EntityId, Position>,
    pub(super) crowd: Crowd,
    /// Written and answered, but not synced: only with a planted bug.
    pub(super) owes_sync: bool,
    pub(super) answer_before_sync: bool,
    pub(super) lock: Option<DirLock>,
}

/// The last reading of the free space.
#[derive(Debug)]
pub(super) struct FreeSpace {
    pub(super) read: Option<(Instant, u64)>,
    /// Bytes in the log when it was read.
    pub(super) written: u64,
}

/// How many operations the last groups had: their moving average, in sixteenths.
#[derive(Debug, Default)]
pub(super) struct Crowd(u32);

/// The store cannot go on.
#[derive(Debug)]
pub(super) enum Fatal {
    Disk { action: &'static str, source: std::io::Error },
    Index(IndexError),
}

// === impl WriteEngine ===

impl WriteEngine {
    /// Runs on a thread of its own until the store is closed or fails.
    pub(super) fn spawn(self) -> std::io::Result<()> {
        std::thread::Builder::new().name("clawnode-log".to_owned()).spawn(|| self.live()).map(drop)
    }

    fn live(mut self) {
        let shared = Arc::clone(&self.shared);
        // A panic must not leave callers waiting for ever.
        let ended = catch_unwind(AssertUnwindSafe(|| self.run()));
        let why = match ended {
            Ok(Ok(())) => None,
            Ok(Err(fatal)) => {
                if matches!(fatal, Fatal::Index(_)) {
                    self.index_state.distrust();
                }
                Some(fatal.to_string())
            }
            Err(_panic) => {
                self.index_state.distrust();
                Some("the log's thread panicked; start the node again".to_owned())
            }
        };
        if let Some(why) = &why {
            error!(dir = %shared.dir.display(), why, "the local store has failed");
        }
        self.let_go(why);
    }

    fn run(&mut self) -> Result<(), Fatal> {
        loop {
            let until = self.sleep_until();
            if self.crowd.is_there() {
                std::thread::sleep(GATHER);
            }
            let work = self.shared.queue.wait(until);
            self.commit(work.ops, work.acks)?;
            self.expire_deliveries();
            if work.closing {
                return self.finish();
            }
            self.scrub_if_due();
            self.clean_a_little()?;
            // Check this here too: without a sender no other code does, and readiness must not
            // depend on senders.
            self.has_room();
        }
    }

    /// When to wake without an operation.
    fn sleep_until(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.cleaning.is_some() || !self.checkpoints.is_empty() {
            return Some(now);
        }
        let armed = self.shared.deliveries().arm(now);
        let jobs = self.shared.jobs().hands.arm(now);
        let due = self.next_due.map(|due| {
            let left = due.saturating_sub(self.shared.clock.now().0);
            now + Duration::from_millis(left).min(CLOCK_LOOK)
        });
        let due = due.into_iter().chain(self.scrub.due);
        let is_low = self.shared.low.load(Ordering::Relaxed);
        let owed = (is_low || !self.owed_acks.is_empty()).then(|| now + ROOM_FOR);
        let look = Some(now + ROOM_LOOK);
        armed.into_iter().chain(jobs).chain(due).chain(owed).chain(look).min()
    }

    /// Begins a checkpoint for deletions, if it is time.
    fn scrub_if_due(&mut self) {
        let now = Instant::now();
        if self.scrub.due.is_none_or(|due| due > now) || self.cleaning.is_some() {
            return;
        }
        let alive: i64 = self.log.segments.values().map(|segment| segment.live).sum();
        self.scrub.begun(now, u64::try_from(alive).unwrap_or(0));
        if self.log.has_dead() {
            // The receiver is dropped: no caller waits for this cleaning.
            let (reply, _) = oneshot::channel();
            self.checkpoints.push(reply);
        } else {
            deletion_cleaning::settle(&self.shared.dir);
        }
    }

    /// Records were removed: plans a cleaning, of the next process if this one dies before.
    pub(super) fn ask_scrub(&mut self, reply: oneshot::Sender<()>) {
        if let Err(error) = deletion_cleaning::owe(&self.shared.dir) {
            warn!(%error, "cannot note that deleted data is to leave the log; keep the node up for an hour");
        }
        self.scrub.ask(Instant::now());
        answer(reply, ());
    }

    /// A cleaning has ended. If it was one for removed records and stopped, it is planned again.
    pub(super) fn has_cleaned(&mut self, is_whole: bool) {
        if self.scrub.due.is_some() || !deletion_cleaning::is_owed(&self.shared.dir) {
            return;
        }
        if is_whole {
            deletion_cleaning::settle(&self.shared.dir);
        } else {
            self.scrub.ask(Instant::now());
        }
    }

    fn expire_deliveries(&self) {
        let now = Instant::now();
        self.shared.jobs().expire(now);
        let partitions = self.shared.deliveries().expire(now);
        for partition in partitions {
            self.shared.ring(clawnode_proto::Partition(partition));
        }
    }

    /// Whether there is room for new input; looked up now and then.
    pub(super) fn has_room(&mut self) -> bool {
        let now = Instant::now();
        let written: u64 = self.log.segments.values().map(|segment| segment.len).sum();
        let fresh = self.room.read.filter(|(at, _)| {
            now.duration_since(*at) < ROOM_FOR && written < self.room.written + ROOM_BYTES
        });
        let free = if let Some((_, free)) = fresh {
            free
        } else {
            // A disk that does not report its free space may be written until it refuses.
            let free = self.log.free_bytes().unwrap_or(u64::MAX);
            self.room = FreeSpace { read: Some((now, free)), written };
            free
        };
        let low = free < self.shared.head_room;
        if self.shared.low.swap(low, Ordering::Relaxed) != low {
            tracing::warn!(free, low, "free disk space crossed its lower limit");
        }
        !low
    }

    /// Begins the next segment.
    pub(super) fn rotate(&mut self) -> Result<(), WriteError> {
        self.log.sync().map_err(WriteError::Fatal)?;
        self.log.rotate(self.next_position)
    }

    /// Puts staged changes into the index, with the mark of how far it has the log.
    pub(super) fn index_staged(&mut self, staged: &mut Staged) -> Result<(), Fatal> {
        let applied = self.applied();
        staged.set(keys::applied(), Some(applied.encode()));
        let mut index = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = index.as_mut() {
            index.accept(staged.take());
        }
        drop(index);
        self.write_index()
    }

    /// Writes late changes to the index, once there are many. Readers hold the same shared lock
    /// meanwhile: only this thread changes the late ones.
    pub(super) fn write_index(&mut self) -> Result<(), Fatal> {
        let guard = self.shared.index();
        match guard.as_ref() {
            Some(index) if index.is_late() => index.write_late()?,
            _ => return Ok(()),
        }
        drop(guard);
        let mut guard = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = guard.as_mut() {
            index.forget_late();
        }
        Ok(())
    }

    pub(super) fn applied(&self) -> Applied {
        Applied {
            segment: self.log.active(),
            offset: u32::try_from(self.log.end()).unwrap_or(u32::MAX),
            position: self.next_position.saturating_sub(1),
        }
    }

    /// Remembers how much of each segment matters.
    pub(super) fn stage_live(&self, staged: &mut Staged) {
        for (id, segment) in &self.log.segments {
            staged.set(keys::live(*id), Some(segment.live.to_be_bytes().to_vec()));
        }
    }

    /// A close on request: everything is synced; the index is kept for the next start.
    fn finish(&mut self) -> Result<(), Fatal> {
        if self.owes_sync {
            self.log.sync().map_err(|source| Fatal::Disk { action: "sync", source })?;
        }
        let mut staged = Staged::default();
        self.stage_live(&mut staged);
        self.index_staged(&mut staged)?;
        let mut guard = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut index) = guard.take() {
            index.flush().map_err(Fatal::Index)?;
            let is_stored = index.is_stored();
            drop(index);
            if is_stored {
                self.index_state.set_clean();
            }
        }
        Ok(())
    }

    /// The end: every handle is closed, the directory is free for the next.
    fn let_go(self, why: Option<String>) {
        let shared = self.shared;
        let queue: &OpQueue = &shared.queue;
        queue.end(why.as_deref().unwrap_or("the process stops"));
        // Close every handle first, then report the failure.
        drop(shared.index.write().unwrap_or_else(PoisonError::into_inner).take());
        shared.watchers.close();
        shared.bus.close();
        if why.is_some() {
            shared.fatal.send_replace(why);
        }
        for bell in &shared.bells {
            bell.notify_waiters();
            bell.notify_one();
        }
        shared.jobs().ring_all();
        drop(self.lock);
        shared.done.send_replace(true);
    }
}

// === impl Crowd ===

impl Crowd {
    /// Operations that came together; 0 is ignored.
    pub(super) fn saw(&mut self, operations: usize) {
        if operations > 0 {
            let now = u32::try_from(operations).unwrap_or(u32::MAX).min(1_024) * 16;
            self.0 = (self.0 * 7 + now) / 8;
        }
    }

    /// Whether most groups have more than one operation.
    pub(super) const fn is_there(&self) -> bool {
        self.0 >= 24
    }
}

impl From<IndexError> for Fatal {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

impl std::fmt::Display for Fatal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk { action, source } => write!(
                f,
                "the disk failed to {action} the log: {source}; check the disk, then start again \
                 (nothing that was answered is lost)"
            ),
            Self::Index(error) => write!(f, "{error}; the next start rebuilds it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Crowd;

    #[test]
    fn who_writes_alone_never_waits_and_a_crowd_is_seen_and_forgotten() {
        let mut crowd = Crowd::default();
        (0..100).for_each(|_| crowd.saw(1));
        assert!(!crowd.is_there());
        (0..100).for_each(|_| crowd.saw(3));
        assert!(crowd.is_there());
        (0..100).for_each(|_| crowd.saw(0));
        assert!(crowd.is_there(), "a group of acknowledgements says nothing");
        (0..100).for_each(|_| crowd.saw(1));
        assert!(!crowd.is_there());
        crowd.saw(usize::MAX);
        (0..100).for_each(|_| crowd.saw(1));
        assert!(!crowd.is_there(), "one huge group is forgotten");
    }
}

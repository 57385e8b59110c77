//! Opening a data directory: lock, format, log, index, then the engine.

use std::{
    collections::BTreeMap,
    collections::HashMap,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock, atomic::AtomicBool},
    time::Duration,
};

use clawnode_cluster::{Clock, Storage, SystemClock};
use clawnode_proto::{Position, subject::Prefix};
use tokio::sync::{Notify, watch};

use super::{
    LocalBus, LocalControl, LocalOptions, OpenError,
    blobs::LocalBlobs,
    bucket::LocalBucket,
    deletion_cleaning::{Scrub, is_owed},
    deliveries::{Deliveries, LocalJobQueue},
    directory::{IndexState, NO_FORMAT, format_of, log_dir, prepare, read_format},
    disk::{Disk, RealDisk},
    engine::{Crowd, FreeSpace, WriteEngine},
    inbox::LocalInbox,
    index::{Index, IndexError, decode_job, decode_waiting, keys},
    jobs::LocalJobs,
    journal::LocalJournal,
    lifetime::Lifetime,
    lock::DirLock,
    log::SegmentLog,
    moved_data_mark::refuse_moved,
    queue::OpQueue,
    reader::ReplayError,
    recovery::{Recovered, recover, recover_with_index},
    shared::{DirectoryClient, OpenDirectory},
    timers::LocalTimers,
    watch::Watchers,
};

/// Longer than any reader needs: a directory that is open for reading delivers nothing again.
const NO_ACK_WAIT: Duration = Duration::from_hours(24 * 365);

/// Opens a data directory, or makes one, for this process alone.
///
/// Blocks while it reads the log. The store lives until [`clawnode_cluster::Health::close`], or until all
/// handles are dropped; the caller should await [`LocalControl::fatal`] and exit when it resolves.
pub fn open(dir: &Path, options: LocalOptions) -> Result<(Storage, LocalControl), OpenError> {
    let disk = disk_of(&options);
    prepare(dir)?;
    let lock = DirLock::exclusive(dir)?;
    refuse_moved(dir)?;
    let (log_dir, blob_dir) = (log_dir(dir), dir.join("blobs"));
    for dir in [&log_dir, &blob_dir] {
        disk.create_dir(dir).map_err(OpenError::io("create", dir))?;
    }
    let (partitions, store) = format_of(&*disk, dir, options.partitions, &*options.clock)?;
    // A process that died may have left names unsynced that the log will build upon.
    for dir in [dir, &blob_dir] {
        disk.sync_dir(dir).map_err(OpenError::unsynced(dir))?;
    }
    let index_state = IndexState::new(dir);
    let mut recovered = recover_with_index(&*disk, &log_dir, store, &index_state, &options)?;
    let next_position = recovered.next_position;
    let (waiting, next_due) =
        load(&recovered.index, partitions).map_err(|error| index_state.failed(&error))?;
    let log = SegmentLog::new(
        Arc::clone(&disk),
        log_dir.clone(),
        store,
        options.segment_bytes,
        Arc::clone(&recovered.files),
        std::mem::take(&mut recovered.segments),
    )
    .ok_or_else(|| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: "its log has no segment".to_owned(),
    })?;
    let lifetime = Lifetime::open(dir, &*options.clock);
    let shared = share(dir, partitions, &options, lifetime, recovered, waiting);
    let mut engine = WriteEngine {
        shared: Arc::clone(&shared),
        log,
        index_state,
        next_position,
        next_due,
        owed_acks: Vec::new(),
        cleaning: None,
        checkpoints: Vec::new(),
        scrub: Scrub::new(std::time::Instant::now(), is_owed(dir)),
        room: FreeSpace { read: None, written: 0 },
        tails: HashMap::new(),
        crowd: Crowd::default(),
        owes_sync: false,
        answer_before_sync: is_planted(&options),
        lock: Some(lock),
    };
    // Before the first question whether it is ready.
    engine.has_room();
    engine.spawn().map_err(OpenError::io("start the thread of", &log_dir))?;
    Ok(storage(shared, disk, blob_dir, options.prefix, partitions))
}

/// Opens the data directory of a node that does not run, for reading; changes nothing in it.
///
/// The handles' reads work; calls that would change something answer `Closed`, and consumers wait
/// for ever. A node cannot start while this is open.
pub fn open_read_only(dir: &Path) -> Result<(Storage, LocalControl), OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let lock = DirLock::shared(dir)?;
    let (partitions, store) = read_format(&*disk, dir)?.ok_or_else(|| {
        OpenError::NotADataDirectory { dir: dir.to_owned(), detail: NO_FORMAT.to_owned() }
    })?;
    let memory = Index::Memory(BTreeMap::new());
    let recovered = recover(&*disk, &log_dir(dir), store, memory, false).map_err(|e| match e {
        ReplayError::Open(error) => error,
        ReplayError::Index(error) => IndexState::new(dir).failed(&error),
    })?;
    let (waiting, _) =
        load(&recovered.index, partitions).map_err(|error| IndexState::new(dir).failed(&error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut options = LocalOptions::new(Prefix::default(), clock);
    options.ack_wait = NO_ACK_WAIT;
    let lifetime = Lifetime::believing(&*options.clock);
    let shared = share(dir, partitions, &options, lifetime, recovered, waiting);
    shared.queue.end("it is open for reading only");
    shared.done.send_replace(true);
    let (storage, control) =
        storage(Arc::clone(&shared), disk, dir.join("blobs"), options.prefix, partitions);
    shared.keep(lock);
    Ok((storage, control))
}

fn disk_of(options: &LocalOptions) -> Arc<dyn Disk> {
    #[cfg(feature = "test-util")]
    if let Some(disk) = &options.disk {
        return Arc::new(disk.in_this_life());
    }
    #[cfg(not(feature = "test-util"))]
    let _: &LocalOptions = options;
    Arc::new(RealDisk)
}

fn is_planted(options: &LocalOptions) -> bool {
    #[cfg(feature = "test-util")]
    return options.planted == Some(super::LocalBug::AnswerBeforeSync);
    #[cfg(not(feature = "test-util"))]
    {
        let _: &LocalOptions = options;
        false
    }
}

/// The waiting items in memory.
struct WaitingItems {
    deliveries: Deliveries,
    jobs: LocalJobQueue,
}

/// What is kept in memory: the waiting inputs and jobs, and when something is due next.
fn load(index: &Index, partitions: u16) -> Result<(WaitingItems, Option<u64>), IndexError> {
    let mut deliveries = Deliveries::new(partitions);
    index.each(keys::INPUTS, Bound::Unbounded, &mut |key, value| {
        let position = super::bytes_at::u64_at(key, 1).map(Position);
        if let (Some(position), Some((entity, loc))) = (position, decode_waiting(value)) {
            deliveries.add(entity, position, loc, true);
        }
        true
    })?;
    let mut jobs = LocalJobQueue::default();
    index.each(keys::JOBS, Bound::Unbounded, &mut |key, value| {
        let position = super::bytes_at::u64_at(key, 1).map(Position);
        if let (Some(position), Some((loc, job, capability))) = (position, decode_job(value)) {
            jobs.hands.add(capability, job, position, loc, true);
        }
        true
    })?;
    let mut next_due = None;
    for prefix in [keys::DUE, keys::EXPIRIES] {
        index.each(prefix, Bound::Unbounded, &mut |key, _| {
            next_due = next_due.into_iter().chain(super::bytes_at::u64_at(key, 1)).min();
            false
        })?;
    }
    Ok((WaitingItems { deliveries, jobs }, next_due))
}

// === the parts together ===

fn share(
    dir: &Path,
    partitions: u16,
    options: &LocalOptions,
    lifetime: Lifetime,
    recovered: Recovered,
    waiting: WaitingItems,
) -> Arc<OpenDirectory> {
    let WaitingItems { deliveries, jobs } = waiting;
    let Recovered { index, files, damages, .. } = recovered;
    let bells: Vec<_> = (0..partitions).map(|_| Notify::new()).collect();
    for (bell, partition) in bells.iter().zip(0..) {
        if deliveries.has_ready(partition) {
            bell.notify_one();
        }
    }
    Arc::new(OpenDirectory {
        dir: dir.to_owned(),
        partitions,
        ack_wait: options.ack_wait,
        clock: Arc::clone(&options.clock),
        lifetime,
        index: RwLock::new(Some(index)),
        files,
        deliveries: Mutex::new(deliveries),
        jobs: Mutex::new(jobs),
        bells,
        watchers: Watchers::default(),
        damaged: Mutex::new(damages.into_iter().map(|damage| (damage.entity, damage)).collect()),
        queue: OpQueue::new(),
        bus: LocalBus::new(),
        fatal: watch::Sender::new(None),
        done: watch::Sender::new(false),
        low: AtomicBool::new(false),
        head_room: options.head_room,
        reader_lock: Mutex::new(None),
    })
}

fn storage(
    shared: Arc<OpenDirectory>,
    disk: Arc<dyn Disk>,
    blobs: PathBuf,
    prefix: Prefix,
    partitions: u16,
) -> (Storage, LocalControl) {
    let bus = Arc::new(shared.bus.clone());
    let client = Arc::new(DirectoryClient(shared));
    let storage = Storage {
        journal: Arc::new(LocalJournal(Arc::clone(&client))),
        inbox: Arc::new(LocalInbox(Arc::clone(&client))),
        jobs: Arc::new(LocalJobs(Arc::clone(&client))),
        bus,
        bucket: Arc::new(LocalBucket(Arc::clone(&client))),
        timers: Arc::new(LocalTimers(Arc::clone(&client))),
        blobs: Arc::new(LocalBlobs::new(Arc::clone(&client), disk, blobs)),
        health: Arc::<DirectoryClient>::clone(&client),
        prefix,
        partitions,
        shared: false,
    };
    (storage, LocalControl(client))
}

//! Opening a data directory: lock, format, log, index, then the engine.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock, atomic::AtomicBool},
    time::Duration,
};

use clawnode_proto::{Position, subject::Prefix};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::{
    LocalBus, LocalControl, LocalOptions, OpenError,
    blobs::LocalBlobs,
    bucket::LocalBucket,
    deliveries::Deliveries,
    disk::{Disk, RealDisk, read_whole, write_whole},
    engine::{Engine, Room},
    inbox::LocalInbox,
    index::{Index, IndexError, decode_waiting, keys},
    journal::LocalJournal,
    lock::DirLock,
    log::{
        Files, Log, SEGMENT_HEADER, Segment, SegmentHead, WriteError, create_segment, segment_ids,
        segment_path,
    },
    recover::{Damage, Reader, ReplayError, replay},
    shared::{Client, Queue, Shared},
    timers::LocalTimers,
    watch::Watchers,
};
use crate::{Clock, Substrate, SystemClock};

/// The format of data directories that this program writes.
const FORMAT: u32 = 1;
/// Opened for reading, the log's segments are indexed in memory.
const NO_ACK_WAIT: Duration = Duration::from_hours(24 * 365);

/// What a data directory is, in its file `format`.
#[derive(Debug, Serialize, Deserialize)]
struct Format {
    #[serde(rename = "format")]
    version: u32,
    #[serde(default)]
    partitions: u16,
    #[serde(default)]
    id: String,
}

/// Whether the folder of the index may be trusted, in the file `index.state`.
#[derive(Debug)]
pub(super) struct IndexState {
    state: PathBuf,
    pub(super) index: PathBuf,
}

/// A log with its index, ready to be used.
#[derive(Debug)]
struct Recovered {
    index: Index,
    files: Arc<Files>,
    segments: BTreeMap<u32, Segment>,
    next_position: u64,
    damages: Vec<Damage>,
}

/// Opens a data directory, or makes one, for this process alone.
///
/// Blocks while it reads the log. The store lives until [`crate::Health::close`], or until all
/// doors are dropped; the caller should await [`LocalControl::fatal`] and exit when it resolves.
pub fn open(dir: &Path, options: LocalOptions) -> Result<(Substrate, LocalControl), OpenError> {
    let disk = disk_of(&options);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(OpenError::io("create", dir))?;
    let lock = DirLock::exclusive(dir)?;
    let (log_dir, blob_dir) = (log_dir(dir), dir.join("blobs"));
    for dir in [&log_dir, &blob_dir] {
        disk.create_dir(dir).map_err(OpenError::io("create", dir))?;
    }
    let (partitions, store) = format_of(&*disk, dir, options.partitions, &*options.clock)?;
    let index_state = IndexState::new(dir);
    let recovered = recover_with_index(&*disk, &log_dir, store, &index_state, &options)?;
    let Recovered { index, files, segments, next_position, damages } = recovered;
    let (deliveries, next_due) =
        load(&index, partitions).map_err(|error| index_state.failed(&error))?;
    let log_files = Arc::clone(&files);
    let log = Log::new(
        Arc::clone(&disk),
        log_dir.clone(),
        store,
        options.segment_bytes,
        log_files,
        segments,
    )
    .ok_or_else(|| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: "its log has no segment".to_owned(),
    })?;
    let shared = share(dir, partitions, &options, index, files, deliveries, damages);
    let engine = Engine {
        shared: Arc::clone(&shared),
        log,
        index_state,
        next_position,
        next_due,
        owed_acks: Vec::new(),
        cleaning: None,
        checkpoints: Vec::new(),
        room: Room { read: None, written: 0 },
        owes_sync: false,
        answer_before_sync: is_planted(&options),
        lock: Some(lock),
    };
    engine.spawn().map_err(OpenError::io("start the thread of", &log_dir))?;
    Ok(substrate(shared, disk, blob_dir, options.prefix, partitions))
}

/// Opens the data directory of a node that does not run, for reading; changes nothing in it.
///
/// The doors' reads work; whatever would change something answers `Closed`, and consumers wait
/// for ever. A node cannot start while this is open.
pub fn open_read_only(dir: &Path) -> Result<(Substrate, LocalControl), OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let lock = DirLock::shared(dir)?;
    let (partitions, store) =
        read_format(&*disk, dir)?.ok_or_else(|| OpenError::NotADataDirectory {
            dir: dir.to_owned(),
            detail: "it has no `format`".to_owned(),
        })?;
    let memory = Index::Memory(BTreeMap::new());
    let recovered = recover(&*disk, &log_dir(dir), store, memory, false).map_err(|e| match e {
        ReplayError::Open(error) => error,
        ReplayError::Index(error) => IndexState::new(dir).failed(&error),
    })?;
    let Recovered { index, files, damages, .. } = recovered;
    let (deliveries, _) =
        load(&index, partitions).map_err(|error| IndexState::new(dir).failed(&error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut options = LocalOptions::new(Prefix::default(), clock);
    options.ack_wait = NO_ACK_WAIT;
    let shared = share(dir, partitions, &options, index, files, deliveries, damages);
    shared.queue.end("it is open for reading only");
    shared.done.send_replace(true);
    let (substrate, control) =
        substrate(Arc::clone(&shared), disk, dir.join("blobs"), options.prefix, partitions);
    shared.keep(lock);
    Ok((substrate, control))
}

fn disk_of(options: &LocalOptions) -> Arc<dyn Disk> {
    #[cfg(feature = "test-util")]
    if let Some(disk) = &options.disk {
        return Arc::<super::PowerCutDisk>::clone(disk);
    }
    #[cfg(not(feature = "test-util"))]
    let _: &LocalOptions = options;
    Arc::new(RealDisk)
}

fn is_planted(options: &LocalOptions) -> bool {
    #[cfg(feature = "test-util")]
    return options.planted == Some(super::Planted::AnswerBeforeSync);
    #[cfg(not(feature = "test-util"))]
    {
        let _: &LocalOptions = options;
        false
    }
}

pub(super) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

// === the format ===

/// The partitions and the id of a directory, made if it is new.
fn format_of(
    disk: &dyn Disk,
    dir: &Path,
    partitions: u16,
    clock: &dyn Clock,
) -> Result<(u16, u128), OpenError> {
    if let Some(found) = read_format(disk, dir)? {
        return Ok(found);
    }
    let id = ulid::Ulid::from_parts(clock.now().0, rand::random());
    let format = Format { version: FORMAT, partitions: partitions.max(1), id: id.to_string() };
    let path = dir.join("format");
    let text = serde_json::to_vec(&format)
        .map_err(std::io::Error::other)
        .map_err(OpenError::io("write", &path))?;
    write_whole(disk, &path, &text).map_err(OpenError::io("write", &path))?;
    Ok((format.partitions, id.0))
}

pub(super) fn read_format(disk: &dyn Disk, dir: &Path) -> Result<Option<(u16, u128)>, OpenError> {
    let path = dir.join("format");
    let text = read_whole(disk, &path).map_err(OpenError::io("read", &path))?;
    let Some(text) = text else { return Ok(None) };
    let bad = |detail: String| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: format!("its file `format` is not readable: {detail}"),
    };
    let format: Format = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if format.version > FORMAT {
        let (dir, found) = (dir.to_owned(), format.version);
        return Err(OpenError::TooNew { dir, found, supported: FORMAT });
    }
    // Formats older than 1 do not exist; the next one migrates here, before anything is opened.
    let id = ulid::Ulid::from_string(&format.id).map_err(|error| bad(error.to_string()))?;
    Ok(Some((format.partitions.max(1), id.0)))
}

// === the index's state ===

impl IndexState {
    pub(super) fn new(dir: &Path) -> Self {
        Self { state: dir.join("index.state"), index: dir.join("index") }
    }

    /// An index is whole if it was let go in order, or if its process died but the machine did
    /// not: sled's writes are in order, but not synced.
    fn is_trusted(&self) -> bool {
        let state = read_whole(&RealDisk, &self.state).ok().flatten().unwrap_or_default();
        state == b"clean" || (!state.is_empty() && state == open_mark())
    }

    /// From here on the index is as good as this machine's uptime.
    fn set_open(&self) -> Result<(), OpenError> {
        write_whole(&RealDisk, &self.state, &open_mark())
            .map_err(OpenError::io("write", &self.state))
    }

    /// The index was closed: it is synced, and good for ever.
    pub(super) fn set_clean(&self) {
        let synced =
            sync_tree(&self.index).and_then(|()| write_whole(&RealDisk, &self.state, b"clean"));
        if let Err(error) = synced {
            warn!(%error, "the index could not be synced; a restart of the machine rebuilds it");
        }
    }

    /// The index must be built anew at the next start.
    pub(super) fn distrust(&self) {
        if let Err(error) = write_whole(&RealDisk, &self.state, b"failed") {
            warn!(%error, "cannot mark the index as failed; delete the folder `index`");
        }
    }

    /// Puts an index aside that cannot be used; the one before goes.
    fn set_aside(&self) -> Result<(), OpenError> {
        let aside = self.index.with_extension("old");
        if aside.exists() {
            std::fs::remove_dir_all(&aside).map_err(OpenError::io("remove", &aside))?;
        }
        if self.index.exists() {
            std::fs::rename(&self.index, &aside).map_err(OpenError::io("rename", &self.index))?;
        }
        Ok(())
    }

    fn failed(&self, error: &IndexError) -> OpenError {
        self.distrust();
        OpenError::Index { dir: self.index.clone(), detail: error.to_string() }
    }
}

/// What the state says while a process of this boot of the machine has the index.
fn open_mark() -> Vec<u8> {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => [b"open ", boot.trim_ascii()].concat(),
        // Not Linux: only a clean close is trusted.
        Err(_) => Vec::new(),
    }
}

fn sync_tree(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            std::fs::File::open(entry.path())?.sync_all()?;
        }
    }
    RealDisk.sync_dir(dir)
}

// === the log ===

/// Recovers with the index there is, or with a new one if that is not to be used.
fn recover_with_index(
    disk: &dyn Disk,
    log_dir: &Path,
    store: u128,
    state: &IndexState,
    options: &LocalOptions,
) -> Result<Recovered, OpenError> {
    if state.index.exists() {
        let trusted = state.is_trusted();
        state.set_open()?;
        let tried = if trusted {
            Index::open(&state.index, options.index_cache).map_err(ReplayError::Index).and_then(
                |index| {
                    let owner = index.get(&keys::store()).map_err(ReplayError::Index)?;
                    if owner.as_deref() != Some(store.to_be_bytes().as_slice()) {
                        return Ok(None);
                    }
                    recover(disk, log_dir, store, index, true).map(Some)
                },
            )
        } else {
            Ok(None)
        };
        match tried {
            Ok(Some(recovered)) => return Ok(recovered),
            Err(ReplayError::Open(OpenError::Index { detail, .. })) => {
                warn!(detail, "the index does not fit the log; building it anew");
            }
            Err(ReplayError::Open(error)) => return Err(error),
            Err(ReplayError::Index(error)) => warn!(%error, "building the index anew"),
            Ok(None) => warn!("the index may be incomplete; building it anew"),
        }
        state.set_aside()?;
    } else {
        state.set_open()?;
    }
    let fresh = || {
        let mut index =
            Index::open(&state.index, options.index_cache).map_err(ReplayError::Index)?;
        let owner = [(keys::store(), Some(store.to_be_bytes().to_vec()))].into();
        index.commit(owner).map_err(ReplayError::Index)?;
        recover(disk, log_dir, store, index, true)
    };
    fresh().map_err(|error| match error {
        ReplayError::Open(error) => error,
        ReplayError::Index(error) => state.failed(&error),
    })
}

/// Finds the log's end, cuts what is torn, and brings the index up to it.
fn recover(
    disk: &dyn Disk,
    log_dir: &Path,
    store: u128,
    mut index: Index,
    writable: bool,
) -> Result<Recovered, ReplayError> {
    let applied = index.applied().map_err(ReplayError::Index)?;
    let synced = applied.map_or(0, |applied| applied.position);
    let (mut readers, mut highest) =
        open_segments(disk, log_dir, store, writable).map_err(ReplayError::Open)?;
    let mut ends = Vec::with_capacity(readers.len());
    let count = readers.len();
    for (at, reader) in readers.iter_mut().enumerate() {
        let end = if at + 1 == count { reader.open_end(synced) } else { reader.closed_end() };
        let end = end.map_err(ReplayError::Open)?;
        if end.at < reader.len && writable {
            let cut = reader.file.truncate(end.at).and_then(|()| reader.file.sync());
            cut.map_err(OpenError::io("cut", &reader.path)).map_err(ReplayError::Open)?;
        }
        reader.len = end.at;
        highest = highest.max(end.position);
        ends.push(end);
    }
    if let Some(applied) = applied {
        let place = readers.iter().find(|reader| reader.segment == applied.segment);
        let is_there = place.is_some_and(|reader| u64::from(applied.offset) <= reader.len);
        if !is_there || applied.position > highest {
            let detail = "it knows records that the log does not have".to_owned();
            let dir = log_dir.to_owned();
            return Err(ReplayError::Open(OpenError::Index { dir, detail }));
        }
    }
    let files = Arc::new(Files::default());
    let mut segments = BTreeMap::new();
    let mut damages = Vec::new();
    let mut position = synced;
    let mut changes: HashMap<u32, i64> = HashMap::new();
    for reader in &mut readers {
        let from = match applied {
            Some(applied) if reader.segment < applied.segment => reader.len,
            Some(applied) if reader.segment == applied.segment => u64::from(applied.offset),
            _ => SEGMENT_HEADER,
        };
        let end = reader.len;
        let (staged, found) = replay(reader, from, end, &mut index, &mut position)?;
        damages.extend(found);
        for (segment, live) in staged.live {
            *changes.entry(segment).or_default() += live;
        }
        files.insert(reader.segment, Arc::clone(&reader.file));
    }
    for reader in &readers {
        let known = index.get(&keys::live(reader.segment)).map_err(ReplayError::Index)?;
        let known = known.and_then(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)));
        // Without a figure, what the index had before this replay counts as alive.
        let before = match applied {
            Some(applied) if reader.segment <= applied.segment => {
                i64::try_from(reader.len).unwrap_or(i64::MAX)
            }
            _ => 0,
        };
        let live = known.unwrap_or(before) + changes.get(&reader.segment).copied().unwrap_or(0);
        segments.insert(reader.segment, Segment { len: reader.len, live });
    }
    Ok(Recovered { index, files, segments, next_position: highest + 1, damages })
}

/// Opens all segments; says the highest position that they prove to have been given.
fn open_segments(
    disk: &dyn Disk,
    log_dir: &Path,
    store: u128,
    writable: bool,
) -> Result<(Vec<Reader>, u64), OpenError> {
    let ids = segment_ids(disk, log_dir).map_err(OpenError::io("list", log_dir))?;
    let mut readers: Vec<Reader> = Vec::with_capacity(ids.len());
    let mut highest = 0;
    for (at, id) in ids.iter().copied().enumerate() {
        let path = segment_path(log_dir, id);
        let damaged = |offset: u64, detail: &str| OpenError::Damaged {
            file: path.clone(),
            offset,
            detail: detail.to_owned(),
        };
        if readers.last().is_some_and(|before| before.segment + 1 != id) {
            return Err(damaged(0, "the segment before it is missing"));
        }
        let opened =
            disk.open(&path, writable).and_then(|file| Reader::new(file, path.clone(), id));
        let mut reader = opened.map_err(OpenError::io("open", &path))?;
        let head = SegmentHead::decode(reader.bytes(0, 40).map_err(OpenError::io("read", &path))?);
        match head {
            Some(head) if head.id == id && head.store == store => {
                highest = highest.max(head.first_position.saturating_sub(1));
                readers.push(reader);
            }
            Some(_) => return Err(damaged(0, "it belongs to another data directory")),
            // Begun in a crash: nothing was ever written to it.
            None if at + 1 == ids.len() && reader.len <= SEGMENT_HEADER => {
                if writable {
                    disk.remove(&path).map_err(OpenError::io("remove", &path))?;
                }
            }
            None => return Err(damaged(0, "its head is not readable")),
        }
    }
    if readers.is_empty() && writable {
        let id = ids.last().copied().unwrap_or(1);
        let head = SegmentHead { id, store, first_position: 1 };
        let path = segment_path(log_dir, id);
        let file = create_segment(disk, log_dir, head).map_err(|error| match error {
            WriteError::Clean(source) | WriteError::Fatal(source) => {
                OpenError::io("create", &path)(source)
            }
        })?;
        let reader = Reader::new(file, path.clone(), id).map_err(OpenError::io("open", &path))?;
        readers.push(reader);
    }
    Ok((readers, highest))
}

/// What is kept in memory: the waiting inputs, and when something is due next.
fn load(index: &Index, partitions: u16) -> Result<(Deliveries, Option<u64>), IndexError> {
    let mut deliveries = Deliveries::new(partitions);
    index.each(keys::INPUTS, Bound::Unbounded, &mut |key, value| {
        let position = super::record::u64_at(key, 1).map(Position);
        if let (Some(position), Some((entity, loc))) = (position, decode_waiting(value)) {
            deliveries.add(entity, position, loc, true);
        }
        true
    })?;
    let mut next_due = None;
    for prefix in [keys::DUE, keys::EXPIRIES] {
        index.each(prefix, Bound::Unbounded, &mut |key, _| {
            next_due = next_due.into_iter().chain(super::record::u64_at(key, 1)).min();
            false
        })?;
    }
    Ok((deliveries, next_due))
}

// === the parts together ===

fn share(
    dir: &Path,
    partitions: u16,
    options: &LocalOptions,
    index: Index,
    files: Arc<Files>,
    deliveries: Deliveries,
    damages: Vec<Damage>,
) -> Arc<Shared> {
    let bells: Vec<_> = (0..partitions).map(|_| Notify::new()).collect();
    for (bell, partition) in bells.iter().zip(0..) {
        if deliveries.has_ready(partition) {
            bell.notify_one();
        }
    }
    Arc::new(Shared {
        dir: dir.to_owned(),
        partitions,
        ack_wait: options.ack_wait,
        clock: Arc::clone(&options.clock),
        index: RwLock::new(Some(index)),
        files,
        deliveries: Mutex::new(deliveries),
        bells,
        watchers: Watchers::default(),
        damaged: Mutex::new(damages.into_iter().map(|damage| (damage.entity, damage)).collect()),
        queue: Queue::new(),
        bus: LocalBus::new(),
        fatal: watch::Sender::new(None),
        done: watch::Sender::new(false),
        low: AtomicBool::new(false),
        head_room: options.head_room,
        reader_lock: Mutex::new(None),
    })
}

fn substrate(
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    blobs: PathBuf,
    prefix: Prefix,
    partitions: u16,
) -> (Substrate, LocalControl) {
    let bus = Arc::new(shared.bus.clone());
    let client = Arc::new(Client(shared));
    let substrate = Substrate {
        journal: Arc::new(LocalJournal(Arc::clone(&client))),
        inbox: Arc::new(LocalInbox(Arc::clone(&client))),
        bus,
        bucket: Arc::new(LocalBucket(Arc::clone(&client))),
        timers: Arc::new(LocalTimers(Arc::clone(&client))),
        blobs: Arc::new(LocalBlobs::new(Arc::clone(&client), disk, blobs)),
        health: Arc::<Client>::clone(&client),
        prefix,
        partitions,
        shared: false,
    };
    (substrate, LocalControl(client))
}

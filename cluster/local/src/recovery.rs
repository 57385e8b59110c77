//! Opens a log with its index: which index to trust, where the log ends.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use tracing::{info, warn};

use super::{
    LocalOptions, OpenError,
    directory::IndexState,
    disk::Disk,
    index::{Index, keys},
    log::{
        SEGMENT_HEADER, Segment, SegmentFiles, SegmentHead, WriteError, create_segment,
        segment_ids, segment_path,
    },
    reader::{Damage, Reader, ReplayError, replay},
};

/// Free bytes (16 MiB) below which the index is kept in memory: after a failed write sled fails for
/// good, and stored data can still be read.
const INDEX_ROOM: u64 = 16 << 20;

/// A log with its index, ready to be used.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) index: Index,
    pub(super) files: Arc<SegmentFiles>,
    pub(super) segments: BTreeMap<u32, Segment>,
    pub(super) next_position: u64,
    pub(super) damages: Vec<Damage>,
}

/// Recovers with the existing index, or with a new one if that must not be used.
pub(super) fn recover_with_index(
    disk: &dyn Disk,
    log_dir: &Path,
    store: u128,
    state: &IndexState,
    options: &LocalOptions,
) -> Result<Recovered, OpenError> {
    // A disk that does not report its free space may be written until it refuses.
    let is_full = || disk.free_bytes(log_dir).is_ok_and(|free| free < INDEX_ROOM);
    if !state.make_room(|| !is_full())? {
        warn!("the disk is full: the index is kept in memory, and messages are refused");
        let index = Index::Memory(BTreeMap::new());
        return recover(disk, log_dir, store, index, true).map_err(|error| match error {
            ReplayError::Open(error) => error,
            ReplayError::Index(error) => state.failed(&error),
        });
    }
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
                warn!(detail, "the index does not match the log; rebuilding it");
            }
            Err(ReplayError::Open(error)) => return Err(error),
            Err(ReplayError::Index(error)) => warn!(%error, "rebuilding the index"),
            // The log has everything.
            Ok(None) => info!("rebuilding the index from the log"),
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

/// Finds the log's end, cuts off torn bytes, makes the rest durable, and only then (LOC-2) brings
/// the index up to it.
pub(super) fn recover(
    disk: &dyn Disk,
    log_dir: &Path,
    store: u128,
    mut index: Index,
    writable: bool,
) -> Result<Recovered, ReplayError> {
    let applied = index.applied().map_err(ReplayError::Index)?;
    let synced = |segment: u32| match applied {
        Some(applied) if applied.segment == segment => u64::from(applied.offset),
        _ => 0,
    };
    let (mut readers, mut highest) =
        open_segments(disk, log_dir, store, writable).map_err(ReplayError::Open)?;
    let mut ends = Vec::with_capacity(readers.len());
    let count = readers.len();
    for (at, reader) in readers.iter_mut().enumerate() {
        let synced = synced(reader.segment);
        let end = if at + 1 == count { reader.open_end(synced) } else { reader.closed_end() };
        let end = end.map_err(ReplayError::Open)?;
        if writable && at + 1 == count {
            reader.settle(end).map_err(ReplayError::Open)?;
        }
        reader.len = end.at;
        highest = highest.max(end.position);
        ends.push(end);
    }
    if writable {
        // A process that died may have left the name of its last segment unsynced.
        let synced = disk.sync_dir(log_dir);
        synced.map_err(OpenError::unsynced(log_dir)).map_err(ReplayError::Open)?;
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
    let files = Arc::new(SegmentFiles::default());
    let mut segments = BTreeMap::new();
    let mut damages = Vec::new();
    let mut position = applied.map_or(0, |applied| applied.position);
    let mut changes: HashMap<u32, i64> = HashMap::new();
    for reader in &mut readers {
        let from = match applied {
            Some(applied) if reader.segment < applied.segment => reader.len,
            Some(applied) if reader.segment == applied.segment => u64::from(applied.offset),
            _ => SEGMENT_HEADER,
        };
        let end = reader.len;
        let staged = replay(reader, from, end, &mut index, &mut position, &mut damages)?;
        for (segment, live) in staged.live {
            *changes.entry(segment).or_default() += live;
        }
        files.insert(reader.segment, Arc::clone(&reader.file));
    }
    for reader in &readers {
        let known = index.get(&keys::live(reader.segment)).map_err(ReplayError::Index)?;
        let known = known.and_then(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)));
        // Without an estimate, all that the index had before this replay counts as alive.
        let before = match applied {
            Some(applied) if reader.segment <= applied.segment => {
                i64::try_from(reader.len).unwrap_or(i64::MAX)
            }
            _ => 0,
        };
        let live = known.unwrap_or(before) + changes.get(&reader.segment).copied().unwrap_or(0);
        segments.insert(reader.segment, Segment { len: reader.len, live });
    }
    // Only now: damage to a record that was later removed or replaced does not matter.
    for Damage { entity, position, detail } in &damages {
        warn!(%entity, %position, detail, "a stored record is damaged; its entity is refused");
    }
    Ok(Recovered { index, files, segments, next_position: highest + 1, damages })
}

/// Opens all segments; says the highest position that they prove to be used.
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
            // Created in a crash: nothing was ever written to it.
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

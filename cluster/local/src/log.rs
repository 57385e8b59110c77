//! The log: segments on a disk, written in groups, the last one open.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use clawnode_proto::{EntityId, Position};
use tracing::warn;

use super::{
    bytes_at::{u32_at, u64_at, u128_at},
    disk::{Disk, DiskFile},
    index::Loc,
    record::{HEADER, Header, RecordKind},
};

/// Bytes at the head of a segment file.
pub(super) const SEGMENT_HEADER: u64 = 40;
/// The first bytes of a segment file.
const SEGMENT_MAGIC: [u8; 8] = *b"CLAWSEG1";
/// A buffer is given back when it has grown beyond this (1 MiB) for one large group.
const BUFFER_KEPT: usize = 1 << 20;

/// The open files of all segments, shared with readers. A reader that holds a removed file can
/// still read it.
#[derive(Debug, Default)]
pub(super) struct SegmentFiles(RwLock<HashMap<u32, Arc<dyn DiskFile>>>);

/// The first bytes of a file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) id: u32,
    /// The data directory it belongs to.
    pub(super) store: u128,
    /// No record before it had this position or a later one.
    pub(super) first_position: u64,
}

/// One segment, as the writer sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) len: u64,
    /// Bytes that still matter; an estimate that only decides when to clean up.
    pub(super) live: i64,
}

/// Why a group was not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// It left no trace; later writes may work.
    Clean(io::Error),
    /// The content of the disk is unknown now.
    Fatal(io::Error),
}

/// Why a record cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// Not now; the record may be sound.
    Disk(io::Error),
    /// It differs from what was written.
    Damaged(String),
}

/// The writer's side.
#[derive(Debug)]
pub(super) struct SegmentLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    store: u128,
    segment_bytes: u64,
    pub(super) files: Arc<SegmentFiles>,
    pub(super) segments: BTreeMap<u32, Segment>,
    active: u32,
    file: Arc<dyn DiskFile>,
    /// Up to where the active segment is known to be synced.
    synced: u64,
    /// The group that is being put together.
    buffer: Vec<u8>,
}

// === impl SegmentLog ===

impl SegmentLog {
    /// The log over recovered segments; the last is written on.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        store: u128,
        segment_bytes: u32,
        files: Arc<SegmentFiles>,
        segments: BTreeMap<u32, Segment>,
    ) -> Option<Self> {
        let (&active, &Segment { len: synced, .. }) = segments.last_key_value()?;
        let file = files.get(active)?;
        let segment_bytes = u64::from(segment_bytes.clamp(4 << 10, 1 << 30));
        let buffer = Vec::new();
        Some(Self {
            disk,
            dir,
            store,
            segment_bytes,
            files,
            segments,
            active,
            file,
            synced,
            buffer,
        })
    }

    pub(super) fn active(&self) -> u32 {
        self.active
    }

    /// The offset at which the next group will begin.
    pub(super) fn end(&self) -> u64 {
        self.segments.get(&self.active).map_or(SEGMENT_HEADER, |segment| segment.len)
    }

    pub(super) fn wants_rotation(&self) -> bool {
        self.end() >= self.segment_bytes
    }

    pub(super) fn has_records(&self) -> bool {
        self.end() > SEGMENT_HEADER
    }

    /// Whether it has bytes that do not matter any more.
    pub(super) fn has_dead(&self) -> bool {
        self.segments.values().any(|segment| {
            let live = u64::try_from(segment.live).unwrap_or(0);
            segment.len.saturating_sub(SEGMENT_HEADER) > live
        })
    }

    pub(super) fn staged_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Adds a record to the group; its body is `parts` in a row.
    pub(super) fn stage(
        &mut self,
        kind: RecordKind,
        entity: EntityId,
        position: Position,
        target: Position,
        parts: &[&[u8]],
    ) -> io::Result<(Header, Loc)> {
        let mut crc = crc32fast::Hasher::new();
        for part in parts {
            crc.update(part);
        }
        let body_len: usize = parts.iter().map(|part| part.len()).sum();
        let header = Header {
            kind,
            entity,
            position,
            target,
            batch_back: u32::try_from(self.buffer.len()).map_err(io::Error::other)?,
            body_len: u32::try_from(body_len).map_err(io::Error::other)?,
            body_crc: crc.finalize(),
        };
        self.stage_as(&header, parts)
    }

    /// Adds a record under exactly this header, but for its place.
    pub(super) fn stage_as(
        &mut self,
        header: &Header,
        parts: &[&[u8]],
    ) -> io::Result<(Header, Loc)> {
        let batch_back = u32::try_from(self.buffer.len()).map_err(io::Error::other)?;
        let header = Header { batch_back, ..*header };
        let offset = self.end() + u64::from(batch_back);
        self.buffer.extend_from_slice(&header.encode(self.active, offset));
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        Ok((header, header.loc(self.active, u32::try_from(offset).map_err(io::Error::other)?)))
    }

    /// Forgets the group.
    pub(super) fn discard(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
    }

    /// Writes the group; it is durable after [`Self::sync`].
    pub(super) fn write(&mut self) -> Result<(), WriteError> {
        let at = self.end();
        let written = self.file.write_at(at, &self.buffer);
        let len = self.buffer.len() as u64;
        self.discard();
        match written {
            Ok(()) => {
                if let Some(segment) = self.segments.get_mut(&self.active) {
                    segment.len += len;
                }
                Ok(())
            }
            Err(error) => match self.file.truncate(at) {
                Ok(()) => Err(WriteError::Clean(error)),
                Err(truncate) => Err(WriteError::Fatal(truncate)),
            },
        }
    }

    /// Makes all written bytes durable. After an error the log cannot be used any more.
    ///
    /// Linux keeps pages readable that it failed to write, and takes them for clean: the next
    /// process would read them as if they were on the disk. So they are cut off, if that works; if
    /// not, the next start writes them again ([`super::reader::Reader::settle`]).
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.sync() {
            if let Err(error) = self.file.truncate(self.synced) {
                warn!(%error, "cannot cut off what was not synced; the next start does it");
            }
            return Err(error);
        }
        self.synced = self.end();
        Ok(())
    }

    /// Begins the next segment. The one before must be synced.
    pub(super) fn rotate(&mut self, next_position: u64) -> Result<(), WriteError> {
        let head =
            SegmentHead { id: self.active + 1, store: self.store, first_position: next_position };
        let file = create_segment(&*self.disk, &self.dir, head)?;
        self.files.insert(head.id, Arc::clone(&file));
        self.segments.insert(head.id, Segment { len: SEGMENT_HEADER, live: 0 });
        self.active = head.id;
        self.file = file;
        self.synced = SEGMENT_HEADER;
        Ok(())
    }

    /// Removes a segment in which nothing matters.
    pub(super) fn remove(&mut self, id: u32) -> io::Result<()> {
        self.disk.remove(&segment_path(&self.dir, id))?;
        self.disk.sync_dir(&self.dir)?;
        self.files.remove(id);
        self.segments.remove(&id);
        Ok(())
    }

    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes(&self.dir)
    }

    pub(super) fn count_live(&mut self, live: HashMap<u32, i64>) {
        for (id, change) in live {
            if let Some(segment) = self.segments.get_mut(&id) {
                segment.live += change;
            }
        }
    }
}

/// Makes a segment file, durable with its name.
pub(super) fn create_segment(
    disk: &dyn Disk,
    dir: &Path,
    head: SegmentHead,
) -> Result<Arc<dyn DiskFile>, WriteError> {
    let path = segment_path(dir, head.id);
    let written = disk.create(&path).and_then(|file| {
        file.write_at(0, &head.encode())?;
        Ok(file)
    });
    let file = match written {
        Ok(file) => file,
        Err(error) => {
            // An unfinished file is made again by the next try, or at the next start.
            return Err(WriteError::Clean(error));
        }
    };
    file.sync().and_then(|()| disk.sync_dir(dir)).map_err(WriteError::Fatal)?;
    Ok(file)
}

// === impl SegmentFiles ===

impl SegmentFiles {
    pub(super) fn get(&self, id: u32) -> Option<Arc<dyn DiskFile>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(super) fn insert(&self, id: u32, file: Arc<dyn DiskFile>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, file);
    }

    fn remove(&self, id: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// The record at `loc`, checked.
    pub(super) fn read(&self, loc: Loc) -> Result<(Header, Vec<u8>), ReadError> {
        let Some(file) = self.get(loc.segment) else {
            return Err(ReadError::Damaged("its log segment is gone".to_owned()));
        };
        read_record(&*file, loc)
    }
}

/// Reads and checks one record of a segment.
fn read_record(file: &dyn DiskFile, loc: Loc) -> Result<(Header, Vec<u8>), ReadError> {
    let damaged = |what: &str| {
        let Loc { segment, offset, .. } = loc;
        ReadError::Damaged(format!("{what} at segment {segment} offset {offset}"))
    };
    let mut bytes = vec![0; HEADER + loc.len as usize];
    match file.read_at(u64::from(loc.offset), &mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(damaged("the file is too short"));
        }
        Err(error) => return Err(ReadError::Disk(error)),
    }
    let header = Header::decode(&bytes, loc.segment, u64::from(loc.offset))
        .ok_or_else(|| damaged("the header does not match its checksum"))?;
    bytes.drain(..HEADER);
    if header.body_len != loc.len || !header.fits(&bytes) {
        return Err(damaged("the body does not match its checksum"));
    }
    Ok((header, bytes))
}

// === impl SegmentHead ===

impl SegmentHead {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = SEGMENT_MAGIC.to_vec();
        out.extend(self.id.to_be_bytes());
        out.extend(self.store.to_be_bytes());
        out.extend(self.first_position.to_be_bytes());
        out.extend(crc32fast::hash(&out).to_be_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..8)? != SEGMENT_MAGIC || u32_at(bytes, 36)? != crc32fast::hash(&bytes[..36]) {
            return None;
        }
        Some(Self {
            id: u32_at(bytes, 8)?,
            store: u128_at(bytes, 12)?,
            first_position: u64_at(bytes, 28)?,
        })
    }
}

/// The file of a segment.
pub(super) fn segment_path(dir: &Path, id: u32) -> PathBuf {
    dir.join(format!("{id:010}.seg"))
}

/// The segments in a directory, oldest first.
pub(super) fn segment_ids(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u32>> {
    let names = disk.list(dir)?;
    let parse = |name: &String| name.strip_suffix(".seg")?.parse().ok();
    let mut ids: Vec<u32> = names.iter().filter_map(parse).collect();
    ids.sort_unstable();
    Ok(ids)
}

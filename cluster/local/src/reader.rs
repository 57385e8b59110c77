//! Reads a log after a crash: where it ends, and what its records mean.

use std::{io, path::PathBuf, sync::Arc};

use clawnode_proto::{EntityId, JobId, Position};
use tracing::warn;

use super::{
    OpenError,
    disk::DiskFile,
    index::{Applied, Index, IndexError, keys},
    log::SEGMENT_HEADER,
    record::{HEADER, Header, MAGIC, RecordKind},
    staged::Staged,
};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// Index changes that are made at once during a replay.
const REPLAY_BATCH: usize = 4_096;

/// Reads the records of one segment.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: PathBuf,
    pub(super) segment: u32,
    pub(super) len: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
}

/// Where the records of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEnd {
    /// The end of the last record that counts.
    pub(super) at: u64,
    /// The highest position up to there.
    pub(super) position: u64,
    /// Where the group of the last record begins; only this group can be unsynced.
    pub(super) group: u64,
}

/// Bytes between records that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagedBytes {
    /// Where it begins.
    pub(super) at: u64,
    /// The next readable record, and where its group began.
    pub(super) next: Option<(u64, u64)>,
}

/// Why a replay stopped.
#[derive(Debug)]
pub(super) enum ReplayError {
    Open(OpenError),
    Index(IndexError),
}

/// An entity with a damaged record.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    pub(super) entity: EntityId,
    pub(super) position: Position,
    pub(super) detail: String,
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(file: Arc<dyn DiskFile>, path: PathBuf, segment: u32) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, path, segment, len, chunk: Vec::new(), chunk_at: 0 })
    }

    /// At least `want` bytes from `at` on, fewer only at the end of the file.
    pub(super) fn bytes(&mut self, at: u64, want: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.len.saturating_sub(at)).map_err(io::Error::other)?;
        let want = want.min(left);
        let has =
            self.chunk_at <= at && at + want as u64 <= self.chunk_at + self.chunk.len() as u64;
        if !has {
            self.chunk.resize(want.max(CHUNK).min(left), 0);
            self.chunk_at = at;
            self.file.read_at(at, &mut self.chunk)?;
        }
        let from = usize::try_from(at - self.chunk_at).map_err(io::Error::other)?;
        Ok(&self.chunk[from..])
    }

    /// The header at `at`, if a whole record is there.
    pub(super) fn header(&mut self, at: u64) -> io::Result<Option<Header>> {
        let (segment, len) = (self.segment, self.len);
        let header = Header::decode(self.bytes(at, HEADER)?, segment, at);
        Ok(header.filter(|header| at + header.record_len() <= len))
    }

    /// The body of the record at `at`.
    pub(super) fn body(&mut self, at: u64, header: &Header) -> io::Result<&[u8]> {
        let len = header.body_len as usize;
        Ok(&self.bytes(at + HEADER as u64, len)?[..len])
    }

    /// The first readable record after `bad` that `wanted` accepts: where it and its group begin.
    pub(super) fn resync(
        &mut self,
        bad: u64,
        wanted: impl Fn(u64, u64) -> bool,
    ) -> io::Result<Option<(u64, u64)>> {
        let mut at = bad + 1;
        while at + HEADER as u64 <= self.len {
            let bytes = self.bytes(at, HEADER)?;
            let Some(skip) = bytes.windows(MAGIC.len()).position(|four| four == MAGIC) else {
                at += (bytes.len() - (MAGIC.len() - 1)) as u64;
                continue;
            };
            at += skip as u64;
            if let Some(header) = self.header(at)? {
                let group = at - u64::from(header.batch_back).min(at);
                if wanted(at, group) {
                    return Ok(Some((at, group)));
                }
            }
            at += 1;
        }
        Ok(None)
    }

    /// Goes over all headers: where they end, and which bytes are bad.
    pub(super) fn walk(&mut self) -> io::Result<(SegmentEnd, Option<DamagedBytes>)> {
        let mut end = SegmentEnd { at: SEGMENT_HEADER, position: 0, group: SEGMENT_HEADER };
        while end.at < self.len {
            let Some(header) = self.header(end.at)? else {
                let at = end.at;
                // Only a later group proves that this place was once whole.
                let next = self.resync(at, |_, group| group > at)?;
                return Ok((end, Some(DamagedBytes { at, next })));
            };
            end.group = end.at - u64::from(header.batch_back).min(end.at);
            end.position = end.position.max(header.position.0);
            end.at += header.record_len();
        }
        Ok((end, None))
    }

    /// The end of a closed segment: the end of its file, or it is damaged.
    pub(super) fn closed_end(&mut self) -> Result<SegmentEnd, OpenError> {
        match self.walk().map_err(OpenError::io("read", &self.path))? {
            (end, None) => Ok(end),
            (_, Some(bad)) => Err(self.damaged(bad.at)),
        }
    }

    /// The end of the last segment: before anything that a crash left half-written. `synced` is the
    /// offset up to which the index knows it to have been synced.
    pub(super) fn open_end(&mut self, synced: u64) -> Result<SegmentEnd, OpenError> {
        let (mut end, bad) = self.walk().map_err(OpenError::io("read", &self.path))?;
        if let Some(bad) = bad {
            // The bytes are there, and were synced: this is damage. A file that is shorter than its
            // synced length has lost its end, and no more is known.
            let was_synced = bad.at < synced && synced <= self.len;
            if bad.next.is_some() || was_synced {
                return Err(self.damaged(bad.at));
            }
        }
        // A group that is known to be synced was answered: damage in it is damage, not a tear.
        let mut at = end.group.max(synced);
        while at < end.at {
            let read = self.header(at).and_then(|header| match header {
                Some(header) => Ok(Some((header, header.fits(self.body(at, &header)?)))),
                None => Ok(None),
            });
            let Some((header, fits)) = read.map_err(OpenError::io("read", &self.path))? else {
                break;
            };
            if !fits {
                end.at = at;
                break;
            }
            at += header.record_len();
        }
        if end.at < self.len {
            warn!(
                file = %self.path.display(), offset = end.at, bytes = self.len - end.at,
                "cut the log's torn tail: a crash interrupted a write that was never answered"
            );
        }
        Ok(end)
    }

    /// Makes the last segment durable up to `end`, and cuts off the rest.
    ///
    /// A process that died may have left its last group unsynced, or after a failed sync. Linux
    /// takes its pages for clean then, and a sync alone would not write them. So the group is
    /// written over itself, with the segment's head if no group before it proves that the head is
    /// on the disk. Everything before the last group was synced before that group was written.
    pub(super) fn settle(&mut self, end: SegmentEnd) -> Result<(), OpenError> {
        let tried = self.write_again(end).and_then(|()| self.file.sync());
        tried.map_err(OpenError::unsynced(&self.path))
    }

    fn write_again(&mut self, end: SegmentEnd) -> io::Result<()> {
        if end.at < self.len {
            self.file.truncate(end.at)?;
        }
        self.len = end.at;
        let file = Arc::clone(&self.file);
        let mut at = if end.group <= SEGMENT_HEADER { 0 } else { end.group };
        while at < end.at {
            // The cached bytes may reach beyond the end.
            let left = usize::try_from(end.at - at).map_err(io::Error::other)?;
            let bytes = self.bytes(at, CHUNK)?;
            let bytes = &bytes[..bytes.len().min(left)];
            file.write_at(at, bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn damaged(&self, offset: u64) -> OpenError {
        let detail = "no record header is readable here, but synced records follow".to_owned();
        OpenError::Damaged { file: self.path.clone(), offset, detail }
    }
}

/// Puts the records of `reader` from `from` to `end` into the index. Of `damages`, in the order of
/// the log, it keeps those that no later record replaced or removed.
pub(super) fn replay(
    reader: &mut Reader,
    from: u64,
    end: u64,
    index: &mut Index,
    position: &mut u64,
    damages: &mut Vec<Damage>,
) -> Result<Staged, ReplayError> {
    let mut all = Staged::default();
    let mut staged = Staged::default();
    let mut at = from;
    while at < end {
        let header = reader.header(at).map_err(|source| reader.failed(source))?;
        let Some(header) = header else { return Err(ReplayError::Open(reader.damaged(at))) };
        let segment = reader.segment;
        let offset = u32::try_from(at).map_err(|error| reader.failed(io::Error::other(error)))?;
        let loc = header.loc(segment, offset);
        let path = reader.path.clone();
        let body = reader
            .body(at, &header)
            .map_err(|source| ReplayError::Open(OpenError::io("read", path)(source)))?;
        let whole = header.fits(body).then_some(body);
        match header.kind {
            RecordKind::Rollup if whole.is_some() => {
                damages.retain(|damage| damage.entity != header.entity);
            }
            RecordKind::Ack => damages.retain(|damage| damage.position != header.target),
            _ => {}
        }
        if whole.is_none() && header.kind == RecordKind::JobPut {
            // This fails no request: the owner that needs the job puts it again.
            let job = JobId::from_u128(header.entity.as_u128());
            warn!(%job, segment, offset = at, "a job's stored bytes are damaged");
        } else if whole.is_none() {
            let detail = format!("body at segment {segment} offset {at} is damaged");
            let (entity, position) = (header.entity, header.position);
            damages.push(Damage { entity, position, detail });
        }
        staged.apply(index, &header, whole, loc).map_err(ReplayError::Index)?;
        *position = header.position.0.max(*position);
        at += header.record_len();
        if staged.len() >= REPLAY_BATCH || at >= end {
            let offset = u32::try_from(at).unwrap_or(u32::MAX);
            let applied = Applied { segment, offset, position: *position };
            staged.set(keys::applied(), Some(applied.encode()));
            index.commit(staged.take()).map_err(ReplayError::Index)?;
            for (segment, live) in staged.live.drain() {
                *all.live.entry(segment).or_default() += live;
            }
            staged = Staged::default();
        }
    }
    Ok(all)
}

impl Reader {
    fn failed(&self, source: io::Error) -> ReplayError {
        ReplayError::Open(OpenError::io("read", &self.path)(source))
    }
}

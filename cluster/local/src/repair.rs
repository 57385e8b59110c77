//! Repair: closes off damaged stretches of the log, so that the rest can be used again.

use std::path::{Path, PathBuf};

use clawnode_proto::{EntityId, JobId, Position};
use tracing::warn;

use super::{
    OpenError,
    directory::{IndexState, NO_FORMAT, log_dir, read_format},
    disk::{Disk, DiskFile, RealDisk, write_whole},
    lock::DirLock,
    log::{SEGMENT_HEADER, SegmentHead, segment_ids, segment_path},
    reader::Reader,
    record::{HEADER, Header, RecordKind},
};

/// The findings and actions of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RepairReport {
    /// Segments that were looked at.
    pub segments: usize,
    /// Records that are readable.
    pub records: u64,
    /// Readable records whose body is damaged: their entities are refused until they are restored
    /// or deleted.
    pub damaged_entities: Vec<EntityId>,
    /// Damaged jobs. One that still waits is lost unless its owner puts it again.
    pub damaged_jobs: Vec<JobId>,
    /// Damaged stretches that were closed off. `clawnode journal verify` finds whose records were
    /// in them.
    pub spans: Vec<DamagedSpan>,
}

/// A stretch of the log that held no readable record.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DamagedSpan {
    /// The segment.
    pub file: PathBuf,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
    /// Where a copy of these bytes was put.
    pub kept: PathBuf,
}

/// Makes the log of a stopped node usable again; does nothing to one that is sound.
///
/// Each damaged stretch is copied to a file beside its segment, then marked as a hole (or cut off,
/// if nothing follows it). The index is built again at the next start.
pub fn repair(dir: &Path) -> Result<RepairReport, OpenError> {
    go_over(dir, Mode::Repair)
}

/// Says what [`repair`] would find and do, and changes nothing.
pub fn inspect(dir: &Path) -> Result<RepairReport, OpenError> {
    go_over(dir, Mode::Inspect)
}

impl RepairReport {
    fn add_damaged(&mut self, header: &Header) {
        if header.kind == RecordKind::JobPut {
            self.damaged_jobs.push(JobId::from_u128(header.entity.as_u128()));
        } else {
            self.damaged_entities.push(header.entity);
        }
    }
}

/// Whether a repair changes the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Inspect,
    Repair,
}

fn go_over(dir: &Path, mode: Mode) -> Result<RepairReport, OpenError> {
    let disk = RealDisk;
    let lock = DirLock::exclusive(dir)?;
    let (_, store) = read_format(&disk, dir)?.ok_or_else(|| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: NO_FORMAT.to_owned(),
    })?;
    if mode == Mode::Repair {
        IndexState::new(dir).distrust();
    }
    let log_dir = log_dir(dir);
    let mut report = RepairReport::default();
    let mut highest = 0;
    for id in segment_ids(&disk, &log_dir).map_err(OpenError::io("list", &log_dir))? {
        let path = segment_path(&log_dir, id);
        let mut fix = || -> std::io::Result<()> {
            let file = disk.open(&path, mode == Mode::Repair)?;
            let mut reader = Reader::new(file, path.clone(), id)?;
            if reader.len > SEGMENT_HEADER && SegmentHead::decode(reader.bytes(0, 40)?).is_none() {
                let head = SegmentHead { id, store, first_position: highest + 1 };
                if mode == Mode::Repair {
                    reader.file.write_at(0, &head.encode())?;
                }
            }
            highest = highest.max(fix_segment(&disk, mode, &mut reader, &mut report)?);
            if mode == Mode::Repair { reader.file.sync() } else { Ok(()) }
        };
        fix().map_err(OpenError::io("repair", &path))?;
        report.segments += 1;
    }
    report.damaged_entities.sort_unstable();
    report.damaged_entities.dedup();
    report.damaged_jobs.sort_unstable();
    report.damaged_jobs.dedup();
    drop(lock);
    Ok(report)
}

/// Goes over one segment; says the highest position in it.
fn fix_segment(
    disk: &dyn Disk,
    mode: Mode,
    reader: &mut Reader,
    report: &mut RepairReport,
) -> std::io::Result<u64> {
    let mut at = SEGMENT_HEADER;
    let mut highest = 0;
    while at < reader.len {
        if let Some(header) = reader.header(at)? {
            report.records += u64::from(header.kind != RecordKind::Hole);
            highest = highest.max(header.position.0);
            let body = reader.body(at, &header)?;
            if header.kind != RecordKind::Hole && !header.fits(body) {
                report.add_damaged(&header);
            }
            at += header.record_len();
            continue;
        }
        let next = reader.resync(at, |_, _| true)?.map_or(reader.len, |(next, _)| next);
        if mode == Mode::Inspect {
            report.spans.push(span_of(reader, at, next));
            at = next;
            continue;
        }
        let span = keep(disk, reader, at, next)?;
        warn!(file = %span.file.display(), offset = at, bytes = span.len, "moved damage to a file");
        if next == reader.len || next - at < HEADER as u64 {
            // A stretch that is too short for a header is no record: it can only be the end.
            reader.file.truncate(at)?;
            reader.len = at;
        } else {
            let hole = hole(next - at);
            reader.file.write_at(at, &hole.encode(reader.segment, at))?;
        }
        report.spans.push(span);
        at = next;
    }
    Ok(highest)
}

/// Copies a stretch to a file of its own.
fn keep(disk: &dyn Disk, reader: &mut Reader, at: u64, next: u64) -> std::io::Result<DamagedSpan> {
    let len = next - at;
    let mut bytes = vec![0; usize::try_from(len).map_err(std::io::Error::other)?];
    DiskFile::read_at(&*reader.file, at, &mut bytes)?;
    let span = span_of(reader, at, next);
    write_whole(disk, &span.kept, &bytes)?;
    Ok(span)
}

fn span_of(reader: &Reader, at: u64, next: u64) -> DamagedSpan {
    let kept = reader.path.with_extension(format!("{at}.damaged"));
    DamagedSpan { file: reader.path.clone(), offset: at, len: next - at, kept }
}

fn hole(len: u64) -> Header {
    Header {
        kind: RecordKind::Hole,
        entity: EntityId::from_u128(0),
        position: Position(0),
        target: Position(0),
        batch_back: 0,
        body_len: u32::try_from(len - HEADER as u64).unwrap_or(u32::MAX),
        body_crc: 0,
    }
}

//! Cleaning: live records of the oldest segment are written again at the end of the log, then the
//! segment goes (LOC-3).
//!
//! The oldest segment goes first: what removes a record (an acknowledgement, a rollup) comes after
//! it in the log. So a record may go with its segment, and nothing that it removed comes back.

use std::sync::{Arc, PoisonError};

use clawnode_cluster::StoreError;
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use super::{
    engine::{Fatal, WriteEngine},
    log::{SEGMENT_HEADER, SegmentLog, WriteError},
    reader::Reader,
    record::{Header, RecordKind, split_timer},
    staged::Staged,
};

/// Bytes that are copied between two groups of operations (1 MiB), so that these never wait long.
const STEP_BYTES: usize = 1 << 20;
/// Records that are checked between two groups of operations.
const STEP_RECORDS: usize = 2_048;

/// A cleaning under way.
#[derive(Debug)]
pub(super) struct Cleaning {
    /// The last segment to clean.
    last: u32,
    /// The segment being cleaned, and how far.
    victim: Option<(Reader, u64)>,
    /// The callers that asked for it.
    replies: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// The result of one step.
enum CheckpointStep {
    More,
    Done,
    Stuck(String),
}

impl Cleaning {
    /// Which segments to clean: all closed ones if half of the log is dead, else those at the
    /// beginning that have nothing alive.
    pub(super) fn plan(log: &SegmentLog, everything: bool) -> Option<Self> {
        let active = log.active();
        let closed = || log.segments.iter().filter(|(id, _)| **id != active);
        let total: u64 = log.segments.values().map(|segment| segment.len).sum();
        let dead: u64 = closed()
            .map(|(_, segment)| {
                let live = u64::try_from(segment.live).unwrap_or(0);
                (segment.len - SEGMENT_HEADER).saturating_sub(live)
            })
            .sum();
        let last = if everything || dead * 2 > total {
            closed().map(|(id, _)| *id).next_back()
        } else {
            closed().take_while(|(_, segment)| segment.live <= 0).map(|(id, _)| *id).last()
        };
        last.map(|last| Self { last, victim: None, replies: Vec::new() })
    }
}

impl WriteEngine {
    /// One step of the cleaning under way, if there is one.
    pub(super) fn clean_a_little(&mut self) -> Result<(), Fatal> {
        if self.cleaning.is_none() && !self.checkpoints.is_empty() {
            self.begin_checkpoint()?;
        }
        let Some(mut cleaning) = self.cleaning.take() else { return Ok(()) };
        let outcome = match self.step(&mut cleaning)? {
            CheckpointStep::More => {
                self.cleaning = Some(cleaning);
                return Ok(());
            }
            CheckpointStep::Done => Ok(()),
            CheckpointStep::Stuck(detail) => {
                warn!(detail, "cleaning the log stopped; it is tried again later");
                Err(detail)
            }
        };
        self.has_cleaned(outcome.is_ok());
        for reply in cleaning.replies {
            let outcome = outcome.clone();
            let outcome =
                outcome.map_err(|detail| StoreError::Unavailable { store: "local log", detail });
            if reply.send(outcome).is_err() {
                debug!("no caller waits for the checkpoint any more");
            }
        }
        Ok(())
    }

    fn begin_checkpoint(&mut self) -> Result<(), Fatal> {
        if self.log.has_records() {
            match self.rotate() {
                Ok(()) => {}
                // Then all but this segment is cleaned.
                Err(WriteError::Clean(error)) => warn!(%error, "cannot begin a new log segment"),
                Err(WriteError::Fatal(source)) => {
                    return Err(Fatal::Disk { action: "begin a segment of", source });
                }
            }
        }
        let none = Cleaning { last: 0, victim: None, replies: Vec::new() };
        let mut cleaning = Cleaning::plan(&self.log, true).unwrap_or(none);
        cleaning.replies = std::mem::take(&mut self.checkpoints);
        self.cleaning = Some(cleaning);
        Ok(())
    }

    fn step(&mut self, cleaning: &mut Cleaning) -> Result<CheckpointStep, Fatal> {
        let victim = match cleaning.victim.take() {
            Some(victim) => Some(victim),
            None => self
                .next_victim(cleaning.last)
                .map_err(|source| Fatal::Disk { action: "read", source })?,
        };
        let Some((mut reader, at)) = victim else { return Ok(CheckpointStep::Done) };
        if self.log.wants_rotation() {
            // If cleaning alone writes to the log, only this rotates it.
            match self.rotate() {
                Ok(()) => {}
                Err(WriteError::Clean(error)) => {
                    return Ok(CheckpointStep::Stuck(error.to_string()));
                }
                Err(WriteError::Fatal(source)) => {
                    return Err(Fatal::Disk { action: "begin a segment of", source });
                }
            }
        }
        let mut staged = Staged::default();
        let (at, stuck) = match self.copy(&mut reader, at, &mut staged)? {
            Ok(at) => (at, None),
            Err(detail) => (at, Some(detail)),
        };
        if let Some(detail) = stuck {
            self.log.discard();
            return Ok(CheckpointStep::Stuck(detail));
        }
        if self.log.staged_bytes() > 0 {
            match self.log.write() {
                Ok(()) => {}
                Err(WriteError::Clean(error)) => {
                    return Ok(CheckpointStep::Stuck(error.to_string()));
                }
                Err(WriteError::Fatal(source)) => {
                    return Err(Fatal::Disk { action: "take back a failed write to", source });
                }
            }
            self.log.sync().map_err(|source| Fatal::Disk { action: "sync", source })?;
            self.move_staged(staged)?;
        }
        if at < reader.len {
            cleaning.victim = Some((reader, at));
            return Ok(CheckpointStep::More);
        }
        self.remove_victim(reader.segment)
    }

    /// The oldest segment that is to be cleaned.
    fn next_victim(&mut self, last: u32) -> std::io::Result<Option<(Reader, u64)>> {
        let Some((&id, segment)) = self.log.segments.first_key_value() else { return Ok(None) };
        if id > last || id == self.log.active() {
            return Ok(None);
        }
        let Some(file) = self.log.files.get(id) else { return Ok(None) };
        let mut reader = Reader::new(file, super::log::segment_path(&self.shared.dir, id), id)?;
        reader.len = segment.len;
        Ok(Some((reader, SEGMENT_HEADER)))
    }

    /// Stages copies of live records from `at` on; says how far it came, or what stopped it.
    fn copy(
        &mut self,
        reader: &mut Reader,
        mut at: u64,
        staged: &mut Staged,
    ) -> Result<Result<u64, String>, Fatal> {
        let shared = Arc::clone(&self.shared);
        let guard = shared.index();
        let Some(index) = guard.as_ref() else { return Ok(Err("the store is closed".to_owned())) };
        let segment = reader.segment;
        for _ in 0..STEP_RECORDS {
            if at >= reader.len || self.log.staged_bytes() >= STEP_BYTES {
                break;
            }
            let header = match reader.header(at) {
                Ok(Some(header)) => header,
                Ok(None) => {
                    error!(segment, offset = at, "a record header of the log is damaged");
                    return Ok(Err(format!("segment {segment} is damaged at offset {at}")));
                }
                Err(error) => return Ok(Err(error.to_string())),
            };
            let body = match reader.body(at, &header) {
                Ok(body) => body,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let Ok(offset) = u32::try_from(at) else {
                return Ok(Err(format!("segment {segment} is too long")));
            };
            let loc = header.loc(segment, offset);
            if staged.is_live(index, &header, body, loc).map_err(Fatal::Index)? {
                let (header, body) = copied(&header, body);
                match self.log.stage_as(&header, &[body]) {
                    Ok((header, loc)) => {
                        staged.apply(index, &header, Some(body), loc).map_err(Fatal::Index)?;
                    }
                    Err(error) => return Ok(Err(error.to_string())),
                }
            }
            at += header.record_len();
        }
        Ok(Ok(at))
    }

    /// The copies are durable: readers find them there.
    fn move_staged(&mut self, mut staged: Staged) -> Result<(), Fatal> {
        self.log.count_live(std::mem::take(&mut staged.live));
        let rings = self.take_inputs(std::mem::take(&mut staged.inputs));
        debug_assert!(rings.is_empty(), "LOC-3: a copy is no new input");
        self.take_jobs(std::mem::take(&mut staged.jobs));
        self.index_staged(&mut staged)
    }

    fn remove_victim(&mut self, id: u32) -> Result<CheckpointStep, Fatal> {
        let mut staged = Staged::default();
        self.stage_live(&mut staged);
        self.index_staged(&mut staged)?;
        let shared = std::sync::Arc::clone(&self.shared);
        match shared.index.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(index) => index.flush().map_err(Fatal::Index)?,
            None => return Ok(CheckpointStep::Stuck("the store is closed".to_owned())),
        }
        match self.log.remove(id) {
            Ok(()) => {
                debug!(segment = id, "removed a log segment");
                Ok(CheckpointStep::More)
            }
            Err(error) => Ok(CheckpointStep::Stuck(error.to_string())),
        }
    }
}

/// A record as its copy has it. If its timer has fired, that is long gone, and may have been set
/// again since: only the input is copied.
fn copied<'a>(header: &Header, body: &'a [u8]) -> (Header, &'a [u8]) {
    if header.kind != RecordKind::Fired {
        return (*header, body);
    }
    let whole = header.fits(body);
    let input = split_timer(body).map_or(body, |(_, input)| input);
    // A damaged input stays damaged.
    let crc = crc32fast::hash(input);
    let body_crc = if whole { crc } else { !crc };
    let body_len = u32::try_from(input.len()).unwrap_or(header.body_len);
    (Header { kind: RecordKind::Put, body_len, body_crc, ..*header }, input)
}

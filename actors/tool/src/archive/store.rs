//! Records in the bucket, logs and files in the blob store.

use std::{fmt::Write as _, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use clawnode_cluster::{Backoff, BucketError, Storage, StoreError};
use clawnode_proto::{
    JobId, Position, ProcessId, Timestamp,
    archive::{JobRecord, JobRun, LogCut, LogLine, StoredLog},
    job::Job,
    limits::{JOB_ARGUMENTS_CHARS, RUNS_KEPT},
    subject::{ARCHIVE_KEYS, archive_key},
};
use serde::{Deserialize, Serialize};

/// The first and the longest wait before a store that failed is tried again, and how often it is.
const AGAIN: (Duration, Duration, u32) = (Duration::from_millis(200), Duration::from_secs(2), 5);
/// The name of this store in errors.
const STORE: &str = "archive";

/// The first line of a stored log: whose it is, which makes the blob this run's alone.
#[derive(Debug, Serialize, Deserialize)]
struct LogHead {
    job: JobId,
    process: ProcessId,
    began: Timestamp,
}

/// What is kept of a job, if anything is.
pub async fn record(storage: &Storage, job: JobId) -> Result<Option<JobRecord>, StoreError> {
    let key = archive_key(job);
    let Some(entry) = storage.bucket.get(&key).await? else { return Ok(None) };
    let unreadable = |error: clawnode_proto::CodecError| StoreError::Refused {
        store: STORE,
        detail: format!("`{key}` is not readable here: {error}"),
    };
    JobRecord::from_bytes(&entry.value).map(Some).map_err(unreadable)
}

/// All that is kept, in no order; what a later build wrote is left out.
pub async fn list(storage: &Storage) -> Result<Vec<JobRecord>, StoreError> {
    let entries = storage.bucket.list(ARCHIVE_KEYS).await?;
    Ok(entries.iter().filter_map(|(_, entry)| JobRecord::from_bytes(&entry.value).ok()).collect())
}

/// The result of writing a run into its job's record.
#[derive(Debug)]
pub(super) enum Put {
    /// It is there, under this number; these had to go for it.
    There { number: u32, gone: Vec<JobRun> },
    /// The job was removed from the archive since the run was put there, and stays removed.
    Removed,
}

/// Writes a run into its job's record: in its place, or as the last one.
pub(super) async fn put_run(
    storage: &Storage,
    job: &Job,
    run: &JobRun,
    ttl: Duration,
) -> Result<Put, StoreError> {
    let key = archive_key(job.id);
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    loop {
        let failure = match try_put_run(storage, &key, job, run, ttl).await {
            Ok(put) => return Ok(put),
            Err(failure) if backoff.tries() >= AGAIN.2 => return Err(failure),
            Err(failure) => failure,
        };
        tracing::debug!(job = %job.id, %failure, "a record of a job is tried again");
        let wait = backoff.next(&mut rand::rng());
        tokio::time::sleep(wait).await;
    }
}

async fn try_put_run(
    storage: &Storage,
    key: &str,
    job: &Job,
    run: &JobRun,
    ttl: Duration,
) -> Result<Put, StoreError> {
    let refused = |detail: String| StoreError::Refused { store: STORE, detail };
    let found = storage.bucket.get(key).await?;
    let at = found.as_ref().map_or(Position(0), |entry| entry.position);
    let known = found.map(|entry| JobRecord::from_bytes(&entry.value)).transpose();
    let mut record = match known.map_err(|error| refused(error.to_string()))? {
        Some(record) => record,
        None if run.number > 0 => return Ok(Put::Removed),
        None => empty(job),
    };
    let (number, gone) = record_run(&mut record, run.clone());
    let bytes = record.to_bytes().map_err(|error| refused(error.to_string()))?;
    match storage.bucket.put(key, at, Bytes::from(bytes), Some(ttl)).await {
        Ok(_) => Ok(Put::There { number, gone }),
        Err(BucketError::Conflict { .. }) => Err(StoreError::Unavailable {
            store: STORE,
            detail: format!("another writer changed `{key}`"),
        }),
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

/// Records a run: replaces what was known of it, or adds it as the last one. Returns its number,
/// and the runs that had to go.
fn record_run(record: &mut JobRecord, mut run: JobRun) -> (u32, Vec<JobRun>) {
    let is_it = |other: &JobRun| (other.process, other.began) == (run.process, run.began);
    match record.runs.iter_mut().find(|other| is_it(other)) {
        Some(known) => {
            run.number = known.number;
            *known = run;
            return (known.number, Vec::new());
        }
        None => run.number = record.runs.last().map_or(1, |last| last.number + 1),
    }
    let number = run.number;
    record.runs.push(run);
    let over = record.runs.len().saturating_sub(RUNS_KEPT);
    (number, record.runs.drain(..over).collect())
}

fn empty(job: &Job) -> JobRecord {
    JobRecord {
        job: job.id,
        session: job.session.clone(),
        turn: job.turn,
        call: job.call,
        tool: job.tool.clone(),
        capability: job.capability.clone(),
        arguments: job.arguments.chars().take(JOB_ARGUMENTS_CHARS).collect(),
        runs: Vec::new(),
    }
}

/// Stores content, trying for a while.
pub(super) async fn put_blob(
    storage: &Storage,
    content: Bytes,
) -> Result<clawnode_proto::Digest, StoreError> {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    loop {
        match storage.blobs.put(content.clone()).await {
            Ok(digest) => return Ok(digest),
            Err(failure) if backoff.tries() >= AGAIN.2 => return Err(failure),
            Err(_again) => {
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// A log as its blob holds it: JSON lines, the first of which says whose it is.
pub(super) fn written<'a>(
    job: JobId,
    run: &JobRun,
    lines: impl Iterator<Item = &'a LogLine>,
) -> (Bytes, u64) {
    let (mut text, mut count) = (String::new(), 0);
    let head = LogHead { job, process: run.process, began: run.began };
    append(&mut text, &head);
    for line in lines {
        append(&mut text, line);
        count += 1;
    }
    (Bytes::from(text), count)
}

fn append(text: &mut String, line: &impl Serialize) {
    match serde_json::to_string(line) {
        // Writing to a string cannot fail.
        Ok(json) => drop(writeln!(text, "{json}")),
        Err(error) => debug_assert!(false, "{error}"),
    }
}

/// A log that was stored; `None` if it has been removed.
pub async fn load_log(
    storage: &Storage,
    log: &StoredLog,
) -> Result<Option<(Vec<LogLine>, Option<LogCut>)>, StoreError> {
    let Some(bytes) = storage.blobs.get(log.digest).await? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().skip(1).map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
    let lines = lines.map_err(|error| StoreError::Refused {
        store: STORE,
        detail: format!("the log `{}` is not readable: {error}", log.digest),
    })?;
    Ok(Some((lines, log.cut)))
}

/// The content of a file as its blob holds it: followed by whose it is.
pub(super) fn packed(job: JobId, run: &JobRun, content: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(content.len() + 40);
    bytes.put_slice(content);
    bytes.put_u128(job.as_u128());
    bytes.put_u128(run.process.as_u128());
    bytes.put_u64(run.began.0);
    bytes.freeze()
}

/// The content of so many bytes that a blob begins with.
pub fn content_of(blob: &Bytes, bytes: u64) -> Bytes {
    let most = blob.len();
    blob.slice(..usize::try_from(bytes).map_or(most, |bytes| bytes.min(most)))
}

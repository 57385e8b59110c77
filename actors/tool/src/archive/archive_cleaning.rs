//! Removing what is kept of jobs.

use std::time::Duration;

use clawnode_cluster::{BucketError, Storage, StoreError};
use clawnode_proto::{
    EntityId, Timestamp,
    archive::{CleanJobs, CleanView, JobRecord, JobRun},
    limits::CLEAN_JOBS,
    subject::{ARCHIVE_KEYS, archive_key},
};
use tracing::debug;

/// How long a run that has no end yet is held to run: longer than any may.
const RUNS_MOST: Duration = Duration::from_hours(2);

/// Whether a job is to be removed now.
fn matches(which: &CleanJobs, record: &JobRecord, now: Timestamp) -> bool {
    let runs = |run: &JobRun| run.ended.is_none() && now.since(run.began) < RUNS_MOST;
    which.job.is_none_or(|job| record.job == job)
        && which.session.is_none_or(|session| record.session.entity() == session)
        && record.last() < which.before
        && !record.runs.iter().any(runs)
}

/// Removes jobs with their logs and files; [`CLEAN_JOBS`] at most, and says how many are left.
pub async fn clean(
    storage: &Storage,
    which: &CleanJobs,
    now: Timestamp,
) -> Result<CleanView, StoreError> {
    let entries = match which.job {
        Some(job) => {
            let key = archive_key(job);
            storage.bucket.get(&key).await?.map(|entry| (key, entry)).into_iter().collect()
        }
        None => storage.bucket.list(ARCHIVE_KEYS).await?,
    };
    let mut view = CleanView::default();
    for (key, entry) in entries {
        // What a later build wrote is left to it, and to its time to live.
        let Ok(record) = JobRecord::from_bytes(&entry.value) else { continue };
        if !matches(which, &record, now) {
            continue;
        }
        if view.jobs >= CLEAN_JOBS as u64 {
            view.more += 1;
            continue;
        }
        // The blobs first: a record without them can be removed again, they without a record cannot.
        for run in &record.runs {
            remove(storage, run, &mut view).await?;
        }
        match storage.bucket.delete(&key, entry.position).await {
            Ok(()) => view.jobs += 1,
            Err(BucketError::Conflict { .. }) => debug!(key, "a job that is removed runs again"),
            Err(BucketError::Store(failure)) => return Err(failure),
        }
    }
    Ok(view)
}

/// Removes the jobs of a session that is deleted. A job that still runs is stopped; its output goes
/// when it is too old.
pub async fn forget(storage: &Storage, session: EntityId) -> Result<(), StoreError> {
    let (before, now) = (Timestamp(u64::MAX), Timestamp(u64::MAX));
    let which = CleanJobs { before, job: None, session: Some(session) };
    while clean(storage, &which, now).await?.more > 0 {}
    Ok(())
}

/// Removes the blobs of a run.
pub(super) async fn remove(
    storage: &Storage,
    run: &JobRun,
    view: &mut CleanView,
) -> Result<(), StoreError> {
    for (digest, bytes) in run.blobs() {
        storage.blobs.delete(digest).await?;
        view.blobs += 1;
        view.bytes += bytes;
    }
    Ok(())
}

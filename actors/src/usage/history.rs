//! The records of a journal that were not followed yet, also those that a snapshot has replaced, and
//! where the journal was before them.

use clawnode_cluster::{Record, Storage, StoreError};
use clawnode_kernel::{
    FoldError, LoadedJournal,
    archive::{snapshot_of, unpack},
    core::snapshot_blob,
    journal_reader,
};
use clawnode_proto::{
    Digest, EntityId, Position, Timestamp,
    event::decode_record,
    kernel::{SNAPSHOT, Snapshot, SnapshotState},
};
use tracing::warn;

use super::{
    session_usage::{CountedCall, CountedEvent, Meter, gone_on},
    stopped::CountingStopped,
};

/// Archives that are read of one journal at most: what a follower missed is a few seconds, or all of it.
const ARCHIVES_MAX: usize = 10_000;

/// Archives in which the beginning of an attempt is looked for: hundreds of events during one call.
const HOLD_ARCHIVES: usize = 16;

/// How much of a journal was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalRead {
    /// All of it, or it is of another kind, or gone.
    Whole,
    /// An archive is not kept: what it had is missing.
    Partly,
    /// A tombstone, of this time: what there was is gone.
    Deleted(Timestamp),
    /// It is damaged.
    Unreadable,
}

/// Reads a journal from its beginning, also what snapshots have replaced, and hands on each attempt with where
/// the store had it. It has one archive in memory at a time, so a long journal costs time and not memory.
pub(super) async fn whole(
    storage: &Storage,
    id: EntityId,
    mut take: impl FnMut(Position, CountedCall),
) -> Result<JournalRead, CountingStopped> {
    let loaded = match journal_reader::journal(storage, id).await {
        Err(StoreError::Corrupt { .. }) => return Ok(JournalRead::Unreadable),
        loaded => loaded?,
    };
    let Some(first) = loaded.records.first().cloned() else { return Ok(JournalRead::Whole) };
    if let Some(at) = tombstone(&loaded.records) {
        // The journal of a memory looks so after a purge, and has no calls.
        let is_session = !matches!(Meter::at_snapshot(id, &loaded), Err(FoldError::Kind { .. }));
        return Ok(if is_session { JournalRead::Deleted(at) } else { JournalRead::Whole });
    }
    let (links, mut base) = links(storage, first, loaded.snapshot).await?;
    // What is before the oldest record that is kept.
    let is_whole = snapshot_of(&base.records).is_none();
    let mut meter = if is_whole {
        Meter::default()
    } else {
        match Meter::at_snapshot(id, &base) {
            Ok(meter) => meter,
            Err(FoldError::Kind { .. }) => return Ok(JournalRead::Whole),
            Err(_) => return Ok(JournalRead::Unreadable),
        }
    };
    base.records.clear();
    for (snapshot, at) in links.iter().rev() {
        let archived = archived(storage, snapshot, *at, Position(0)).await?;
        // It was there a moment ago: the session is being deleted.
        let Some(archived) = archived else { return Ok(JournalRead::Partly) };
        let Some((further, counted)) = gone_on(meter, &archived) else {
            return Ok(JournalRead::Unreadable);
        };
        meter = further;
        hand_on(counted, &mut take);
    }
    let Some((_, counted)) = gone_on(meter, &loaded.records) else {
        return Ok(JournalRead::Unreadable);
    };
    hand_on(counted, &mut take);
    Ok(if is_whole { JournalRead::Whole } else { JournalRead::Partly })
}

/// Hands on the attempts among what is counted.
fn hand_on(counted: Vec<(Position, CountedEvent)>, mut take: impl FnMut(Position, CountedCall)) {
    for (position, counted) in counted {
        if let Some(call) = counted.call() {
            take(position, call);
        }
    }
}

/// The snapshots whose archives are kept, the newest first, each with where it is; and the oldest record that
/// there is, with its state.
async fn links(
    storage: &Storage,
    first: Record,
    state: Option<bytes::Bytes>,
) -> Result<(Vec<(Snapshot, Position)>, LoadedJournal), CountingStopped> {
    let mut base = LoadedJournal { records: vec![first], snapshot: state };
    let mut links = Vec::new();
    while links.len() < ARCHIVES_MAX {
        let Some(mut snapshot) = snapshot_of(&base.records) else { break };
        let at = base.records.first().map_or(Position(0), |first| first.position);
        let Some(records) = archived(storage, &snapshot, at, Position(0)).await? else { break };
        base.snapshot = match snapshot_blob(&records) {
            Some(digest) => journal_reader::readable(storage.blobs.get(digest).await)?,
            None => None,
        };
        base.records = records.into_iter().take(1).collect();
        // Thousands of states would not fit.
        snapshot.state = SnapshotState::Blob { digest: Digest::ZERO };
        links.push((snapshot, at));
    }
    Ok((links, base))
}

/// When a session was deleted, if that is what its journal says: a snapshot of a session that goes on names
/// what it replaced.
fn tombstone(records: &[Record]) -> Option<Timestamp> {
    let [only] = records else { return None };
    snapshot_of(records).filter(|snapshot| snapshot.archive.is_none())?;
    decode_record(&only.bytes).ok()?.last().map(|last| last.head.ts)
}

/// Reads a journal as far back as something in it is behind `after`, and from where its usage is known.
///
/// Returns where it is before its first record, and its records. Some are at or before `after`: what
/// they are worth is counted already. Nothing, if the journal is gone, is of another kind or cannot be
/// read.
pub(super) async fn read(
    storage: &Storage,
    id: EntityId,
    after: Position,
) -> Result<Option<(Meter, Vec<Record>)>, CountingStopped> {
    let LoadedJournal { mut records, snapshot: mut state } =
        match journal_reader::journal(storage, id).await {
            Err(StoreError::Corrupt { detail, .. }) => {
                warn!(%id, detail, "the model calls of a damaged journal are not counted");
                return Ok(None);
            }
            loaded => loaded?,
        };
    // The records from the oldest that is read so far, up to those that were read before it.
    let mut oldest = records.clone();
    for _ in 0..ARCHIVES_MAX {
        let Some(snapshot) = snapshot_of(&oldest) else {
            return Ok((!records.is_empty()).then(|| (Meter::default(), records)));
        };
        let at = oldest.first().map_or(after, |first| first.position);
        let is_seen = at <= after || snapshot.positions.last().is_some_and(|last| *last <= after);
        let first = oldest.first().cloned().into_iter().collect();
        let meter =
            Meter::at_snapshot(id, &LoadedJournal { records: first, snapshot: state.take() });
        if let Err(FoldError::Kind { .. }) = meter {
            return Ok(None);
        }
        let archived = match &meter {
            Ok(_) if is_seen => None,
            Ok(_) | Err(_) => archived(storage, &snapshot, at, after).await?,
        };
        match (archived, meter) {
            (Some(archived), _) => {
                state = match snapshot_blob(&archived) {
                    Some(digest) => journal_reader::readable(storage.blobs.get(digest).await)?,
                    None => None,
                };
                records.splice(..0, archived.iter().cloned());
                oldest = archived;
            }
            (None, Ok(meter)) => {
                return Ok(Some((with_hold(storage, meter, snapshot, at).await?, records)));
            }
            (None, Err(failure)) => {
                warn!(%id, %failure, "the model calls of this journal are not counted");
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// The same, with what the attempt under way has reserved, where that was before the snapshot.
async fn with_hold(
    storage: &Storage,
    mut meter: Meter,
    mut snapshot: Snapshot,
    at: Position,
) -> Result<Meter, CountingStopped> {
    for _ in 0..HOLD_ARCHIVES {
        if !meter.lacks_hold() {
            break;
        }
        let Some(records) = archived(storage, &snapshot, at, Position(0)).await? else { break };
        if meter.find_hold(&records) {
            break;
        }
        let Some(earlier) = snapshot_of(&records) else { break };
        snapshot = earlier;
    }
    Ok(meter)
}

/// The records that a snapshot at `at` replaced, where the store had them; nothing, if they are not kept.
///
/// If that is unknown, all of them count as new: as if they had been stored with the snapshot.
async fn archived(
    storage: &Storage,
    snapshot: &Snapshot,
    at: Position,
    after: Position,
) -> Result<Option<Vec<Record>>, CountingStopped> {
    let Some(digest) = snapshot.archive else { return Ok(None) };
    let Some(bytes) = journal_reader::readable(storage.blobs.get(digest).await)? else {
        return Ok(None);
    };
    let Ok(mut records) = unpack(&bytes) else { return Ok(None) };
    let is_known = records.len() == snapshot.positions.len()
        && snapshot.positions.last().is_some_and(|last| *last < at);
    for (n, record) in records.iter_mut().enumerate() {
        let known = snapshot.positions.get(n).filter(|_| is_known);
        let unknown = if after == Position(0) { at } else { after };
        record.position = known.copied().unwrap_or(unknown);
    }
    Ok(Some(records))
}

/// Whether a record begins with a snapshot.
pub(super) fn is_snapshot(record: &Record) -> bool {
    let events = decode_record(&record.bytes).unwrap_or_default();
    events.first().is_some_and(|first| first.head.kind == SNAPSHOT)
}

/// The number of the last event of a record.
pub(super) fn last_n(record: &Record) -> u64 {
    let events = decode_record(&record.bytes).unwrap_or_default();
    events.last().map_or(0, |event| event.head.n.0)
}

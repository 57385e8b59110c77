//! The records of a journal that were not followed yet, also those that a snapshot has replaced, and
//! where the journal was before them.

use clawnode_cluster::{Record, Storage, StoreError};
use clawnode_kernel::{
    FoldError, LoadedJournal,
    archive::{snapshot_of, unpack},
    core::snapshot_blob,
    journal_reader,
};
use clawnode_proto::{EntityId, Position, event::decode_record, kernel::Snapshot};
use tracing::warn;

use super::{meter::Meter, stopped::CountingStopped};

/// Archives that are read of one journal at most: what a follower missed is a few seconds, or all of it.
const ARCHIVES_MAX: usize = 10_000;

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
            (None, Ok(meter)) => return Ok(Some((meter, records))),
            (None, Err(failure)) => {
                warn!(%id, %failure, "the model calls of this journal are not counted");
                return Ok(None);
            }
        }
    }
    Ok(None)
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

/// The number of the last event of a record.
pub(super) fn last_n(record: &Record) -> u64 {
    let events = decode_record(&record.bytes).unwrap_or_default();
    events.last().map_or(0, |event| event.head.n.0)
}

//! Removing the texts of a session that goes, and what is kept of its jobs.

use std::collections::BTreeSet;

use clawnode_cluster::{Record, StoreError};
use clawnode_kernel::core::snapshot_blob;
use clawnode_proto::{Digest, EntityId, Input, JobId, event::decode_record, session::SessionEvent};
use clawnode_tool::archive;

use crate::session::clients::{client::Sessions, inspect::texts_of_input, send_error::SendError};

/// The jobs that the records of a journal ask for and that have not ended, without folding it: nobody
/// would take their results.
pub(in crate::session) fn open_jobs(records: &[Record]) -> BTreeSet<JobId> {
    let mut open = BTreeSet::new();
    for sealed in records.iter().filter_map(|record| decode_record(&record.bytes).ok()).flatten() {
        match sealed.event() {
            Ok(Some(SessionEvent::ToolAsked(asked))) => open.insert(JobId::from(asked.call)),
            Ok(Some(SessionEvent::ToolDone(done))) => open.remove(&JobId::from(done.call)),
            Ok(Some(SessionEvent::ToolUncertain(it))) => open.remove(&JobId::from(it.call)),
            _ => false,
        };
    }
    open
}

/// Removes the texts of a session and of these inputs, but for the snapshot that it still loads from,
/// which is returned.
pub(in crate::session) async fn erase(
    sessions: &Sessions,
    entity: EntityId,
    dropped: &[Input],
) -> Result<Option<Digest>, SendError> {
    let snapshot = match sessions.load(entity).await {
        Ok(loaded) => snapshot_blob(&loaded.records),
        // What only a damaged record tells of is not found any more.
        Err(SendError::Store(StoreError::Corrupt { .. })) => None,
        Err(failure) => return Err(failure),
    };
    let mut blobs = sessions.blobs_of(entity).await?;
    blobs.extend(dropped.iter().flat_map(texts_of_input));
    archive::forget(sessions.substrate(), entity).await?;
    // The oldest first: what is left of the chain stays walkable, should this break off.
    for blob in blobs.into_iter().rev() {
        if Some(blob) != snapshot {
            sessions.substrate().blobs.delete(blob).await?;
        }
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::played::Run;

    #[test]
    fn what_other_nodes_were_asked_for_is_found_without_folding_the_journal() {
        let mut run = Run::new(&[], Vec::new());
        run.says("go");
        assert_eq!(open_jobs(&run.journal), BTreeSet::new());
        run.replies(&[("far", r#"{"at":1}"#), ("none", "{}")]);
        // The second one is no tool: it was never asked for.
        let open = open_jobs(&run.journal);
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!(open_jobs(&run.journal[..1]), BTreeSet::new());
    }
}

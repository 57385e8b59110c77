//! Removes the texts of a deleted session, and the archive of its jobs.

use std::collections::BTreeSet;

use clawnode_cluster::Record;
use clawnode_kernel::EntityKind as _;
use clawnode_proto::{Digest, EntityId, Input, JobId, event::decode_record, session::SessionEvent};
use clawnode_tool::archive;

use super::deleted_sources::forget_learned;
use crate::session::{
    clients::{files, send_error::SendError, sessions::Sessions},
    turn::kind::Session,
};

/// The open jobs in the records of a journal. It is not folded, because no runner would take their results.
pub(in crate::session) fn open_jobs(records: &[Record]) -> BTreeSet<JobId> {
    let mut open = BTreeSet::new();
    for sealed in records.iter().filter_map(|record| decode_record(&record.bytes).ok()).flatten() {
        match sealed.event() {
            Ok(Some(SessionEvent::ToolAsked(asked))) => open.insert(JobId::from(asked.call)),
            Ok(Some(SessionEvent::ToolDone(done))) => open.remove(&JobId::from(done.call)),
            Ok(Some(SessionEvent::ToolUncertain(uncertain))) => {
                open.remove(&JobId::from(uncertain.call))
            }
            _ => false,
        };
    }
    open
}

/// Removes the texts and files of a session and of these inputs. Returns the snapshot that the session still
/// loads from, which stays.
pub(in crate::session) async fn erase(
    sessions: &Sessions,
    entity: EntityId,
    dropped: &[Input],
) -> Result<Option<Digest>, SendError> {
    // Before the archives go, which may have its beginning. A journal that cannot be read does not say it.
    let lifetime = sessions.entities().lifetime(entity).await.ok().flatten();
    archive::forget(sessions.storage(), entity).await?;
    files::forget(sessions.storage(), entity).await?;
    let snapshot = sessions.entities().erase(Session::KIND, entity, dropped).await?;
    // Last: its inputs need room, which the texts may have taken. Its key is in the journal until the tombstone.
    forget_learned(sessions, entity, lifetime).await?;
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::played::PlayedActivation;

    #[test]
    fn what_other_nodes_were_asked_for_is_found_without_folding_the_journal() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("go");
        assert_eq!(open_jobs(&run.journal), BTreeSet::new());
        run.replies(&[("far", r#"{"at":1}"#), ("none", "{}")]);
        // The second one is no tool: it was never asked for.
        let open = open_jobs(&run.journal);
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!(open_jobs(&run.journal[..1]), BTreeSet::new());
    }
}

//! What dead processes have spent of an account, from the journals of sessions.

use std::ops::ControlFlow;

use clawnode_actors::session::{
    Sessions,
    clients::session_list::{PageEnd, SessionQuery},
};
use clawnode_kernel::EntityError;
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode, ProcessId, Seq, Timestamp, budget::AccountKey,
    session::SessionEvent, view::SessionRow,
};
use futures_util::{StreamExt as _, stream};
use tracing::warn;

use super::dead_slices::{SessionHolds, UsedSlices};

/// Journals that are read for one request at most.
const SESSIONS_MOST: usize = 10_000;
/// Sessions of one page.
const PAGE: usize = 1_000;
/// Journals that are read at the same time.
const READS_MOST: usize = 8;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct ReadHolds {
    pub used: UsedSlices,
    /// How many sessions.
    pub sessions: u64,
    /// How many of them could not be read, or were deleted.
    pub unread: u64,
}

/// What calls of these processes have used of an account in sessions with an event since this time.
pub(super) async fn holds(
    sessions: &Sessions,
    account: &AccountKey,
    processes: &[ProcessId],
    since: Timestamp,
) -> Result<ReadHolds, ErrorBody> {
    let deleted = rows(sessions, since, Some("deleted")).await?;
    let rows = rows(sessions, since, None).await?;
    let (corrupt, rows): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.state == "corrupt");
    let unread = (deleted.len() + corrupt.len()) as u64;
    let all = ReadHolds { unread, sessions: rows.len() as u64, ..ReadHolds::default() };
    let read =
        |row: SessionRow| async move { of_session(sessions, account, processes, row.id).await };
    let mut reads = stream::iter(rows.into_iter().map(read)).buffer_unordered(READS_MOST);
    let mut all = all;
    while let Some(read) = reads.next().await {
        match read {
            Ok(used) => all.used = all.used.plus(used),
            Err(failure) if failure.is_damage() => {
                warn!(%failure, "a journal cannot be read; its calls count whole");
                all.unread += 1;
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(all)
}

async fn of_session(
    sessions: &Sessions,
    account: &AccountKey,
    processes: &[ProcessId],
    id: EntityId,
) -> Result<UsedSlices, EntityError> {
    let mut holds = SessionHolds::new(account, processes);
    let mut failure = None;
    let visit = |sealed: clawnode_proto::Sealed| match sealed.event::<SessionEvent>() {
        Ok(event) => {
            if let Some(event) = event {
                holds.take(event);
            }
            ControlFlow::Continue(())
        }
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    };
    sessions.entities().each_event(id, Seq(0), visit).await?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(holds.total()),
    }
}

/// The sessions in this state with an event since this time.
async fn rows(
    sessions: &Sessions,
    since: Timestamp,
    state: Option<&str>,
) -> Result<Vec<SessionRow>, ErrorBody> {
    let mut rows = Vec::new();
    let mut query = SessionQuery {
        limit: PAGE,
        after: None,
        agent: None,
        channel: None,
        state: state.map(str::to_owned),
        since: Some(since),
        stateless: true,
    };
    loop {
        let page = sessions.list(&query).await.map_err(EntityError::from)?;
        rows.extend(page.sessions);
        if rows.len() > SESSIONS_MOST {
            let what = format!("more than {SESSIONS_MOST} sessions were active in the window");
            let hint = "what dead processes have of limits with a window comes back when it ends";
            return Err(ErrorBody::new(ErrorCode::Unsupported, what).hint(hint));
        }
        let Some(next) = page.next else { return Ok(rows) };
        query.after = Some(PageEnd::try_from(&next)?);
    }
}

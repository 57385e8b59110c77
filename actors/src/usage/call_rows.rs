//! The attempts at model calls, one a row, the newest first: read from journals when they are asked for.
//!
//! Sessions are read by the time of their last event, the newest first, until those that are left have nothing
//! newer than the rows of the page.

use std::{cmp::Reverse, collections::BTreeMap, fmt, str::FromStr};

use clawnode_cluster::StoreError;
use clawnode_proto::{
    Attempt, CallId, Cursor, CursorError, EntityId, Timestamp,
    api::Method,
    cursor::Pair,
    usage::{CallEnd, UsageCall, UsageCalls},
};
use futures_util::future::BoxFuture;

use super::{
    history::{self, JournalRead},
    session_usage::CountedCall,
    usage_view::of_store,
};
use crate::session::Sessions;

/// Journals that one page reads at most. If there are more, the page says that some calls are missing.
const JOURNALS_MAX: usize = 5_000;

/// A place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPlace {
    at: Timestamp,
    session: EntityId,
    call: CallId,
    attempt: Attempt,
}

/// The rows of a page, of which the newest are kept.
#[derive(Debug)]
struct CallPage {
    most: usize,
    since: Timestamp,
    before: Option<CallPlace>,
    rows: BTreeMap<Reverse<CallPlace>, UsageCall>,
    /// Whether some did not fit.
    is_cut: bool,
}

/// The attempts since a time: `limit` of them behind `cursor`.
pub fn calls(
    sessions: &Sessions,
    since: Timestamp,
    cursor: Option<CallPlace>,
    limit: usize,
) -> BoxFuture<'_, Result<UsageCalls, StoreError>> {
    Box::pin(async move {
        let (ends, is_cut) = sessions.active_since(since, JOURNALS_MAX).await?;
        let (mut partial, mut reaches_end) = (false, true);
        let mut page = CallPage {
            most: limit.max(1),
            since,
            before: cursor,
            rows: BTreeMap::new(),
            is_cut: false,
        };
        for (updated, session) in ends {
            if page.is_behind(updated) {
                // The others are older still.
                reaches_end = false;
                break;
            }
            let read =
                history::whole(sessions.storage(), session, |_, call| page.add(session, call));
            let read = read.await.map_err(of_store)?;
            partial |= matches!(read, JournalRead::Partly | JournalRead::Unreadable);
            // A store that answers at once would keep this thread to itself.
            tokio::task::yield_now().await;
        }
        Ok(page.done(reaches_end, partial || (reaches_end && is_cut)))
    })
}

// === impl CallPage ===

impl CallPage {
    /// Whether nothing as old as this can be on the page.
    fn is_behind(&self, updated: Timestamp) -> bool {
        let is_full = self.rows.len() >= self.most;
        let oldest = self.rows.last_key_value().map(|(Reverse(place), _)| place.at);
        is_full && oldest.is_some_and(|oldest| updated < oldest)
    }

    fn add(&mut self, session: EntityId, counted: CountedCall) {
        let CountedCall { at, key, turn, call, attempt, end, usage, cost } = counted;
        let place = CallPlace { at, session, call, attempt };
        if at < self.since || self.before.is_some_and(|before| place >= before) {
            return;
        }
        let wasted = end != CallEnd::Done;
        let (agent, user, model, answered) = (key.agent, key.user, key.model, key.answered);
        let row = UsageCall {
            at,
            session,
            turn,
            call,
            attempt,
            agent,
            user,
            model,
            answered,
            end,
            usage,
            cost,
            wasted,
        };
        self.rows.insert(Reverse(place), row);
        if self.rows.len() > self.most {
            self.is_cut = true;
            self.rows.pop_last();
        }
    }

    fn done(self, reaches_end: bool, partial: bool) -> UsageCalls {
        let last = self.rows.last_key_value().map(|(Reverse(place), _)| *place);
        let next = last.filter(|_| self.is_cut || !reaches_end);
        UsageCalls {
            next: next.map(|place| Cursor::new(Method::UsageCalls, place)),
            calls: self.rows.into_values().collect(),
            partial,
        }
    }
}

// === impl CallPlace ===

impl TryFrom<&Cursor> for CallPlace {
    type Error = CursorError;

    fn try_from(cursor: &Cursor) -> Result<Self, CursorError> {
        cursor.read(Method::UsageCalls)
    }
}

impl fmt::Display for CallPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, session, call, attempt } = self;
        write!(f, "{}", Pair(at.0, Pair(session, Pair(call, attempt.0))))
    }
}

impl FromStr for CallPlace {
    type Err = fmt::Error;

    fn from_str(text: &str) -> Result<Self, fmt::Error> {
        let Pair(at, Pair(session, Pair(call, attempt))) =
            text.parse::<Pair<u64, Pair<EntityId, Pair<CallId, u32>>>>()?;
        Ok(Self { at: Timestamp(at), session, call, attempt: Attempt(attempt) })
    }
}

//! Removes sessions of requests that name no user, once nothing has happened in them for a time.
//!
//! The worker that serves a partition looks for such sessions and sends each an input; the session's own
//! fold decides. A session goes only if its one turn is still the only one and has ended. So nothing is
//! lost that is under way or came since, also if two processes look at the same time. A wrong clock
//! removes no session: this process must also have seen it at rest for a while. The input is in the
//! inbox, so it survives a crash.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use clawnode_cluster::StoreError;
use clawnode_kernel::{Core, Entity, EntityKind as _, Service};
use clawnode_proto::{
    Digest, EntityId, IdempotencyKey, SessionKey, Timestamp, session::SessionInput,
};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tracing::debug;

use super::{send_error::SendError, sessions::Sessions};
use crate::session::Session;

/// Sessions that one round goes through, those of others included.
const LOOK_MAX: usize = 1_000;
/// Inputs that one round sends.
const TOLD_MAX: usize = 100;
/// Sessions that are remembered not to be of this kind, so that their journals are not read again: 2 MB.
const OTHERS_MAX: usize = 100_000;

/// Sessions that are remembered to rest, and since when: 1 MB. What finds no room goes later.
const RESTING_MAX: usize = 10_000;

/// Goes through all sessions, round by round.
#[derive(Debug, Default)]
pub struct StatelessExpiry {
    /// Where the next round goes on; from the first session if absent.
    after: Option<EntityId>,
    others: HashSet<EntityId>,
    /// How long a session must have been seen at rest, by the steady clock.
    seen_for: Duration,
    /// The last event of those that rest, and since when that was seen.
    resting: HashMap<EntityId, (Digest, Instant)>,
}

/// The result for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It got the input that removes it.
    Told,
    /// It is still used, or has gone.
    Stays,
    /// It is none of those that go.
    Other,
}

impl StatelessExpiry {
    /// Removes only sessions that it has seen at rest for so long.
    pub fn new(seen_for: Duration) -> Self {
        Self { seen_for, ..Self::default() }
    }

    /// Whether the session was seen with this last event for long enough.
    fn has_seen(&mut self, id: EntityId, last: Digest) -> bool {
        let now = Instant::now();
        if self.resting.len() >= RESTING_MAX && !self.resting.contains_key(&id) {
            // Those that went, or were used, are not seen any more.
            self.resting.retain(|_, (_, since)| now - *since < self.seen_for * 4);
            if self.resting.len() >= RESTING_MAX {
                return false;
            }
        }
        let (seen, since) = self.resting.entry(id).or_insert((last, now));
        if *seen != last {
            (*seen, *since) = (last, now);
        }
        now - *since >= self.seen_for
    }

    /// Goes through the next sessions. Removes stateless sessions that are `mine` and in which nothing has
    /// happened for `keep`. Returns how many.
    pub async fn round(
        &mut self,
        sessions: &Sessions,
        keep: Duration,
        mine: impl Fn(EntityId) -> bool,
    ) -> Result<usize, StoreError> {
        let now = sessions.now().0;
        let until = Timestamp(now.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(now)));
        let ids = sessions.storage().journal.entities(self.after, LOOK_MAX).await?;
        let is_end = ids.len() < LOOK_MAX;
        let mut told = 0;
        for id in ids {
            self.after = Some(id);
            if !mine(id) || self.others.contains(&id) {
                continue;
            }
            match sessions.let_go(id, until, self).await {
                Ok(Found::Told) => {
                    self.resting.remove(&id);
                    told += 1;
                }
                Ok(Found::Stays) => {}
                Ok(Found::Other) => {
                    if self.others.len() >= OTHERS_MAX {
                        self.others.clear();
                    }
                    self.others.insert(id);
                }
                // The next time round it may be otherwise.
                Err(failure) => debug!(entity = %id, %failure, "cannot read a session"),
            }
            if told == TOLD_MAX {
                return Ok(told);
            }
        }
        if is_end {
            self.after = None;
        }
        Ok(told)
    }

    /// Whether the next round begins with the first session.
    pub const fn is_through(&self) -> bool {
        self.after.is_none()
    }
}

impl Sessions {
    /// Sends a session the input that removes it, if it is of a request that names no user and nothing has
    /// happened in it since `until`.
    fn let_go<'a>(
        &'a self,
        id: EntityId,
        until: Timestamp,
        sweep: &'a mut StatelessExpiry,
    ) -> BoxFuture<'a, Result<Found, SendError>> {
        Box::pin(async move {
            let Some((updated, last)) = self.last_event(id).await? else { return Ok(Found::Stays) };
            if updated > until {
                return Ok(Found::Stays);
            }
            let loaded = self.load(id).await?;
            let core = Core::of(id, &loaded, &|_| true)?;
            let key = core.key.as_deref().and_then(|key| key.parse::<SessionKey>().ok());
            let key = key.filter(|_| core.kind == Some(Session::KIND));
            if !key.is_some_and(|key| key.is_stateless()) {
                return Ok(Found::Other);
            }
            let entity = Entity::<Session>::of(id, &loaded)?;
            let Some(timer) = entity.state.rest_timer() else { return Ok(Found::Stays) };
            // What is out of service waits for an operator.
            if entity.core.service != Service::Active || !sweep.has_seen(id, last) {
                return Ok(Found::Stays);
            }
            // Once for each state of its journal, on any worker.
            let input = SessionInput::TimerFired { timer };
            let stored = self.addressed(id, &input, key_of(last)?).await?;
            // While a turn is open its input waits.
            let told = self.storage().inbox.put_if_room(&stored, 1).await?;
            Ok(if told.is_some() { Found::Told } else { Found::Stays })
        })
    }
}

fn key_of(last: Digest) -> Result<IdempotencyKey, SendError> {
    let named = format!("rest:{last}").parse();
    let refused = |detail| SendError::Store(StoreError::Refused { store: "inbox", detail });
    named.map_err(|error: clawnode_proto::id::ParseIdError| refused(error.to_string()))
}

//! What those who follow turns look at, together (`flight`): a session as it is, and the frames
//! that the owner of a turn still has.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{StoreError, Substrate};
use clawnode_proto::{
    EntityId, ErrorBody, Frame, ProcessId, TurnId, codec,
    node::{NodeReply, NodeRequest},
};
use tracing::debug;

use super::{
    client::{SendError, Sessions},
    flight::Flights,
    kind::Session,
};
use crate::durable::Entity;

/// How long the owner may take to answer for its frames.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the inbox may take to say whether anything waits: while it has no leader it says
/// nothing, and a turn that the journal shows to its end needs no such word.
const COUNT_TIMEOUT: Duration = Duration::from_millis(300);

/// The frames that an owner has of a turn, if it answers.
type Kept = Option<Arc<[Frame]>>;

/// What is read together by all who follow turns here.
#[derive(Debug, Default)]
pub(super) struct Shared {
    looks: Arc<Flights<EntityId, Look>>,
    frames: Arc<Flights<(ProcessId, EntityId, TurnId), Kept>>,
}

/// A session as it is now.
#[derive(Clone)]
pub(super) struct Look {
    /// Its inbox was seen to be empty.
    pub(super) nothing_waits: bool,
    /// What its journal says; or what is wrong with it, unless it only cannot be read now.
    pub(super) entity: Result<Arc<Entity<Session>>, Option<ErrorBody>>,
}

// === impl Look ===

impl Look {
    /// Looks at a session, with all who look at it now; `None` if that broke off.
    pub(super) async fn shared(sessions: &Sessions, session: EntityId) -> Option<Self> {
        let own = sessions.clone();
        let look = move || {
            let sessions = own.clone();
            async move { Self::at(&sessions, session).await }
        };
        sessions.shared.looks.share(session, look).await
    }

    async fn at(sessions: &Sessions, session: EntityId) -> Self {
        // Before the journal: what leaves the inbox is in the journal by then.
        let waiting = sessions.substrate.inbox.pending(session);
        let nothing_waits = matches!(tokio::time::timeout(COUNT_TIMEOUT, waiting).await, Ok(Ok(0)));
        let entity = match sessions.read(session).await {
            Ok(entity) => Ok(Arc::new(entity)),
            // Damage does not go away by waiting, whether the store found it or the fold.
            Err(
                failure @ (SendError::Corrupt(_)
                | SendError::Store(StoreError::Corrupt { .. })
                | SendError::NotFound { .. }),
            ) => Err(Some(ErrorBody::from(failure))),
            Err(failure) => {
                debug!(%failure, "the journal cannot be read now");
                Err(None)
            }
        };
        Self { nothing_waits, entity }
    }
}

/// The frames that an owner still has of a turn, asked for together with all who ask now.
pub(super) async fn shared_frames(
    sessions: &Sessions,
    owner: ProcessId,
    session: EntityId,
    turn: TurnId,
) -> Kept {
    let substrate = sessions.substrate.clone();
    let ask = move || {
        let substrate = substrate.clone();
        async move { frames_of(&substrate, owner, session, turn).await }
    };
    sessions.shared.frames.share((owner, session, turn), ask).await.flatten()
}

/// The frames that an owner still has of a turn. Whether some are missing shows in their keys.
async fn frames_of(
    substrate: &Substrate,
    owner: ProcessId,
    entity: EntityId,
    turn: TurnId,
) -> Kept {
    let request = codec::encode(&NodeRequest::Frames { entity, turn }).ok()?;
    let subject = substrate.prefix.rpc(owner);
    let answer = substrate.bus.request(subject, Bytes::from(request), ASK_TIMEOUT).await;
    match answer.map(|bytes| codec::decode::<NodeReply>(&bytes)) {
        Ok(Ok(NodeReply::Frames { frames, truncated: _ })) => Some(frames.into()),
        Ok(_) => None,
        Err(failure) => {
            debug!(%owner, %failure, "the owner does not answer for its frames");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use clawnode_cluster::{AppendAnswer, Journal, Record, SystemClock, Write, local};
    use clawnode_proto::Position;
    use futures_util::future::join_all;

    use super::*;

    /// Counts how often a journal is read.
    #[derive(Debug)]
    struct Counted(Arc<dyn Journal>, AtomicU32);

    #[async_trait]
    impl Journal for Counted {
        async fn append(&self, of: EntityId, expected: Position, write: Write) -> AppendAnswer {
            self.0.append(of, expected, write).await
        }

        async fn read(&self, of: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.read(of, after).await
        }

        async fn tail(&self, of: EntityId) -> Result<Option<Record>, StoreError> {
            self.0.tail(of).await
        }

        async fn entities(
            &self,
            after: Option<EntityId>,
            limit: usize,
        ) -> Result<Vec<EntityId>, StoreError> {
            self.0.entities(after, limit).await
        }

        async fn count(&self) -> Result<u64, StoreError> {
            self.0.count().await
        }
    }

    #[tokio::test]
    async fn readers_who_come_at_once_read_their_session_once() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn clawnode_cluster::Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (mut substrate, _control) = local::open(dir.path(), options).unwrap();
        let counted = Arc::new(Counted(Arc::clone(&substrate.journal), AtomicU32::new(0)));
        substrate.journal = Arc::clone(&counted) as Arc<dyn Journal>;
        let sessions = Sessions::new(substrate, clock);
        // Doors of one process are clones of one another.
        let doors: Vec<Sessions> = (0..100).map(|_| sessions.clone()).collect();
        let session = EntityId::from_u128(1);
        let looks = join_all(doors.iter().map(|door| Look::shared(door, session))).await;
        assert!(looks.into_iter().all(|look| look.is_some_and(|it| it.nothing_waits)));
        assert_eq!(counted.1.load(Ordering::SeqCst), 1);
        // It is not remembered: the next look is a read of its own.
        assert!(Look::shared(&sessions, session).await.is_some());
        assert_eq!(counted.1.load(Ordering::SeqCst), 2);
    }
}

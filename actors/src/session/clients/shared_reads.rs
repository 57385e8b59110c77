//! What those who follow turns look at, together (`single_flight`): a session as it is, and the frames
//! that the owner of a turn still has.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{Record, Storage, StoreError};
use clawnode_kernel::Entity;
use clawnode_proto::{
    EntityId, ErrorBody, Frame, Position, ProcessId, Sealed, TurnId, codec,
    event::decode_record,
    kernel::KernelEvent,
    node::{NodeReply, NodeRequest},
    session::SessionEvent,
};
use tracing::debug;

use super::{
    frame_listeners::FrameSubscriptions, send_error::SendError, session_list::SessionListing,
    sessions::Sessions, single_flight::SharedReadsOf,
};
use crate::session::turn::kind::Session;

/// How long the owner may take to answer for its frames.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the inbox may take to say whether anything waits: while it has no leader it says
/// nothing, and a turn that the journal shows to its end needs no such word.
const COUNT_TIMEOUT: Duration = Duration::from_millis(300);

/// Glances in a row after which the journal is folded all the same: damage shows in no tail.
const GLANCES_MAX: u32 = 5;

/// The frames that an owner has of a turn, if it answers.
type OwnerFrames = Option<Arc<[Frame]>>;

/// What is read together by all who follow turns here.
#[derive(Debug, Default)]
pub(in crate::session) struct SharedReads {
    looks: Arc<SharedReadsOf<EntityId, SessionLookup>>,
    frames: Arc<SharedReadsOf<(ProcessId, EntityId, TurnId), OwnerFrames>>,
    tails: Arc<SharedReadsOf<EntityId, Option<Record>>>,
    /// Who hears the frames of which session.
    pub(in crate::session) ears: Arc<FrameSubscriptions>,
    /// What lists look at.
    pub(in crate::session) listing: SessionListing,
}

/// What a reader knows of a turn without having folded its journal again: that it runs.
#[derive(Debug, Default)]
pub(in crate::session) struct Glance {
    /// Where the journal ended when that was so.
    runs_at: Option<Position>,
    /// Where it ended last.
    tail: Option<Position>,
    /// Glances since the last fold.
    glances: u32,
}

/// A session as it is now.
#[derive(Clone)]
pub(in crate::session) struct SessionLookup {
    /// Its inbox was seen to be empty.
    pub(in crate::session) nothing_waits: bool,
    /// What its journal says; or what is wrong with it, unless it only cannot be read now.
    pub(in crate::session) entity: Result<Arc<Entity<Session>>, Option<ErrorBody>>,
}

// === impl Glance ===

impl Glance {
    /// Whether a turn that nothing was heard of still runs, as far as the end of its journal tells.
    /// Most that are slow wait for a model, and nothing is journaled meanwhile.
    pub(in crate::session) async fn runs(
        &mut self,
        sessions: &Sessions,
        session: EntityId,
        turn: TurnId,
    ) -> bool {
        let Some(tail) = shared_tail(sessions, session).await else { return false };
        let runs = self.glances < GLANCES_MAX
            && match self.runs_at {
                Some(at) if at == tail.position => true,
                Some(at) => runs_on(sessions, session, turn, at).await,
                None => begins(&tail, turn),
            };
        self.glances = if runs { self.glances + 1 } else { 0 };
        self.tail = Some(tail.position);
        self.runs_at = self.tail.filter(|_| runs);
        runs
    }

    /// A fold has shown since that the turn runs.
    pub(in crate::session) const fn folded(&mut self) {
        self.runs_at = self.tail;
    }
}

/// The last record, read with all who ask for it now.
async fn shared_tail(sessions: &Sessions, session: EntityId) -> Option<Record> {
    let journal = Arc::clone(&sessions.storage().journal);
    let read = move || {
        let journal = Arc::clone(&journal);
        async move { journal.tail(session).await.ok().flatten() }
    };
    sessions.shared.tails.share(session, read).await.flatten()
}

/// Whether nothing that was appended after `at` ends a turn, or needs a fold to be understood.
async fn runs_on(sessions: &Sessions, session: EntityId, turn: TurnId, at: Position) -> bool {
    let Ok(records) = sessions.storage().journal.read(session, at).await else { return false };
    records.iter().all(|record| {
        decode_record(&record.bytes).is_ok_and(|all| all.iter().all(|one| !concerns(one, turn)))
    })
}

/// Whether a record begins a call of a turn, and nothing else befalls it.
fn begins(record: &Record, turn: TurnId) -> bool {
    let Ok(events) = decode_record(&record.bytes) else { return false };
    let begun = |one: &Sealed| {
        let begun = one.event::<SessionEvent>();
        matches!(begun, Ok(Some(SessionEvent::ModelBegun(begun))) if begun.turn == turn)
    };
    events.iter().any(begun) && !events.iter().any(|one| concerns(one, turn))
}

/// Whether an event may end a turn, or is something that its reader gets from the fold.
fn concerns(sealed: &Sealed, turn: TurnId) -> bool {
    match sealed.event::<SessionEvent>() {
        Ok(Some(SessionEvent::TurnDone(done))) => done.turn == turn,
        Ok(Some(SessionEvent::ApprovalAsked(_) | SessionEvent::StepLimitReached(_))) => true,
        Ok(Some(SessionEvent::ModelGaveWay(gave_way))) => gave_way.wait_ms > 0,
        Ok(Some(SessionEvent::ToolAsked(asked))) => asked.by_client,
        Ok(Some(_)) => false,
        Ok(None) | Err(_) => match sealed.event::<KernelEvent>() {
            Ok(Some(
                KernelEvent::Claim(_)
                | KernelEvent::Born(_)
                | KernelEvent::Accepted(_)
                | KernelEvent::Emitted(_)
                | KernelEvent::Released(_),
            )) => false,
            Ok(_) | Err(_) => true,
        },
    }
}

// === impl SessionLookup ===

impl SessionLookup {
    /// Looks at a session, with all who look at it now; `None` if that broke off.
    pub(in crate::session) async fn shared(sessions: &Sessions, session: EntityId) -> Option<Self> {
        let own = sessions.clone();
        let look = move || {
            let sessions = own.clone();
            async move { Self::at(&sessions, session).await }
        };
        sessions.shared.looks.share(session, look).await
    }

    async fn at(sessions: &Sessions, session: EntityId) -> Self {
        // Before the journal: what leaves the inbox is in the journal by then.
        let waiting = sessions.storage().inbox.pending(session);
        let nothing_waits = matches!(tokio::time::timeout(COUNT_TIMEOUT, waiting).await, Ok(Ok(0)));
        let entity = match sessions.read(session).await {
            Ok(entity) => Ok(Arc::new(entity)),
            // Damage does not go away by waiting, whether the store found it or the fold.
            Err(
                failure @ (SendError::Corrupt(_)
                | SendError::Store(StoreError::Corrupt { .. })
                | SendError::NotFound { .. }
                | SendError::OtherKind { .. }),
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
pub(in crate::session) async fn shared_frames(
    sessions: &Sessions,
    owner: ProcessId,
    session: EntityId,
    turn: TurnId,
) -> OwnerFrames {
    let storage = sessions.storage().clone();
    let ask = move || {
        let storage = storage.clone();
        async move { frames_of(&storage, owner, session, turn).await }
    };
    sessions.shared.frames.share((owner, session, turn), ask).await.flatten()
}

/// The frames that an owner still has of a turn. Whether some are missing shows in their keys.
async fn frames_of(
    storage: &Storage,
    owner: ProcessId,
    entity: EntityId,
    turn: TurnId,
) -> OwnerFrames {
    let request = codec::encode(&NodeRequest::Frames { entity, turn }).ok()?;
    let subject = storage.prefix.rpc(owner);
    let answer = storage.bus.request(subject, Bytes::from(request), ASK_TIMEOUT).await;
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
    use clawnode_cluster::{AppendAnswer, FeedPage, Journal, Record, SystemClock, Write};
    use clawnode_local as local;
    use clawnode_proto::InputId;
    use futures_util::future::join_all;

    use super::*;
    use crate::session::played::{PlayedActivation, key};

    /// Counts how often a journal is read whole.
    #[derive(Debug)]
    struct Counted(Arc<dyn Journal>, AtomicU32);

    #[async_trait]
    impl Journal for Counted {
        async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer {
            self.0.append(entity, expected, write).await
        }

        async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
            self.1.fetch_add(u32::from(after == Position(0)), Ordering::SeqCst);
            self.0.read(entity, after).await
        }

        async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
            self.0.tail(entity).await
        }

        async fn entities(
            &self,
            after: Option<EntityId>,
            limit: usize,
        ) -> Result<Vec<EntityId>, StoreError> {
            self.0.entities(after, limit).await
        }

        async fn end(&self) -> Result<Position, StoreError> {
            self.0.end().await
        }

        async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
            self.0.follow(after, limit).await
        }

        async fn count(&self) -> Result<u64, StoreError> {
            self.0.count().await
        }
    }

    fn counted() -> (tempfile::TempDir, Arc<Counted>, Sessions) {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn clawnode_cluster::Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (mut storage, _control) = local::open(dir.path(), options).unwrap();
        let counted = Arc::new(Counted(Arc::clone(&storage.journal), AtomicU32::new(0)));
        storage.journal = Arc::clone(&counted) as Arc<dyn Journal>;
        (dir, counted, Sessions::new(storage, clock))
    }

    /// Stores what a machine has journaled.
    async fn store(sessions: &Sessions, run: &PlayedActivation, stored: &mut Vec<Position>) {
        for record in &run.journal[stored.len()..] {
            let write = Write { bytes: record.bytes.clone(), rollup: false };
            let expected = stored.last().copied().unwrap_or_default();
            let answer = sessions.storage().journal.append(key().entity(), expected, write).await;
            let AppendAnswer::Stored(position) = answer else { panic!("{answer:?}") };
            stored.push(position);
        }
    }

    #[tokio::test]
    async fn a_turn_that_waits_for_its_model_costs_no_reading_of_its_journal() {
        let (_dir, counted, sessions) = counted();
        let (mut run, mut stored) = (PlayedActivation::new(&[], Vec::new()), Vec::new());
        run.says("m1");
        let own = run.machine.settled().unwrap().state.running().unwrap().id;
        store(&sessions, &run, &mut stored).await;
        let session = key().entity();
        let mut glance = Glance::default();
        for _ in 0..GLANCES_MAX - 1 {
            assert!(glance.runs(&sessions, session, own).await);
        }
        // Another message waits behind it.
        run.says("m2");
        store(&sessions, &run, &mut stored).await;
        assert!(glance.runs(&sessions, session, own).await);
        assert_eq!(counted.1.load(Ordering::SeqCst), 0);
        assert!(!glance.runs(&sessions, session, own).await, "damage shows in no tail");
        // Its end is seen, and so is that of a turn that was never seen to run.
        glance.folded();
        assert!(glance.runs(&sessions, session, own).await);
        run.replies(&[]);
        store(&sessions, &run, &mut stored).await;
        assert!(!glance.runs(&sessions, session, own).await);
        assert!(!Glance::default().runs(&sessions, session, own).await);
        let other = TurnId::from(InputId::from_u128(7));
        assert!(!Glance::default().runs(&sessions, session, other).await);
        assert_eq!(counted.1.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn readers_who_come_at_once_read_their_session_once() {
        let (_dir, counted, sessions) = counted();
        // Handles of one process are clones of one another.
        let doors: Vec<Sessions> = (0..100).map(|_| sessions.clone()).collect();
        let session = EntityId::from_u128(1);
        let looks =
            join_all(doors.iter().map(|switch_gate| SessionLookup::shared(switch_gate, session)))
                .await;
        assert!(looks.into_iter().all(|look| look.is_some_and(|look| look.nothing_waits)));
        assert_eq!(counted.1.load(Ordering::SeqCst), 1);
        // It is not remembered: the next look is a read of its own.
        assert!(SessionLookup::shared(&sessions, session).await.is_some());
        assert_eq!(counted.1.load(Ordering::SeqCst), 2);
    }
}

//! The handle that gateways use to read a session; `accept_message` stores what they send, and `follow_turn`
//! follows its turns.
//!
//! It owns nothing. To read, it folds the journal.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use clawnode_cluster::{Clock, Storage, StoreError};
use clawnode_kernel::{Core, Entities, Entity, EntityKind, FoldError, KnownKinds, LoadedJournal};
use clawnode_proto::{
    Attempt, CallId, EntityId, FrameKey, Sealed, TurnId,
    envelope::{PLAIN, VERSIONS},
    llm::Text,
    turn::TurnEvent,
};
use futures_util::{future::BoxFuture, stream::BoxStream};

use super::{send_error::SendError, shared_reads::SharedReads};
use crate::session::{texts::unpacked, turn::kind::Session};

/// A stored message, and its turn as it goes.
pub struct SentMessage {
    pub session: EntityId,
    /// The turn that was begun, or joined.
    pub turn: TurnId,
    /// Where to resume from before anything was seen.
    pub cursor: FrameKey,
    /// What happens; ends after `Done`.
    pub events: BoxStream<'static, TurnEvent>,
}

/// The handle to all sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    entities: Entities,
    /// What those who follow turns read together.
    pub(in crate::session) shared: Arc<SharedReads>,
    pub(in crate::session) version: Arc<AtomicU16>,
}

impl fmt::Debug for SentMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentMessage").field("turn", &self.turn).finish_non_exhaustive()
    }
}

// === impl Sessions ===

impl Sessions {
    /// What time it is for those who send.
    pub fn now(&self) -> clawnode_proto::Timestamp {
        self.entities.now()
    }

    /// A handle on these stores.
    pub fn new(storage: Storage, clock: Arc<dyn Clock>) -> Self {
        Self::of(Entities::new(storage, clock, KnownKinds::default().with::<Session>()))
    }

    /// The sessions among these entities.
    pub fn of(entities: Entities) -> Self {
        let version = Arc::new(AtomicU16::new(*VERSIONS.end()));
        Self { entities, shared: Arc::default(), version }
    }

    /// The entities of every kind among which these sessions are.
    pub const fn entities(&self) -> &Entities {
        &self.entities
    }

    /// What they stand on.
    pub const fn storage(&self) -> &Storage {
        self.entities.storage()
    }

    /// The same, writing inputs as the version that is found there: the newest that all processes
    /// speak.
    #[must_use]
    pub fn writing(self, version: Arc<AtomicU16>) -> Self {
        Self { version, ..self }
    }

    /// The version of the envelope that inputs are written as that need no newer one.
    pub(in crate::session) fn writes(&self) -> u16 {
        self.version.load(Ordering::Relaxed).min(PLAIN)
    }

    /// A session's state as its journal has it.
    pub fn read(&self, session: EntityId) -> BoxFuture<'_, Result<Entity<Session>, SendError>> {
        // Boxed here, so that the crates that await it do not compile it once more.
        Box::pin(self.read_each(session, |_, _| ()))
    }

    /// The same, and shows the session after each event that its journal has.
    pub(in crate::session) async fn read_each(
        &self,
        session: EntityId,
        after: impl FnMut(&Entity<Session>, &Sealed) + Send,
    ) -> Result<Entity<Session>, SendError> {
        let loaded = self.load(session).await?;
        Entity::of_each(session, &loaded, after).map_err(|failure| match failure {
            FoldError::Kind { entity, kind } => SendError::OtherKind { entity, kind },
            failure => failure.into(),
        })
    }

    /// The kernel's part of a session's journal.
    pub(in crate::session) async fn own(&self, session: EntityId) -> Result<Core, SendError> {
        let core = self.entities.core(session).await?;
        match core.kind {
            Some(kind) if kind != Session::KIND => {
                Err(SendError::OtherKind { entity: session, kind })
            }
            _ => Ok(core),
        }
    }

    /// A session's journal, unfolded.
    pub fn load(&self, session: EntityId) -> BoxFuture<'_, Result<LoadedJournal, SendError>> {
        Box::pin(async move { Ok(self.entities.load(session).await?) })
    }

    /// A text in full, wherever it is.
    pub async fn text(&self, text: &Text) -> Result<String, SendError> {
        match text {
            Text::Inline { text } => Ok(text.clone()),
            Text::Blob { digest, bytes: length } => {
                let bytes = self.storage().blobs.get(*digest).await?;
                let bytes = bytes.ok_or_else(|| StoreError::Refused {
                    store: "blobs",
                    detail: format!("`{digest}` is missing"),
                })?;
                Ok(unpacked(&bytes, *length))
            }
        }
    }
}

/// The cursor before anything of a turn was seen.
pub(in crate::session) fn start_of(turn: TurnId) -> FrameKey {
    FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(0), index: 0 }
}

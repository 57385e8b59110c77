//! What clients attach to messages, on its way into a session; and content that no message came to name.
//!
//! Content is noted in the key-value store before it is stored, and the note goes once its message is
//! stored. A note that stays (its message was refused, or its gateway died) is looked at by a worker when it
//! is `FILE_KEPT` old: unless the session names the blob, the blob goes. The note says so first, by
//! compare-and-set, so that a message which brings the same content again keeps it, or is refused.

use clawnode_cluster::{BucketEntry, BucketError, Storage, StoreError};
use clawnode_kernel::{EntityKind as _, dead_letters};
use clawnode_proto::{
    Digest, EntityId, Position, Timestamp,
    limits::FILE_KEPT,
    media::{Content, ContentNote, Media},
    subject::{FILE_KEYS, content_key},
};
use tracing::{debug, warn};

use super::{send_error::SendError, sessions::Sessions};
use crate::session::{texts::packed_content, turn::kind::Session};

/// What errors call it.
const STORE: &str = "attachments";
/// How often a note is written that another writer changes.
const TRIES: usize = 5;

/// The note about content of a message that is not stored yet.
#[derive(Debug)]
pub struct PendingContent {
    key: String,
    position: Position,
}

impl Sessions {
    /// Stores content for a message of this session. Once that is stored, say so ([`Self::attached`]).
    pub async fn attach(
        &self,
        session: EntityId,
        content: Content,
    ) -> Result<(Media, PendingContent), SendError> {
        let packed = packed_content(session, content.bytes());
        let blob = Digest::of(&packed);
        let pending = note(self.storage(), session, blob, self.now()).await?;
        let blob = self.storage().blobs.put(packed).await?;
        Ok((content.stored(blob), pending))
    }

    /// The message with this content is stored, and its session owns the content.
    pub async fn attached(&self, pending: Vec<PendingContent>) {
        for PendingContent { key, position } in pending {
            match self.storage().bucket.delete(&key, position).await {
                // Another message brings the same.
                Ok(()) | Err(BucketError::Conflict { .. }) => {}
                Err(BucketError::Store(failure)) => {
                    debug!(key, %failure, "a note about an attachment stays for a day");
                }
            }
        }
    }

    /// Removes content that no message came to name, of the sessions that are `mine`. Says how much.
    pub async fn sweep_content(
        &self,
        mine: impl Fn(EntityId) -> bool,
    ) -> Result<usize, StoreError> {
        let (storage, now) = (self.storage(), self.now());
        let mut removed = 0;
        for (key, entry) in storage.bucket.list(FILE_KEYS).await? {
            let session = key.strip_prefix(FILE_KEYS).and_then(|rest| rest.split('.').next());
            let session: Option<EntityId> = session.and_then(|text| text.parse().ok());
            let note = ContentNote::from_bytes(&entry.value).ok();
            let (Some(session), Some(note)) = (session.filter(|id| mine(*id)), note) else {
                continue;
            };
            if !note.is_going && now.since(note.at) < FILE_KEPT {
                continue;
            }
            match self.clear(session, &key, note, entry.position).await {
                Ok(is_removed) => removed += usize::from(is_removed),
                // The others go nevertheless.
                Err(failure) => warn!(key, %failure, "cannot remove content without an owner now"),
            }
        }
        Ok(removed)
    }

    /// Removes old content and its note, or the note alone if the session owns the content. Says whether
    /// content was removed.
    async fn clear(
        &self,
        session: EntityId,
        key: &str,
        note: ContentNote,
        position: Position,
    ) -> Result<bool, SendError> {
        if note.is_going {
            return Ok(remove(self.storage(), key, note, position).await?);
        }
        match self.names(session, note.blob).await? {
            // Looked at again in an hour.
            None => Ok(false),
            Some(false) => Ok(remove(self.storage(), key, note, position).await?),
            Some(true) => match self.storage().bucket.delete(key, position).await {
                Ok(()) | Err(BucketError::Conflict { .. }) => Ok(false),
                Err(BucketError::Store(failure)) => Err(failure.into()),
            },
        }
    }

    /// Whether a session names a blob; unknown while it has inputs that are in no journal.
    async fn names(&self, session: EntityId, blob: Digest) -> Result<Option<bool>, SendError> {
        // In this order: an input leaves the inbox only for the journal.
        if self.storage().inbox.pending(session).await? > 0 {
            return Ok(None);
        }
        if dead_letters::list(self.storage()).await?.iter().any(|letter| letter.entity == session) {
            return Ok(None);
        }
        // A journal that cannot be read may name anything.
        self.entities().load(session).await?;
        let named = self.entities().blobs_of(Session::KIND, session).await?;
        Ok(Some(named.contains(&blob)))
    }
}

/// Content that was stored for something that does not name it: it goes soon, unless the session names it
/// elsewhere.
pub(in crate::session) async fn disown(storage: &Storage, session: EntityId, media: &[Media]) {
    for Media { blob, .. } in media {
        let note = ContentNote { blob: *blob, at: Timestamp(0), is_going: false };
        match put(storage, &content_key(session, *blob), note, Position(0)).await {
            // A message brings it, and it is looked at when that note is old.
            Ok(_) | Err(BucketError::Conflict { .. }) => {}
            Err(BucketError::Store(failure)) => {
                warn!(%session, %failure, "content that a hook held back stays");
            }
        }
    }
}

/// Writes down that content is about to be stored for a message.
async fn note(
    storage: &Storage,
    session: EntityId,
    blob: Digest,
    at: Timestamp,
) -> Result<PendingContent, StoreError> {
    let key = content_key(session, blob);
    let unavailable = |detail: String| StoreError::Unavailable { store: STORE, detail };
    for _ in 0..TRIES {
        let entry = storage.bucket.get(&key).await?;
        let is_going = |entry: &BucketEntry| {
            ContentNote::from_bytes(&entry.value).is_ok_and(|note| note.is_going)
        };
        if entry.as_ref().is_some_and(is_going) {
            return Err(unavailable("the same content is being removed; try again".to_owned()));
        }
        let before = entry.map_or(Position(0), |entry| entry.position);
        match put(storage, &key, ContentNote { blob, at, is_going: false }, before).await {
            Ok(position) => return Ok(PendingContent { key, position }),
            Err(BucketError::Conflict { .. }) => {}
            Err(BucketError::Store(failure)) => return Err(failure),
        }
    }
    Err(unavailable(format!("other writers changed `{key}`")))
}

/// Removes content and then its note, unless a message brings it meanwhile. A note without content is
/// found again, content without a note is not.
pub(super) async fn remove(
    storage: &Storage,
    key: &str,
    note: ContentNote,
    mut position: Position,
) -> Result<bool, StoreError> {
    if !note.is_going {
        let going = ContentNote { is_going: true, ..note };
        position = match put(storage, key, going, position).await {
            Ok(position) => position,
            Err(BucketError::Conflict { .. }) => return Ok(false),
            Err(BucketError::Store(failure)) => return Err(failure),
        };
    }
    storage.blobs.delete(note.blob).await?;
    match storage.bucket.delete(key, position).await {
        Ok(()) => Ok(true),
        Err(BucketError::Conflict { .. }) => {
            debug!(key, "another process removes content too");
            Ok(false)
        }
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

async fn put(
    storage: &Storage,
    key: &str,
    note: ContentNote,
    position: Position,
) -> Result<Position, BucketError> {
    let bytes = note
        .to_bytes()
        .map_err(|error| StoreError::Refused { store: STORE, detail: error.to_string() })?;
    storage.bucket.put(key, position, bytes.into(), None).await
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use clawnode_cluster::{AppendAnswer, Clock, Write};
    use clawnode_local as local;
    use clawnode_proto::session::{SessionInput, UserMessage};

    use super::*;
    use crate::session::{
        clients::files::forget,
        played::{PlayedActivation, key},
    };

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and more";
    const OTHER: &[u8] = b"\x89PNG\r\n\x1a\n and other";

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    fn sessions() -> (Sessions, Arc<Hand>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let hand = Arc::new(Hand::default());
        let clock: Arc<dyn Clock> = hand.clone();
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        (Sessions::new(storage, clock), hand, dir)
    }

    async fn attach(sessions: &Sessions, bytes: &[u8]) -> (Media, PendingContent) {
        let content = Content::new(None, bytes.to_vec()).unwrap();
        sessions.attach(key().entity(), content).await.unwrap()
    }

    fn message(media: &Media) -> SessionInput {
        let attachments = vec![media.clone()];
        SessionInput::UserMessage(UserMessage { attachments, ..UserMessage::text("see") })
    }

    async fn is_there(sessions: &Sessions, media: &Media) -> bool {
        sessions.storage().blobs.get(media.blob).await.unwrap().is_some()
    }

    async fn notes(sessions: &Sessions) -> usize {
        sessions.storage().bucket.list(FILE_KEYS).await.unwrap().len()
    }

    fn a_day_later(hand: &Hand) {
        let day = u64::try_from(FILE_KEPT.as_millis()).unwrap();
        hand.0.fetch_add(day, Ordering::Relaxed);
    }

    /// A message was refused once its content was stored, or its gateway died. The same content of a message
    /// that was taken stays.
    #[tokio::test]
    async fn content_of_a_refused_message_goes_unless_another_one_has_it() {
        let (sessions, hand, _dir) = sessions();
        let (kept, pending) = attach(&sessions, PNG).await;
        sessions.attached(vec![pending]).await;
        assert_eq!(notes(&sessions).await, 0);
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.hears("first", &message(&kept));
        let mut expected = Position(0);
        for record in &run.journal {
            let write = Write { bytes: record.bytes.clone(), rollup: false };
            let journal = &sessions.storage().journal;
            let answer = journal.append(key().entity(), expected, write).await;
            let AppendAnswer::Stored(position) = answer else { panic!("{answer:?}") };
            expected = position;
        }
        let (again, _refused) = attach(&sessions, PNG).await;
        let (refused, _its_gateway_died) = attach(&sessions, OTHER).await;
        assert_eq!(again, kept);
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 0, "it is too early");
        a_day_later(&hand);
        assert_eq!(sessions.sweep_content(|_| false).await.unwrap(), 0, "of another worker");
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 1);
        assert!(is_there(&sessions, &kept).await && !is_there(&sessions, &refused).await);
        assert_eq!(notes(&sessions).await, 0);
    }

    #[tokio::test]
    async fn content_of_a_message_that_waits_stays() {
        let (sessions, hand, _dir) = sessions();
        let (media, _its_gateway_died) = attach(&sessions, PNG).await;
        let once = "once".parse().unwrap();
        sessions.send(&key(), message(&media), once, None).await.unwrap();
        a_day_later(&hand);
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 0);
        assert!(is_there(&sessions, &media).await);
        forget(sessions.storage(), key().entity()).await.unwrap();
        assert!(!is_there(&sessions, &media).await, "it goes with its session");
        assert_eq!(notes(&sessions).await, 0);
    }

    /// What a hook held back goes at once, unless a message brings the same.
    #[tokio::test]
    async fn content_without_an_owner_goes_unless_a_message_brings_it() {
        let (sessions, hand, _dir) = sessions();
        a_day_later(&hand);
        let disown = async |media: &Media| {
            disown(sessions.storage(), key().entity(), std::slice::from_ref(media)).await;
        };
        let (media, pending) = attach(&sessions, PNG).await;
        disown(&media).await;
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 0, "a message brings it");
        sessions.attached(vec![pending]).await;
        disown(&media).await;
        let (_, pending) = attach(&sessions, PNG).await;
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 0, "it is as new as that");
        sessions.attached(vec![pending]).await;
        disown(&media).await;
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 1);
        assert!(!is_there(&sessions, &media).await);
        assert_eq!(notes(&sessions).await, 0);
    }

    #[tokio::test]
    async fn content_that_is_being_removed_is_not_brought() {
        let (sessions, _, _dir) = sessions();
        let (media, PendingContent { key: name, position }) = attach(&sessions, PNG).await;
        let going = ContentNote { blob: media.blob, at: Timestamp(0), is_going: true };
        assert!(put(sessions.storage(), &name, going, position).await.is_ok());
        let content = Content::new(None, PNG.to_vec()).unwrap();
        assert!(sessions.attach(key().entity(), content).await.is_err());
        assert_eq!(sessions.sweep_content(|_| true).await.unwrap(), 1, "what was begun is ended");
        attach(&sessions, PNG).await;
        assert!(is_there(&sessions, &media).await);
    }
}

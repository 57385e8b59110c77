//! Uploaded files: content that clients send ahead of the messages that name it.
//!
//! A file is a record in the key-value store, and blobs of its session. Each blob is a part of the size of
//! an attachment, so an upload holds one part in memory, and a file that can be attached has one part. No
//! two files share a blob. The record names each part before it is stored, so an upload that breaks off
//! leaves no blob without a record.
//!
//! A file that a message names stays as long as its session. A worker removes any other file once it is
//! `FILE_KEPT` old, because gateways may not remove blobs. It first marks the record. So a message that
//! names the file at the same time is refused, or keeps the file.
//!
//! Files that no message names have bounds together (`FILES_UNSENT`, `FILES_UNSENT_BYTES`). Each part is
//! counted in its record before it is stored, and the sum is looked at after that: of two uploads that
//! together pass a bound, the later one sees both.

use bytes::Bytes;
use clawnode_cluster::{BucketEntry, BucketError, Storage, StoreError};
use clawnode_proto::{
    CodecError, Digest, EntityId, ErrorBody, ErrorChain, ErrorCode, FileId, Position, Timestamp,
    limits::{ATTACHMENT_BYTES, FILE_BYTES, FILE_KEPT, FILES, FILES_UNSENT, FILES_UNSENT_BYTES},
    media::{
        Content, ContentNote, FileRecord, FileView, Media, MediaError, MediaType, file_name,
        shared_files,
    },
    subject::{FILE_KEYS, file_key, file_keys},
};
use tracing::{debug, warn};

use super::{attached_content, send_error::SendError, sessions::Sessions};
use crate::session::texts::content_of;

/// Its name in errors.
const STORE: &str = "files";
/// Bytes after a part in its blob: the ids of its file and its session.
const OWNER_BYTES: usize = 32;
/// How often a message tries to name a file that another writer changes.
const TRIES: usize = 5;

/// Why a file is not stored, not found or not attached.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The session has too many files.
    #[error("the session has {FILES} files already")]
    TooMany,
    /// Those of the session that no message names are too many, or too large together.
    #[error(
        "the session already has {files} files of {bytes} bytes that no message names; at most \
         {FILES_UNSENT} files of {FILES_UNSENT_BYTES} bytes together may wait for a message"
    )]
    TooManyUnsent {
        /// How many there are.
        files: usize,
        /// How large they are together.
        bytes: u64,
    },
    /// It is larger than a file may be.
    #[error("the file is larger than {FILE_BYTES} bytes")]
    TooLarge,
    /// Its content cannot be used.
    #[error("the file cannot be used: {0}")]
    Media(MediaError),
    /// There is no such file, or it was removed.
    #[error("the session has no file `{0}`")]
    NotFound(FileId),
    /// A message names it.
    #[error("file `{0}` cannot be deleted: a message names it")]
    Named(FileId),
    /// It is too large for an attachment.
    #[error("file `{0}` cannot be attached: {1}")]
    NotAttachable(FileId, MediaError),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its record cannot be read or written.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// A file on its way into a session. One that is dropped before its end is removed later.
#[derive(Debug)]
pub struct FileUpload {
    storage: Storage,
    session: EntityId,
    file: FileId,
    name: Option<String>,
    at: Timestamp,
    /// The record, once its type is known, and its position in the store.
    record: Option<(FileRecord, Position)>,
    /// The content since the last part.
    part: Vec<u8>,
}

/// The files of a session that no message names.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    files: usize,
    bytes: u64,
}

/// Why a record was not changed.
enum PutError {
    /// Another writer changed it.
    Conflict,
    File(FileError),
}

// === impl Sessions ===

impl Sessions {
    /// Begins a file of this session, which may not exist yet.
    pub async fn upload(
        &self,
        session: EntityId,
        name: Option<&str>,
    ) -> Result<FileUpload, FileError> {
        let records = records(self.storage(), session).await?;
        if records.len() >= FILES {
            return Err(FileError::TooMany);
        }
        let unsent = Unsent::of(&records);
        if unsent.files >= FILES_UNSENT || unsent.bytes >= FILES_UNSENT_BYTES {
            return Err(unsent.into());
        }
        Ok(FileUpload {
            storage: self.storage().clone(),
            session,
            file: FileId::from_u128(rand::random()),
            name: name.and_then(file_name),
            at: self.now(),
            record: None,
            part: Vec::new(),
        })
    }

    /// The record of a file.
    pub async fn file(&self, session: EntityId, file: FileId) -> Result<FileRecord, FileError> {
        Ok(self.known_file(session, file).await?.0)
    }

    /// The bytes of one part, without the mark of their owner. Fails if the blob is gone.
    pub async fn file_part(&self, file: FileId, part: Digest) -> Result<Bytes, FileError> {
        let blob = self.storage().blobs.get(part).await?.ok_or(FileError::NotFound(file))?;
        let length = blob.len().saturating_sub(OWNER_BYTES);
        Ok(content_of(&blob, length as u64))
    }

    /// A file as an attachment of a message. It stays as long as its session from here on.
    pub async fn attach_file(&self, session: EntityId, file: FileId) -> Result<Media, FileError> {
        let key = file_key(session, file);
        for _ in 0..TRIES {
            let (mut record, position) = self.known_file(session, file).await?;
            let [blob] = record.parts[..] else {
                return Err(FileError::NotAttachable(file, MediaError::TooLarge(record.bytes)));
            };
            let (media_type, bytes, name) = (record.media_type, record.bytes, record.name.clone());
            let media = Media { media_type, blob, bytes, name, at: None };
            if record.is_named {
                return Ok(media);
            }
            record.is_named = true;
            match put(self.storage(), &key, &record, position).await {
                Ok(_) => return Ok(media),
                Err(PutError::Conflict) => {}
                Err(PutError::File(failure)) => return Err(failure),
            }
        }
        Err(changed(&key))
    }

    async fn known_file(
        &self,
        session: EntityId,
        file: FileId,
    ) -> Result<(FileRecord, Position), FileError> {
        let entry = self.storage().bucket.get(&file_key(session, file)).await?;
        let BucketEntry { value, position } = entry.ok_or(FileError::NotFound(file))?;
        let record = FileRecord::from_bytes(&value)?;
        if record.is_going { Err(FileError::NotFound(file)) } else { Ok((record, position)) }
    }

    /// The files of a session, the oldest first.
    pub async fn files(&self, session: EntityId) -> Result<Vec<FileView>, FileError> {
        let prefix = file_keys(session);
        let entries = self.storage().bucket.list(&prefix).await?;
        let view = |(key, entry): &(String, BucketEntry)| {
            let file = key.strip_prefix(&prefix)?.parse().ok()?;
            let record = FileRecord::from_bytes(&entry.value).ok()?;
            (!record.is_going).then(|| record.view(file))
        };
        let mut files: Vec<FileView> = entries.iter().filter_map(view).collect();
        files.sort_by_key(|file| (file.at, file.file));
        Ok(files)
    }

    /// Gives up a file that no message names. It is gone at once; a worker removes its content later.
    pub async fn give_up_file(&self, session: EntityId, file: FileId) -> Result<(), FileError> {
        let key = file_key(session, file);
        for _ in 0..TRIES {
            let (mut record, position) = self.known_file(session, file).await?;
            if record.is_named {
                return Err(FileError::Named(file));
            }
            record.is_going = true;
            match put(self.storage(), &key, &record, position).await {
                Ok(_) => return Ok(()),
                Err(PutError::Conflict) => {}
                Err(PutError::File(failure)) => return Err(failure),
            }
        }
        Err(changed(&key))
    }

    /// The content of a file that was uploaded for no session in particular, to be attached to a message.
    pub async fn shared_content(&self, file: FileId) -> Result<Content, FileError> {
        let record = self.file(shared_files(), file).await?;
        let [part] = record.parts[..] else {
            return Err(FileError::NotAttachable(file, MediaError::TooLarge(record.bytes)));
        };
        let bytes = self.file_part(file, part).await?;
        Content::new(record.name.as_deref(), bytes.to_vec()).map_err(FileError::Media)
    }

    /// Where a file is that a message to this session names: in the session, or among those of none.
    pub async fn place_of_file(
        &self,
        session: EntityId,
        file: FileId,
    ) -> Result<EntityId, FileError> {
        match self.file(session, file).await {
            Ok(_) => Ok(session),
            Err(FileError::NotFound(_)) => match self.file(shared_files(), file).await {
                Ok(_) => Ok(shared_files()),
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        }
    }

    /// Removes files of the sessions that are `mine` if they are too old and no message names them. Returns
    /// how many.
    pub async fn sweep_files(&self, mine: impl Fn(EntityId) -> bool) -> Result<usize, StoreError> {
        let now = self.now();
        let mut removed = 0;
        for (key, entry) in self.storage().bucket.list(FILE_KEYS).await? {
            let session = key.strip_prefix(FILE_KEYS).and_then(|rest| rest.split('.').next());
            let session: Option<EntityId> = session.and_then(|text| text.parse().ok());
            // A newer build wrote it, and removes it.
            let record = FileRecord::from_bytes(&entry.value).ok();
            if let (Some(record), Some(_)) = (record, session.filter(|id| mine(*id)))
                && (record.is_going || (!record.is_named && now.since(record.at) >= FILE_KEPT))
            {
                match remove(self.storage(), &key, record, entry.position).await {
                    Ok(is_removed) => removed += usize::from(is_removed),
                    // The other files are still removed.
                    Err(failure) => warn!(key, %failure, "cannot remove an uploaded file now"),
                }
            }
        }
        Ok(removed)
    }
}

fn changed(key: &str) -> FileError {
    let detail = format!("other writers changed `{key}`");
    StoreError::Unavailable { store: STORE, detail }.into()
}

/// The files of a session, but for those that a later build wrote.
async fn records(storage: &Storage, session: EntityId) -> Result<Vec<FileRecord>, StoreError> {
    let entries = storage.bucket.list(&file_keys(session)).await?;
    let records = entries.iter().filter_map(|(_, entry)| FileRecord::from_bytes(&entry.value).ok());
    Ok(records.collect())
}

/// Removes all files of a session that is deleted, and content that no message came to name.
pub(in crate::session) async fn forget(
    storage: &Storage,
    session: EntityId,
) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let mut is_changed = false;
        for (key, entry) in storage.bucket.list(&file_keys(session)).await? {
            if let Ok(record) = FileRecord::from_bytes(&entry.value) {
                is_changed |= !remove(storage, &key, record, entry.position).await?;
            } else if let Ok(note) = ContentNote::from_bytes(&entry.value) {
                is_changed |=
                    !attached_content::remove(storage, &key, note, entry.position).await?;
            }
        }
        if !is_changed {
            return Ok(());
        }
    }
    let detail = format!("other writers change the files of `{session}`");
    Err(StoreError::Unavailable { store: STORE, detail })
}

/// Removes a file, unless its record was changed meanwhile. It removes the blobs before the record: a
/// record without blobs is found again, blobs without a record are not.
async fn remove(
    storage: &Storage,
    key: &str,
    mut record: FileRecord,
    mut position: Position,
) -> Result<bool, StoreError> {
    if !record.is_going {
        record.is_going = true;
        position = match put(storage, key, &record, position).await {
            Ok(position) => position,
            Err(PutError::File(FileError::Store(failure))) => return Err(failure),
            Err(PutError::Conflict | PutError::File(_)) => return Ok(false),
        };
    }
    for part in &record.parts {
        storage.blobs.delete(*part).await?;
    }
    match storage.bucket.delete(key, position).await {
        Ok(()) => Ok(true),
        Err(BucketError::Conflict { .. }) => {
            debug!(key, "another process removes a file too");
            Ok(false)
        }
        Err(BucketError::Store(failure)) => Err(failure),
    }
}

async fn put(
    storage: &Storage,
    key: &str,
    record: &FileRecord,
    position: Position,
) -> Result<Position, PutError> {
    let bytes = record.to_bytes().map_err(|error| PutError::File(error.into()))?;
    storage.bucket.put(key, position, bytes.into(), None).await.map_err(|error| match error {
        BucketError::Conflict { .. } => PutError::Conflict,
        BucketError::Store(failure) => PutError::File(failure.into()),
    })
}

// === impl Unsent ===

impl Unsent {
    fn of(records: &[FileRecord]) -> Self {
        let unsent = records.iter().filter(|record| !record.is_named && !record.is_going);
        unsent.fold(Self { files: 0, bytes: 0 }, |sum, record| Self {
            files: sum.files + 1,
            bytes: sum.bytes + record.bytes,
        })
    }
}

impl From<Unsent> for FileError {
    fn from(Unsent { files, bytes }: Unsent) -> Self {
        Self::TooManyUnsent { files, bytes }
    }
}

// === impl FileUpload ===

impl FileUpload {
    /// Takes more of the content. Content of an unknown type is refused at once.
    pub async fn write(&mut self, mut content: &[u8]) -> Result<(), FileError> {
        let stored = self.record.as_ref().map_or(0, |(record, _)| record.bytes);
        if stored + (self.part.len() + content.len()) as u64 > FILE_BYTES as u64 {
            return Err(FileError::TooLarge);
        }
        while !content.is_empty() {
            let room = ATTACHMENT_BYTES - self.part.len();
            let (now, later) = content.split_at(room.min(content.len()));
            self.part.extend_from_slice(now);
            content = later;
            if self.record.is_none() && self.part.len() >= MediaType::HEAD {
                self.record = Some((self.first_record()?, Position(0)));
            }
            if self.part.len() == ATTACHMENT_BYTES {
                self.store_part().await?;
            }
        }
        Ok(())
    }

    /// The file, once all of its content came.
    pub async fn finish(mut self) -> Result<FileView, FileError> {
        if self.record.is_none() {
            self.record = Some((self.first_record()?, Position(0)));
        }
        if !self.part.is_empty()
            && let Err(failure) = self.store_part().await
        {
            self.abandon().await;
            return Err(failure);
        }
        let (record, _) = self.record.ok_or(FileError::Media(MediaError::Empty))?;
        Ok(record.view(self.file))
    }

    /// Gives it up: what is stored of it goes soon, and does not count until then.
    pub async fn abandon(self) {
        let Some((mut record, position)) = self.record.filter(|(_, at)| *at > Position(0)) else {
            return;
        };
        record.is_going = true;
        let key = file_key(self.session, self.file);
        if put(&self.storage, &key, &record, position).await.is_err() {
            debug!(key, "what is left of an upload goes in a day");
        }
    }

    fn first_record(&self) -> Result<FileRecord, FileError> {
        if self.part.is_empty() {
            return Err(FileError::Media(MediaError::Empty));
        }
        let media_type = MediaType::of(&self.part);
        Ok(FileRecord {
            media_type: media_type.map_err(|error| FileError::Media(error.into()))?,
            name: self.name.clone(),
            bytes: 0,
            parts: Vec::new(),
            at: self.at,
            is_named: false,
            is_going: false,
        })
    }

    async fn store_part(&mut self) -> Result<(), FileError> {
        let Some((record, position)) = &mut self.record else { return Ok(()) };
        let mut content = std::mem::take(&mut self.part);
        record.bytes += content.len() as u64;
        content.extend_from_slice(&self.file.as_u128().to_be_bytes());
        content.extend_from_slice(&self.session.as_u128().to_be_bytes());
        record.parts.push(Digest::of(&content));
        match put(&self.storage, &file_key(self.session, self.file), record, *position).await {
            Ok(stored) => *position = stored,
            Err(PutError::File(failure)) => return Err(failure),
            // Its session was deleted meanwhile.
            Err(PutError::Conflict) => return Err(FileError::NotFound(self.file)),
        }
        let unsent = Unsent::of(&records(&self.storage, self.session).await?);
        if unsent.files > FILES_UNSENT || unsent.bytes > FILES_UNSENT_BYTES {
            return Err(unsent.into());
        }
        let blob = self.storage.blobs.put(content.into()).await?;
        // Its session may have been deleted meanwhile. Then nothing would name a file that is stored now.
        let key = file_key(self.session, self.file);
        let entry = self.storage.bucket.get(&key).await?;
        let is_kept = entry
            .and_then(|entry| FileRecord::from_bytes(&entry.value).ok())
            .is_some_and(|record| !record.is_going);
        if !is_kept {
            self.storage.blobs.delete(blob).await?;
            return Err(FileError::NotFound(self.file));
        }
        Ok(())
    }
}

// === impl FileError ===

impl From<FileError> for ErrorBody {
    fn from(error: FileError) -> Self {
        let message = ErrorChain(&error).to_string();
        match error {
            FileError::TooMany => Self::new(ErrorCode::Overloaded, message).hint(
                "files that no message names are removed after a day, the others with the session: \
                 start a new one",
            ),
            FileError::TooManyUnsent { .. } => Self::new(ErrorCode::Overloaded, message).hint(
                "send a message that names some of them, or delete some; others are removed after a day",
            ),
            FileError::Named(_) => Self::new(ErrorCode::Conflict, message)
                .hint("it goes with its session: `clawnode sessions delete SESSION`"),
            FileError::TooLarge => {
                Self::new(ErrorCode::TooLarge, message).hint("upload a smaller one")
            }
            FileError::NotAttachable(..) => {
                Self::new(ErrorCode::TooLarge, message).hint("attach a smaller one")
            }
            FileError::Media(_) => Self::new(ErrorCode::InvalidParams, message)
                .hint(format!("its bytes decide; upload {}", MediaType::ACCEPTED)),
            FileError::NotFound(_) => Self::new(ErrorCode::NotFound, message)
                .hint("upload it to this session; a file that no message names is kept for a day"),
            FileError::Store(failure) => SendError::Store(failure).into(),
            FileError::Codec(_) => Self::new(ErrorCode::Internal, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU16, AtomicU64, Ordering},
        },
        time::Duration,
    };

    use clawnode_cluster::{Blobs, Clock};
    use clawnode_local as local;
    use clawnode_proto::{
        IdempotencyKey, SessionKey,
        envelope::ATTACHMENTS,
        session::{SessionInput, UserMessage},
    };

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and more";
    const ADA: EntityId = EntityId::from_u128(1);
    const BOB: EntityId = EntityId::from_u128(2);

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

    async fn stored(sessions: &Sessions, content: &[&[u8]]) -> Result<FileView, FileError> {
        let mut upload = sessions.upload(ADA, Some("a/b.png")).await?;
        for piece in content {
            upload.write(piece).await?;
        }
        upload.finish().await
    }

    async fn blobs(sessions: &Sessions) -> usize {
        sessions.storage().blobs.list().await.unwrap().len()
    }

    #[tokio::test]
    async fn a_file_is_stored_in_parts_and_read_again() {
        let (sessions, _, _dir) = sessions();
        let long = vec![7; ATTACHMENT_BYTES];
        let file = stored(&sessions, &[PNG, &long]).await.unwrap();
        assert_eq!(file.bytes, (PNG.len() + long.len()) as u64);
        assert_eq!((file.media_type, file.name.as_deref()), (MediaType::Png, Some("b.png")));
        let record = sessions.file(ADA, file.file).await.unwrap();
        let mut content = Vec::new();
        for part in &record.parts {
            content.extend(sessions.file_part(file.file, *part).await.unwrap());
        }
        assert!(content == [PNG, &long].concat());
        let refused = sessions.attach_file(ADA, file.file).await.unwrap_err();
        assert!(matches!(refused, FileError::NotAttachable(..)), "{refused}");
        assert!(matches!(sessions.file(BOB, file.file).await, Err(FileError::NotFound(_))));
        let small = stored(&sessions, &[&PNG[..3], &PNG[3..]]).await.unwrap();
        let media = sessions.attach_file(ADA, small.file).await.unwrap();
        assert_eq!((media.bytes, media.name.as_deref()), (PNG.len() as u64, Some("b.png")));
        assert_eq!(sessions.attach_file(ADA, small.file).await.unwrap(), media, "once more");
    }

    #[tokio::test]
    async fn what_is_no_file_leaves_nothing() {
        let (sessions, _, _dir) = sessions();
        for content in [&b""[..], b"hello", b"hello, this is a text"] {
            let refused = stored(&sessions, &[content]).await.unwrap_err();
            assert!(matches!(refused, FileError::Media(_)), "{refused}");
        }
        let mut upload = sessions.upload(ADA, None).await.unwrap();
        upload.write(PNG).await.unwrap();
        let refused = upload.write(&vec![0; FILE_BYTES]).await.unwrap_err();
        assert!(matches!(refused, FileError::TooLarge), "{refused}");
        assert_eq!(blobs(&sessions).await, 0);
    }

    #[tokio::test]
    async fn files_go_with_their_time_or_their_session() {
        let (sessions, clock, _dir) = sessions();
        let named = stored(&sessions, &[PNG]).await.unwrap();
        sessions.attach_file(ADA, named.file).await.unwrap();
        let idle = stored(&sessions, &[PNG]).await.unwrap();
        let mut broken = sessions.upload(ADA, None).await.unwrap();
        broken.write(PNG).await.unwrap();
        broken.write(&vec![0; ATTACHMENT_BYTES]).await.unwrap();
        drop(broken);
        assert_eq!(blobs(&sessions).await, 3, "the same content is a blob of each file");
        clock.0.store(millis(FILE_KEPT) - 1, Ordering::Relaxed);
        assert_eq!(sessions.sweep_files(|_| true).await.unwrap(), 0);
        clock.0.store(millis(FILE_KEPT), Ordering::Relaxed);
        assert_eq!(sessions.sweep_files(|id| id == BOB).await.unwrap(), 0);
        assert_eq!(sessions.sweep_files(|id| id == ADA).await.unwrap(), 2);
        assert_eq!(blobs(&sessions).await, 1);
        assert!(matches!(sessions.file(ADA, idle.file).await, Err(FileError::NotFound(_))));
        sessions.file(ADA, named.file).await.unwrap();
        forget(sessions.storage(), ADA).await.unwrap();
        assert_eq!(blobs(&sessions).await, 0);
        assert_eq!(sessions.storage().bucket.list(FILE_KEYS).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_file_that_goes_is_not_attached() {
        let (sessions, _, _dir) = sessions();
        let file = stored(&sessions, &[PNG]).await.unwrap().file;
        let (mut record, position) = sessions.known_file(ADA, file).await.unwrap();
        record.is_going = true;
        let key = file_key(ADA, file);
        assert!(put(sessions.storage(), &key, &record, position).await.is_ok());
        assert!(matches!(sessions.attach_file(ADA, file).await, Err(FileError::NotFound(_))));
        assert_eq!(sessions.sweep_files(|_| true).await.unwrap(), 1, "what was begun is ended");
        assert_eq!(blobs(&sessions).await, 0);
    }

    #[tokio::test]
    async fn a_file_that_no_message_names_can_be_given_up() {
        let (sessions, clock, _dir) = sessions();
        let first = stored(&sessions, &[PNG]).await.unwrap();
        clock.0.store(5, Ordering::Relaxed);
        let named = stored(&sessions, &[PNG]).await.unwrap();
        let kept = Timestamp(millis(FILE_KEPT));
        assert_eq!((first.at, first.expires_at), (Timestamp(0), Some(kept)));
        sessions.attach_file(ADA, named.file).await.unwrap();
        let listed = sessions.files(ADA).await.unwrap();
        assert_eq!(listed[0], first);
        assert_eq!((listed[1].file, listed[1].expires_at), (named.file, None), "it stays");
        let refused = sessions.give_up_file(ADA, named.file).await.unwrap_err();
        assert_eq!(ErrorBody::from(refused).code, ErrorCode::Conflict);
        sessions.give_up_file(ADA, first.file).await.unwrap();
        let again = sessions.give_up_file(ADA, first.file).await;
        assert!(matches!(again, Err(FileError::NotFound(_))), "{again:?}");
        assert_eq!(sessions.files(ADA).await.unwrap().len(), 1);
        assert_eq!(sessions.sweep_files(|_| true).await.unwrap(), 1);
        assert_eq!(blobs(&sessions).await, 1);
    }

    #[tokio::test]
    async fn a_file_of_no_session_is_attached_by_its_content() {
        let (sessions, clock, _dir) = sessions();
        let store = async |content: &[&[u8]]| {
            let mut upload = sessions.upload(shared_files(), Some("b.png")).await.unwrap();
            for piece in content {
                upload.write(piece).await.unwrap();
            }
            upload.finish().await.unwrap().file
        };
        let (file, large) = (store(&[PNG]).await, store(&[PNG, &vec![7; ATTACHMENT_BYTES]]).await);
        let own = stored(&sessions, &[PNG]).await.unwrap().file;
        assert_eq!(sessions.place_of_file(ADA, file).await.unwrap(), shared_files());
        assert_eq!(sessions.place_of_file(ADA, own).await.unwrap(), ADA);
        let foreign = sessions.place_of_file(BOB, own).await;
        assert!(matches!(foreign, Err(FileError::NotFound(_))), "it is of another session");
        let refused = sessions.shared_content(large).await;
        assert!(matches!(refused, Err(FileError::NotAttachable(..))), "{refused:?}");
        let content = sessions.shared_content(file).await.unwrap();
        assert_eq!(content.bytes(), PNG);
        let (media, note) = sessions.attach(ADA, content).await.unwrap();
        sessions.attached(vec![note]).await;
        assert_eq!(media.name.as_deref(), Some("b.png"));
        // It goes in time, and the session keeps what it got.
        clock.0.store(millis(FILE_KEPT), Ordering::Relaxed);
        assert_eq!(sessions.sweep_files(|_| true).await.unwrap(), 3);
        assert!(sessions.storage().blobs.get(media.blob).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn files_that_no_message_names_have_a_bound_together() {
        let (sessions, clock, _dir) = sessions();
        let first = stored(&sessions, &[PNG]).await.unwrap();
        for _ in 1..FILES_UNSENT {
            stored(&sessions, &[PNG]).await.unwrap();
        }
        let refused = stored(&sessions, &[PNG]).await.unwrap_err();
        assert!(
            matches!(refused, FileError::TooManyUnsent { files: FILES_UNSENT, .. }),
            "{refused}"
        );
        let body = ErrorBody::from(refused);
        assert_eq!(body.code, ErrorCode::Overloaded);
        assert!(body.hint.unwrap().contains("names some of them"));
        // One that a message names counts no longer.
        sessions.attach_file(ADA, first.file).await.unwrap();
        stored(&sessions, &[PNG]).await.unwrap();
        let others = sessions.upload(BOB, None).await;
        assert!(others.is_ok(), "another session has its own");
        clock.0.store(millis(FILE_KEPT), Ordering::Relaxed);
        assert_eq!(sessions.sweep_files(|_| true).await.unwrap(), FILES_UNSENT);
        stored(&sessions, &[PNG]).await.unwrap();
    }

    /// Uploads at the same time: what each has stored counts at once, and what was given up does not.
    #[tokio::test]
    async fn uploads_at_the_same_time_keep_to_the_bound_of_bytes() {
        let (sessions, _, _dir) = sessions();
        let others = FileRecord {
            media_type: MediaType::Png,
            name: None,
            bytes: FILES_UNSENT_BYTES - ATTACHMENT_BYTES as u64,
            parts: Vec::new(),
            at: Timestamp(0),
            is_named: false,
            is_going: false,
        };
        let key = file_key(ADA, FileId::from_u128(1));
        assert!(put(sessions.storage(), &key, &others, Position(0)).await.is_ok());
        let part = [PNG, &vec![7; ATTACHMENT_BYTES - PNG.len()]].concat();
        let mut first = sessions.upload(ADA, None).await.unwrap();
        let mut second = sessions.upload(ADA, None).await.unwrap();
        first.write(&part).await.unwrap();
        let refused = second.write(&part).await.unwrap_err();
        assert!(matches!(refused, FileError::TooManyUnsent { files: 3, .. }), "{refused}");
        assert_eq!(blobs(&sessions).await, 1, "its content is not there");
        second.abandon().await;
        assert_eq!(sessions.sweep_files(|_| true).await.unwrap(), 1);
        let refused = sessions.upload(ADA, None).await.unwrap_err();
        assert!(matches!(refused, FileError::TooManyUnsent { files: 2, .. }), "{refused}");
        let file = first.finish().await.unwrap();
        sessions.attach_file(ADA, file.file).await.unwrap();
        sessions.upload(ADA, None).await.unwrap().write(&part).await.unwrap();
    }

    /// Blobs of a session that is deleted just before each of them is stored.
    #[derive(Debug)]
    struct Deleted(Storage);

    #[async_trait::async_trait]
    impl Blobs for Deleted {
        async fn put(&self, content: Bytes) -> Result<Digest, StoreError> {
            forget(&self.0, ADA).await?;
            self.0.blobs.put(content).await
        }

        async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
            self.0.blobs.get(digest).await
        }

        async fn delete(&self, digest: Digest) -> Result<(), StoreError> {
            self.0.blobs.delete(digest).await
        }

        async fn list(&self) -> Result<Vec<Digest>, StoreError> {
            self.0.blobs.list().await
        }
    }

    #[tokio::test]
    async fn an_upload_that_outlives_its_session_leaves_nothing() {
        let (sessions, clock, _dir) = sessions();
        let storage = sessions.storage().clone();
        let late = Storage { blobs: Arc::new(Deleted(storage.clone())), ..storage };
        let late = Sessions::new(late, clock);
        let refused = stored(&late, &[PNG]).await.unwrap_err();
        assert!(matches!(refused, FileError::NotFound(_)), "{refused}");
        assert_eq!(blobs(&sessions).await, 0);
        assert_eq!(sessions.storage().bucket.list(FILE_KEYS).await.unwrap(), []);
    }

    /// An older build that takes the session over would answer without the picture.
    #[tokio::test]
    async fn a_cluster_with_an_older_build_takes_no_attachments() {
        let (sessions, _, _dir) = sessions();
        let key: SessionKey = "default:test:bot:ada".parse().unwrap();
        let content = Content::new(None, PNG.to_vec()).unwrap();
        let (media, _pending) = sessions.attach(key.entity(), content).await.unwrap();
        let attachments = vec![media];
        let version = Arc::new(AtomicU16::new(ATTACHMENTS - 1));
        let sessions = sessions.writing(Arc::clone(&version));
        let send = async |attachments: &[Media]| {
            let attachments = attachments.to_vec();
            let message = UserMessage { attachments, ..UserMessage::text("see") };
            let once = IdempotencyKey::try_from("once".to_owned()).unwrap();
            sessions.send(&key, SessionInput::UserMessage(message), once, None).await.map(drop)
        };
        let refused = send(&attachments).await;
        assert!(matches!(refused, Err(SendError::OlderBuild("attachments"))), "{refused:?}");
        version.store(ATTACHMENTS, Ordering::Relaxed);
        // It knows attachments, and not their places.
        let placed = [Media { at: Some(1), ..attachments[0].clone() }];
        let refused = send(&placed).await;
        let between = "attachments between texts";
        assert!(
            matches!(refused, Err(SendError::OlderBuild(what)) if what == between),
            "{refused:?}"
        );
        send(&attachments).await.unwrap();
    }

    fn millis(duration: Duration) -> u64 {
        u64::try_from(duration.as_millis()).unwrap()
    }
}

//! Blobs: content in pieces under its digest, in a stream with one message for each piece.
//!
//! A piece's subject and bytes follow from the content, so storing it again changes nothing. The
//! description is stored last: a blob without it does not exist. Reads are checked against the
//! digest.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use clawnode_cluster::{Blobs, StoreError};
use clawnode_proto::{Digest, Position, subject::Prefix};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    api::{Api, RequestFailure},
    journal::expecting,
    stream::StreamReader,
};

/// The name of this store in errors.
const STORE: &str = "blobs";
/// Bytes of one piece: well below the server's default limit of 1 MiB for a message.
const PIECE_BYTES: usize = 512 << 10;
/// Bytes of one blob (64 MiB): it is held in memory as a whole.
const BLOB_BYTES: usize = 64 << 20;
/// Pieces that travel at the same time.
const AT_ONCE: usize = 4;
/// Tries to store a blob that another process is removing.
const TRIES: usize = 3;
/// The description's part of the subject; pieces have numbers.
const DESCRIPTION: &str = "d";

/// Blobs on `JetStream`.
#[derive(Debug)]
pub(super) struct NatsBlobs {
    api: Api,
    prefix: Prefix,
    reader: StreamReader,
}

/// The description of a blob, beside its pieces.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    bytes: usize,
    pieces: usize,
}

// === impl NatsBlobs ===

impl NatsBlobs {
    pub(super) fn new(api: Api, prefix: Prefix, reader: StreamReader) -> Self {
        Self { api, prefix, reader }
    }

    async fn store(&self, digest: Digest, part: &str, bytes: Bytes) -> Result<(), RequestFailure> {
        let subject = self.prefix.blob(digest, part);
        match self.api.publish_when_free(&subject, expecting(Position(0)), bytes).await {
            Ok(_) => Ok(()),
            // It is there already, and only this content can be under this digest.
            Err(failure) if failure.is_wrong_last_sequence() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn store_all(&self, digest: Digest, content: &Bytes) -> Result<usize, RequestFailure> {
        let pieces = content.len().div_ceil(PIECE_BYTES);
        stream::iter((0..pieces).map(Ok))
            .try_for_each_concurrent(AT_ONCE, |piece| {
                let from = piece * PIECE_BYTES;
                let bytes = content.slice(from..content.len().min(from + PIECE_BYTES));
                async move { self.store(digest, &piece.to_string(), bytes).await }
            })
            .await?;
        let description = serde_json::to_vec(&Description { bytes: content.len(), pieces })
            .map_err(|error| RequestFailure::Rejected(error.to_string()))?;
        self.store(digest, DESCRIPTION, description.into()).await?;
        Ok(pieces)
    }

    async fn piece(&self, digest: Digest, piece: usize) -> Result<Option<Bytes>, RequestFailure> {
        let message = self.reader.last_once(&self.prefix.blob(digest, &piece.to_string())).await?;
        Ok(message.map(|message| message.payload))
    }

    async fn load(&self, digest: Digest) -> Result<Option<Bytes>, RequestFailure> {
        let subject = self.prefix.blob(digest, DESCRIPTION);
        let Some(message) = self.reader.last(&subject).await? else { return Ok(None) };
        let description: Description =
            serde_json::from_slice(&message.payload).map_err(|error| {
                RequestFailure::Rejected(format!("`{subject}` is not readable: {error}"))
            })?;
        let pieces: Vec<Option<Bytes>> = stream::iter(0..description.pieces)
            .map(|piece| self.piece(digest, piece))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let mut content = BytesMut::with_capacity(description.bytes.min(BLOB_BYTES));
        for piece in pieces {
            let Some(piece) = piece else {
                warn!(%digest, "a blob was removed while it was read");
                return Ok(None);
            };
            content.extend_from_slice(&piece);
        }
        let content = content.freeze();
        if Digest::of(&content) != digest {
            return Err(RequestFailure::Rejected(format!(
                "the content of blob `{digest}` is damaged: it has another digest"
            )));
        }
        Ok(Some(content))
    }
}

#[async_trait]
impl Blobs for NatsBlobs {
    async fn put(&self, content: Bytes) -> Result<Digest, StoreError> {
        if content.len() > BLOB_BYTES {
            return Err(StoreError::Refused {
                store: STORE,
                detail: format!(
                    "{} bytes are over the limit of {BLOB_BYTES} for a blob",
                    content.len()
                ),
            });
        }
        let digest = Digest::of(&content);
        for _ in 0..TRIES {
            let pieces = self.store_all(digest, &content).await.map_err(store_error)?;
            // Evidence, because a removal may have run in between.
            let stored = self.reader.subjects(&self.prefix.blob(digest, "*")).await;
            if stored.map_err(store_error)?.len() == pieces + 1 {
                return Ok(digest);
            }
        }
        Err(StoreError::Unavailable {
            store: STORE,
            detail: format!("another client removed blob `{digest}` while it was stored"),
        })
    }

    async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        self.load(digest).await.map_err(store_error)
    }

    async fn delete(&self, digest: Digest) -> Result<(), StoreError> {
        self.reader.purge(&self.prefix.blob(digest, "*")).await.map_err(store_error)
    }

    async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        let subjects = self.reader.subjects(&self.prefix.blobs_with(DESCRIPTION)).await;
        Ok(subjects
            .map_err(store_error)?
            .keys()
            .filter_map(|subject| subject.split('.').nth(2)?.parse().ok())
            .collect())
    }
}

fn store_error(failure: RequestFailure) -> StoreError {
    failure.of_store(STORE)
}

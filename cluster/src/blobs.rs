//! The blobs trait: content under its own digest.

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::Digest;

use crate::StoreError;

/// Content under its digest.
#[async_trait]
pub trait Blobs: Send + Sync + std::fmt::Debug {
    /// Stores content durably and returns its digest; storing it again is harmless.
    async fn put(&self, content: Bytes) -> Result<Digest, StoreError>;

    /// The content, checked against its digest.
    async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError>;

    /// Removes content; removing absent content is harmless.
    async fn delete(&self, digest: Digest) -> Result<(), StoreError>;

    /// All digests there are.
    async fn list(&self) -> Result<Vec<Digest>, StoreError>;
}

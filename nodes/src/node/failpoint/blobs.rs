//! The points of blobs.

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Blobs, StoreError};
use clawnode_proto::Digest;

use super::{point::Point, stores::WithFailpoints};

#[async_trait]
impl Blobs for WithFailpoints<dyn Blobs> {
    async fn put(&self, content: Bytes) -> Result<Digest, StoreError> {
        self.armed.write();
        self.inner.put(content).await
    }

    async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        self.inner.get(digest).await
    }

    async fn delete(&self, digest: Digest) -> Result<(), StoreError> {
        self.armed.write();
        self.armed.pass(Point::BeforeRemoval);
        self.inner.delete(digest).await
    }

    async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        self.inner.list().await
    }
}

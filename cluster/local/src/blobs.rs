//! The blobs handle: a file per content, named by its digest.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Blobs, Peek, StoreError};
use clawnode_proto::Digest;

use super::{
    disk::{Disk, read_whole},
    shared::DirectoryClient,
};

const STORE: &str = "local blobs";
/// The end of an unfinished file's name.
const UNFINISHED: &str = ".tmp";

/// Files named by the digest of their content.
#[derive(Clone, Debug)]
pub(super) struct LocalBlobs {
    client: Arc<DirectoryClient>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl LocalBlobs {
    pub(super) fn new(client: Arc<DirectoryClient>, disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self { client, disk, dir }
    }

    /// Runs file work on a thread that may wait.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.client.0.index().is_none() {
            return Err(self.client.0.closed(STORE));
        }
        let this = self.clone();
        let worked = tokio::task::spawn_blocking(move || work(&this)).await;
        let detail = match worked {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                return Err(StoreError::Full { store: STORE, detail: error.to_string() });
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Err(StoreError::Unavailable { store: STORE, detail })
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(digest.to_string())
    }

    fn store(&self, digest: Digest, content: &[u8]) -> std::io::Result<()> {
        let path = self.path(digest);
        // A file under its final name is whole, unless it was damaged later. But the writer that
        // renamed it may not have made the name durable yet.
        if read_whole(&*self.disk, &path)?.is_some_and(|found| found == content) {
            return self.disk.sync_dir(&self.dir);
        }
        // Two writers of one content must not share an unfinished file, at any time.
        let writer: u64 = rand::random();
        let unfinished = self.dir.join(format!("{digest}.{writer:016x}{UNFINISHED}"));
        let file = self.disk.create(&unfinished)?;
        let written = file.write_at(0, content).and_then(|()| file.sync());
        let named = written.and_then(|()| self.disk.rename(&unfinished, &path));
        if let Err(error) = named {
            if let Err(error) = self.disk.remove(&unfinished) {
                tracing::debug!(%error, "cannot remove an unfinished blob");
            }
            return Err(error);
        }
        self.disk.sync_dir(&self.dir)
    }
}

#[async_trait]
impl Blobs for LocalBlobs {
    async fn put(&self, content: Bytes) -> Result<Digest, StoreError> {
        if self.client.0.done.peek(|done| *done) {
            return Err(self.client.0.closed(STORE));
        }
        self.work(move |this| {
            let digest = Digest::of(&content);
            this.store(digest, &content)?;
            Ok(digest)
        })
        .await
    }

    async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        let content = self.work(move |this| read_whole(&*this.disk, &this.path(digest))).await?;
        match content {
            Some(content) if Digest::of(&content) != digest => Err(StoreError::Refused {
                store: STORE,
                detail: format!("blob `{digest}` is damaged; restore it from a backup"),
            }),
            content => Ok(content.map(Bytes::from)),
        }
    }

    async fn delete(&self, digest: Digest) -> Result<(), StoreError> {
        if self.client.0.done.peek(|done| *done) {
            return Err(self.client.0.closed(STORE));
        }
        self.work(move |this| match this.disk.remove(&this.path(digest)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => this.disk.sync_dir(&this.dir),
        })
        .await
    }

    async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        self.work(|this| {
            let mut digests: Vec<Digest> =
                this.disk.list(&this.dir)?.iter().filter_map(|name| name.parse().ok()).collect();
            digests.sort_unstable();
            Ok(digests)
        })
        .await
    }
}

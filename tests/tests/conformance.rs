//! The conformance suite on every storage backend.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clawnode_cluster::{Storage, SystemClock};
use clawnode_local::{LocalControl, LocalOptions, open};
use clawnode_proto::subject::Prefix;
use clawnode_tests::conformance::{BackendFixture, Result};
use tempfile::TempDir;

/// The local storage backend in a directory of its own.
struct Local {
    dir: TempDir,
}

impl Local {
    fn new() -> Result<Self> {
        Ok(Self { dir: tempfile::tempdir()? })
    }

    fn open(&self) -> Result<Storage> {
        let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
        options.ack_wait = self.ack_wait();
        // A segment holds a few records only, so that every case crosses segments.
        options.segment_bytes = 4 << 10;
        options.head_room = 0;
        let (storage, _control): (Storage, LocalControl) = open(self.dir.path(), options)?;
        Ok(storage)
    }
}

#[async_trait]
impl BackendFixture for Local {
    async fn fresh(&self) -> Result<Storage> {
        self.open()
    }

    async fn restart(&self, storage: Storage) -> Result<Option<Storage>> {
        storage.health.close().await;
        drop(storage);
        self.open().map(Some)
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn ack_wait(&self) -> Duration {
        Duration::from_secs(1)
    }
}

clawnode_tests::conformance!(local, Local::new()?);

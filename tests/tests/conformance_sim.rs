//! The conformance suite on the simulated world, in the runtime's time and without faults.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_cluster::{Clock, Storage};
use clawnode_proto::Timestamp;
use clawnode_sim::storage::{SimStorageOptions, SimStores};
use clawnode_tests::conformance::{BackendFixture, Result};

/// A world of its own for each case; a restart is another process in the same world.
struct Sim(SimStores);

impl Sim {
    fn new() -> Self {
        Self(SimStores::new(&SimStorageOptions::default()))
    }
}

#[async_trait]
impl BackendFixture for Sim {
    async fn fresh(&self) -> Result<Storage> {
        Ok(self.0.open())
    }

    async fn restart(&self, storage: Storage) -> Result<Option<Storage>> {
        storage.health.close().await;
        Ok(Some(self.0.open()))
    }

    fn ack_wait(&self) -> Duration {
        SimStorageOptions::default().ack_wait
    }

    fn now(&self) -> Timestamp {
        self.0.clock().now()
    }
}

clawnode_tests::conformance!(sim, Sim::new());

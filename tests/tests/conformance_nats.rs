//! The conformance suite on NATS: one server, and a cluster of three.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_cluster::Storage;
use clawnode_nats::{NatsOptions, Replicas, connect};
use clawnode_tests::{
    conformance::{BackendFixture, Result},
    nats::{NatsCluster, NatsServer, ServerOptions},
};
use tokio::sync::Mutex;

/// Few partitions, because each test gives birth to a cluster.
const PARTITIONS: u16 = 4;
/// Short, because some tests wait for a redelivery.
const ACK_WAIT: Duration = Duration::from_secs(1);

struct One(Mutex<NatsServer>);

struct Three(Mutex<NatsCluster>);

impl One {
    async fn start() -> Result<Self> {
        Ok(Self(Mutex::new(NatsServer::start(ServerOptions::default()).await?)))
    }
}

impl Three {
    async fn start() -> Result<Self> {
        Ok(Self(Mutex::new(NatsCluster::start(3, ServerOptions::default()).await?)))
    }
}

async fn open(urls: Vec<String>, replicas: Replicas) -> Result<Storage> {
    let options = NatsOptions {
        partitions: Some(PARTITIONS),
        replicas,
        ack_wait: ACK_WAIT,
        ..NatsOptions::new(urls)
    };
    Ok(connect(options).await?)
}

#[async_trait]
impl BackendFixture for One {
    async fn fresh(&self) -> Result<Storage> {
        open(vec![self.0.lock().await.url()], Replicas::One).await
    }

    async fn restart(&self, storage: Storage) -> Result<Option<Storage>> {
        storage.health.close().await;
        let mut server = self.0.lock().await;
        server.restart().await?;
        open(vec![server.url()], Replicas::One).await.map(Some)
    }

    fn ack_wait(&self) -> Duration {
        ACK_WAIT
    }
}

#[async_trait]
impl BackendFixture for Three {
    async fn fresh(&self) -> Result<Storage> {
        open(self.0.lock().await.urls(), Replicas::Three).await
    }

    async fn restart(&self, storage: Storage) -> Result<Option<Storage>> {
        storage.health.close().await;
        let mut cluster = self.0.lock().await;
        cluster.restart_all().await?;
        open(cluster.urls(), Replicas::Three).await.map(Some)
    }

    fn ack_wait(&self) -> Duration {
        ACK_WAIT
    }
}

clawnode_tests::conformance!(r1, One::start().await?);
clawnode_tests::conformance!(r3, Three::start().await?);

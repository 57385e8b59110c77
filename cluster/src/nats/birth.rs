//! How a cluster comes into being on NATS, and how it is found again.
//!
//! The record of the birth is written first, by compare-and-set, so that of several nodes that
//! start together one decides how many partitions there are. All of them then create the same
//! streams, which is harmless. Once the record says `complete`, nothing is created any more.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use clawnode_proto::{Partition, Position, limits::PARTITIONS_NATS};
use futures_util::{TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{debug, info};

use super::{
    api::{Api, Failure},
    connect::{ConnectError, failed},
    journal::expecting,
    options::{NatsOptions, Replicas},
    stream::Reader,
    topology::{self, ConsumerSpec, StreamSpec, TopologyError},
};
use crate::clock::Backoff;

/// The layout of streams and subjects that this build knows.
pub(super) const FORMAT: u32 = 1;
/// Consumers that are created at the same time; more only queue at the server.
const CREATED_AT_ONCE: usize = 16;

/// What a connection must know of the cluster's birth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Born {
    pub(super) replicas: u8,
    pub(super) partitions: u16,
}

/// How the cluster was born, as it is stored.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    partitions: u16,
    /// Whether all streams and consumers were created.
    complete: bool,
}

/// What one try failed with: tried again if time may help.
enum Trouble {
    Failure(Failure),
    Topology(TopologyError),
}

/// Who gives birth, and until when it tries again while servers start or elect.
struct Midwife<'a> {
    api: &'a Api,
    options: &'a NatsOptions,
    deadline: Instant,
}

/// Creates what is missing if the cluster is not complete, else checks it.
pub(super) async fn be_born(api: &Api, options: &NatsOptions) -> Result<Born, ConnectError> {
    let midwife = Midwife { api, options, deadline: Instant::now() + options.connect_timeout };
    let replicas = midwife.replicas().await?;
    let bucket = topology::bucket(&options.prefix, replicas);
    midwife.create(&bucket).await?;
    let reader = Reader::new(api.clone(), bucket.name.clone())
        .await
        .map_err(|failure| failed(options, failure))?;
    let (record, position) = midwife.record(&reader).await?;
    let born = Born { replicas, partitions: record.partitions };
    if record.complete {
        midwife.check_all(born).await?;
    } else {
        info!(prefix = %options.prefix, ?born, "a cluster is born");
        midwife.create_all(born).await?;
        let complete = encode(Record { complete: true, ..record })?;
        let done = midwife.store(position, &complete).await?;
        debug!(by_us = done.is_some(), "birth is complete");
    }
    Ok(born)
}

// === impl Midwife ===

impl Midwife<'_> {
    /// How many replicas there are, or are to be.
    async fn replicas(&self) -> Result<u8, ConnectError> {
        let bucket = topology::bucket(&self.options.prefix, 1);
        let (_, _, [journal, ..]) = topology::streams(&self.options.prefix, 1);
        let mut existing = self.existing(&bucket).await?;
        if existing.is_none() && self.existing(&journal).await?.is_some() {
            // Another node may have made both in between.
            existing = self.existing(&bucket).await?;
            if existing.is_none() {
                return Err(ConnectError::Topology {
                    detail: format!(
                        "`{}` exists, but `{}`, which says how the cluster was born, is gone",
                        journal.name, bucket.name
                    ),
                });
            }
        }
        let is_clustered = self.api.client.server_info().cluster.is_some();
        Ok(match self.options.replicas {
            // A difference is found when the streams are compared.
            Replicas::One => 1,
            Replicas::Three => 3,
            Replicas::Auto => existing.unwrap_or(if is_clustered { 3 } else { 1 }),
        })
    }

    async fn existing(&self, spec: &StreamSpec) -> Result<Option<u8>, ConnectError> {
        self.patiently(|| async { spec.replicas(self.api).await.map_err(Trouble::Failure) }).await
    }

    /// The record of the birth, and where it is; made if there is none.
    async fn record(&self, reader: &Reader) -> Result<(Record, Position), ConnectError> {
        let wanted = Record {
            format: FORMAT,
            partitions: self.options.partitions.unwrap_or(PARTITIONS_NATS),
            complete: false,
        };
        if let Some(position) = self.store(Position(0), &encode(wanted)?).await? {
            return Ok((wanted, position));
        }
        let subject = self.options.prefix.birth();
        let stored = self
            .patiently(|| async { reader.last(&subject).await.map_err(Trouble::Failure) })
            .await?;
        let Some(stored) = stored else {
            return Err(failed(self.options, format!("`{subject}` vanished from its stream")));
        };
        let record: Record = serde_json::from_slice(&stored.payload).map_err(|error| {
            failed(self.options, format!("`{subject}` is not readable: {error}"))
        })?;
        if record.format != FORMAT {
            return Err(ConnectError::Format { found: record.format });
        }
        match self.options.partitions {
            Some(configured) if configured != record.partitions => {
                Err(ConnectError::Partitions { born: record.partitions, configured })
            }
            _ => Ok((record, Position(stored.sequence))),
        }
    }

    /// Stores the record if it is at `expected`; `None` if it is not, because another node was
    /// first, or because an earlier try of ours was stored without an answer.
    async fn store(
        &self,
        expected: Position,
        record: &Bytes,
    ) -> Result<Option<Position>, ConnectError> {
        let subject = self.options.prefix.birth();
        self.patiently(|| async {
            match self.api.publish(subject.clone(), expecting(expected), record.clone()).await {
                Ok(position) => Ok(Some(position)),
                Err(failure) if failure.is_wrong_last_sequence() => Ok(None),
                Err(failure) => Err(Trouble::Failure(failure)),
            }
        })
        .await
    }

    async fn create_all(&self, born: Born) -> Result<(), ConnectError> {
        let (timers, due, others) = topology::streams(&self.options.prefix, born.replicas);
        self.create(&timers).await?;
        self.create_consumer(&due).await?;
        for spec in &others {
            self.create(spec).await?;
        }
        stream::iter((0..born.partitions).map(Ok))
            .try_for_each_concurrent(CREATED_AT_ONCE, |partition| async move {
                let (prefix, ack_wait) = (&self.options.prefix, self.options.ack_wait);
                let partition = Partition(partition);
                self.create_consumer(&topology::partition_consumer(prefix, partition, ack_wait))
                    .await
            })
            .await
    }

    /// Checks the streams; each partition's consumer is checked by who opens it.
    async fn check_all(&self, born: Born) -> Result<(), ConnectError> {
        let (timers, due, others) = topology::streams(&self.options.prefix, born.replicas);
        for spec in std::iter::once(&timers).chain(&others) {
            self.patiently(|| async { spec.check(self.api).await.map_err(Trouble::Topology) })
                .await?;
        }
        self.patiently(|| async { due.check(self.api).await.map_err(Trouble::Topology) }).await
    }

    async fn create(&self, spec: &StreamSpec) -> Result<(), ConnectError> {
        self.patiently(|| async { spec.create(self.api).await.map_err(Trouble::Topology) }).await
    }

    async fn create_consumer(&self, spec: &ConsumerSpec) -> Result<(), ConnectError> {
        self.patiently(|| async { spec.create(self.api).await.map_err(Trouble::Topology) }).await
    }

    /// Tries until the deadline, as long as time may help.
    async fn patiently<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, ConnectError>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            match call().await {
                Ok(value) => return Ok(value),
                Err(trouble) if trouble.is_transient() && Instant::now() < self.deadline => {
                    debug!(trouble = %trouble.detail(), "NATS is not ready");
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                Err(trouble) => return Err(trouble.into_error(self.options)),
            }
        }
    }
}

// === impl Trouble ===

impl Trouble {
    fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failure(failure) | Self::Topology(TopologyError::Failed { failure, .. }) => {
                Some(failure)
            }
            Self::Topology(TopologyError::Different { .. }) => None,
        }
    }

    fn is_transient(&self) -> bool {
        self.failure().is_some_and(Failure::is_transient)
    }

    fn detail(&self) -> String {
        match self {
            Self::Failure(failure) => failure.to_string(),
            Self::Topology(error) => error.to_string(),
        }
    }

    fn into_error(self, options: &NatsOptions) -> ConnectError {
        let detail = self.detail();
        match self.failure() {
            None => ConnectError::Topology { detail },
            Some(failure) if failure.is_no_peers() || failure.is_replicas_not_supported() => {
                ConnectError::Replicas { detail }
            }
            Some(_) => failed(options, detail),
        }
    }
}

fn encode(record: Record) -> Result<Bytes, ConnectError> {
    serde_json::to_vec(&record)
        .map(Bytes::from)
        .map_err(|error| ConnectError::Options(error.to_string()))
}

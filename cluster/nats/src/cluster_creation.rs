//! How a cluster is created on NATS, and how it is found again.
//!
//! The record of the birth is written first, by compare-and-set. So of several nodes that start
//! together, one decides the number of partitions. All of them then create the same streams, which
//! is harmless. Once the record says `complete`, nothing is created any more, except streams of
//! later builds: the record says up to which of them that is done.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use clawnode_cluster::clock::Backoff;
use clawnode_proto::{Partition, Position, limits::PARTITIONS_NATS};
use futures_util::{TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    api::{Api, RequestFailure},
    connect_error::{ConnectError, failed, not_ready},
    journal::expecting,
    options::{Birth, KnownCluster, NatsOptions, Replicas},
    spec::{ConsumerSpec, StreamSpec, TopologyError},
    stream::StreamReader,
    topology::{self, FORMAT},
};

/// The version of the set of streams. 0: those of the first build; 1: jobs as well; 2: births are
/// apart from the bucket, and no message can replace all of either.
const STREAMS: u32 = 2;
/// Which of them brought jobs.
const WITH_JOBS: u32 = 1;
/// Consumers that are created at the same time; more only queue at the server.
const CREATED_AT_ONCE: usize = 16;

/// The facts of the cluster's birth that a connection needs.
#[derive(Clone, Debug)]
pub(super) struct BirthFacts {
    pub(super) replicas: u8,
    pub(super) partitions: u16,
    /// Which cluster it is; none if it was born before there were ids.
    pub(super) cluster: Option<String>,
}

/// How the cluster was born, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BirthRecord {
    format: u32,
    partitions: u16,
    /// A name that no other cluster has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// Whether all streams and consumers were created.
    complete: bool,
    /// Which streams that means, as [`STREAMS`] counts.
    #[serde(default)]
    streams: u32,
}

/// Why one try failed; it is tried again if waiting may help.
enum BirthFailure {
    Failure(RequestFailure),
    Topology(TopologyError),
}

/// The node that creates the cluster, and until when it tries again while servers start or elect.
struct Midwife<'a> {
    api: &'a Api,
    options: &'a NatsOptions,
    deadline: Instant,
}

/// Creates what is missing if the cluster is not complete, else checks it.
pub(super) async fn be_born(api: &Api, options: &NatsOptions) -> Result<BirthFacts, ConnectError> {
    let midwife = Midwife { api, options, deadline: Instant::now() + options.ready_timeout };
    let replicas = midwife.replicas().await?;
    let bucket = topology::bucket(&options.prefix, replicas);
    let birth = topology::birth(&options.prefix, replicas);
    let may_create = options.birth != Birth::Never;
    if may_create {
        midwife.create_bucket(&bucket).await?;
        midwife.create(&birth).await?;
    } else if midwife.existing(&bucket).await?.is_none() {
        return Err(midwife.unborn("it has no streams"));
    } else if !midwife.is_apart(&birth).await? {
        return Err(midwife.outdated());
    }
    let reader = async |name: String| {
        let reader = StreamReader::new(api.clone(), name).await;
        reader.map_err(|failure| failed(options, failure))
    };
    let (reader, former) = (reader(birth.name).await?, reader(bucket.name.clone()).await?);
    let found = if may_create {
        Some(midwife.record(&reader, &former).await?)
    } else {
        midwife.found(&reader).await?
    };
    let Some((record, position)) = found else {
        return Err(midwife.unborn("it has no record of its creation"));
    };
    let born =
        BirthFacts { replicas, partitions: record.partitions, cluster: record.cluster.clone() };
    midwife.check_cluster(&born)?;
    if !record.complete && !may_create {
        return Err(midwife.unborn("its creation is not complete"));
    }
    let is_current = record.streams >= STREAMS;
    if record.complete && options.birth != Birth::Mend {
        if !is_current && !may_create {
            return Err(midwife.outdated());
        }
        midwife.check(&bucket).await?;
        midwife.check_all(&born).await?;
        midwife.add_jobs(&born, record.streams >= WITH_JOBS).await?;
    } else {
        info!(prefix = %options.prefix, ?born, "creating the streams of a cluster");
        midwife.create_all(&born).await?;
    }
    // With logins, nodes may not create streams, and are configured not to try.
    if may_create {
        midwife.update(&topology::jobs(&options.prefix, born.replicas)).await;
    }
    if !record.complete || !is_current {
        let streams = record.streams.max(STREAMS);
        let complete = encode(&BirthRecord { complete: true, streams, ..record })?;
        let done = midwife.store(position, &complete).await?;
        debug!(by_us = done.is_some(), "the cluster is created");
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
                        "`{}` exists, but `{}`, which records how the cluster was made, is missing",
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
        self.patiently(|| async { spec.replicas(self.api).await.map_err(BirthFailure::Failure) })
            .await
    }

    /// Creates the bucket. A bucket of an older build has the record of the birth in it, and any
    /// user that may write to it can replace everything: that is changed first.
    async fn create_bucket(&self, bucket: &StreamSpec) -> Result<(), ConnectError> {
        let birth = self.options.prefix.birth();
        if self.existing(bucket).await?.is_some() {
            let has =
                || async { bucket.has(self.api, &birth).await.map_err(BirthFailure::Failure) };
            if self.patiently(has).await? {
                info!(stream = bucket.name, "bringing a cluster of an older build up to date");
                return self
                    .patiently(|| async {
                        bucket.remake(self.api).await.map_err(BirthFailure::Topology)
                    })
                    .await;
            }
        }
        self.create(bucket).await
    }

    /// Whether the record of the birth has a stream of its own that this user may read.
    async fn is_apart(&self, birth: &StreamSpec) -> Result<bool, ConnectError> {
        match self.existing(birth).await {
            Ok(found) => Ok(found.is_some()),
            // With logins it may be that the servers do not know yet that this user may.
            Err(ConnectError::Failed { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The record of the birth, and where it is. If there is none, it is made: from the bucket,
    /// where older builds wrote it, from what the operator knows, or as a new birth.
    async fn record(
        &self,
        reader: &StreamReader,
        former: &StreamReader,
    ) -> Result<(BirthRecord, Position), ConnectError> {
        if let Some(found) = self.found(reader).await? {
            return Ok(found);
        }
        let wanted = match self.found(former).await? {
            Some((former, _)) => former,
            None => self.fresh().await?,
        };
        if let Some(position) = self.store(Position(0), &encode(&wanted)?).await? {
            return Ok((wanted, position));
        }
        let subject = self.options.prefix.birth();
        let vanished = || failed(self.options, format!("`{subject}` vanished from its stream"));
        self.found(reader).await?.ok_or_else(vanished)
    }

    /// Makes a birth record if there is none. If there are sessions, the cluster was born before.
    async fn fresh(&self) -> Result<BirthRecord, ConnectError> {
        let (_, _, [journal, ..]) = topology::streams(&self.options.prefix, 1);
        let known = match &self.options.known {
            Some(known) if self.existing(&journal).await?.is_some() => Some(known.clone()),
            _ => None,
        };
        if let Some(KnownCluster { cluster, partitions }) = &known {
            info!(cluster, partitions, "the creation record was missing; writing it again");
        }
        let partitions = self.options.partitions.unwrap_or(PARTITIONS_NATS);
        Ok(BirthRecord {
            format: FORMAT,
            partitions: known.as_ref().map_or(partitions, |known| known.partitions),
            cluster: Some(
                known.map_or_else(|| ulid::Ulid::generate().to_string(), |known| known.cluster),
            ),
            complete: false,
            streams: STREAMS,
        })
    }

    /// The record of the birth, if there is one.
    async fn found(
        &self,
        reader: &StreamReader,
    ) -> Result<Option<(BirthRecord, Position)>, ConnectError> {
        let subject = self.options.prefix.birth();
        let stored = self
            .patiently(|| async { reader.last(&subject).await.map_err(BirthFailure::Failure) })
            .await?;
        let Some(stored) = stored else { return Ok(None) };
        let record: BirthRecord = serde_json::from_slice(&stored.payload).map_err(|error| {
            failed(self.options, format!("`{subject}` is not readable: {error}"))
        })?;
        if record.format != FORMAT {
            return Err(ConnectError::Format { found: record.format });
        }
        match self.options.partitions {
            Some(configured) if configured != record.partitions => {
                Err(ConnectError::Partitions { born: record.partitions, configured })
            }
            _ => Ok(Some((record, Position(stored.sequence)))),
        }
    }

    fn unborn(&self, detail: &str) -> ConnectError {
        ConnectError::Unborn {
            urls: self.options.shown_urls(),
            prefix: self.options.prefix.to_string(),
            detail: detail.to_owned(),
        }
    }

    fn outdated(&self) -> ConnectError {
        ConnectError::Outdated { urls: self.options.shown_urls() }
    }

    /// Creates the stream of jobs of a cluster that was born before there were jobs. Where it is
    /// known to have been created it is checked and no more, as all other streams.
    async fn add_jobs(&self, born: &BirthFacts, is_there: bool) -> Result<(), ConnectError> {
        let jobs = topology::jobs(&self.options.prefix, born.replicas);
        if is_there {
            return self.check(&jobs).await;
        }
        info!(stream = jobs.name, "bringing a cluster of an older build up to date");
        self.create(&jobs).await.map_err(|error| match error {
            // With logins it may be that the servers do not know yet that this user may.
            ConnectError::Failed { .. } => self.outdated(),
            other => other,
        })
    }

    /// Gives a stream of an older build the settings that it lacks. Without them the cluster works,
    /// so a user that may not change it only gets a warning.
    async fn update(&self, spec: &StreamSpec) {
        match spec.update(self.api).await {
            Ok(false) => {}
            Ok(true) => info!(stream = spec.name, "a stream has the settings of this build now"),
            Err(failure) => warn!(
                stream = spec.name, %failure,
                "a stream of an older build lacks settings; its operator brings it up to date with \
                 `clawnode cluster push`"
            ),
        }
    }

    /// Refuses another cluster than the one that is expected.
    fn check_cluster(&self, born: &BirthFacts) -> Result<(), ConnectError> {
        match (&self.options.cluster, &born.cluster) {
            (Some(expected), found) if found.as_ref() != Some(expected) => {
                Err(ConnectError::OtherCluster {
                    urls: self.options.shown_urls(),
                    found: found.clone().unwrap_or_else(|| "one without a name".to_owned()),
                    expected: expected.clone(),
                })
            }
            _ => Ok(()),
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
                Err(failure) => Err(BirthFailure::Failure(failure)),
            }
        })
        .await
    }

    async fn create_all(&self, born: &BirthFacts) -> Result<(), ConnectError> {
        let (timers, due, others) = topology::streams(&self.options.prefix, born.replicas);
        self.create(&timers).await?;
        self.create_consumer(&due).await?;
        for spec in &others {
            self.create(spec).await?;
        }
        self.create(&topology::jobs(&self.options.prefix, born.replicas)).await?;
        stream::iter((0..born.partitions).map(Ok))
            .try_for_each_concurrent(CREATED_AT_ONCE, |partition| async move {
                let (prefix, ack_wait) = (&self.options.prefix, self.options.ack_wait);
                let partition = Partition(partition);
                self.create_consumer(&topology::partition_consumer(prefix, partition, ack_wait))
                    .await
            })
            .await
    }

    /// Checks the streams of the first build; the worker that pulls a partition checks its consumer.
    async fn check_all(&self, born: &BirthFacts) -> Result<(), ConnectError> {
        let (timers, due, others) = topology::streams(&self.options.prefix, born.replicas);
        for spec in std::iter::once(&timers).chain(&others) {
            self.check(spec).await?;
        }
        self.patiently(|| async { due.check(self.api).await.map_err(BirthFailure::Topology) }).await
    }

    async fn check(&self, spec: &StreamSpec) -> Result<(), ConnectError> {
        self.patiently(|| async { spec.check(self.api).await.map_err(BirthFailure::Topology) })
            .await
    }

    async fn create(&self, spec: &StreamSpec) -> Result<(), ConnectError> {
        self.patiently(|| async { spec.create(self.api).await.map_err(BirthFailure::Topology) })
            .await
    }

    async fn create_consumer(&self, spec: &ConsumerSpec) -> Result<(), ConnectError> {
        self.patiently(|| async { spec.create(self.api).await.map_err(BirthFailure::Topology) })
            .await
    }

    /// Tries until the deadline, as long as time may help.
    async fn patiently<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, ConnectError>
    where
        F: Future<Output = Result<T, BirthFailure>>,
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

// === impl BirthFailure ===

impl BirthFailure {
    fn failure(&self) -> Option<&RequestFailure> {
        match self {
            Self::Failure(failure) | Self::Topology(TopologyError::Failed { failure, .. }) => {
                Some(failure)
            }
            Self::Topology(TopologyError::Different { .. }) => None,
        }
    }

    fn is_transient(&self) -> bool {
        self.failure().is_some_and(RequestFailure::is_transient)
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
            Some(failure) if failure.is_transient() => not_ready(options, detail),
            Some(_) => failed(options, detail),
        }
    }
}

fn encode(record: &BirthRecord) -> Result<Bytes, ConnectError> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| ConnectError::Options(error.to_string()))
}

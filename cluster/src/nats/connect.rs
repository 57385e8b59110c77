//! From options to a substrate, with errors that say what to do.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, jetstream::ContextBuilder};
use clawnode_proto::{
    Partition, Position,
    limits::{PARTITIONS_MAX, PARTITIONS_NATS},
};
use futures_util::{TryStreamExt, stream};
use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{
    api::Api,
    blobs::NatsBlobs,
    bucket::NatsBucket,
    bus::NatsBus,
    health::{NatsHealth, Seen},
    inbox::NatsInbox,
    journal::NatsJournal,
    options::{NatsOptions, Replicas},
    signals::{Forgotten, Signals},
    stream::Reader,
    timers::NatsTimers,
    topology::{self, Names, StreamSpec, TopologyError},
};
use crate::{Bucket, BucketError, Substrate, clock::Backoff};

/// The oldest server with all that this needs: message schedules into sourced streams with durable
/// consumers, and prioritized pulls.
const OLDEST_SERVER: (i64, i64, i64) = (2, 15, 0);
/// How the cluster was born, in the bucket.
const BIRTH_KEY: &str = "cluster.topology";
/// The layout of streams and subjects that this build knows.
const FORMAT: u32 = 1;
/// Consumers that are created at the same time; more only queue at the server.
const CREATED_AT_ONCE: usize = 16;
/// How long giving birth may take in all; three servers need a few seconds for 256 consumers.
const BIRTH_TIMEOUT: Duration = Duration::from_mins(2);
/// How often the client asks the server for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// The longest wait between two tries to reconnect.
const RECONNECT_MOST: Duration = Duration::from_secs(2);

/// Why there is no substrate.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An option that can't be.
    #[error("{0}")]
    Options(String),
    /// The credentials file can't be used.
    #[error("cannot read NATS credentials from `{path}`: {source}")]
    Credentials {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody answers there.
    #[error(
        "cannot reach NATS at `{urls}`: {detail}; start it (`nats-server -js`), or correct the URL"
    )]
    Unreachable {
        /// Where.
        urls: String,
        /// What was seen.
        detail: String,
    },
    /// It does not let us in.
    #[error("NATS at `{urls}` refused the login: {detail}; check the credentials file and the URL")]
    Login {
        /// Where.
        urls: String,
        /// What was seen.
        detail: String,
    },
    /// It is too old.
    #[error("NATS at `{urls}` is version `{found}`, but 2.15.0 or newer is needed; upgrade it")]
    TooOld {
        /// Where.
        urls: String,
        /// Its version.
        found: String,
    },
    /// It keeps nothing.
    #[error(
        "NATS at `{urls}` has JetStream off: {detail}; start it with `-js`, or put `jetstream {{ store_dir: \"...\" }}` in its configuration and enable it for the account"
    )]
    NoJetStream {
        /// Where.
        urls: String,
        /// What was seen.
        detail: String,
    },
    /// The cluster was born with another number of partitions.
    #[error(
        "the cluster was born with {born} partitions, but {configured} are configured; the number can't change: configure {born}, or another prefix for a new cluster"
    )]
    Partitions {
        /// What is so.
        born: u16,
        /// What is configured.
        configured: u16,
    },
    /// The cluster was born by a newer program.
    #[error("the cluster has format {found}, but this build knows {FORMAT}; use a newer build")]
    Format {
        /// What is so.
        found: u32,
    },
    /// Three replicas can't be placed.
    #[error(
        "cannot store on three servers: {detail}; start three servers with JetStream, or configure one replica"
    )]
    Replicas {
        /// What was seen.
        detail: String,
    },
    /// A stream or consumer is not as it must be.
    #[error(
        "{detail}; correct it with the `nats` tool, or configure another prefix for a new cluster"
    )]
    Topology {
        /// Which, and how.
        detail: String,
    },
    /// NATS is there but does not do what is needed.
    #[error("NATS at `{urls}` failed: {detail}; try again, and look at its log if that fails too")]
    Failed {
        /// Where.
        urls: String,
        /// What was seen.
        detail: String,
    },
}

/// How the cluster was born.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Birth {
    format: u32,
    partitions: u16,
    /// Whether all streams and consumers were created.
    complete: bool,
}

/// Opens the substrate at these servers, and gives birth to the cluster if there is none. Fails
/// after `connect_timeout` if nobody answers; once it returned, it reconnects for ever.
pub async fn connect(options: NatsOptions) -> Result<Substrate, ConnectError> {
    check(&options)?;
    let api = reach(&options).await?;
    let born = async {
        wait_for_jetstream(&api, &options).await?;
        let replicas = replicas(&api, &options).await?;
        let birth = be_born(&api, &options, replicas).await?;
        Ok((replicas, birth))
    };
    let (replicas, birth) = match tokio::time::timeout(BIRTH_TIMEOUT, born).await {
        Ok(born) => born?,
        Err(elapsed) => return Err(failed(&options, elapsed)),
    };
    assemble(api, options, replicas, birth.partitions).await
}

fn check(options: &NatsOptions) -> Result<(), ConnectError> {
    if options.urls.is_empty() {
        return Err(ConnectError::Options("no NATS URL is configured".to_owned()));
    }
    match options.partitions {
        Some(count) if count == 0 || count > PARTITIONS_MAX => Err(ConnectError::Options(format!(
            "{count} partitions are configured, but it must be 1 to {PARTITIONS_MAX}"
        ))),
        _ => Ok(()),
    }
}

/// Connects, and checks the server's version.
async fn reach(options: &NatsOptions) -> Result<Api, ConnectError> {
    let signals = Signals::new();
    let client = client(options, Arc::clone(&signals)).await?;
    let (major, minor, patch) = OLDEST_SERVER;
    if !client.is_server_compatible(major, minor, patch) {
        let found = client.server_info().version;
        return Err(ConnectError::TooOld { urls: options.shown_urls(), found });
    }
    let context = ContextBuilder::new().timeout(options.request_timeout).build(client.clone());
    Ok(Api {
        client,
        context,
        signals,
        closing: CancellationToken::new(),
        timeout: options.request_timeout,
    })
}

async fn client(options: &NatsOptions, signals: Arc<Signals>) -> Result<Client, ConnectError> {
    let mut how = ConnectOptions::new();
    if let Some(path) = &options.credentials {
        how = how
            .credentials_file(path)
            .await
            .map_err(|source| ConnectError::Credentials { path: path.clone(), source })?;
    }
    let how = how
        .name("clawnode")
        .connection_timeout(options.connect_timeout)
        .request_timeout(Some(options.request_timeout))
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            let signals = Arc::clone(&signals);
            async move { signals.take(event) }
        });
    let urls = options.shown_urls();
    match tokio::time::timeout(options.connect_timeout, how.connect(&options.urls)).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => {
            let detail = error.to_string();
            Err(match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    ConnectError::Login { urls, detail }
                }
                _ => ConnectError::Unreachable { urls, detail },
            })
        }
        Err(_) => Err(ConnectError::Unreachable {
            urls,
            detail: format!("no answer within {:?}", options.connect_timeout),
        }),
    }
}

fn reconnect_delay(tries: usize) -> Duration {
    let most = RECONNECT_MOST.min(Duration::from_millis(50) * (1 << tries.min(10)));
    most.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Waits until `JetStream` answers: a server that starts, or elects, needs a moment.
async fn wait_for_jetstream(api: &Api, options: &NatsOptions) -> Result<(), ConnectError> {
    let deadline = Instant::now() + options.connect_timeout;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    loop {
        let asked = api.ask::<serde_json::Value>("INFO", &json!({})).await;
        let Err(failure) = asked else { return Ok(()) };
        let urls = options.shown_urls();
        let is_off = failure.is_not_enabled() || !api.client.server_info().jetstream;
        if is_off {
            return Err(ConnectError::NoJetStream { urls, detail: failure.to_string() });
        }
        if !failure.is_transient() || Instant::now() >= deadline {
            return Err(ConnectError::Failed { urls, detail: failure.to_string() });
        }
        debug!(%failure, "JetStream is not ready");
        let pause = backoff.next(&mut rand::rng());
        tokio::time::sleep(pause).await;
    }
}

/// How many replicas there are, or are to be.
async fn replicas(api: &Api, options: &NatsOptions) -> Result<u8, ConnectError> {
    let wanted = match options.replicas {
        Replicas::One => Some(1),
        Replicas::Three => Some(3),
        Replicas::Auto => None,
    };
    let existing = topology::bucket(&options.prefix, 1).replicas(api).await;
    let is_clustered = api.client.server_info().cluster.is_some();
    Ok(match (existing.map_err(|failure| failed(options, failure))?, wanted) {
        // A difference is found when the streams are compared.
        (_, Some(wanted)) => wanted,
        (Some(existing), None) => existing,
        (None, None) if is_clustered => 3,
        (None, None) => 1,
    })
}

/// Creates what is missing if the cluster is not complete, else checks it.
async fn be_born(api: &Api, options: &NatsOptions, replicas: u8) -> Result<Birth, ConnectError> {
    let prefix = &options.prefix;
    create(api, options, &topology::bucket(prefix, replicas)).await?;
    let reader = Reader::new(api.clone(), Names::new(prefix).bucket)
        .await
        .map_err(|failure| failed(options, failure))?;
    let bucket = NatsBucket::new(api.clone(), prefix.clone(), reader);
    let (birth, position) = birth_record(&bucket, options).await?;
    let (timers, due, others) = topology::streams(prefix, replicas);
    if birth.complete {
        for spec in std::iter::once(&timers).chain(&others) {
            spec.check(api).await.map_err(|error| topology_error(options, error))?;
        }
        due.check(api).await.map_err(|error| topology_error(options, error))?;
        return Ok(birth);
    }
    info!(%prefix, partitions = birth.partitions, replicas, "a cluster is born");
    create(api, options, &timers).await?;
    due.create(api).await.map_err(|error| topology_error(options, error))?;
    for spec in &others {
        create(api, options, spec).await?;
    }
    stream::iter((0..birth.partitions).map(Ok))
        .try_for_each_concurrent(CREATED_AT_ONCE, |partition| async move {
            topology::partition_consumer(prefix, Partition(partition), options.ack_wait)
                .create(api)
                .await
        })
        .await
        .map_err(|error| topology_error(options, error))?;
    let birth = Birth { complete: true, ..birth };
    match bucket.put(BIRTH_KEY, position, encode(birth)?.into(), None).await {
        // Another node completed it at the same time.
        Ok(_) | Err(BucketError::Conflict { .. }) => Ok(birth),
        Err(error) => Err(failed(options, error)),
    }
}

/// The record of the birth; made if there is none.
async fn birth_record(
    bucket: &NatsBucket,
    options: &NatsOptions,
) -> Result<(Birth, Position), ConnectError> {
    let wanted = Birth {
        format: FORMAT,
        partitions: options.partitions.unwrap_or(PARTITIONS_NATS),
        complete: false,
    };
    match bucket.put(BIRTH_KEY, Position(0), encode(wanted)?.into(), None).await {
        Ok(position) => return Ok((wanted, position)),
        Err(BucketError::Conflict { .. }) => {}
        Err(error) => return Err(failed(options, error)),
    }
    let entry = bucket.get(BIRTH_KEY).await.map_err(|error| failed(options, error))?;
    let Some(entry) = entry else {
        return Err(failed(options, format!("`{BIRTH_KEY}` vanished from the bucket")));
    };
    let birth: Birth = serde_json::from_slice(&entry.value)
        .map_err(|error| failed(options, format!("`{BIRTH_KEY}` is not readable: {error}")))?;
    if birth.format != FORMAT {
        return Err(ConnectError::Format { found: birth.format });
    }
    match options.partitions {
        Some(configured) if configured != birth.partitions => {
            Err(ConnectError::Partitions { born: birth.partitions, configured })
        }
        _ => Ok((birth, entry.position)),
    }
}

fn encode(birth: Birth) -> Result<Vec<u8>, ConnectError> {
    serde_json::to_vec(&birth).map_err(|error| ConnectError::Options(error.to_string()))
}

async fn create(api: &Api, options: &NatsOptions, spec: &StreamSpec) -> Result<(), ConnectError> {
    spec.create(api).await.map_err(|error| match error {
        TopologyError::Failed { failure, .. }
            if failure.is_no_peers() || failure.is_replicas_not_supported() =>
        {
            ConnectError::Replicas { detail: failure.to_string() }
        }
        error => topology_error(options, error),
    })
}

fn topology_error(options: &NatsOptions, error: TopologyError) -> ConnectError {
    match error {
        TopologyError::Different { .. } => ConnectError::Topology { detail: error.to_string() },
        TopologyError::Failed { .. } => failed(options, error),
    }
}

fn failed(options: &NatsOptions, detail: impl std::fmt::Display) -> ConnectError {
    ConnectError::Failed { urls: options.shown_urls(), detail: detail.to_string() }
}

/// Puts the doors together.
async fn assemble(
    api: Api,
    options: NatsOptions,
    replicas: u8,
    partitions: u16,
) -> Result<Substrate, ConnectError> {
    let names = Names::new(&options.prefix);
    let prefix = options.prefix.clone();
    let reader = async |name: String| {
        Reader::new(api.clone(), name).await.map_err(|failure| failed(&options, failure))
    };
    let elections = api
        .client
        .subscribe(format!("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.{}.*", names.inbox))
        .await
        .map_err(|error| failed(&options, error))?;
    let forgotten = Forgotten::watch(&api.signals, partitions, elections, api.closing.clone());
    let seen = Seen { urls: options.shown_urls(), replicas, journal: names.journal.clone() };
    Ok(Substrate {
        journal: Arc::new(NatsJournal::new(
            api.clone(),
            prefix.clone(),
            partitions,
            reader(names.journal).await?,
        )),
        inbox: Arc::new(NatsInbox::new(
            api.clone(),
            prefix.clone(),
            partitions,
            options.ack_wait,
            reader(names.inbox).await?,
            forgotten,
        )),
        bus: Arc::new(NatsBus::new(api.clone())),
        bucket: Arc::new(NatsBucket::new(api.clone(), prefix.clone(), reader(names.bucket).await?)),
        timers: Arc::new(NatsTimers::new(
            api.clone(),
            prefix.clone(),
            partitions,
            reader(names.timers).await?,
        )),
        blobs: Arc::new(NatsBlobs::new(api.clone(), prefix.clone(), reader(names.blobs).await?)),
        health: Arc::new(NatsHealth::new(api.clone(), seen)),
        prefix,
        partitions,
        shared: true,
    })
}

//! From options to a substrate, with errors that say what to do.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, jetstream::ContextBuilder};
use clawnode_proto::limits::PARTITIONS_MAX;
use rand::Rng;
use serde_json::json;
use tokio::{sync::broadcast, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    api::Api,
    birth::{self, Born, FORMAT},
    blobs::NatsBlobs,
    bucket::NatsBucket,
    bus::NatsBus,
    health::{NatsHealth, Seen},
    inbox::NatsInbox,
    journal::NatsJournal,
    options::{Login, NatsOptions},
    parting,
    signals::{Forgotten, Signals},
    stream::Reader,
    timers::NatsTimers,
    topology::Names,
};
use crate::{Substrate, clock::Backoff};

/// The oldest server with all that this needs: message schedules into sourced streams with durable
/// consumers, and prioritized pulls.
const OLDEST_SERVER: (i64, i64, i64) = (2, 15, 0);
/// How long giving birth may take in all; three servers need a few seconds for 256 consumers.
const BIRTH_TIMEOUT: Duration = Duration::from_mins(2);
/// How often the client asks the server for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Partings that wait to be heard; older ones are found by asking.
const PARTINGS_KEPT: usize = 256;
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

/// Opens the substrate at these servers, and gives birth to the cluster if there is none. Fails
/// after `connect_timeout` if nobody answers; once it returned, it reconnects for ever.
pub async fn connect(options: NatsOptions) -> Result<Substrate, ConnectError> {
    check(&options)?;
    let api = reach(&options).await?;
    let born = async {
        wait_for_jetstream(&api, &options).await?;
        birth::be_born(&api, &options).await
    };
    match tokio::time::timeout(BIRTH_TIMEOUT, born).await {
        Ok(born) => assemble(api, options, born?).await,
        Err(elapsed) => Err(failed(&options, elapsed)),
    }
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
    let partings = options.sys_credentials.as_ref().map(|_| broadcast::Sender::new(PARTINGS_KEPT));
    let signals = Signals::new(partings.clone());
    let name = options.process.map_or_else(|| "clawnode".to_owned(), |it| it.to_string());
    let client = connected(
        options,
        (options.login(), options.credentials.as_deref()),
        (name.clone(), &signals),
    )
    .await?;
    let (major, minor, patch) = OLDEST_SERVER;
    if !client.is_server_compatible(major, minor, patch) {
        let found = client.server_info().version;
        return Err(ConnectError::TooOld { urls: options.shown_urls(), found });
    }
    let closing = CancellationToken::new();
    if let (Some(path), Some(partings)) = (&options.sys_credentials, partings) {
        // Its own comings and goings mean nothing here.
        let name = format!("{name}.sys");
        let login = (None, Some(path.as_path()));
        let sys = connected(options, login, (name, &Signals::new(None))).await?;
        parting::watch(sys, partings, closing.clone()).await.map_err(|it| failed(options, it))?;
    }
    let context = ContextBuilder::new().timeout(options.request_timeout).build(client.clone());
    Ok(Api { client, context, signals, closing, timeout: options.request_timeout })
}

async fn connected(
    options: &NatsOptions,
    (login, credentials): (Option<Login>, Option<&Path>),
    (name, signals): (String, &Arc<Signals>),
) -> Result<Client, ConnectError> {
    let signals = Arc::clone(signals);
    let mut how = match login {
        Some(Login::User(user, password)) => ConnectOptions::with_user_and_password(user, password),
        Some(Login::Token(token)) => ConnectOptions::with_token(token),
        None => ConnectOptions::new(),
    };
    if let Some(path) = credentials {
        how = how
            .credentials_file(path)
            .await
            .map_err(|source| ConnectError::Credentials { path: path.to_owned(), source })?;
    }
    let how = how
        .name(name)
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

pub(super) fn failed(options: &NatsOptions, detail: impl std::fmt::Display) -> ConnectError {
    ConnectError::Failed { urls: options.shown_urls(), detail: detail.to_string() }
}

/// Puts the doors together.
async fn assemble(
    api: Api,
    options: NatsOptions,
    Born { replicas, partitions }: Born,
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
    let seen = Seen {
        urls: options.shown_urls(),
        replicas,
        journal: names.journal.clone(),
        streams: names.all(),
    };
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

//! From options to a storage backend, with errors that say what to do.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, jetstream::ContextBuilder};
use clawnode_cluster::{Clock, Storage, SystemClock, clock::Backoff};
use clawnode_proto::{ErrorChain, limits::PARTITIONS_MAX};
use futures_util::future::BoxFuture;
use rand::Rng;
use serde_json::json;
use tokio::{sync::broadcast, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{
    api::Api,
    auth::Credential,
    blobs::NatsBlobs,
    bucket::NatsBucket,
    bus::NatsBus,
    cluster_creation::{self, BirthFacts},
    connect_error::{ConnectError, failed, not_ready},
    disconnects,
    health::{ConnectReport, NatsHealth},
    inbox::NatsInbox,
    jobs::NatsJobs,
    journal::NatsJournal,
    options::{Login, NatsOptions},
    signals::ConnectionSignals,
    stream::StreamReader,
    timers::NatsTimers,
    topology::StreamNames,
};

/// The oldest server with all that this needs: message schedules into sourced streams with durable
/// consumers, and prioritized pulls; and the one that all of it was tried on.
const OLDEST_SERVER: [u64; 3] = [2, 15, 1];
/// The longest part of a server's version that is shown.
const VERSION_SHOWN: usize = 40;
/// How long creating a cluster may take in all; three servers need a few seconds for 256 consumers.
const BIRTH_TIMEOUT: Duration = Duration::from_mins(2);
/// How many times a connection is tried that ends without a word.
const CONNECT_TRIES: u32 = 3;
/// How long before the next of these tries.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How often the client asks the server for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Partings that wait to be heard; older ones are found by asking.
const PARTINGS_KEPT: usize = 256;
/// The longest wait between two tries to reconnect.
const RECONNECT_MOST: Duration = Duration::from_secs(2);

/// Connects to these servers, and creates the cluster if there is none. Fails after
/// `connect_timeout` if no server answers, and after `ready_timeout` if the servers are not ready.
/// Once it has returned, the connection reconnects for ever.
pub fn connect(options: NatsOptions) -> BoxFuture<'static, Result<Storage, ConnectError>> {
    // Boxed here, so that the crates that await it do not compile it once more.
    Box::pin(async move {
        check(&options)?;
        let api = reach(&options).await?;
        let born = async {
            wait_for_jetstream(&api, &options).await?;
            cluster_creation::be_born(&api, &options).await
        };
        match tokio::time::timeout(BIRTH_TIMEOUT, born).await {
            Ok(born) => assemble(api, options, born?).await,
            Err(elapsed) => Err(failed(&options, elapsed)),
        }
    })
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
pub(super) async fn reach(options: &NatsOptions) -> Result<Api, ConnectError> {
    let partings = options.sys_credentials.as_ref().map(|_| broadcast::Sender::new(PARTINGS_KEPT));
    let signals = ConnectionSignals::new(partings.clone());
    let client = client(options, Arc::clone(&signals)).await?;
    let found = client.server_info().version;
    if version(&found).is_none_or(|version| version < OLDEST_SERVER) {
        let found = found.chars().filter(|c| !c.is_control()).take(VERSION_SHOWN).collect();
        return Err(ConnectError::TooOld { urls: options.shown_urls(), found });
    }
    let closing = CancellationToken::new();
    if let (Some(path), Some(partings)) = (&options.sys_credentials, partings) {
        let sys = NatsOptions {
            credentials: Some(path.clone()),
            credential: None,
            process: None,
            ..options.clone()
        };
        // Its own comings and goings mean nothing here. Boxed, because a node has it rarely.
        let sys = Box::pin(self::client(&sys, ConnectionSignals::new(None))).await?;
        disconnects::watch(sys, partings, closing.clone())
            .await
            .map_err(|failure| failed(options, failure))?;
    }
    let context = ContextBuilder::new().timeout(options.request_timeout).build(client.clone());
    Ok(Api { client, context, signals, closing, timeout: options.request_timeout })
}

/// A task that ends when its owner is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The numbers of a version such as `2.15.1` or `2.16.0-RC.1`.
fn version(text: &str) -> Option<[u64; 3]> {
    let numbers = text.split(['-', '+']).next()?;
    let mut parts = numbers.splitn(3, '.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// The credential to log in with, if it is a key.
fn credential(options: &NatsOptions) -> Result<Option<Credential>, ConnectError> {
    if options.credential.is_some() {
        return Ok(options.credential.clone());
    }
    let Some(path) = &options.credentials else { return Ok(None) };
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConnectError::Credentials { path: path.clone(), source })?;
    match Credential::from_creds(&text) {
        Ok(credential) => Ok(Some(credential)),
        Err(error) => Err(ConnectError::NoCredentials {
            path: path.clone(),
            detail: ErrorChain(&error).to_string(),
        }),
    }
}

/// Connects as the options say.
pub(super) async fn client(
    options: &NatsOptions,
    signals: Arc<ConnectionSignals>,
) -> Result<Client, ConnectError> {
    let credential = credential(options)?;
    let mut how = match options.login().filter(|_| credential.is_none()) {
        Some(Login::User(user, password)) => ConnectOptions::with_user_and_password(user, password),
        Some(Login::Token(token)) => ConnectOptions::with_token(token),
        None => ConnectOptions::new(),
    };
    if let Some(credential) = credential {
        how = how
            .credentials(&credential.to_creds())
            .map_err(|error| ConnectError::Options(error.to_string()))?;
        if let Some(inbox) = credential.inbox() {
            how = how.custom_inbox_prefix(inbox);
        }
    }
    if let Some(ca) = &options.ca {
        how = how.add_root_certificates(ca.clone()).require_tls(true);
    }
    let how = how
        .name(options.process.map_or_else(|| "clawnode".to_owned(), |process| process.to_string()))
        .connection_timeout(options.connect_timeout)
        .request_timeout(Some(options.request_timeout))
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            let signals = Arc::clone(&signals);
            async move { signals.take(event) }
        });
    let urls = options.shown_urls();
    // A task of its own, because a server's message before the login can make the client panic.
    let servers = options.urls.clone();
    let mut connecting = AbortOnDrop(tokio::spawn(tries(how, servers)));
    match tokio::time::timeout(options.connect_timeout, &mut connecting.0).await {
        Ok(Ok(Ok(client))) => Ok(client),
        Ok(Err(_panic)) => Err(ConnectError::Unreachable {
            urls,
            detail: "what answers there is not a NATS server".to_owned(),
        }),
        Ok(Ok(Err(error))) => {
            let detail = error.to_string();
            Err(match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    refused_login(options, detail)
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

/// Connects. A connection that ends before the server's word got through (it may close one that it
/// refuses without waiting for that) says nothing, so it is tried again a few times.
async fn tries(
    how: ConnectOptions,
    servers: Vec<String>,
) -> Result<Client, async_nats::ConnectError> {
    for _ in 1..CONNECT_TRIES {
        match how.clone().connect(&servers).await {
            Err(error) if error.kind() == ConnectErrorKind::Io => {
                debug!(%error, "the connection ended early");
                tokio::time::sleep(RETRY_AFTER).await;
            }
            done => return done,
        }
    }
    how.connect(servers).await
}

/// Why the login was refused, as far as the credential shows. Only the server knows: this host's
/// clock may be wrong.
fn refused_login(options: &NatsOptions, detail: String) -> ConnectError {
    let now = SystemClock.now().0 / 1_000;
    match credential(options) {
        Ok(Some(ended)) if ended.is_expired(now) => {
            ConnectError::Expired { name: ended.name().to_owned() }
        }
        _ => ConnectError::Login { urls: options.shown_urls(), detail },
    }
}

fn reconnect_delay(tries: usize) -> Duration {
    let most = RECONNECT_MOST.min(Duration::from_millis(50) * (1 << tries.min(10)));
    most.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Waits until `JetStream` answers: a server that starts, or elects, needs a moment.
async fn wait_for_jetstream(api: &Api, options: &NatsOptions) -> Result<(), ConnectError> {
    let deadline = Instant::now() + options.ready_timeout;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    loop {
        let asked = api.ask::<serde_json::Value>("INFO", &json!({})).await;
        let Err(failure) = asked else { return Ok(()) };
        let urls = options.shown_urls();
        let is_off = failure.is_not_enabled() || !api.client.server_info().jetstream;
        if is_off {
            return Err(ConnectError::NoJetStream { urls, detail: failure.to_string() });
        }
        if !failure.is_transient() {
            return Err(failed(options, failure));
        }
        if Instant::now() >= deadline {
            return Err(not_ready(options, failure));
        }
        if backoff.tries() == 0 {
            let within = options.ready_timeout;
            info!(urls, %failure, ?within, "JetStream is not ready; trying again");
        }
        let pause = backoff.next(&mut rand::rng());
        tokio::time::sleep(pause).await;
    }
}

/// Puts the stores together.
async fn assemble(
    api: Api,
    options: NatsOptions,
    BirthFacts { replicas, partitions, cluster }: BirthFacts,
) -> Result<Storage, ConnectError> {
    let names = StreamNames::new(&options.prefix);
    let prefix = options.prefix.clone();
    let reader = async |name: String| {
        StreamReader::new(api.clone(), name).await.map_err(|failure| failed(&options, failure))
    };
    api.signals.look_after(api.client.clone(), api.closing.clone());
    let credential = credential(&options)?;
    let seen = ConnectReport {
        urls: options.shown_urls(),
        replicas,
        journal: names.journal.clone(),
        streams: names.all(),
        cluster,
        expires: credential.and_then(|credential| credential.expires()),
    };
    Ok(Storage {
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
        )),
        jobs: Arc::new(NatsJobs::new(
            api.clone(),
            prefix.clone(),
            options.ack_wait,
            reader(names.jobs).await?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_or_unknown() {
        for (text, found) in [
            ("2.15.1", Some([2, 15, 1])),
            ("2.16.0-RC.1", Some([2, 16, 0])),
            ("2.9.25", Some([2, 9, 25])),
            ("2.15", None),
            ("v2.15.1", None),
            ("", None),
            ("99999999999999999999.1.1", None),
            ("2.15.1.1", None),
        ] {
            assert_eq!(version(text), found, "{text}");
        }
        assert!([2, 15, 0] < OLDEST_SERVER);
    }
}

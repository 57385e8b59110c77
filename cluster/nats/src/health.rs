//! The health of the storage backend on NATS.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_cluster::{Clock, Health, Lost, SystemClock, Warning};
use clawnode_proto::{
    limits::MESSAGE_BYTES,
    overview::{BusView, StoreView},
};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tracing::debug;

use super::api::Api;

/// How long a readiness check waits for the journal's leader.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a look at the servers waits for one stream: people wait for the answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long closing waits for the server to have taken the last words.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long closing waits for the connection to have ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long before its end a credential is warned of.
const EXPIRY_NEAR: Duration = Duration::from_hours(14 * 24);
/// Bytes that a message may have for the largest input to fit: the user's message in its envelope.
const PAYLOAD_NEEDED: usize = MESSAGE_BYTES * 2;

/// The health of the connection and of its servers.
#[derive(Debug)]
pub(super) struct NatsHealth {
    api: Api,
    seen: ConnectReport,
}

/// Facts from the time of connecting.
#[derive(Debug)]
pub(super) struct ConnectReport {
    pub(super) urls: String,
    pub(super) replicas: u8,
    pub(super) journal: String,
    pub(super) streams: Vec<String>,
    /// The cluster's id; none if it was born before there were ids.
    pub(super) cluster: Option<String>,
    /// When our credential ends, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

/// A server's report about a stream.
#[derive(Debug, Deserialize)]
struct StreamInfo {
    config: StreamConfig,
    state: StreamState,
    cluster: Option<StreamCluster>,
}

#[derive(Debug, Deserialize)]
struct StreamConfig {
    #[serde(default)]
    num_replicas: u8,
}

#[derive(Debug, Deserialize)]
struct StreamState {
    #[serde(default)]
    messages: u64,
    #[serde(default)]
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct StreamCluster {
    leader: Option<String>,
    #[serde(default)]
    replicas: Vec<HealthFollower>,
}

#[derive(Debug, Deserialize)]
struct HealthFollower {
    #[serde(default)]
    current: bool,
    #[serde(default)]
    offline: bool,
    #[serde(default)]
    lag: u64,
}

// === impl NatsHealth ===

impl NatsHealth {
    pub(super) fn new(api: Api, seen: ConnectReport) -> Self {
        Self { api, seen }
    }

    async fn store(&self, name: &str) -> StoreView {
        let (subject, question) = (format!("STREAM.INFO.{name}"), json!({}));
        let asked = self.api.ask::<StreamInfo>(&subject, &question);
        let named = StoreView { name: name.to_owned(), ..StoreView::default() };
        match tokio::time::timeout(LOOK_TIMEOUT, asked).await {
            Ok(Ok(info)) => info.view(named),
            Ok(Err(failure)) => StoreView { problem: Some(failure.to_string()), ..named },
            Err(_) => {
                let problem = format!("no answer within {LOOK_TIMEOUT:?}");
                StoreView { problem: Some(problem), ..named }
            }
        }
    }
}

impl StreamInfo {
    fn view(self, named: StoreView) -> StoreView {
        let followers = self.cluster.as_ref().map_or(&[][..], |cluster| &cluster.replicas);
        let behind = followers.iter().filter(|replica| !replica.current || replica.offline).count();
        StoreView {
            replicas: self.config.num_replicas,
            behind: u8::try_from(behind).unwrap_or(u8::MAX),
            lag: followers.iter().map(|replica| replica.lag).max().unwrap_or_default(),
            records: self.state.messages,
            bytes: self.state.bytes,
            leader: self.cluster.and_then(|cluster| cluster.leader),
            ..named
        }
    }
}

#[async_trait]
impl Health for NatsHealth {
    fn describe(&self) -> String {
        let server = self.api.client.server_info();
        format!(
            "nats {} (server {}, {} {})",
            self.seen.urls,
            server.version,
            self.seen.replicas,
            if self.seen.replicas == 1 { "replica" } else { "replicas" },
        )
    }

    async fn ready(&self) -> Result<(), String> {
        let subject = format!("STREAM.INFO.{}", self.seen.journal);
        let question = json!({});
        let asked = self.api.ask::<serde_json::Value>(&subject, &question);
        match tokio::time::timeout(READY_TIMEOUT, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(format!("the journal's stream does not answer: {failure}")),
            Err(_) => Err(format!("the journal's stream does not answer within {READY_TIMEOUT:?}")),
        }
    }

    fn cluster(&self) -> Option<String> {
        self.seen.cluster.clone()
    }

    async fn lost(&self) -> Lost {
        self.api.signals.lost(&self.seen.urls).await
    }

    async fn warnings(&self) -> Vec<Warning> {
        let server = self.api.client.server_info();
        let mut warnings = Vec::new();
        if self.seen.replicas == 1 && server.cluster.is_some() {
            warnings.push(Warning {
                name: "bus.replicas".to_owned(),
                message: "the servers are a cluster, but each record is on one of them only"
                    .to_owned(),
                hint: format!(
                    "with three servers, run `nats stream edit --replicas 3` for {} and the other \
                     streams of this prefix",
                    self.seen.journal
                ),
            });
        }
        if server.max_payload < PAYLOAD_NEEDED {
            warnings.push(Warning {
                name: "bus.max_payload".to_owned(),
                message: format!(
                    "the server takes messages up to {} bytes, so user messages near their limit \
                     of {MESSAGE_BYTES} bytes are refused",
                    server.max_payload
                ),
                hint: "set `max_payload: 4MB` in the server's configuration".to_owned(),
            });
        }
        let foreign = self.api.signals.foreign();
        if foreign > 0 {
            warnings.push(Warning {
                name: "bus.foreign".to_owned(),
                message: format!(
                    "{foreign} messages among this cluster's records are not records: a user with \
                     a credential made the servers write answers there; clawnode skips them"
                ),
                hint: "see docs/stolen-credentials.md; end credentials that you do not trust with \
                       `clawnode cluster revoke`"
                    .to_owned(),
            });
        }
        let left = |end: u64| Duration::from_secs(end.saturating_sub(SystemClock.now().0 / 1_000));
        if let Some(left) = self.seen.expires.map(left).filter(|left| *left < EXPIRY_NEAR) {
            warnings.push(Warning {
                name: "bus.credential".to_owned(),
                message: format!(
                    "this node's credential ends in {} hours, and then it is refused",
                    left.as_secs() / 3_600
                ),
                hint: "make a join token (`clawnode cluster join-token`), and start the node with \
                       it once"
                    .to_owned(),
            });
        }
        warnings
    }

    async fn bus(&self) -> Option<BusView> {
        let server = self.api.client.server_info();
        let began = Instant::now();
        let stores = join_all(self.seen.streams.iter().map(|name| self.store(name))).await;
        let took = began.elapsed();
        let silent = || stores.iter().all(|store| store.problem.is_some()).then_some(took);
        let silent = self.api.signals.down_for().or_else(silent);
        let mut servers = server.connect_urls.clone();
        if servers.is_empty() {
            servers.push(format!("{}:{}", server.host, server.port));
        }
        servers.sort_unstable();
        Some(BusView {
            server: server.server_name.clone(),
            cluster: server.cluster.clone(),
            servers,
            answers_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            silent_ms: silent.map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
            stores,
        })
    }

    async fn close(&self) {
        if self.api.closing.is_cancelled() {
            return;
        }
        self.api.closing.cancel();
        // If a connection ends while more arrives, it is reset. A server that cannot write to it
        // drops all that it has not read yet, for example the last message of this process. So wait
        // for an answer first; a flush only waits for our socket.
        let taken = self.api.round_trip(LAST_WORDS);
        match tokio::time::timeout(LAST_WORDS, taken).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => debug!(%failure, "NATS may not have taken the last messages"),
            Err(_) => debug!("NATS did not take the last messages in time"),
        }
        let drained = async {
            self.api.client.drain().await.map_err(|error| error.to_string())?;
            self.api.signals.closed().await;
            Ok::<_, String>(())
        };
        match tokio::time::timeout(CLOSE_TIMEOUT, drained).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(error, "NATS connection was not drained"),
            Err(_) => debug!("NATS connection was not drained in time"),
        }
    }
}

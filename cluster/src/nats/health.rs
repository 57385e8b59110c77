//! How the substrate on NATS is doing.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_proto::limits::MESSAGE_BYTES;
use serde_json::json;
use tracing::debug;

use super::api::Api;
use crate::{Clock, Health, Lost, SystemClock, Warning};

/// How long a readiness check waits for the journal's leader.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long closing waits for what is under way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long before its end a credential is warned of.
const EXPIRY_NEAR: Duration = Duration::from_hours(14 * 24);
/// Bytes that a message may have for the largest input to fit: the user's message in its envelope.
const PAYLOAD_NEEDED: usize = MESSAGE_BYTES * 2;

/// The health of the connection and of what it leads to.
#[derive(Debug)]
pub(super) struct NatsHealth {
    api: Api,
    seen: Seen,
}

/// What was seen when connecting.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) urls: String,
    pub(super) replicas: u8,
    pub(super) journal: String,
    /// The cluster's id; none if it was born before there were ids.
    pub(super) cluster: Option<String>,
    /// When our credential ends, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

// === impl NatsHealth ===

impl NatsHealth {
    pub(super) fn new(api: Api, seen: Seen) -> Self {
        Self { api, seen }
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
        let mut warnings = vec![Warning {
            name: "bus.sync_interval".to_owned(),
            message: "a NATS server does not tell its clients whether it writes to disk before it \
                      acknowledges; with its default, a power cut loses what was acknowledged in \
                      the last two minutes"
                .to_owned(),
            hint: "make sure that every server has `sync_interval: always` in its `jetstream` \
                   block"
                .to_owned(),
        }];
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

    async fn close(&self) {
        if self.api.closing.is_cancelled() {
            return;
        }
        self.api.closing.cancel();
        let drained = async {
            self.api.client.flush().await.map_err(|error| error.to_string())?;
            self.api.client.drain().await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(CLOSE_TIMEOUT, drained).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(error, "NATS connection was not drained"),
            Err(_) => debug!("NATS connection was not drained in time"),
        }
    }
}

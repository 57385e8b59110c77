//! What the connection and the servers tell by themselves.
//!
//! A pull is forgotten by the server when the connection breaks and when its consumer gets another
//! leader. Both are events, so idle partitions need no heartbeats.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use async_nats::{ClientError, ConnectErrorKind, Event, ServerError};
use clawnode_proto::Partition;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Refused subjects that are remembered; older ones fall out.
const DENIED_KEPT: usize = 64;

/// Refusals in a row, without a connection in between, that end the hope for one: a server that
/// starts may know its accounts a moment late.
const REFUSALS: u32 = 5;

/// Where the servers tell that a consumer of this stream has another leader.
pub(super) fn elections(stream: &str) -> String {
    format!("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.{stream}.*")
}

/// What the connection tells.
#[derive(Debug)]
pub(super) struct Signals {
    connected: watch::Sender<u64>,
    denied: Mutex<VecDeque<String>>,
    refused: watch::Sender<u32>,
}

/// For each partition, how many times its pulls were forgotten.
#[derive(Debug)]
pub(super) struct Forgotten(Vec<watch::Sender<u64>>);

// === impl Signals ===

impl Signals {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            connected: watch::Sender::new(0),
            denied: Mutex::default(),
            refused: watch::Sender::new(0),
        })
    }

    /// Takes what the client tells.
    pub(super) fn take(&self, event: Event) {
        match event {
            Event::Connected => {
                info!("connected to NATS");
                self.refused.send_replace(0);
                self.connected.send_modify(|count| *count += 1);
            }
            Event::ServerError(ServerError::Other(text)) => {
                warn!(%text, "NATS server error");
                if let Some(subject) = denied_subject(&text) {
                    let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
                    if denied.len() == DENIED_KEPT {
                        denied.pop_front();
                    }
                    denied.push_back(subject.to_owned());
                }
            }
            event => {
                warn!(%event, "NATS connection");
                if matches!(&event, Event::ClientError(ClientError::Other(text)) if is_refusal(text))
                {
                    self.refused.send_modify(|count| *count += 1);
                }
            }
        }
    }

    /// Waits until the servers refuse this user for good: revoked, or its time is over.
    pub(super) async fn refused(&self) {
        let mut refused = self.refused.subscribe();
        if refused.wait_for(|count| *count >= REFUSALS).await.is_err() {
            std::future::pending().await
        }
    }

    /// Whether the server said that this user may not publish there. It says so apart from the
    /// publish, which itself only times out.
    pub(super) fn is_denied(&self, subject: &str) -> bool {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.iter().any(|known| known == subject)
    }
}

/// Whether a try to connect was refused because of who tried.
fn is_refusal(text: &str) -> bool {
    [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication]
        .iter()
        .any(|kind| text.contains(&kind.to_string()))
}

/// The subject in `Permissions Violation for Publish to "a.b"`.
fn denied_subject(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    lower.contains("permissions violation for publish").then(|| text.split('"').nth(1)).flatten()
}

// === impl Forgotten ===

impl Forgotten {
    /// Counts from now on, until `closing`.
    pub(super) fn watch(
        signals: &Signals,
        partitions: u16,
        mut elections: async_nats::Subscriber,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let all = Arc::new(Self((0..partitions).map(|_| watch::Sender::new(0)).collect()));
        let mut connected = signals.connected.subscribe();
        connected.mark_unchanged();
        let counters = Arc::clone(&all);
        tokio::spawn(closing.run_until_cancelled_owned(async move {
            loop {
                tokio::select! {
                    changed = connected.changed() => match changed {
                        Ok(()) => counters.0.iter().for_each(bump),
                        Err(_) => return,
                    },
                    election = elections.next() => match election {
                        Some(election) => {
                            if let Some(counter) = counters.of_consumer(&election.subject) {
                                bump(counter);
                            }
                        }
                        None => return,
                    },
                }
            }
        }));
        all
    }

    /// The counter of one partition.
    pub(super) fn of(&self, partition: Partition) -> Option<watch::Receiver<u64>> {
        self.0.get(usize::from(partition.0)).map(watch::Sender::subscribe)
    }

    /// The partition whose consumer's name ends this advisory's subject.
    fn of_consumer(&self, subject: &str) -> Option<&watch::Sender<u64>> {
        let name = subject.rsplit('.').next()?;
        self.0.get(super::topology::partition_of_consumer(name)?)
    }
}

fn bump(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_publish_is_remembered_by_its_subject() {
        let signals = Signals::new();
        for number in 0..=DENIED_KEPT {
            signals.take(Event::ServerError(ServerError::Other(format!(
                "Permissions Violation for Publish to \"cn.j.{number}\""
            ))));
        }
        signals.take(Event::ServerError(ServerError::Other(
            "Permissions Violation for Subscription to \"cn.x\"".to_owned(),
        )));
        assert!(signals.is_denied("cn.j.1"));
        assert!(!signals.is_denied("cn.j.0"), "the oldest falls out");
        assert!(!signals.is_denied("cn.x"));
    }
}

//! Events of the connection and the servers.
//!
//! The server forgets a pull when the connection breaks and when its consumer gets another leader.
//! Both are events, so idle partitions need no heartbeats.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, ClientError, ConnectErrorKind, Event, ServerError, client::FlushErrorKind,
};
use clawnode_cluster::{Lost, Peek};
use clawnode_proto::{Partition, ProcessId};
use futures_util::StreamExt;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Refused subjects that are remembered; older ones fall out.
const DENIED_KEPT: usize = 64;
/// Foreign messages that are remembered, so as to count each once; older ones are counted again.
const FOREIGN_KEPT: usize = 256;

/// Refusals in a row, without a connection in between, that end the hope for one: a server that
/// starts may know its accounts a moment late.
const REFUSALS: u32 = 5;

/// How often the client is seen to be alive.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The subject on which servers announce another leader of a consumer of this stream; `*` for any
/// of them.
pub(super) fn elections(stream: &str, consumer: &str) -> String {
    format!("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.{stream}.{consumer}")
}

/// The events of the connection.
#[derive(Debug)]
pub(super) struct ConnectionSignals {
    connected: watch::Sender<u64>,
    breaks: AtomicU64,
    /// Messages in our streams that clawnode did not write.
    foreign: Mutex<ForeignMessages>,
    denied: Mutex<VecDeque<String>>,
    partings: Option<broadcast::Sender<ProcessId>>,
    refused: watch::Sender<u32>,
    /// Since when there is no connection.
    down: Mutex<Option<Instant>>,
    broken: CancellationToken,
    closed: CancellationToken,
}

/// Messages in our streams that are not ours.
#[derive(Debug, Default)]
struct ForeignMessages {
    met: u64,
    /// The last ones, by subject and sequence: those that stay are read again and again.
    known: VecDeque<(String, u64)>,
}

/// For each partition, how many times its pulls were forgotten.
#[derive(Debug)]
pub(super) struct Forgotten(Vec<watch::Sender<u64>>);

// === impl ConnectionSignals ===

impl ConnectionSignals {
    /// The events of a connection, with lost connections of others if servers report them.
    pub(super) fn new(partings: Option<broadcast::Sender<ProcessId>>) -> Arc<Self> {
        Arc::new(Self {
            connected: watch::Sender::new(0),
            breaks: AtomicU64::new(0),
            foreign: Mutex::default(),
            denied: Mutex::default(),
            partings,
            refused: watch::Sender::new(0),
            down: Mutex::default(),
            broken: CancellationToken::new(),
            closed: CancellationToken::new(),
        })
    }

    /// For how long there is no connection.
    pub(super) fn down_for(&self) -> Option<Duration> {
        self.down().map(|since| since.elapsed())
    }

    fn down(&self) -> MutexGuard<'_, Option<Instant>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many times the connection broke, was made again, or was said to end soon.
    pub(super) fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Relaxed)
    }

    /// Counts a message that clawnode did not write, once. Logs it ever less often: a sender of one
    /// may send many.
    pub(super) fn met_foreign(&self, subject: &str, sequence: u64) {
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if foreign.known.iter().any(|(at, known)| *known == sequence && at == subject) {
            return;
        }
        if foreign.known.len() == FOREIGN_KEPT {
            foreign.known.pop_front();
        }
        foreign.known.push_back((subject.to_owned(), sequence));
        foreign.met += 1;
        let met = foreign.met;
        drop(foreign);
        if met.is_power_of_two() {
            warn!(subject, met, "a message among the records is not a record; clawnode skips it");
        }
    }

    /// How many of those there were.
    pub(super) fn foreign(&self) -> u64 {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).met
    }

    /// Changes with every connection that is made again, from now on.
    pub(super) fn connections(&self) -> watch::Receiver<u64> {
        let mut connected = self.connected.subscribe();
        connected.mark_unchanged();
        connected
    }

    /// Processes whose connections end, if servers report that.
    pub(super) fn partings(&self) -> Option<broadcast::Receiver<ProcessId>> {
        self.partings.as_ref().map(broadcast::Sender::subscribe)
    }

    /// Takes an event of the client.
    pub(super) fn take(&self, event: Event) {
        let ends = matches!(event, Event::Disconnected | Event::LameDuckMode | Event::Closed);
        match &event {
            Event::Connected => *self.down() = None,
            Event::Disconnected => *self.down() = Some(Instant::now()),
            _ => {}
        }
        match event {
            Event::Connected => {
                info!("connected to NATS");
                self.refused.send_replace(0);
                self.connected.send_modify(|count| *count += 1);
                // The first connection broke nothing.
                if self.connected.peek(|count| *count > 1) {
                    self.breaks.fetch_add(1, Ordering::Relaxed);
                }
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
            // This process closes the connection on purpose.
            event @ (Event::Draining | Event::Closed) => {
                debug!(%event, "NATS connection");
                if matches!(event, Event::Closed) {
                    self.closed.cancel();
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
        if ends {
            self.breaks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until a connection is impossible: the servers refuse this user for good, or the
    /// client's connection task has ended.
    pub(super) async fn lost(&self, urls: &str) -> Lost {
        let mut refused = self.refused.subscribe();
        tokio::select! {
            () = self.broken.cancelled() => Lost::Broken(format!(
                "the connection to NATS at `{urls}` is beyond repair: its client ended"
            )),
            // The sender is ours, so it is not dropped.
            _ = refused.wait_for(|count| *count >= REFUSALS) => Lost::Refused(format!(
                "NATS at `{urls}` refuses this node's credential: it was revoked, or has expired"
            )),
        }
    }

    /// Waits until this process has closed the connection on purpose.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Watches the client's own task: an unexpected message of a server can end it (async-nats 0.51
    /// panics at an empty `-ERR`), without any event.
    pub(super) fn look_after(self: &Arc<Self>, client: Client, closing: CancellationToken) {
        let signals = Arc::clone(self);
        tokio::spawn(closing.run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let flushed = client.flush().await;
                if flushed.is_err_and(|error| error.kind() == FlushErrorKind::SendError) {
                    signals.broken.cancel();
                    return;
                }
            }
        }));
    }

    /// Whether the server said that this user may not publish there. It says so apart from the
    /// publish, which itself only times out.
    pub(super) fn is_denied(&self, subject: &str) -> bool {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.iter().any(|known| known == subject)
    }
}

/// Whether a try to connect was refused because of the user.
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
        signals: &ConnectionSignals,
        partitions: u16,
        mut elections: async_nats::Subscriber,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let all = Arc::new(Self((0..partitions).map(|_| watch::Sender::new(0)).collect()));
        let mut connected = signals.connections();
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
        self.0.get(partition_of_consumer(name)?)
    }
}

fn bump(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}

/// The partition that a consumer of this name serves.
pub(super) fn partition_of_consumer(name: &str) -> Option<usize> {
    name.strip_prefix('p')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_known_since_when_there_is_no_connection() {
        let signals = ConnectionSignals::new(None);
        signals.take(Event::Connected);
        assert_eq!(signals.down_for(), None);
        signals.take(Event::Disconnected);
        tokio::time::advance(Duration::from_secs(12)).await;
        assert_eq!(signals.down_for(), Some(Duration::from_secs(12)));
        signals.take(Event::Connected);
        assert_eq!(signals.down_for(), None);
    }

    #[test]
    fn a_refused_publish_is_remembered_by_its_subject() {
        let signals = ConnectionSignals::new(None);
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

//! The event feed: sends what happens here over the bus, to those who watch the cluster.
//!
//! Best effort: senders do not wait, and events that do not fit are counted and dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use clawnode_proto::{
    NodeName, ProcessId, Timestamp, codec,
    feed::{ClusterEvent, EventBatch, EventBody},
    limits::EVENTS_BATCH,
};
use tokio::{
    sync::{Mutex, mpsc},
    time::Duration,
};
use tracing::debug;

use crate::{Clock, Storage};

/// Events that wait to be sent.
const WAITING_MAX: usize = 1_024;
/// How long a batch gathers after the one before it: few messages at many events a second.
const GATHER: Duration = Duration::from_millis(20);

/// Sends events of this process. Cheap to clone, never waits.
#[derive(Clone, Debug)]
pub struct Feed {
    process: ProcessId,
    node: NodeName,
    clock: Arc<dyn Clock>,
    events: mpsc::Sender<ClusterEvent>,
    waiting: Arc<Mutex<mpsc::Receiver<ClusterEvent>>>,
    dropped: Arc<AtomicU64>,
}

// === impl Feed ===

impl Feed {
    /// The feed of this process; [`run`](Self::run) sends what it is given.
    pub fn new(process: ProcessId, node: NodeName, clock: Arc<dyn Clock>) -> Self {
        let (events, waiting) = mpsc::channel(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        Self { process, node, clock, events, waiting, dropped: Arc::default() }
    }

    /// The sender: the process, and the name of its node.
    pub const fn teller(&self) -> (ProcessId, &NodeName) {
        (self.process, &self.node)
    }

    /// The present time, by the clock of this process.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sends an event, soon.
    pub fn tell(&self, what: EventBody) {
        if self.events.try_send(self.event(what)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends an event now: for a process that is about to end.
    pub async fn tell_now(&self, storage: &Storage, what: EventBody) {
        self.publish(storage, vec![self.event(what)]).await;
    }

    fn event(&self, what: EventBody) -> ClusterEvent {
        let (node, process) = (self.node.clone(), self.process);
        ClusterEvent { at: self.clock.now(), node, process, what }
    }

    /// Sends events for as long as the process lives.
    pub async fn run(self, storage: Storage) {
        let mut waiting = self.waiting.lock().await;
        loop {
            let mut events = Vec::new();
            if waiting.recv_many(&mut events, EVENTS_BATCH).await == 0 {
                return;
            }
            self.publish(&storage, events).await;
            tokio::time::sleep(GATHER).await;
        }
    }

    async fn publish(&self, storage: &Storage, events: Vec<ClusterEvent>) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let Ok(bytes) = codec::encode(&EventBatch { events, dropped }) else { return };
        let subject = storage.prefix.events();
        if let Err(failure) = storage.bus.publish(subject, None, Bytes::from(bytes)).await {
            debug!(%failure, "cannot publish cluster events");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp(12)
        }
    }

    #[test]
    fn what_nobody_takes_is_counted_and_not_kept() {
        let feed = Feed::new(ProcessId::from_u128(1), "n".parse().unwrap(), Arc::new(Noon));
        for _ in 0..WAITING_MAX + 3 {
            feed.tell(EventBody::NodeDraining);
        }
        assert_eq!(feed.dropped.load(Ordering::Relaxed), 3);
    }
}

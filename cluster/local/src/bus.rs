//! The bus in one process: exact subjects by hash, wildcards by one pass over all of them.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    Bus, BusConnection, BusEvent, BusMessage, INBOX, RequestError, StoreError, Subscription,
    bus::matches, queue::Queue,
};
use clawnode_proto::{ProcessId, Traceparent};
use futures_util::{Stream, StreamExt};
use tokio::sync::broadcast;

const STORE: &str = "local bus";

/// A bus of this process alone. Clones are the same bus.
#[derive(Clone, Debug, Default)]
pub struct LocalBus(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    exact: RwLock<HashMap<String, Vec<Arc<Queue>>>>,
    patterns: RwLock<Vec<(String, Arc<Queue>)>>,
    next_reply: AtomicU64,
    closed: AtomicBool,
}

/// Listens until it is dropped.
#[derive(Debug)]
struct BusListener {
    subject: String,
    queue: Arc<Queue>,
    bus: Weak<Inner>,
}

// === impl LocalBus ===

impl LocalBus {
    /// A bus without listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all subscriptions; all later calls are refused.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        let exact = self.0.exact.read().unwrap_or_else(PoisonError::into_inner);
        exact.values().flatten().for_each(|queue| queue.close());
        let patterns = self.0.patterns.read().unwrap_or_else(PoisonError::into_inner);
        patterns.iter().for_each(|(_, queue)| queue.close());
    }

    fn open(&self) -> Result<(), StoreError> {
        if self.0.closed.load(Ordering::Acquire) {
            let detail = "the process stops".to_owned();
            return Err(StoreError::Closed { store: STORE, detail });
        }
        Ok(())
    }

    /// Hands a message to all listeners, and returns their number.
    fn deliver(&self, message: BusMessage) -> usize {
        let mut listeners = 0;
        {
            let patterns = self.0.patterns.read().unwrap_or_else(PoisonError::into_inner);
            for (pattern, queue) in patterns.iter() {
                if matches(pattern, &message.subject) {
                    queue.push(message.clone());
                    listeners += 1;
                }
            }
        }
        let exact = self.0.exact.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, others)) =
            exact.get(&message.subject).and_then(|queues| queues.split_last())
        {
            for queue in others {
                queue.push(message.clone());
            }
            listeners += others.len() + 1;
            last.push(message);
        }
        listeners
    }

    fn listen(&self, subject: String) -> BusListener {
        let queue = Arc::new(Queue::default());
        if is_pattern(&subject) {
            let mut patterns = self.0.patterns.write().unwrap_or_else(PoisonError::into_inner);
            patterns.push((subject.clone(), Arc::clone(&queue)));
        } else {
            let mut exact = self.0.exact.write().unwrap_or_else(PoisonError::into_inner);
            exact.entry(subject.clone()).or_default().push(Arc::clone(&queue));
        }
        BusListener { subject, queue, bus: Arc::downgrade(&self.0) }
    }
}

#[async_trait]
impl Bus for LocalBus {
    async fn publish(
        &self,
        subject: String,
        traceparent: Option<Traceparent>,
        payload: Bytes,
    ) -> Result<(), StoreError> {
        self.open()?;
        self.deliver(BusMessage { subject, reply: None, traceparent, payload });
        Ok(())
    }

    async fn subscribe(&self, subject: String) -> Result<Subscription, StoreError> {
        self.open()?;
        Ok(Box::pin(self.listen(subject)))
    }

    async fn request(
        &self,
        subject: String,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        self.open()?;
        let number = self.0.next_reply.fetch_add(1, Ordering::Relaxed);
        let reply = format!("{INBOX}.{number}");
        let mut answers = self.listen(reply.clone());
        let message =
            BusMessage { subject: subject.clone(), reply: Some(reply), traceparent: None, payload };
        if self.deliver(message) == 0 {
            return Err(RequestError::NoResponders { subject });
        }
        match tokio::time::timeout(timeout, answers.next()).await {
            Ok(Some(BusEvent::Message(answer))) => Ok(answer.payload),
            // One answer cannot lag; the end of the stream means a closed bus.
            Ok(_) => {
                self.open()?;
                Err(RequestError::Timeout { subject, timeout })
            }
            Err(_elapsed) => Err(RequestError::Timeout { subject, timeout }),
        }
    }

    fn attached(&self) -> BusConnection {
        BusConnection::default()
    }

    fn partings(&self) -> Option<broadcast::Receiver<ProcessId>> {
        None
    }
}

fn is_pattern(subject: &str) -> bool {
    subject.split('.').any(|token| token == "*" || token == ">")
}

// === impl BusListener ===

impl Stream for BusListener {
    type Item = BusEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BusEvent>> {
        self.queue.poll(cx)
    }
}

impl Drop for BusListener {
    fn drop(&mut self) {
        let Some(bus) = self.bus.upgrade() else { return };
        let is_other = |queue: &Arc<Queue>| !Arc::ptr_eq(queue, &self.queue);
        if is_pattern(&self.subject) {
            let mut patterns = bus.patterns.write().unwrap_or_else(PoisonError::into_inner);
            patterns.retain(|(_, queue)| is_other(queue));
        } else {
            let mut exact = bus.exact.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(queues) = exact.get_mut(&self.subject) {
                queues.retain(is_other);
                if queues.is_empty() {
                    exact.remove(&self.subject);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawnode_cluster::bus::SUBSCRIPTION_CAPACITY;

    fn message(event: Option<BusEvent>) -> Bytes {
        match event {
            Some(BusEvent::Message(message)) => message.payload,
            other => panic!("expected a message, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_slow_subscriber_is_told_where_it_lagged() {
        let bus = LocalBus::new();
        let mut slow = bus.subscribe("a.b".to_owned()).await.unwrap();
        for n in 0..SUBSCRIPTION_CAPACITY + 5 {
            let payload = Bytes::from(n.to_string());
            bus.publish("a.b".to_owned(), None, payload).await.unwrap();
        }
        for n in 0..SUBSCRIPTION_CAPACITY {
            assert_eq!(message(slow.next().await), n.to_string());
        }
        bus.publish("a.b".to_owned(), None, Bytes::from_static(b"later")).await.unwrap();
        assert_eq!(slow.next().await, Some(BusEvent::Lagged));
        assert_eq!(message(slow.next().await), "later");
    }

    #[tokio::test]
    async fn nothing_is_left_of_dropped_subscriptions() {
        let bus = LocalBus::new();
        let exact = bus.subscribe("a.b".to_owned()).await.unwrap();
        let pattern = bus.subscribe("a.*".to_owned()).await.unwrap();
        assert_eq!(bus.0.exact.read().unwrap().len(), 1);
        drop(exact);
        drop(pattern);
        assert!(bus.0.exact.read().unwrap().is_empty());
        assert!(bus.0.patterns.read().unwrap().is_empty());
    }

    #[tokio::test]
    async fn closing_ends_subscriptions_after_what_waits() {
        let bus = LocalBus::new();
        let mut listener = bus.subscribe("a".to_owned()).await.unwrap();
        bus.publish("a".to_owned(), None, Bytes::from_static(b"last")).await.unwrap();
        bus.close();
        assert_eq!(message(listener.next().await), "last");
        assert_eq!(listener.next().await, None);
        assert!(bus.publish("a".to_owned(), None, Bytes::new()).await.is_err());
    }
}

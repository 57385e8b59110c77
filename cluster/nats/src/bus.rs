//! The bus: core NATS on the one connection.
//!
//! A publish waits only for room in the client's queue, which is flushed in the background, so many
//! frames travel in one packet. A subscriber that is too slow loses messages and gets a `Lagged`
//! event.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_nats::{HeaderMap, Message, Request, RequestErrorKind, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    Bus, BusConnection, BusEvent, BusMessage, RequestError, StoreError, Subscription, queue::Queue,
};
use clawnode_proto::{ProcessId, Traceparent};
use futures_util::{Stream, StreamExt};
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::api::{Api, RequestFailure};

/// The name of this store in errors.
const STORE: &str = "bus";
/// Where a trace's context travels.
const TRACEPARENT: &str = "traceparent";

/// The bus on core NATS.
#[derive(Debug)]
pub(super) struct NatsBus {
    api: Api,
}

/// The reading end of one subscription; dropping it ends the subscription.
struct BusReading {
    queue: Arc<Queue>,
    _stop: DropGuard,
}

// === impl NatsBus ===

impl NatsBus {
    pub(super) fn new(api: Api) -> Self {
        Self { api }
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn publish(
        &self,
        subject: String,
        traceparent: Option<Traceparent>,
        payload: Bytes,
    ) -> Result<(), StoreError> {
        self.api.check_open().map_err(store_error)?;
        let client = &self.api.client;
        let published = async {
            match traceparent {
                Some(Traceparent(text)) => {
                    let mut headers = HeaderMap::new();
                    headers.insert(TRACEPARENT, text);
                    client.publish_with_headers(subject, headers, payload).await
                }
                None => client.publish(subject, payload).await,
            }
        };
        match tokio::time::timeout(self.api.timeout, published).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(match error.kind() {
                async_nats::PublishErrorKind::Send => RequestFailure::Unknown(error.to_string()),
                _ => RequestFailure::Rejected(error.to_string()),
            }),
            Err(elapsed) => Err(RequestFailure::Unknown(elapsed.to_string())),
        }
        .map_err(store_error)
    }

    async fn subscribe(&self, subject: String) -> Result<Subscription, StoreError> {
        self.api.check_open().map_err(store_error)?;
        let subscriber = self
            .api
            .client
            .subscribe(subject)
            .await
            .map_err(|error| store_error(RequestFailure::Rejected(error.to_string())))?;
        self.api.round_trip(self.api.timeout).await.map_err(store_error)?;
        let queue = Arc::new(Queue::default());
        let stop = self.api.closing.child_token();
        tokio::spawn(forward(subscriber, Arc::clone(&queue), stop.clone()));
        Ok(Box::pin(BusReading { queue, _stop: stop.drop_guard() }))
    }

    async fn request(
        &self,
        subject: String,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        self.api.check_open().map_err(store_error)?;
        let request = Request::new().payload(payload).timeout(Some(timeout));
        let answer = self.api.client.send_request(subject.clone(), request);
        // The client's own timeout begins after the request is queued; a full queue waits too.
        match tokio::time::timeout(timeout.saturating_add(self.api.timeout), answer).await {
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => RequestError::NoResponders { subject },
                RequestErrorKind::TimedOut => RequestError::Timeout { subject, timeout },
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    store_error(RequestFailure::Rejected(error.to_string())).into()
                }
                RequestErrorKind::Other => {
                    store_error(RequestFailure::Unknown(error.to_string())).into()
                }
            }),
            Err(_) => Err(RequestError::Timeout { subject, timeout }),
        }
    }

    fn attached(&self) -> BusConnection {
        let server = self.api.client.server_info().server_id;
        BusConnection { server, breaks: self.api.signals.breaks() }
    }

    fn partings(&self) -> Option<broadcast::Receiver<ProcessId>> {
        self.api.signals.partings()
    }
}

impl Stream for BusReading {
    type Item = BusEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BusEvent>> {
        self.queue.poll(cx)
    }
}

/// Moves messages to a queue that reports to its reader when it has no room.
async fn forward(mut subscriber: Subscriber, queue: Arc<Queue>, stop: CancellationToken) {
    while let Some(Some(message)) = stop.run_until_cancelled(subscriber.next()).await {
        queue.push(bus_message(message));
    }
    queue.close();
}

fn bus_message(message: Message) -> BusMessage {
    let traceparent = message
        .headers
        .as_ref()
        .and_then(|headers| headers.get(TRACEPARENT))
        .map(|text| Traceparent(text.to_string()));
    BusMessage {
        subject: message.subject.to_string(),
        reply: message.reply.map(|reply| reply.to_string()),
        traceparent,
        payload: message.payload,
    }
}

fn store_error(failure: RequestFailure) -> StoreError {
    failure.of_store(STORE)
}

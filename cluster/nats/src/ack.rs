//! The answer to a delivery of a consumer.

use std::time::Duration;

use async_nats::jetstream::{self, AckKind};
use async_trait::async_trait;
use clawnode_cluster::{AckHandle, StoreError};
use tracing::debug;

use super::api::Api;

/// The answer to one delivery.
pub(super) struct Ack {
    pub(super) api: Api,
    /// The name of its store in errors.
    pub(super) store: &'static str,
    pub(super) message: jetstream::Message,
}

impl Ack {
    async fn answer(&self, kind: AckKind) -> Result<(), StoreError> {
        self.api.check_open().map_err(|failure| failure.of_store(self.store))?;
        let unavailable = |detail| StoreError::Unavailable { store: self.store, detail };
        match tokio::time::timeout(self.api.timeout, self.message.ack_with(kind)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unavailable(error.to_string())),
            Err(elapsed) => Err(unavailable(elapsed.to_string())),
        }
    }
}

/// Takes a message that clawnode did not write off its stream, in the background, and counts it.
pub(super) fn discard(api: &Api, message: jetstream::Message) {
    let sequence = message.info().map(|info| info.stream_sequence).unwrap_or_default();
    api.signals.met_foreign(&message.subject, sequence);
    let discarded = async move {
        if let Err(error) = message.ack_with(AckKind::Term).await {
            debug!(%error, "cannot discard a message that is not a record; it comes again");
        }
    };
    tokio::spawn(api.closing.clone().run_until_cancelled_owned(discarded));
}

#[async_trait]
impl AckHandle for Ack {
    async fn ack(&self) -> Result<(), StoreError> {
        self.answer(AckKind::Ack).await
    }

    async fn progress(&self) -> Result<(), StoreError> {
        self.answer(AckKind::Progress).await
    }

    async fn nak(&self, delay: Duration) -> Result<(), StoreError> {
        // A delay, even of zero, waits until the server next looks at pending messages.
        self.answer(AckKind::Nak((!delay.is_zero()).then_some(delay))).await
    }
}

//! The one task that writes to a socket.

use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use futures_util::{SinkExt as _, stream::SplitSink};

use super::super::outbox::{Batch, Outbox};

/// Writes what waits, in as few system calls as it fits.
pub(super) async fn write(out: Arc<Outbox>, mut sink: SplitSink<WebSocket, Message>) {
    while let Some(batch) = out.take().await {
        let last = batch.close.is_some();
        // The connection itself ends a write that makes no progress.
        if let Err(error) = write_batch(&mut sink, batch).await {
            tracing::debug!(%error, "the other side of a WebSocket closed it");
            break;
        }
        if last {
            break;
        }
    }
    out.die();
}

async fn write_batch(
    sink: &mut SplitSink<WebSocket, Message>,
    batch: Batch,
) -> Result<(), axum::Error> {
    let mut said = Ok(());
    for frame in
        batch.frames.into_iter().chain(batch.close.map(|frame| Message::Close(Some(frame))))
    {
        said = said.and(sink.feed(frame).await);
    }
    // Also after an error: when the other side said goodbye first, the reply to it waits in there.
    let flushed = sink.flush().await;
    if flushed.is_err() {
        return sink.flush().await.and(flushed).and(said);
    }
    said
}

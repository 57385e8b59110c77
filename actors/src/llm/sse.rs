//! Server-sent events out of bytes, with bounds.
//!
//! The parser is `sse-stream`: it survives any chunking, CRLF and a byte order mark, and refuses
//! invalid UTF-8. (`eventsource-stream` panics on a byte order mark, keeps buffering after an
//! invalid byte, and parses a line again for every chunk of it.) It has no bounds of its own, so
//! the bytes are counted on their way in.

use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream, Stream},
};
use sse_stream::SseByteStream;
use tokio::time::timeout;

/// Bytes that may come without completing an event (1 MiB): far over any vendor's chunk of text.
pub(super) const EVENT_BYTES: usize = 1 << 20;
/// Bytes of one whole stream (64 MiB): far over any model's longest reply with its framing.
pub(super) const STREAM_BYTES: usize = 64 << 20;

/// How long the runtime has to read what has arrived before a silence counts.
const READ_FIRST: Duration = Duration::from_millis(250);

/// One event; its name is empty where the stream gives none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SseEvent {
    pub(super) name: String,
    pub(super) data: String,
}

/// Why there are no more events before the stream's own end.
#[derive(Debug, thiserror::Error)]
pub(super) enum EventsError {
    /// More than [`EVENT_BYTES`] without an event, or more than [`STREAM_BYTES`] at all.
    #[error("the stream is over the limit of {0} bytes")]
    TooLong(usize),
    /// The bytes are not server-sent events.
    #[error("the stream is not valid text")]
    Garbled(#[source] sse_stream::Error),
    /// The bytes are no messages of an event stream, or were damaged on their way.
    #[error("the stream is damaged: {0}")]
    Damaged(&'static str),
    /// Not a byte for this long, not even a comment.
    #[error("nothing for {0:?}")]
    Silent(Duration),
    /// The connection failed.
    #[error("the connection was lost")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
}

/// The events of one response.
pub(super) struct SseEvents {
    events: SseByteStream<BoxStream<'static, Result<Bytes, EventsError>>>,
    /// Bytes read since the last event.
    pending: Arc<AtomicUsize>,
}

impl fmt::Debug for SseEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("pending", &self.pending).finish_non_exhaustive()
    }
}

/// The `bytes` of a connection, which may pause for `idle`.
pub(super) fn within<S, E>(
    bytes: S,
    idle: Duration,
) -> impl Stream<Item = Result<Bytes, EventsError>>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Error + Send + Sync + 'static,
{
    stream::unfold(Box::pin(bytes), move |mut bytes| async move {
        let chunk = match timeout(idle, bytes.next()).await {
            Ok(chunk) => chunk?.map_err(|error| EventsError::Connection(Box::new(error))),
            // After a process was frozen, its timers fire before its sockets are read.
            Err(_elapsed) => match timeout(READ_FIRST, bytes.next()).await {
                Ok(chunk) => chunk?.map_err(|error| EventsError::Connection(Box::new(error))),
                Err(_elapsed) => Err(EventsError::Silent(idle)),
            },
        };
        Some((chunk, bytes))
    })
}

// === impl SseEvents ===

impl SseEvents {
    pub(super) fn new<S>(bytes: S) -> Self
    where
        S: Stream<Item = Result<Bytes, EventsError>> + Send + 'static,
    {
        let pending = Arc::new(AtomicUsize::new(0));
        let waiting = pending.clone();
        let mut total = 0usize;
        let bounded = bytes.map(move |chunk| {
            let chunk = chunk?;
            total = total.saturating_add(chunk.len());
            if waiting.fetch_add(chunk.len(), Ordering::Relaxed) > EVENT_BYTES {
                return Err(EventsError::TooLong(EVENT_BYTES));
            }
            if total > STREAM_BYTES { Err(EventsError::TooLong(STREAM_BYTES)) } else { Ok(chunk) }
        });
        Self { events: SseByteStream::new(bounded.boxed()), pending }
    }

    /// The next event with data; `None` at the end of the bytes, whatever was unfinished then.
    pub(super) async fn next(&mut self) -> Option<Result<SseEvent, EventsError>> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(sse_stream::Error::Body(error)) => {
                    // Our own error, wrapped by the parser on its way through.
                    return Some(Err(match error.downcast::<EventsError>() {
                        Ok(own) => *own,
                        Err(other) => EventsError::Connection(other),
                    }));
                }
                Err(error) => return Some(Err(EventsError::Garbled(error))),
            };
            self.pending.store(0, Ordering::Relaxed);
            if let Some(data) = event.data {
                return Some(Ok(SseEvent { name: event.event.unwrap_or_default(), data }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: Vec<Vec<u8>>) -> Vec<Result<SseEvent, String>> {
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk)));
        let mut events = SseEvents::new(stream::iter(chunks));
        let mut read = Vec::new();
        while let Some(event) = events.next().await {
            read.push(event.map_err(|error| error.to_string()));
        }
        read
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    fn all(read: Vec<Result<SseEvent, String>>) -> Vec<SseEvent> {
        read.into_iter().collect::<Result<_, _>>().unwrap()
    }

    #[tokio::test]
    async fn any_line_ending_any_chunking() {
        let text = "\u{feff}: note\r\nevent: a\r\ndata: {\"x\":\r\ndata: \"é🦀\"}\r\n\r\ndata:b\n\nevent: c\rdata\r\r";
        let whole = [event("a", "{\"x\":\n\"é🦀\"}"), event("", "b"), event("c", "")];
        assert_eq!(all(read(vec![text.as_bytes().to_vec()]).await), whole);
        assert_eq!(all(read(text.bytes().map(|byte| vec![byte]).collect()).await), whole);
    }

    #[tokio::test]
    async fn an_unfinished_event_is_none() {
        assert_eq!(all(read(vec![b"data: a\n\ndata: b\n".to_vec()]).await), [event("", "a")]);
    }

    #[tokio::test]
    async fn invalid_text_is_an_error_and_the_end() {
        let read = read(vec![b"data: a\n\ndata: \xff\n\ndata: c\n\n".to_vec()]).await;
        assert_eq!(read.len(), 2);
        assert!(read[1].as_ref().unwrap_err().contains("not valid text"));
    }

    #[tokio::test]
    async fn a_giant_line_is_cut_off() {
        for line in [&b"data: "[..], &b"other: "[..]] {
            let mut chunks = vec![line.to_vec()];
            chunks.resize(40, vec![b'a'; 64 << 10]);
            let read = read(chunks).await;
            assert_eq!(read.len(), 1);
            assert!(read[0].as_ref().unwrap_err().contains("1048576"));
        }
    }
}

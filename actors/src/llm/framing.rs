//! How the events of a reply are separated in its bytes: server-sent events, one JSON document a line, or the
//! messages of Amazon's event stream.

use std::fmt;

use bytes::{Bytes, BytesMut};
use futures_util::{
    StreamExt,
    stream::{BoxStream, Stream},
};

use super::{
    event_stream::EventStream,
    sse::{EVENT_BYTES, EventsError, STREAM_BYTES, SseEvent, SseEvents},
};

/// How the events of a reply are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events.
    Events,
    /// A line each.
    Lines,
    /// Amazon's event stream.
    EventStream,
}

/// The events of one response.
#[derive(Debug)]
pub(super) enum ReplyEvents {
    Events(SseEvents),
    Lines(LineEvents),
    Messages(MessageEvents),
}

/// The lines of one response, with the same bounds as server-sent events.
pub(super) struct LineEvents {
    bytes: BoxStream<'static, Result<Bytes, EventsError>>,
    /// What has come of the next line.
    pending: BytesMut,
    /// Bytes of it in which there is no end of a line.
    searched: usize,
    total: usize,
}

/// The messages of one response; its decoder has the bounds.
pub(super) struct MessageEvents {
    bytes: BoxStream<'static, Result<Bytes, EventsError>>,
    messages: EventStream,
}

// === impl Framing ===

impl Framing {
    /// The events in these bytes.
    pub(super) fn read<S>(self, bytes: S) -> ReplyEvents
    where
        S: Stream<Item = Result<Bytes, EventsError>> + Send + 'static,
    {
        match self {
            Self::Events => ReplyEvents::Events(SseEvents::new(bytes)),
            Self::Lines => ReplyEvents::Lines(LineEvents {
                bytes: bytes.boxed(),
                pending: BytesMut::new(),
                searched: 0,
                total: 0,
            }),
            Self::EventStream => ReplyEvents::Messages(MessageEvents {
                bytes: bytes.boxed(),
                messages: EventStream::default(),
            }),
        }
    }
}

// === impl ReplyEvents ===

impl ReplyEvents {
    /// The next event; `None` at the end of the bytes, whatever was unfinished then.
    pub(super) async fn next(&mut self) -> Option<Result<SseEvent, EventsError>> {
        match self {
            Self::Events(events) => events.next().await,
            Self::Lines(lines) => lines.next().await,
            Self::Messages(messages) => messages.next().await,
        }
    }
}

// === impl LineEvents ===

impl LineEvents {
    async fn next(&mut self) -> Option<Result<SseEvent, EventsError>> {
        loop {
            let fresh = self.pending.get(self.searched..).unwrap_or_default();
            let end = fresh.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
            if end.unwrap_or(self.pending.len()) > EVENT_BYTES {
                return Some(Err(EventsError::TooLong(EVENT_BYTES)));
            }
            if let Some(end) = end {
                let line = self.pending.split_to(end + 1);
                self.searched = 0;
                match line_of(&line) {
                    Ok("") => continue,
                    Ok(line) => {
                        let (name, data) = (String::new(), line.to_owned());
                        return Some(Ok(SseEvent { name, data }));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            self.searched = self.pending.len();
            match self.bytes.next().await? {
                Ok(chunk) => {
                    self.total = self.total.saturating_add(chunk.len());
                    if self.total > STREAM_BYTES {
                        return Some(Err(EventsError::TooLong(STREAM_BYTES)));
                    }
                    self.pending.extend_from_slice(&chunk);
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

// === impl MessageEvents ===

impl MessageEvents {
    async fn next(&mut self) -> Option<Result<SseEvent, EventsError>> {
        loop {
            if let Some(read) = self.messages.next().transpose() {
                return Some(read);
            }
            let chunk = self.bytes.next().await?;
            if let Err(error) = chunk.and_then(|chunk| self.messages.push(&chunk)) {
                return Some(Err(error));
            }
        }
    }
}

impl fmt::Debug for MessageEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageEvents").finish_non_exhaustive()
    }
}

fn line_of(bytes: &[u8]) -> Result<&str, EventsError> {
    let line = std::str::from_utf8(bytes)
        .map_err(|error| EventsError::Garbled(sse_stream::Error::Utf8Parse(error)))?;
    Ok(line.trim_start_matches('\u{feff}').trim())
}

impl fmt::Debug for LineEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineEvents").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn read(chunks: Vec<Vec<u8>>) -> Vec<Result<String, String>> {
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk)));
        let mut events = Framing::Lines.read(stream::iter(chunks));
        let mut read = Vec::new();
        while let Some(event) = events.next().await {
            let is_error = event.is_err();
            read.push(event.map(|event| event.data).map_err(|error| error.to_string()));
            if is_error {
                break;
            }
        }
        read
    }

    #[tokio::test]
    async fn lines_come_out_whole_however_they_are_cut() {
        let text = "\u{feff}{\"x\":\"é🦀\"}\r\n\n{}\n \r\n[1]\n";
        let whole = ["{\"x\":\"é🦀\"}", "{}", "[1]"].map(|line| Ok(line.to_owned()));
        assert_eq!(read(vec![text.as_bytes().to_vec()]).await, whole);
        assert_eq!(read(text.bytes().map(|byte| vec![byte]).collect()).await, whole);
    }

    #[tokio::test]
    async fn an_unfinished_line_is_none() {
        assert_eq!(read(vec![b"{}\n{\"done\":true}".to_vec()]).await, [Ok("{}".to_owned())]);
    }

    #[tokio::test]
    async fn invalid_text_and_giant_lines_are_errors() {
        let garbled = read(vec![b"{}\n\xff\n".to_vec()]).await;
        assert!(garbled[1].as_ref().unwrap_err().contains("not valid text"));
        let mut giant = vec![b'a'; EVENT_BYTES + 1];
        giant.push(b'\n');
        let pieces = giant.chunks(64 << 10).map(<[u8]>::to_vec).collect();
        for chunks in [vec![giant.clone()], pieces] {
            let read = read(chunks).await;
            assert_eq!(read.len(), 1);
            assert!(read[0].as_ref().unwrap_err().contains("1048576"));
        }
    }
}

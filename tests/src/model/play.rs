//! Bodies that play their parts, and write down how they ended.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    body::Body,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;

use super::{
    listen::Breaker,
    render::{NO_TIME, Part},
    server::Shared,
};

/// A body in the middle of its parts.
pub(super) struct Playing {
    pub(super) parts: VecDeque<Part>,
    pub(super) breaker: Breaker,
    pub(super) ending: Ending,
    /// Whether playing all of it is a full answer.
    pub(super) proper: bool,
}

/// Writes down how the answer ended, also when its client goes away.
pub(super) struct Ending {
    pub(super) shared: Arc<Shared>,
    pub(super) seq: u64,
    pub(super) full: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Err(error) = self.shared.book.answered(self.seq, self.full) {
            tracing::error!(%error, "cannot write the log");
        }
    }
}

pub(super) fn play(content_type: &str, playing: Playing) -> Response {
    let body = Body::from_stream(stream::unfold(playing, |mut playing| async move {
        let item = playing.next().await?;
        Some((item, playing))
    }));
    let mut response = body.into_response();
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

/// The same bytes with the time in them, in nanoseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a measuring test compares it with the same clock")]
fn timed(mut bytes: Vec<u8>) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = format!("{:0width$}", now.as_nanos(), width = NO_TIME.len());
    let place = bytes.windows(NO_TIME.len()).position(|window| window == NO_TIME.as_bytes());
    if let Some(room) = place.and_then(|at| bytes.get_mut(at..at + NO_TIME.len())) {
        room.copy_from_slice(now.as_bytes());
    }
    bytes
}

impl Playing {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while let Some(part) = self.parts.pop_front() {
            match part {
                Part::Bytes(bytes) => return Some(Ok(bytes.into())),
                Part::Timed(bytes) => return Some(Ok(timed(bytes).into())),
                // The connection writes out what it has whenever its body makes it wait.
                Part::Flush => tokio::task::yield_now().await,
                Part::Delay(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Part::Gate(name) => {
                    let mut gates = self.ending.shared.gates.subscribe();
                    if gates.wait_for(|open| open.contains(&name)).await.is_err() {
                        return None;
                    }
                }
                Part::Stall => std::future::pending().await,
                Part::Cut => {
                    self.breaker.trip();
                    return Some(Err(io::ErrorKind::ConnectionReset.into()));
                }
            }
        }
        self.ending.full = self.proper;
        None
    }
}

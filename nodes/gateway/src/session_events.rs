//! `GET /v1/sessions/{session}/events`: a turn as server-sent events, resumed by `Last-Event-ID`.
//!
//! The frames are those of the WebSocket: `event` is their name, `data` their JSON, `id` their
//! cursor. Any gateway goes on from any gateway's cursor. A client that has seen `done` and comes
//! back, as browsers do by themselves, is answered 204, which makes them stop.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    extract::{
        Path, RawQuery, State,
        ws::{CloseFrame, Message, close_code},
    },
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use clawnode_proto::{ErrorBody, ErrorCode, FrameKey, api::Method};
use futures_util::stream;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::{
    backend::{Following, SessionRef},
    error::ErrorDialect,
    frame::Wording,
    gateway::Gateway,
    outbox::Outbox,
    params::read,
    rpc::{self, Resume},
    slow_client_stream::TurnStream,
};

/// The header in which a client says what it saw last.
const LAST_EVENT_ID: &str = "last-event-id";
/// How long a client waits before it reconnects, in milliseconds: long enough that clients of a
/// lost gateway do not all come at once, short enough to go unnoticed.
const RETRY_MS: std::ops::Range<u32> = 100..600;
/// After how long without a word a comment keeps proxies from hanging up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What is said then.
const STILL_HERE: &str = ": still here\n\n";

/// What a stream is of.
pub(super) struct Streamed {
    pub(super) session: SessionRef,
    pub(super) following: Following,
    /// The cursor that the client has.
    pub(super) after: Option<FrameKey>,
    /// When the message was sent, if the stream began with one.
    pub(super) sent: Option<Instant>,
}

/// The client's side of a stream: what waits for it, as it reads.
struct Reading {
    out: Arc<Outbox>,
    /// What is said before any event.
    head: String,
}

/// Ends the client's side, however the stream ends.
struct End(Arc<Outbox>);

/// The route.
pub(super) async fn events(
    State(gateway): State<Arc<Gateway>>,
    Path(session): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    gateway.metrics.call(Method::SessionsResume.as_str());
    let params = params(session, query.as_deref(), &headers);
    let resume = params.and_then(|params| rpc::resume(read(Method::SessionsResume, params)?));
    let Resume { session, turn, after } = match resume {
        Ok(resume) => resume,
        Err(error) => return ErrorDialect::Rest.respond(&error),
    };
    // Only `done` itself has this cursor here: nothing is left to say.
    if after.is_some_and(|cursor| cursor.index == FrameKey::DONE) {
        return StatusCode::NO_CONTENT.into_response();
    }
    match gateway.backend.follow(&session, turn, after).await {
        Ok(following) => respond(gateway, Streamed { session, following, after, sent: None }),
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

/// Those of `sessions.resume`. The header goes before `?cursor=`, because browsers repeat the
/// address as it was.
fn params(session: String, query: Option<&str>, headers: &HeaderMap) -> Result<Value, ErrorBody> {
    let mut params = Map::new();
    let query = query.unwrap_or_default();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        params.insert(name.to_owned(), value.into());
    }
    params.insert("session".to_owned(), session.into());
    if let Some(last) = headers.get(LAST_EVENT_ID) {
        let last = last.to_str().map_err(|error| {
            ErrorBody::new(ErrorCode::InvalidParams, format!("`Last-Event-ID`: {error}"))
        })?;
        if !last.is_empty() {
            params.insert("cursor".to_owned(), last.into());
        }
    }
    Ok(Value::Object(params))
}

/// A turn's events from here on, as they come.
pub(super) fn respond(gateway: Arc<Gateway>, streamed: Streamed) -> Response {
    let options = &gateway.options;
    let out = Arc::new(Outbox::new(options.queue_frames, options.queue_bytes));
    let head = format!("retry: {}\n", rand::random_range(RETRY_MS));
    let reading = Reading { out: Arc::clone(&out), head };
    let (tasks, killed) = (gateway.tasks.clone(), gateway.killed.clone());
    let stream = async move {
        let end = End(out);
        let stream = TurnStream {
            gateway: &gateway,
            out: &end.0,
            wording: Wording::Events,
            session: streamed.session,
            seen: streamed.after,
            first: true,
            sent: streamed.sent,
        };
        // A closed connection cannot be informed (GATE-4).
        stream.run(streamed.following).await.ok();
    };
    tasks.spawn(async move { killed.run_until_cancelled(stream).await }.in_current_span());
    let kind = HeaderValue::from_static("text/event-stream");
    let body = Body::from_stream(stream::unfold(reading, Reading::next));
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

// === impl Reading ===

impl Reading {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let Ok(batch) = tokio::time::timeout(KEEP_ALIVE, self.out.take()).await else {
            return Some((Ok(Bytes::from_static(STILL_HERE.as_bytes())), self));
        };
        let mut text = std::mem::take(&mut self.head);
        let frames = batch?.frames;
        // Nothing but the end is left.
        if frames.is_empty() {
            return None;
        }
        for frame in frames {
            if let Message::Text(event) = frame {
                text.push_str(event.as_str());
            }
        }
        Some((Ok(Bytes::from(text)), self))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.out.die();
    }
}

// === impl End ===

impl Drop for End {
    fn drop(&mut self) {
        self.0.close(CloseFrame { code: close_code::NORMAL, reason: "".into() });
    }
}

//! `GET /v1/sessions/{session}/events`: a turn as server-sent events, resumed by `Last-Event-ID`.
//!
//! The frames are those of the WebSocket: `event` is their name, `data` their JSON, `id` their
//! cursor. Any gateway goes on from any gateway's cursor. A client that has seen `done` and comes
//! back, as browsers do by themselves, is answered 204, which makes them stop.

use std::{convert::Infallible, fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Path, RawQuery, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey, TurnId,
    api::Method,
    turn::{EventData, TurnBody, TurnEvent},
};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use serde_json::{Map, Value};

use super::{
    backend::Following,
    error::{Dialect, json},
    frame::{coalesce, done_early},
    params::read,
    rpc::{self, Resume},
    serve::Gateway,
};

/// The header in which a client says what it saw last.
const LAST_EVENT_ID: &str = "last-event-id";
/// How long a client waits before it comes back, in milliseconds: long enough that clients of a
/// lost gateway do not all come at once, short enough that nobody notices.
const RETRY_MS: std::ops::Range<u32> = 100..600;
/// After how long without a word a comment keeps proxies from hanging up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events taken at once, when that many are ready; they leave in one write.
const READY: usize = 16;

/// One stream under way. It is pulled by its reader and pushed by nobody: a reader that stands
/// still is told `lagged` by the turn's follower (GATE-3).
struct Telling {
    gateway: Arc<Gateway>,
    turn: TurnId,
    /// Absent once all is said.
    events: Option<BoxStream<'static, TurnEvent>>,
    /// What is said before any event.
    head: Option<String>,
}

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
        Err(error) => return Dialect::Rest.respond(&error),
    };
    // Only `done` itself has this cursor here: nothing is left to say.
    if after.is_some_and(|cursor| cursor.index == FrameKey::DONE) {
        return StatusCode::NO_CONTENT.into_response();
    }
    match gateway.backend.follow(&session, turn, after).await {
        Ok(following) => respond(gateway, following),
        Err(error) => Dialect::Rest.respond(&error),
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
pub(super) fn respond(gateway: Arc<Gateway>, following: Following) -> Response {
    let Following { accepted, events } = following;
    let mut head = format!("retry: {}\n", rand::random_range(RETRY_MS));
    let turn = accepted.turn;
    write(&mut head, &TurnEvent::at(accepted.cursor, TurnBody::Accepted(accepted)));
    let telling = Telling { gateway, turn, events: Some(events), head: Some(head) };
    let kind = HeaderValue::from_static("text/event-stream");
    let body = Body::from_stream(stream::unfold(telling, Telling::next));
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

// === impl Telling ===

impl Telling {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let mut out = self.head.take().unwrap_or_default();
        while out.is_empty() {
            let mut ready = self.events.as_mut()?.ready_chunks(READY);
            let chunk = tokio::time::timeout(KEEP_ALIVE, ready.next()).await;
            drop(ready);
            match chunk {
                Ok(Some(chunk)) => {
                    for event in coalesce(chunk) {
                        self.tell(event, &mut out);
                    }
                }
                Ok(None) => self.lose(&mut out),
                Err(_elapsed) => out.push_str(": still here\n\n"),
            }
        }
        Some((Ok(Bytes::from(out)), self))
    }

    fn tell(&mut self, mut event: TurnEvent, out: &mut String) {
        if self.events.is_none() {
            return;
        }
        let ends = matches!(event.body, TurnBody::Done(_));
        // What is told at the end without being the end has no place of its own: whoever is cut
        // off in it is told the end again.
        event.cursor = event.cursor.filter(|cursor| ends || cursor.index != FrameKey::DONE);
        write(out, &event);
        if let TurnBody::Lagged(_) = event.body {
            self.gateway.metrics.lagged();
        }
        if ends {
            self.events = None;
        }
    }

    /// The node lost sight of the turn: the client is to come back (GATE-2).
    fn lose(&mut self, out: &mut String) {
        self.events = None;
        let message = "this node lost track of the turn, which continues";
        let error = ErrorBody::new(ErrorCode::Unavailable, message)
            .hint("connect again with `Last-Event-ID`");
        self.gateway.metrics.refusal(error.code);
        write(out, &TurnBody::Error(error).into());
        write(out, &done_early(Some(self.turn)));
    }
}

/// One event. `data` is JSON and a cursor has no space, so neither has a line break.
fn write(out: &mut String, event: &TurnEvent) {
    let id = event.cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
    let (name, data) = (event.body.name(), json(&EventData(&event.body)));
    // Writing to a `String` cannot fail.
    if write!(out, "event: {name}\n{id}data: {data}\n\n").is_err() {
        tracing::error!("an event could not be written");
    }
}

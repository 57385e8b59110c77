//! Requests that come again. `OpenAI`'s clients repeat a request that failed or took too long, and name
//! no idempotency key: each repetition would be another turn of the conversation, asked for and paid.
//!
//! A request is the repetition of an earlier one with the same body if its client says so
//! (`x-stainless-retry-count`), or if the earlier one's client left while its turn ran and both name the
//! same user. It gets the earlier one's idempotency key, and so its turn. What has ended is not joined
//! for long: a person who says the same thing twice is heard twice.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::http::HeaderMap;
use clawnode_proto::{
    Digest, IdempotencyKey,
    turn::{TurnBody, TurnEvent},
};
use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use serde::{Deserialize, de::IgnoredAny};
use tokio::{runtime::Handle, sync::Semaphore, time::timeout};

/// How many times the client has sent a request before, as the clients of `OpenAI` and Anthropic say it.
const RETRY_COUNT: &str = "x-stainless-retry-count";
/// How long a request is remembered since it came, was joined, or lost its client: longer than clients
/// wait for an answer (10 min).
const REMEMBERED: Duration = Duration::from_mins(30);
/// How long after its turn's end a request may come again: clients wait for at most 8 s before they try
/// again.
const ENDED_AGO: Duration = Duration::from_secs(10);
/// How many are remembered; the oldest are forgotten first.
const REMEMBERED_MOST: usize = 4_096;
/// Turns whose client has left that are followed to their end at once.
const FOLLOWED_MOST: usize = 256;

/// The requests of the last minutes. Cheap to clone.
#[derive(Clone, Debug)]
pub(in super::super) struct Repeats {
    known: Arc<Mutex<KnownRequest>>,
    followed: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct KnownRequest {
    /// By the digest of the body.
    requests: HashMap<Digest, RepeatableRequest>,
    /// Oldest first; a repeated request is here more than once.
    order: VecDeque<(Instant, Digest)>,
}

#[derive(Debug)]
struct RepeatableRequest {
    key: IdempotencyKey,
    at: Instant,
    /// Its client has left, and its turn runs.
    left: bool,
    /// When the end of its turn was sent.
    ended: Option<Instant>,
    /// Its first try went to another gateway.
    sent_elsewhere: bool,
}

/// One request, to say how it goes on.
#[derive(Clone, Debug)]
pub(in super::super) struct WatchedRequest {
    repeats: Repeats,
    digest: Digest,
    /// What makes sending it again harmless.
    pub(in super::super) key: IdempotencyKey,
    /// Whether its client has sent it before, and not to this gateway.
    pub(super) sent_elsewhere: bool,
}

/// The events of a request's turn. Dropped before their end, they are followed to it.
struct RequestEvents {
    watched: WatchedRequest,
    events: Option<BoxStream<'static, TurnEvent>>,
}

/// What says whose conversation a request belongs to.
#[derive(Deserialize)]
struct ConversationIdentity {
    #[serde(default)]
    user: Option<IgnoredAny>,
    #[serde(default)]
    metadata: Option<RequestMetadata>,
}

/// Where Anthropic's API has it.
#[derive(Deserialize)]
struct RequestMetadata {
    #[serde(default)]
    user_id: Option<IgnoredAny>,
}

/// Whether a client says that it has sent this request before.
pub(super) fn comes_again(headers: &HeaderMap) -> bool {
    let count = headers.get(RETRY_COUNT).and_then(|value| value.to_str().ok());
    count.and_then(|count| count.trim().parse::<u32>().ok()).is_some_and(|count| count > 0)
}

// === impl Repeats ===

impl Default for Repeats {
    fn default() -> Self {
        Self { known: Arc::default(), followed: Arc::new(Semaphore::new(FOLLOWED_MOST)) }
    }
}

impl Repeats {
    /// Takes a request with this body: it gets the key of the one that it repeats, or `fresh`.
    pub(super) fn enter(
        &self,
        body: &[u8],
        comes_again: bool,
        fresh: IdempotencyKey,
    ) -> WatchedRequest {
        let (digest, now) = (Digest::of(body), Instant::now());
        let mut known = self.known();
        known.forget(now);
        let watched = |key, sent_elsewhere| {
            let repeats = self.clone();
            WatchedRequest { repeats, digest, key, sent_elsewhere }
        };
        let joins = |request: &RepeatableRequest| match request.ended {
            Some(ended) => comes_again && now - ended <= ENDED_AGO,
            None => comes_again || request.left && names_user(body),
        };
        if known.requests.get(&digest).is_some_and(joins)
            && let Some(request) = known.touch(digest, now)
        {
            request.left = false;
            return watched(request.key.clone(), request.sent_elsewhere);
        }
        let (key, sent_elsewhere) = (fresh.clone(), comes_again);
        let request = RepeatableRequest { key, at: now, left: false, ended: None, sent_elsewhere };
        known.requests.insert(digest, request);
        known.order.push_back((now, digest));
        watched(fresh, comes_again)
    }

    fn known(&self) -> MutexGuard<'_, KnownRequest> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without a user, requests of different people may be the same.
fn names_user(body: &[u8]) -> bool {
    let Ok(names) = serde_json::from_slice::<ConversationIdentity>(body) else { return false };
    names.user.is_some() || names.metadata.is_some_and(|metadata| metadata.user_id.is_some())
}

impl KnownRequest {
    /// Remembers a request for longer.
    fn touch(&mut self, digest: Digest, now: Instant) -> Option<&mut RepeatableRequest> {
        let request = self.requests.get_mut(&digest)?;
        request.at = now;
        self.order.push_back((now, digest));
        Some(request)
    }

    /// Makes room for one more.
    fn forget(&mut self, now: Instant) {
        while let Some((at, digest)) = self.order.front().copied()
            && (self.order.len() >= REMEMBERED_MOST || now - at > REMEMBERED)
        {
            self.order.pop_front();
            if self.requests.get(&digest).is_some_and(|request| request.at == at) {
                self.requests.remove(&digest);
            }
        }
    }
}

// === impl WatchedRequest ===

impl WatchedRequest {
    /// The same events, watched.
    pub(super) fn watch(
        self,
        events: BoxStream<'static, TurnEvent>,
    ) -> BoxStream<'static, TurnEvent> {
        let mut watched = RequestEvents { watched: self, events: Some(events) };
        stream::poll_fn(move |cx| watched.poll(cx)).boxed()
    }

    fn left(&self) {
        self.change(|request, _| request.left = true);
    }

    fn ended(&self) {
        self.change(|request, now| (request.left, request.ended) = (false, Some(now)));
    }

    fn change(&self, change: impl FnOnce(&mut RepeatableRequest, Instant)) {
        let (mut known, now) = (self.repeats.known(), Instant::now());
        if known.requests.get(&self.digest).is_some_and(|request| request.key == self.key)
            && let Some(request) = known.touch(self.digest, now)
        {
            change(request, now);
        }
    }
}

impl RequestEvents {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let event = std::task::ready!(Pin::new(events).poll_next(cx));
        match &event {
            // What its client is to run ends the answer as well.
            Some(TurnEvent { body: TurnBody::Done(_) | TurnBody::ClientCalls(_), .. }) => {
                self.events = None;
                self.watched.ended();
            }
            Some(_) => {}
            None => self.events = None,
        }
        Poll::Ready(event)
    }
}

impl Drop for RequestEvents {
    fn drop(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        let (watched, followed) =
            (self.watched.clone(), Arc::clone(&self.watched.repeats.followed));
        let (Ok(place), Ok(runtime)) = (followed.try_acquire_owned(), Handle::try_current()) else {
            return;
        };
        watched.left();
        // Detached: it ends with the turn.
        drop(runtime.spawn(async move {
            let _place = place;
            let is_done = |event: &TurnEvent| {
                matches!(event.body, TurnBody::Done(_) | TurnBody::ClientCalls(_))
            };
            let ends = async { while events.next().await.is_some_and(|event| !is_done(&event)) {} };
            if timeout(REMEMBERED, ends).await.is_err() {
                tracing::debug!("no longer following a turn whose client left");
            }
            watched.ended();
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> IdempotencyKey {
        name.parse().unwrap()
    }

    #[test]
    fn a_repetition_gets_the_key_of_the_first() {
        let repeats = Repeats::default();
        let first = repeats.enter(b"pay 100", false, key("a"));
        assert_eq!((first.key.clone(), first.sent_elsewhere), (key("a"), false));
        let again = repeats.enter(b"pay 100", true, key("b"));
        assert_eq!((again.key, again.sent_elsewhere), (key("a"), false));
        let other = repeats.enter(b"pay 101", true, key("c"));
        assert_eq!((other.key, other.sent_elsewhere), (key("c"), true), "sent to another gateway");
        let person = repeats.enter(b"pay 100", false, key("d"));
        assert_eq!(person.key, key("d"), "a person who says the same thing twice is heard twice");
        // The first is not the last one with this body any more: that it ends changes nothing.
        first.ended();
        assert_eq!(repeats.enter(b"pay 100", true, key("e")).key, key("d"));
        let other = repeats.enter(b"pay 101", true, key("f"));
        assert_eq!((other.key, other.sent_elsewhere), (key("c"), true), "as before");
    }

    #[test]
    fn what_has_ended_is_joined_only_by_a_client_that_tries_again_at_once() {
        let repeats = Repeats::default();
        let first = repeats.enter(b"go on", false, key("a"));
        first.ended();
        assert_eq!(repeats.enter(b"go on", true, key("b")).key, key("a"));
        let long_ago = Instant::now().checked_sub(ENDED_AGO * 2);
        repeats.known().requests.get_mut(&first.digest).unwrap().ended = long_ago;
        assert_eq!(repeats.enter(b"go on", true, key("c")).key, key("c"), "its first try was lost");
    }

    #[tokio::test]
    async fn a_request_whose_client_left_is_joined_while_its_turn_runs() {
        let repeats = Repeats::default();
        let (turn, events) = tokio::sync::mpsc::channel::<TurnEvent>(1);
        let events =
            stream::unfold(events, |mut events| async { Some((events.recv().await?, events)) });
        let (body, anybody) = (br#"{"user":"ada","say":1}"#, br#"{"user":null,"say":1}"#);
        let watched = repeats.enter(body, false, key("a")).watch(events.boxed());
        drop(watched);
        let again = repeats.enter(body, false, key("b"));
        assert_eq!(again.key, key("a"));
        again.left();
        // Without a user, it may be another client.
        repeats.enter(anybody, false, key("x")).left();
        assert_eq!(repeats.enter(anybody, false, key("y")).key, key("y"));
        // The turn ends.
        drop(turn);
        while repeats.followed.available_permits() < FOLLOWED_MOST {
            tokio::task::yield_now().await;
        }
        assert_eq!(repeats.enter(body, false, key("c")).key, key("c"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let repeats = Repeats::default();
        for n in 0..REMEMBERED_MOST + 10 {
            drop(repeats.enter(&n.to_le_bytes(), false, key("a")));
        }
        let known = repeats.known();
        assert_eq!((known.requests.len(), known.order.len()), (REMEMBERED_MOST, REMEMBERED_MOST));
    }

    #[test]
    fn clients_say_that_they_send_again() {
        let says = |count: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_COUNT, count.parse().unwrap());
            comes_again(&headers)
        };
        assert!(!comes_again(&HeaderMap::new()));
        assert_eq!(["0", "1", "2", "-1", "x"].map(says), [false, true, true, false, false]);
    }
}

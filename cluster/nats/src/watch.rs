//! Watching the bucket: the present values, then changes.
//!
//! An ordered consumer replays the last message of each key and continues. If it breaks, a new one
//! replays again: values that were already seen are left out, and a key that is missing from a
//! replay is reported as gone. The server does not report a key that expires. But its time to live
//! is known, so the watcher looks when that is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::{Duration, SystemTime},
};

use async_nats::{
    HeaderMap,
    jetstream::{
        Message,
        consumer::{DeliverPolicy, pull::Ordered, pull::OrderedConfig},
    },
};
use clawnode_cluster::{Bucket, BucketChange, BucketEntry, clock::Backoff};
use clawnode_proto::Position;
use futures_util::{Stream, StreamExt};
use tokio::{sync::mpsc, time::Instant};
use tracing::debug;

use super::{
    api::RequestFailure,
    bucket::{NatsBucket, is_gone, time_to_live},
};

/// Changes that wait for a slow watcher; the consumer waits too, so none is lost.
const CAPACITY: usize = 256;

/// How soon a key is looked for again that should have expired.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// One watcher, with the state that it has reported.
struct KeyWatcher {
    bucket: NatsBucket,
    prefix: String,
    known: BTreeMap<String, Position>,
    /// When keys of limited life are looked for, the next first.
    due: BTreeSet<(Instant, String)>,
    changes: mpsc::Sender<BucketChange>,
}

/// A consumer that has just begun.
struct Replay {
    messages: Ordered,
    /// Messages until it has reported the present values.
    left: u64,
}

/// No listener is left.
struct Unwatched;

/// Begins to watch; when this returns, the request for the present values is sent.
pub(super) async fn open(
    bucket: NatsBucket,
    prefix: String,
) -> Result<Pin<Box<dyn Stream<Item = BucketChange> + Send>>, RequestFailure> {
    bucket.api.check_open()?;
    let (changes, receiver) = mpsc::channel(CAPACITY);
    let watcher =
        KeyWatcher { bucket, prefix, known: BTreeMap::new(), due: BTreeSet::new(), changes };
    let first = watcher.replay().await?;
    let closing = watcher.bucket.api.closing.clone();
    tokio::spawn(closing.run_until_cancelled_owned(watcher.run(first)));
    Ok(Box::pin(futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|change| (change, receiver))
    })))
}

// === impl KeyWatcher ===

impl KeyWatcher {
    async fn run(mut self, first: Replay) {
        let mut replay = first;
        while self.follow(replay).await.is_ok() {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
            replay = loop {
                let pause = backoff.next(&mut rand::rng());
                tokio::select! {
                    () = self.changes.closed() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                match self.replay().await {
                    Ok(replay) => break replay,
                    Err(failure) => debug!(%failure, "cannot watch the bucket yet"),
                }
            };
        }
    }

    async fn replay(&self) -> Result<Replay, RequestFailure> {
        let unknown = |error: String| RequestFailure::Unknown(error);
        let config = OrderedConfig {
            // A name, so that the request's subject says which keys are watched, and permissions
            // can tell.
            name: Some(format!("w{}", ulid::Ulid::generate())),
            filter_subject: self.bucket.filter(&self.prefix),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..OrderedConfig::default()
        };
        let stream = self.bucket.reader.stream();
        let consumer =
            stream.create_consumer(config).await.map_err(|error| unknown(error.to_string()))?;
        let left = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|error| unknown(error.to_string()))?;
        Ok(Replay { messages, left })
    }

    /// Reports the messages of the consumer, until it breaks.
    async fn follow(&mut self, mut replay: Replay) -> Result<(), Unwatched> {
        let mut missing: BTreeSet<String> = self.known.keys().cloned().collect();
        let mut left = replay.left;
        loop {
            if left == 0 {
                for key in std::mem::take(&mut missing) {
                    self.gone(key).await?;
                }
            }
            let due = self.due.first().map(|(due, _)| *due);
            let message = tokio::select! {
                () = self.changes.closed() => return Err(Unwatched),
                () = until(due) => {
                    self.look().await?;
                    continue;
                }
                message = replay.messages.next() => message,
            };
            match message {
                Some(Ok(message)) => {
                    left = left.saturating_sub(1);
                    self.take(&message, &mut missing).await?;
                }
                Some(Err(error)) => {
                    debug!(%error, "watching the bucket failed");
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    async fn take(
        &mut self,
        message: &Message,
        missing: &mut BTreeSet<String>,
    ) -> Result<(), Unwatched> {
        let Some(key) = self.bucket.key_of(&message.subject) else { return Ok(()) };
        if !key.starts_with(&self.prefix) {
            return Ok(());
        }
        let key = key.to_owned();
        missing.remove(&key);
        if message.headers.as_ref().is_some_and(is_gone) {
            return self.gone(key).await;
        }
        let (position, stored) = match message.info() {
            Ok(info) => (Position(info.stream_sequence), SystemTime::from(info.published)),
            Err(error) => {
                debug!(%error, "a watched message's reply subject is not readable");
                return Ok(());
            }
        };
        if self.known.get(&key) == Some(&position) {
            return Ok(());
        }
        self.known.insert(key.clone(), position);
        let none = HeaderMap::new();
        let headers = message.headers.as_ref().unwrap_or(&none);
        self.bucket.look_at(headers, &message.payload, &message.subject, position.0);
        if let Some(life) = message.headers.as_ref().and_then(time_to_live) {
            // The server's clock and ours may differ; a value that is still there is looked for
            // again.
            let age = stored.elapsed().unwrap_or_default();
            self.due.insert((Instant::now() + life.saturating_sub(age), key.clone()));
        }
        let entry = BucketEntry { position, value: message.payload.clone() };
        self.tell(BucketChange { key, entry: Some(entry) }).await
    }

    /// Looks for the key that is due next.
    async fn look(&mut self) -> Result<(), Unwatched> {
        let Some((_, key)) = self.due.pop_first() else { return Ok(()) };
        let Some(known) = self.known.get(&key).copied() else { return Ok(()) };
        match self.bucket.get(&key).await {
            Ok(None) => self.gone(key).await,
            // A later value comes, or came, with a time of its own.
            Ok(Some(entry)) if entry.position != known => Ok(()),
            Ok(Some(_)) | Err(_) => {
                self.due.insert((Instant::now() + LOOK_AGAIN, key));
                Ok(())
            }
        }
    }

    async fn gone(&mut self, key: String) -> Result<(), Unwatched> {
        match self.known.remove(&key) {
            Some(_) => self.tell(BucketChange { key, entry: None }).await,
            None => Ok(()),
        }
    }

    async fn tell(&self, change: BucketChange) -> Result<(), Unwatched> {
        self.changes.send(change).await.or(Err(Unwatched))
    }
}

/// Waits until then; for ever if there is no such time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

//! Usage: what model calls used, by day, agent, user and model, for people and bills.
//!
//! A projection of the feed of journals ([`clawnode_cluster::Journal::follow`]): one worker, the first
//! of partition 0, follows it and keeps a value for each day in the bucket, with the position up to
//! which it counts. Nothing waits for it and nothing is decided by it. Journals stay the truth.
//!
//! Messages come from: nobody; it looks for new records every second. On crash: what was not saved is
//! followed again, at most five seconds of it.
//!
//! Invariants
//! - USE-1 every call outcome in a journal, and every attempt without one, is counted once, whatever
//!   process follows, stops or follows at the same time.

mod books;
mod history;
mod meter;
mod recent;
mod show;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clawnode_cluster::{Backoff, BucketError, StoreError, Substrate};
use clawnode_proto::CodecError;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use self::books::Books;
pub use self::show::{behind, show};
use crate::session::Sessions;

/// How often new records are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often what was counted is saved at most: what a crash repeats.
const SAVE: Duration = Duration::from_secs(5);
/// The first and the longest wait after a store failed.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Where the value is kept that says how far the feed is counted.
const HEAD: &str = "usage.head";
/// What the keys of days begin with; `2026-11-25` follows. Both begin with
/// [`clawnode_proto::subject::USAGE_KEYS`].
const DAYS: &str = "usage.day.";

/// Why counting cannot go on from what is in memory; what is saved is read again.
#[derive(Debug, thiserror::Error)]
enum CountingStopped {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process counts too; which of the two goes on is for their places to say.
    #[error("another process counts the usage")]
    Another,
    #[error("the count `{key}` cannot be read: {detail}")]
    Unreadable { key: String, detail: String },
    #[error("a count cannot be encoded: {0}")]
    Unwritable(CodecError),
}

impl From<BucketError> for CountingStopped {
    fn from(error: BucketError) -> Self {
        match error {
            BucketError::Conflict { .. } => Self::Another,
            BucketError::Store(error) => Self::Store(error),
        }
    }
}

/// Counts what model calls use, whenever `leads` says that this process is the one to do it; never ends.
pub async fn run(sessions: Sessions, leads: impl Fn() -> bool) {
    let mut books: Option<Books> = None;
    let mut saved: Option<Instant> = None;
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if !leads() {
            // The next one goes on from what is saved.
            books = None;
            continue;
        }
        let due = saved.is_none_or(|at| at.elapsed() >= SAVE);
        match round(&sessions, &mut books, due).await {
            Ok(did_save) => {
                saved = did_save.then(Instant::now).or(saved);
                backoff = Backoff::new(AGAIN.0, AGAIN.1);
            }
            Err(failure) => {
                books = None;
                let is_first = backoff.tries() == 0;
                again(sessions.substrate(), failure, is_first).await;
                let wait = backoff.next(&mut rand::rng());
                look.reset_after(wait);
            }
        }
    }
}

/// Counts all that is new; says whether it was saved.
async fn round(
    sessions: &Sessions,
    books: &mut Option<Books>,
    due: bool,
) -> Result<bool, CountingStopped> {
    let open = match books.take() {
        Some(open) => books.insert(open),
        None => books.insert(Books::open(sessions.substrate().clone()).await?),
    };
    let mut saved = Instant::now();
    while open.count_page().await? {
        // A long way is saved on the way.
        if saved.elapsed() >= SAVE {
            open.save(sessions.now()).await?;
            saved = Instant::now();
        }
    }
    if !due || !open.is_changed() {
        return Ok(false);
    }
    open.save(sessions.now()).await?;
    Ok(true)
}

/// Sees to it that the next round can go on. A count that cannot be read is made again from the journals.
async fn again(substrate: &Substrate, failure: CountingStopped, is_first: bool) {
    let key = match failure {
        CountingStopped::Unreadable { key, detail } => {
            warn!(key, detail, "a count cannot be read; it is made again from the journals");
            key
        }
        CountingStopped::Store(_) | CountingStopped::Unwritable(_) if is_first => {
            warn!(%failure, "model calls are counted later");
            return;
        }
        CountingStopped::Store(_) | CountingStopped::Another | CountingStopped::Unwritable(_) => {
            debug!(%failure, "model calls are counted later");
            return;
        }
    };
    if let Err(failure) = books::forget(substrate, &key).await {
        debug!(%failure, "model calls are counted later");
    }
}

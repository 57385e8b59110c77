//! The loop that counts what model calls used.

use std::time::Duration;

use clawnode_cluster::{Backoff, Storage};
use clawnode_proto::Timestamp;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::{state::Books, stopped::CountingStopped, stored::forget};
use crate::session::Sessions;

/// How often new records are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often what was counted is saved at most: what a crash repeats.
const SAVE: Duration = Duration::from_secs(5);
/// The same, while it catches up: a save then looks for snapshots up to the end of the feed.
const SAVE_ON_THE_WAY: Duration = Duration::from_mins(1);
/// Pages that one round counts at most: then it looks again whether it is still the one to do it.
const ROUND_PAGES: usize = 64;
/// The first and the longest wait after a store failed.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

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
        let since_saved = saved.map(|at| at.elapsed());
        match round(sessions.storage(), sessions.now(), &mut books, since_saved).await {
            Ok(round) => {
                saved = round.is_saved.then(Instant::now).or(saved);
                // What is counted and not saved is counted again after a failure: that is no progress.
                if round.is_saved || !round.is_more {
                    backoff = Backoff::new(AGAIN.0, AGAIN.1);
                }
                if round.is_more {
                    look.reset_immediately();
                }
            }
            Err(failure) => {
                books = None;
                let is_first = backoff.tries() == 0;
                again(sessions.storage(), failure, is_first).await;
                let wait = backoff.next(&mut rand::rng());
                look.reset_after(wait);
            }
        }
    }
}

/// What a round did.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountingRound {
    /// What is counted so far is saved.
    pub(super) is_saved: bool,
    /// There is more to count.
    pub(super) is_more: bool,
}

/// Counts what is new, a part of it if it is much, and saves it if that was not done for long.
pub(super) fn round<'a>(
    storage: &'a Storage,
    now: Timestamp,
    books: &'a mut Option<Books>,
    since_saved: Option<Duration>,
) -> BoxFuture<'a, Result<CountingRound, CountingStopped>> {
    Box::pin(async move {
        let open = match books.take() {
            Some(open) => books.insert(open),
            None => books.insert(Books::open(storage.clone()).await?),
        };
        let is_more = open.count_pages(ROUND_PAGES).await?;
        let wait = if is_more { SAVE_ON_THE_WAY } else { SAVE };
        let is_due = since_saved.is_none_or(|since| since >= wait);
        let is_saved = open.is_far() || is_due && open.is_changed();
        if is_saved {
            open.save(now).await?;
        }
        Ok(CountingRound { is_saved, is_more })
    })
}

/// Sees to it that the next round can go on. A count that cannot be read is made again from the journals.
pub(super) async fn again(storage: &Storage, failure: CountingStopped, is_first: bool) {
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
    if let Err(failure) = forget(storage, &key).await {
        debug!(%failure, "model calls are counted later");
    }
}
